"""Manifests of pods are on the disk: what decides and acts does without them, and who reads gets them back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from msgspec.structs import replace

from bursar.objects.kinds import POD
from bursar.objects.manifests import Document
from bursar.server.service import Service
from bursar.sim.objects import Stored
from bursar.store.store import ObjectWrite, Store
from tests.server.live import node, pod, quota


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    found = Service.open(tmp_path / "bursar.db")
    give(found, node("n1", 1), quota("a", 1), pod("a", "first"), pod("a", "second"))
    found.tick()  # what is on the disk is let go with the next batch
    yield found
    found.close()


def give(service: Service, *manifests: dict[str, object]) -> None:
    pending = service.apply([Document("", number, body) for number, body in enumerate(manifests)])
    assert pending.durable is not None
    pending.durable.result()


def stored(service: Service, key: str) -> Stored:
    found = service.cluster.objects.find(POD.name, key)
    assert found is not None
    return found


def no_reading(number: int) -> bytes:
    raise AssertionError(f"manifest {number} was read")


def test_pods_are_not_held_once_they_are_on_the_disk(service: Service) -> None:
    assert stored(service, "a/first").held is None
    assert stored(service, "a/first").manifest()["spec"]["nodeName"] == "n1"
    assert stored(service, "a/first").applied.typed is not None


def test_other_objects_are(service: Service) -> None:
    assert all(one.held is not None for one in service.cluster.objects.all("Node"))


def test_a_pod_that_starts_ends_and_is_deleted_needs_no_manifest(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.store, "manifest", no_reading)
    monkeypatch.setattr(service.cluster.objects.manifests, "_load", no_reading)
    service.finish(["a/first"])
    doing = service.cluster.doing("a/second")
    assert doing is not None
    assert doing.phase == "Running"
    service.delete(["Pod/a/second"])
    assert service.cluster.pods() == ["a/first"]


def test_a_restart_reads_no_manifests_of_pods(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored(service, "a/second").manifest()
    service.close()
    read: list[int] = []
    load = Store.manifest

    def noted(store: Store, number: int) -> bytes:
        read.append(number)
        return load(store, number)

    monkeypatch.setattr(Store, "manifest", noted)
    again = Service.open(service.store.path)
    try:
        assert len(read) == 2  # the node and the quota
        assert stored(again, "a/second").manifest() == before
    finally:
        again.close()


def test_the_manifest_is_written_once_however_often_the_pod_changes(service: Service) -> None:
    service.finish(["a/first"])
    service.close()
    again = Service.open(service.store.path)
    try:
        entries = again.store.rows(
            "SELECT count(*), count(DISTINCT manifest) FROM object_history WHERE key = 'a/first'"
        )
        assert entries == [(2, 1)]
    finally:
        again.close()


def test_an_update_compares_with_what_is_on_the_disk(service: Service) -> None:
    same = service.apply([Document("", 1, pod("a", "first"))]).answer
    assert [one.result for one in same.objects] == ["unchanged"]
    changed = service.apply([Document("", 1, pod("a", "second", 2))]).answer
    assert [one.result for one in changed.objects] == ["changed"]


def test_pods_are_held_until_the_disk_has_them(service: Service) -> None:
    with service.lock:
        give(service, pod("a", "third"))
        service._drop_manifests()
        service.cluster.objects.load(replace(stored(service, "a/third"), held={"kind": "Pod"}))
        applied_as = stored(service, "a/third").applied_as
        writing: Future[int] = Future()
        for manifest in (applied_as + 1, applied_as):
            row = ObjectWrite(POD.name, "a/third", 1, b"{}", manifest)
            service._unwritten.append((writing, [row]))
        service._drop_manifests()
        assert stored(service, "a/third").held is not None
        service.cluster.objects.drop_manifest(POD.name, "a/third", applied_as + 1)
        assert stored(service, "a/third").held is not None, "another manifest was applied since"
        writing.set_result(1)
        service._drop_manifests()
        assert stored(service, "a/third").held is None
