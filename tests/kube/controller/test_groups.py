"""A group of which only some were let go when their leader ended: the next one lets the others go first."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.kube.admission.options import ENFORCED, GATE, NAMESPACE_LABEL
from bursar.ledger.claims import PENDING, RESERVED
from tests.kube.controller.plain import PlainKubernetes
from tests.kube.controller.test_changes import apply, cluster_with, namespace, node, pod
from tests.kube.controller.test_rebuild import _rebuilt

MEMBERS = ("w0", "w1", "w2")


def member(name: str) -> dict[str, Any]:
    body = pod("a", name)
    body["metadata"]["labels"] = {"bursar.dev/group": "train", "bursar.dev/group-size": str(len(MEMBERS))}
    return body


def as_it_was(cluster: PlainKubernetes, key: str) -> None:
    """Take back what was written on a pod: its leader ended before."""
    body = cluster.pods[key]
    metadata = {name: value for name, value in body["metadata"].items() if name != "annotations"}
    spec = {name: body["spec"][name] for name in ("containers", "priority")}
    spec["schedulingGates"] = [{"name": GATE}]
    cluster.pods[key] = {**body, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


@pytest.mark.parametrize("gated", [("w2",), ("w0", "w1"), ("w0", "w2")])
def test_who_waits_takes_no_place_of_a_group_that_is_half_way_in(gated: tuple[str, ...]) -> None:
    cluster = cluster_with(
        node("n", len(MEMBERS)), namespace("a", **{NAMESPACE_LABEL: ENFORCED}), *(member(name) for name in MEMBERS)
    )
    assert {cluster.phases[f"a/{name}"] for name in MEMBERS} == {"Running"}
    apply(cluster, pod("a", "urgent", priority=1000, preemptionPolicy="Never"))
    assert cluster.phases["a/urgent"] == "Pending"
    for name in gated:
        as_it_was(cluster, f"a/{name}")
    controller = _rebuilt(cluster).controller
    controller.settle()
    urgent, *members = (controller.claim(f"a/{name}") for name in ("urgent", *MEMBERS))
    assert urgent is not None
    assert urgent.state == PENDING
    assert all(one is not None and one.state >= RESERVED for one in members)
