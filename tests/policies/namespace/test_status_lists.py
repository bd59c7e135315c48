"""Lists of quotas and workers: each is the truth of one version, and is read while others go on writing."""

from __future__ import annotations

import time
from itertools import count
from threading import Event, Thread
from typing import Any

from bursar.policies.namespace.policy import DEMAND
from bursar.policies.namespace.settings import DemandBody
from bursar.policies.namespace.status import View
from bursar.resources import from_amounts
from tests.policies.gpus.world import NS, World, amounts, marks, total

TEAMS = ("t0", "t1", "t2")


def world() -> World:
    found = World()
    for index in range(4):
        found.gpu(f"g{index}", "n1", 100, "16Gi", index=index)
    for team in TEAMS:
        found.quota(total(200, "32Gi", 20), key=f"{team}/q")
    return found


def view(found: World) -> View:
    with found.engine.lock:
        return found.limits.view(found.engine.version)


def rows(seen: View) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return list(seen.quota_rows()), list(seen.worker_rows())


def test_what_a_view_lists() -> None:
    found = world()
    found.alloc((30, "4Gi"), 2, "w", namespace="t1", limit=(40, "5Gi"))
    declared = from_amounts(amounts("requests", (70, "8Gi")) | {"workers": 3})
    found.set(DEMAND, "t1/TensorFusionWorkload/x", DemandBody(declared))
    quotas, workers = rows(view(found))
    used = {"requests": {"tflops": "60", "vram": "8Gi"}, "limits": {"tflops": "80", "vram": "10Gi"}, "workers": 1}
    assert [row["quota"] for row in quotas] == ["t0/q", "t1/q", "t2/q"]
    assert quotas[1]["used"] == used
    assert quotas[1]["availablePercent"]["requests.tflops"] == "70.00"
    assert quotas[1]["declared"]["workers"] == 3
    assert workers == [{"worker": "t1/w", **used}]


def test_a_view_stays_what_it_was() -> None:
    found = world()
    found.alloc((30, "4Gi"), uid="w", namespace="t1")
    before = view(found)
    shown = rows(before)
    found.engine.release("w")
    found.quota(None, key="t1/q")
    assert rows(before) == shown
    after = view(found)
    assert after.version > before.version
    assert [row["quota"] for row in rows(after)[0]] == ["t0/q", "t2/q"]
    assert rows(after)[1] == []


def test_only_what_changed_is_made_anew() -> None:
    found = world()
    before = view(found)
    found.alloc((30, "4Gi"), namespace="t1")
    after = view(found)
    assert [team for team in TEAMS if before.usages[team] is not after.usages[team]] == ["t1"]
    found.gpu("more", "n2", 100, "16Gi")
    assert view(found).usages is after.usages


def test_what_was_only_tried_is_not_seen() -> None:
    found = world()
    shown = rows(view(found))
    with found.engine.lock:
        found.engine._begin(0)
        found.engine._core.attempt(found.claim(marks((30, "4Gi")), namespace="t0"), "n1", False)
        found.engine._core.ledger.abort()
    assert rows(view(found)) == shown


def test_a_replayed_ledger_lists_the_same() -> None:
    found = world()
    for team in TEAMS:
        found.alloc((10, "1Gi"), namespace=team)
    assert rows(view(found.replayed())) == rows(view(found))


class Writer(Thread):
    """Moves one worker after the other from team to team until it may end, and notes what is true at each version."""

    def __init__(self, found: World) -> None:
        super().__init__(daemon=True)
        self.found = found
        self.may_end = Event()
        self.truth: dict[int, dict[str, tuple[int, int]]] = {}  # (milli-tflops, workers) by team

    def run(self) -> None:
        for number in count():
            if self.may_end.is_set():
                return
            uid = f"w{number}"
            self._do(lambda n=number, u=uid: self.found.alloc((1 + n % 7, 1), 1 + n % 3, u, namespace=TEAMS[n % 3]))
            if number >= 5:
                self._do(lambda n=number: self.found.engine.release(f"w{n - 5}"))

    def _do(self, action: Any) -> None:  # noqa: ANN401 any call without arguments
        with self.found.engine.lock:
            action()
            self.note()

    def note(self) -> None:
        accounts = {team: self.found.engine.state.accounts[f"limits/{team}"].used for team in TEAMS}
        now = {team: (used.amount("requests.tflops"), used.amount("workers")) for team, used in accounts.items()}
        self.truth[self.found.engine.version] = now


def test_every_list_is_of_one_version_while_others_write() -> None:
    found = world()
    writer = Writer(found)
    writer.note()
    seen: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
    writer.start()
    deadline = time.monotonic() + 60
    while len(seen) < 20 and time.monotonic() < deadline:
        one = view(found)
        seen[one.version] = rows(one)
    writer.may_end.set()
    writer.join()
    assert len(seen) == 20
    for version, (quotas, workers) in seen.items():
        for team, row in zip(TEAMS, quotas, strict=True):
            tflops, count = writer.truth[version][team]
            mine = [worker for worker in workers if worker["worker"].startswith(f"{team}/")]
            assert row["used"]["requests"]["tflops"] == str(tflops // 1000)
            assert (row["used"]["workers"], len(mine)) == (count, count)
            assert sum(int(worker["requests"]["tflops"]) for worker in mine) == tflops // 1000


def test_the_lock_is_free_while_a_list_is_rendered() -> None:
    """A list is stopped half-way; others decide meanwhile, and the rest of the list is still of its version."""
    found = world()
    for team in TEAMS:
        found.alloc((10, "1Gi"), namespace=team)
    one = view(found)
    expected = list(one.quota_rows())
    listing = one.quota_rows()
    shown = [next(listing)]
    done: list[bool] = []
    writer = Thread(target=lambda: done.append(found.alloc((20, "2Gi"), namespace=TEAMS[2]).admitted))
    writer.start()
    writer.join(60)
    assert done == [True]
    assert [*shown, *listing] == expected
    assert list(view(found).quota_rows()) != expected


def test_a_namespace_without_quota_lists_its_workers() -> None:
    found = world()
    found.alloc((10, "1Gi"), uid="w")
    assert [row["worker"] for row in view(found).worker_rows()] == [f"{NS}/w"]
