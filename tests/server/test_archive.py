"""Clusters of the past are whole ones, so only as many are kept as memory can bear."""

from __future__ import annotations

from pathlib import Path

import pytest

from bursar.objects.manifests import Document
from bursar.policies.plugin import default_registry
from bursar.server import archive
from bursar.server.moments import Moment, at_record
from bursar.server.service import Service
from bursar.store.store import Store
from tests.server.live import node, pod


@pytest.fixture
def store(tmp_path: Path) -> Store:
    service = Service.open(tmp_path / "bursar.db")
    service.apply([Document("", 1, node("n1", 9)), *(Document("", 2 + n, pod("a", f"p{n}")) for n in range(5))])
    service.close()
    return Store.open(tmp_path / "bursar.db")


def looked_at(found: archive.Archive, moments: list[Moment]) -> int:
    for moment in moments:
        found.at(moment)
    return len(found._clusters)


@pytest.mark.parametrize(("claims", "kept"), [(50_000, 4), (12, 2), (1, 1)])
def test_large_ones_are_kept_in_smaller_numbers(
    store: Store, monkeypatch: pytest.MonkeyPatch, claims: int, kept: int
) -> None:
    monkeypatch.setattr(archive, "_CLAIMS_KEPT", claims)
    found = archive.Archive(store, default_registry())
    last = [at_record(store, seq) for seq in range(store.last_seq - 5, store.last_seq + 1)]
    assert looked_at(found, last) == kept
    assert found.at(last[-1])[1].engine.version == store.last_seq
