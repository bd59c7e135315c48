"""Clusters of the past are whole ones, so only as many are kept as memory can bear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bursar.objects.manifests import Document
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.plugin import default_registry
from bursar.server import time_travel
from bursar.server.service import Service
from bursar.server.time_travel import Revision, at_record
from bursar.sim.pods import RUNNING
from bursar.store.store import Store
from tests.server.live import node, pod, quota


@pytest.fixture
def store(tmp_path: Path) -> Store:
    service = Service.open(tmp_path / "bursar.db")
    service.apply([Document("", 1, node("n1", 9)), *(Document("", 2 + n, pod("a", f"p{n}")) for n in range(5))])
    service.close()
    return Store.open(tmp_path / "bursar.db")


def looked_at(found: time_travel.Archive, moments: list[Revision]) -> int:
    for moment in moments:
        found.at(moment)
    return len(found._clusters)


@pytest.mark.parametrize(("claims", "kept"), [(50_000, 4), (12, 2), (1, 1)])
def test_large_ones_are_kept_in_smaller_numbers(
    store: Store, monkeypatch: pytest.MonkeyPatch, claims: int, kept: int
) -> None:
    monkeypatch.setattr(time_travel, "_CLAIMS_KEPT", claims)
    found = time_travel.Archive(store, default_registry())
    last = [at_record(store, seq) for seq in range(store.last_seq - 5, store.last_seq + 1)]
    assert looked_at(found, last) == kept
    assert found.at(last[-1]).engine.version == store.last_seq


def test_what_pods_have_in_common_is_once_in_memory_after_a_restart(store: Store) -> None:
    cluster = time_travel.present(store, default_registry())
    pods = [pod for key in cluster.pods() if (pod := cluster.doing(key)) is not None]
    assert [(pod.node, pod.phase) for pod in pods] == [("n1", "Running")] * 5
    assert len({id(pod.node) for pod in pods}) == 1
    assert all(pod.phase is RUNNING for pod in pods)


def test_a_written_status_is_the_one_that_the_policy_remembers_after_a_restart(tmp_path: Path) -> None:
    service = Service.open(tmp_path / "bursar.db")
    service.apply([Document("", 1, node("n1", 4)), Document("", 2, quota("a", 2)), Document("", 3, pod("a", "p"))])
    service.close()
    with Store.open(tmp_path / "bursar.db") as store:
        cluster = time_travel.present(store, default_registry())
        (written,) = cluster.objects.all("ElasticQuota.n8s.nebuly.ai")
        (policy,) = [policy for policy in cluster.engine.policies if isinstance(policy, ElasticPolicy)]
        remembered: Any = list(policy.status.last["ElasticQuota.n8s.nebuly.ai"].values())
        assert written.written["status"] in remembered
        assert any(written.written["status"]["used"] is one["used"] for one in remembered)
