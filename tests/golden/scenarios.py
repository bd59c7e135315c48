"""The part of the golden record that scenarios leave: journals, written statuses, events, explanations, suggestions.

Every scenario file under ``examples`` and ``tests/scenarios`` runs on the embedded cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

import msgspec

from bursar.control.admission import known_kinds
from bursar.objects.decode import ManifestError
from bursar.policies.plugin import default_registry
from bursar.server.what_if import explanation
from bursar.sim.cluster import Cluster
from bursar.sim.runner import act
from bursar.sim.scenario import Scenario, load_scenarios
from tests.golden.record import ROOT, Part, hashed, shortened

T = TypeVar("T")
FOLDERS = ("examples", "tests/scenarios")
LONGEST_EFFECT = 48  # characters
LONGEST_CAUSE = 60
SAID = frozenset(("namespace", "name", "created", "requests", "labels"))  # by the key, the scenario file, the object
BOOKKEEPING = frozenset(("namespace", "name", "uid", "resourceVersion", "generation", "creationTimestamp"))


def scenarios() -> Part:
    return by_file(all_scenarios(), _run)


def all_scenarios() -> list[Scenario]:
    return load_scenarios([ROOT / folder for folder in FOLDERS], known_kinds(default_registry()))


def by_file(found: Iterable[Scenario], run: Callable[[Scenario], T]) -> dict[str, dict[str, T]]:
    """What each scenario gives, by file and name."""
    record: dict[str, dict[str, T]] = {}
    for scenario in found:
        file = scenario.source.removeprefix(f"{ROOT}/")
        record.setdefault(file, {})[scenario.name] = run(scenario)
    return record


def _run(scenario: Scenario) -> list[dict[str, Any]]:
    cluster = Cluster()
    seen: dict[str, Any] = {}
    steps = []
    for step in scenario.steps:
        done: dict[str, Any] = {"step": step.action}
        try:
            act(cluster, step)
        except ManifestError as error:
            done["refused"] = {"field": error.path, "message": str(error).removeprefix(f"{ROOT}/")}
        steps.append({key: value for key, value in {**done, **_outcome(cluster, seen)}.items() if value})
    steps.append({"explained": dict(_explanations(cluster))})
    return steps


def _outcome(cluster: Cluster, seen: dict[str, Any]) -> dict[str, Any]:
    """What a step left behind: journal records, what happened to pods, events, and the objects that changed."""
    happenings, events = cluster.take_news()
    there = dict(_objects(cluster))
    changed: dict[str, Any] = {key: body for key, body in there.items() if seen.get(key) != body}
    changed |= {key: None for key in seen if key not in there}
    seen.clear()
    seen.update(there)
    return {
        "journal": [journal_record(line) for line in cluster.engine.journal.take()],
        "pods": [[one.at, one.pod, one.what, one.node, one.reason] for one in happenings],
        "events": [asdict(event) for event in events],
        "objects": changed,
    }


def _objects(cluster: Cluster) -> Iterator[tuple[str, Any]]:
    """Status, labels and annotations of all objects; their specs are in the scenario file."""
    for kind in cluster.objects.kinds():
        for stored in cluster.objects.all(kind):
            body = stored.manifest()
            metadata = {key: value for key, value in body["metadata"].items() if key not in BOOKKEEPING}
            yield f"{kind} {stored.key}", {**metadata, "status": body.get("status")}


def _explanations(cluster: Cluster) -> Iterator[tuple[str, Any]]:
    """How the API answers why each pod is where it is; with suggested fixes if it is pending."""
    for key in cluster.pods():
        view = cluster.pod(key)
        if view is None or cluster.explain(key) is None:
            continue
        found = json.loads(msgspec.json.encode(explanation(cluster, key, fixes=view.phase == "Pending")))
        row = {name: value for name, value in found["claim"].items() if value and name not in SAID}
        yield key, {"claim": row, "failed": list(_failed(found["tree"])), "fixes": found["fixes"]}


def _failed(check: dict[str, Any]) -> Iterator[str]:
    """The reasons of the checks that failed; the binding one is marked."""
    if check["reason"]:
        yield check["reason"] + (" (binding)" if check["binding"] else "")
    for inner in check["checks"]:
        yield from _failed(inner)


def journal_record(line: bytes) -> dict[str, Any]:
    """A journal line with names; without the engine's version and without the chain, which also covers texts."""
    _, seq, at, _, cause, decision, effects, digest, _ = json.loads(line)
    rows = [] if decision is None else decision if cause[0] == "group" else [decision]
    record: dict[str, Any] = {"seq": seq, "at": at, "cause": shortened(" ".join(cause), LONGEST_CAUSE)}
    if rows:
        record["decisions"] = [_decision(row) for row in rows]
    return {**record, "effects": [_effect(effect) for effect in effects], "digest": digest}


def in_short(line: bytes) -> str:
    """A journal record on one line: hashes of its decisions and its effects instead of themselves."""
    record = journal_record(line)
    hashes = [hashed(record.get(part, [])) for part in ("decisions", "effects")]
    return " ".join([str(record["seq"]), record["cause"], *hashes, record["digest"]])


def _decision(row: list[Any]) -> dict[str, Any]:
    uid, outcome, at, place, refusals, (victims, waits, by) = row
    named = {"claim": uid, "outcome": outcome, "at": at, "place": place, "victims": victims, "waits": waits, "by": by}
    named["refusals"] = [_refusal(one) for one in refusals]
    return {key: value for key, value in named.items() if value not in ("", [])}


def _refusal(row: list[Any]) -> dict[str, Any]:
    policy, reason, note, account, numbers, permanent, topics, place = row
    return {
        "policy": policy,
        "reason": reason,
        "note": note,
        "account": account,
        "numbers": numbers,
        "permanent": permanent,
        "topics": topics,
        "place": place,
    }


def _effect(effect: list[Any]) -> str:
    parts = (part if isinstance(part, str) else json.dumps(part, separators=(",", ":")) for part in effect)
    return shortened(" ".join(parts), LONGEST_EFFECT)
