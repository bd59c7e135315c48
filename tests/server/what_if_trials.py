"""Random trials over HTTP: what ``what-if`` says of new pods is what happens when they are created.

Verdict, node, reason and victims of each pod, and the others that start, get a hold, lose one or are evicted because of
them. The worlds have slow leavers, gangs, disruption budgets, quota trees and edits of quotas. What a dry run says of
an edit, a deletion or a resize is what it then does.
``python -m tests.server.what_if_trials --trials 1000 --seed 1`` is the long run.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from bursar.ledger.claims import PENDING
from bursar.server.client import RequestFailedError
from bursar.server.types import Change, PodNews, TrialRow, WhatIf
from tests.builders import Manifest
from tests.server.live import Live, ManualClock, live, text
from tests.worlds import Move, World

STEPS = 40
_UID = re.compile(r"#\d")
Effects = dict[str, list[str]]


class State:
    """The pods of a cluster, as they are now."""

    def __init__(self, bed: Live) -> None:
        cluster = bed.service.cluster
        with bed.service.lock:
            pods = {key: pod for key in cluster.pods() if (pod := cluster.pod(key)) is not None}
            claims = {key: cluster.controller.claim(key) for key in pods}
        self.phase = {key: pod.phase for key, pod in pods.items()}
        self.reason = {key: pod.reason for key, pod in pods.items()}
        self.node = {key: "" if claim is None else claim.place for key, claim in claims.items()}
        self.waits = {key for key, claim in claims.items() if claim is not None and claim.state == PENDING}
        self.leaving = {key for key, claim in claims.items() if claim is not None and claim.leaving}
        self.placed = {
            key
            for key, claim in claims.items()
            if claim is not None and claim.state != PENDING and self.phase[key] == "Pending"
        }


def happened(before: State, after: State, change: Change, given: set[str]) -> Effects:
    """What became of other pods."""
    others = [key for key in before.phase if key not in given]
    return {
        "evicted": sorted({news.pod for news in change.pods if news.what == "evicted"}),
        "starts": sorted(key for key in others if before.phase[key] == "Pending" and after.phase[key] == "Running"),
        "held": sorted(key for key in others if key in before.waits and key in after.placed),
        "waits": sorted(key for key in others if key in before.placed and key in after.waits),
    }


def verdict(key: str, after: State, victims: list[str], said: str) -> str:
    if key in after.leaving or after.phase[key] == "Evicted":
        return "evicted"
    if key in after.waits:
        return said if said == "never" else "queued"  # whether it waits for ever shows nowhere but there
    return "after-evictions" if victims or key in after.placed else "now"


def of_pod(row: TrialRow, after: State, change: Change) -> TrialRow:
    """The row as it would have had to be."""
    by = f" by {row.pod}"
    victims = [news.pod for news in change.pods if news.what == "evicted" and news.reason.endswith(by)]
    return TrialRow(
        pod=row.pod,
        verdict=verdict(row.pod, after, victims, row.verdict),  # type: ignore[arg-type]
        node=after.node[row.pod],
        reason=after.reason[row.pod],
        message=row.message,
        victims=victims,
        ahead=row.ahead,
    )


def differences(bed: Live, pods: tuple[Manifest, ...], verdicts: Counter[str]) -> list[str]:
    """Ask what these pods would do, create them, and compare; empty if all was as it had been said."""
    before = State(bed)
    digest = bed.service.cluster.engine.digest
    said: WhatIf = bed.client.what_if(text(*pods))
    if bed.service.cluster.engine.digest != digest:
        return ["asking changed the ledger"]
    change = bed.give(*pods)
    after = State(bed)
    verdicts.update(row.verdict for row in said.pods)
    found = [(row, of_pod(row, after, change)) for row in said.pods]
    problems = [f"said {row}\n  but was {real}" for row, real in found if row != real]
    real = happened(before, after, change, {row.pod for row in said.pods})
    for name, keys in real.items():
        verdicts[f"others: {name}"] += bool(keys)
        if getattr(said, name) != keys:
            problems.append(f"{name}: said {getattr(said, name)}, but was {keys}")
    if _UID.search(repr(said)):
        problems.append(f"an internal id: {said}")
    return problems


def edit_differences(bed: Live, move: Move, verdicts: Counter[str]) -> list[str]:
    """Make a change after a dry run of it, and compare them; both are refused alike.

    The copy that the dry run is made on decides again all that waits. So a pod that waits before and after may show
    another of its reasons there, and that is not compared.
    """
    waited = State(bed).waits

    def change(*, dry_run: bool) -> tuple[list[str], list[PodNews], str]:
        try:
            if move.apply:
                made = bed.client.apply(text(*move.apply), dry_run=dry_run)
            else:
                made = bed.client.delete(list(move.delete), dry_run=dry_run)
        except RequestFailedError as error:
            return [], [], str(error)
        objects = [f"{one.kind}/{one.key} {one.result}" for one in made.objects]
        return objects, [one for one in made.pods if one.what != "waits" or one.pod not in waited], ""

    said, real = change(dry_run=True), change(dry_run=False)
    verdicts["edits"] += 1
    verdicts["edits refused"] += bool(real[-1])
    verdicts["edits that moved pods"] += bool(real[1])
    return [] if said == real else [f"{move}\n  said {said}\n  but was {real}"]


def step(bed: Live, clock: ManualClock, move: Move) -> None:
    """Let a pod end, or time pass; refused if the pod that ends is gone."""
    try:
        if move.finish:
            bed.client.finish([move.finish])
        else:
            clock.now += move.advance
            bed.service.tick()
    except RequestFailedError:
        pass


def run_world(folder: Path, seed: int, most: int, verdicts: Counter[str]) -> int:
    """Trials in one world, at most so many; returns how many there were. Fails with the first that was wrong."""
    rng = Random(seed)
    world, clock, count = World(Random(seed)), ManualClock(), 0
    with live(folder / f"{seed}.db", clock=clock) as bed:
        for manifest in world.objects():
            bed.give(manifest)
        for number in range(STEPS):
            move = world.move()
            pods = move.apply
            if not (pods or move.delete):
                step(bed, clock, move)
                continue
            trial = bool(pods) and pods[0]["kind"] == "Pod" and pods[0] in world.pods
            if trial:
                for _ in range(rng.choice((0, 0, 1, 2))):
                    pods += world.new_pods()
                problems = differences(bed, pods, verdicts)
            else:
                problems = edit_differences(bed, move, verdicts)
            assert not problems, "\n".join([f"world {seed}, step {number}", *problems])
            count += trial
            if count == most:
                break
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    verdicts, done, seed = Counter[str](), 0, asked.seed
    with tempfile.TemporaryDirectory() as folder:
        while done < asked.trials:
            done += run_world(Path(folder), seed, asked.trials - done, verdicts)
            seed += 1
            sys.stderr.write(f"\r{done:,} of {asked.trials:,} trials")
            sys.stderr.flush()
    sys.stderr.write("\n")
    seen = ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
    sys.stdout.write(f"seeds {asked.seed} to {seed - 1}: {done:,} trials, all as said ({seen})\n")


if __name__ == "__main__":
    main()
