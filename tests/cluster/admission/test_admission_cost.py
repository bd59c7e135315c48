"""What policies cost a real API server does not run away with what a pod brings.

Whoever may create pods chooses how many labels, annotations, gates, owners, containers and requests they have. The
measure is the processor time of the API server for the same call in kube-system, where no policy looks at pods.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.admission.users import Acting
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.api import JSON_PATCH, Object
from tests.cluster.controlplane.objects import pod
from tests.cluster.waiting import eventually

MANY = 10_000
TRIES = 8
TIMES = 5  # they take about twice as much; with loops that take the square it is more than ten times

LABELS = {f"example.com/{number}": "x" for number in range(MANY)}
TREES = {f"quota.bursar.dev/{number}": "x" for number in range(MANY)}
ANNOTATIONS = {f"{number:x}": "" for number in range(MANY)}
GATES = tuple(f"example.com/{number}" for number in range(MANY))
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a"}
OWNERS = [{**OWNER, "uid": str(number)} for number in range(MANY)]

PODS: dict[str, Object] = {
    "labels": pod("one", {"cpu": "1"}, labels=LABELS),
    "trees": pod("one", {"cpu": "1"}, labels=TREES),
    "annotations": pod("one", {"cpu": "1"}, annotations=ANNOTATIONS),
    "gates": pod("one", {"cpu": "1"}, gates=GATES),
    "owners": {**pod("one", {"cpu": "1"}), "metadata": {"name": "one", "ownerReferences": OWNERS}},
}


def processor_seconds(plane: ControlPlane, call: Callable[[], object]) -> float:
    """What the API server needs for a call, refused or not."""
    stat = Path(f"/proc/{plane.component('kube-apiserver').pid}/stat")

    def used() -> int:
        fields = stat.read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = used()
    with suppress(ApiError):
        call()
    return (used() - before) / os.sysconf("SC_CLK_TCK")


def assert_within(times: int, unjudged: Acting, judged: list[Acting], call: Callable[[Acting], object]) -> None:
    """It costs at most so many times what it costs unjudged. The least of several counts: the server also collects
    garbage and has other things to do, so that one that seems to cost too much is measured again.
    """

    def cost(acting: Acting) -> float:
        return processor_seconds(acting.plane, lambda: call(acting))

    alone = min(cost(unjudged) for _ in range(3))
    for acting in judged:
        found = [cost(acting)]
        while min(found) >= times * alone:
            assert len(found) < TRIES, f"not within {times} times {alone} s: {found}"
            found.append(cost(acting))


@pytest.fixture(scope="module")
def unjudged(guarded: ControlPlane) -> Acting:
    account = "/api/v1/namespaces/kube-system/serviceaccounts?fieldSelector=metadata.name=default"
    eventually(lambda: guarded.api().get(account)["items"], "the default service account of kube-system")
    return Acting(guarded, "kube-system")


@pytest.mark.parametrize("brings", sorted(PODS))
def test_a_creation_costs_little_however_much_it_brings(
    enforced: Acting, ordinary: Acting, unjudged: Acting, brings: str
) -> None:
    def create(acting: Acting) -> object:
        return acting.plane.api().create(f"{acting.pods}?dryRun=All", PODS[brings])

    assert_within(TIMES, unjudged, [enforced, ordinary], create)


@pytest.mark.parametrize("brings", ["annotations", "labels"])
def test_so_does_an_update(ordinary: Acting, unjudged: Acting, brings: str) -> None:
    def update(acting: Acting) -> object:
        return acting.merge("admin", "one?dryRun=All", {"metadata": {"labels": {"example.com/a": "b"}}})

    ordinary.plane.api().create(unjudged.pods, PODS[brings])
    ordinary.plane.api().create(ordinary.pods, PODS[brings])
    assert_within(TIMES, unjudged, [ordinary], update)
    unjudged.plane.api().delete(f"{unjudged.pods}/one?gracePeriodSeconds=0")


def sized(containers: int, requests: int) -> Object:
    """A pod with so many containers, each with so many requests beside that for processors."""
    more = {f"example.com/{number}": "0" for number in range(requests)}
    room = {"requests": {"cpu": "2m", **more}, "limits": more}
    found = [{"name": f"c{number}", "image": "none", "resources": room} for number in range(containers)]
    return {"metadata": {"name": "one"}, "spec": {"containers": found}}


@pytest.mark.parametrize(("containers", "requests"), [(500, 0), (100, 60), (1, 3 * MANY)])
def test_so_does_a_resize(enforced: Acting, ordinary: Acting, unjudged: Acting, containers: int, requests: int) -> None:
    def resize(acting: Acting) -> object:
        patch = [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "1m"}]
        return acting.plane.api().patch(f"{acting.pods}/one/resize?dryRun=All", patch, JSON_PATCH)

    for acting in (unjudged, enforced, ordinary):
        acting.plane.api().create(acting.pods, sized(containers, requests))
    try:
        assert_within(3, unjudged, [enforced, ordinary], resize)  # the loops without their bounds: four times and more
    finally:
        unjudged.plane.api().delete(f"{unjudged.pods}/one?gracePeriodSeconds=0")
