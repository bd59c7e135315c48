"""A copy that follows the journal is like the original at every step, and like a cluster that was built anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.plugin import default_registry
from bursar.server import time_travel
from bursar.server.followed_copy import FollowedCopy, StoreFile
from bursar.server.service import Service
from bursar.server.time_travel import at_record
from bursar.sim.cluster import Cluster
from tests.server.live import ManualClock, node, pod, quota
from tests.worlds import Move, World


def documents(*manifests: dict[str, Any]) -> list[Document]:
    return [Document("", number, manifest) for number, manifest in enumerate(manifests, 1)]


def take(service: Service, clock: ManualClock, move: Move) -> None:
    """One step of a world; what is refused changes nothing."""
    try:
        if move.apply:
            service.apply(documents(*move.apply))
        if move.delete:
            service.delete(list(move.delete))
        if move.finish:
            service.finish([move.finish])
    except ManifestError:
        pass
    clock.now += move.advance
    service.tick()


def state(cluster: Cluster) -> dict[str, object]:
    """All that answers are made of."""
    objects, claims = cluster.objects, cluster.engine.state.claims
    return {
        "ledger": (cluster.engine.version, cluster.engine.digest, cluster.engine.state.plain()),
        "objects": [one.manifest() for kind in objects.kinds() for one in objects.all(kind)],
        "versions": (objects.version, objects.uids),
        "pods": {key: (pod.uid, pod.phase, pod.node, pod.due, pod.evicted) for key, pod in cluster.pod_states.items()},
        "decisions": {uid: repr(claim.decision) for uid, claim in claims.items()},
        "queue": [claim.uid for claim in cluster.controller.queue.waiting()],
        "held": sorted(claim.uid for claim in cluster.controller.held()),
        "codes": {key: cluster.controller.reason(pod.uid)[0] for key, pod in cluster.pod_states.items()},
        "time": (cluster.now(), cluster.next_due),
    }


def classes(cluster: Cluster) -> dict[str, object]:
    """The equivalence classes of the queue: who waits alike, and for what."""
    found = cluster.controller.queue._classes.values()
    return {str(one.key): (sorted(one.entries), one.asleep, one.never, sorted(one.topics)) for one in found}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def service(tmp_path: Path, clock: ManualClock) -> Iterator[Service]:
    found = Service.open(tmp_path / "bursar.db", clock=clock)
    yield found
    found.close()


def copied(service: Service) -> FollowedCopy:
    service.position()
    return FollowedCopy.present(StoreFile(service.store.path), default_registry())


@pytest.mark.parametrize(("seed", "every"), [(1, 1), (5, 1), (22, 3), (117, 7)])
def test_a_copy_goes_where_the_original_went(service: Service, clock: ManualClock, seed: int, every: int) -> None:
    world = World(Random(seed))
    service.apply(documents(*world.objects()))
    copy = copied(service)
    for number in range(40):
        take(service, clock, world.move())
        if number % every == 0:
            copy.follow(service.position())
            assert copy.cluster.rest()
            copy.file.close()
            assert state(copy.cluster) == state(service.cluster)
            assert classes(copy.cluster) == classes(service.cluster)


def test_a_copy_has_the_options_and_device_classes_that_came_later(service: Service) -> None:
    service.apply(documents(node("n1")))
    copy = copied(service)
    options = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}
    service.apply(documents({**options, "spec": {"control": {"strict": True}}}))
    copy.follow(service.position())
    assert copy.cluster.rest()
    assert copy.cluster.controller.queue.strict
    assert state(copy.cluster) == state(service.cluster)
    copy.file.close()


def test_a_copy_that_lacks_something_is_found_out(service: Service) -> None:
    service.apply(documents(node("n1", 4), quota("a", 4), pod("a", "p1", 4), pod("a", "p2", 1)))
    copy = copied(service)
    copy.cluster.engine.release(next(uid for uid in copy.cluster.engine.state.claims if "p1" in uid), 1)
    copy.cluster.engine.journal.drop()
    assert not copy.cluster.rest()
    copy.file.close()


def test_a_copy_of_the_past_goes_to_every_later_moment(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(Random(8))
    service.apply(documents(*world.objects()))
    for _ in range(30):
        take(service, clock, world.move())
    store, registry = service.store, default_registry()
    service.position()
    file, middle = StoreFile(store.path), at_record(store, store.last_seq // 2)
    monkeypatch.setattr("bursar.server.followed_copy._MARGIN", 10)
    copy = FollowedCopy.before(file, registry, middle)
    assert copy.position.seq == middle.seq - 10
    assert not copy.reaches(at_record(store, middle.seq - 11))
    for seq in range(middle.seq - 10, store.last_seq + 1, 3):
        moment = at_record(store, seq)
        assert copy.reaches(moment)
        copy.follow(moment)
        built = time_travel.past(store, Cluster(registry, manifests=store.manifest), moment)
        same = ("ledger", "objects", "pods", "decisions", "queue", "time")
        assert {name: state(copy.cluster)[name] for name in same} == {name: state(built)[name] for name in same}
    file.close()


def test_a_copy_does_not_go_back(service: Service) -> None:
    service.apply(documents(node("n1"), pod("a", "p1")))
    early = service.position()
    service.apply(documents(pod("a", "p2")))
    copy = copied(service)
    here = copy.position
    copy.follow(early)
    assert copy.position == here
    copy.file.close()
