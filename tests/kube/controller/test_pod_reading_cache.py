"""Pods that are alike are read once, and anew as soon as something changed that the reading rests on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bursar.kube.admission.predicate import GATE
from bursar.kube.controller.mirror import Mirror, MirrorOptions
from bursar.kube.controller.pod_model import SeenPod, class_key, manifest_of, read_pod
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import PRIORITY_CLASS
from bursar.policies.plugin import default_registry

_TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def _pod(name: str = "p", spec: dict[str, Any] | None = None, **metadata: object) -> SeenPod:
    given = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "schedulingGates": [{"name": GATE}],
    }
    meta = {"name": name, "namespace": "team", "uid": f"uid of {name}", **metadata}
    return read_pod(msgspec.json.encode({"metadata": meta, "spec": {**given, **(spec or {})}}))


def _volume(name: str, kind: str) -> dict[str, object]:
    return {"volumes": [{"name": name, kind: {}}]}


def _affinity(kind: str, rules: object) -> dict[str, object]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": rules}}}


ALIKE = {
    "name and uid": (_pod("p"), _pod("q")),
    "creation": (_pod(creationTimestamp="2026-01-01T00:00:00Z"), _pod(creationTimestamp="2026-01-02T00:00:00Z")),
    "names of local volumes": (_pod(spec=_volume("a", "emptyDir")), _pod(spec=_volume("b", "projected"))),
    "what Bursar wrote": (_pod(), _pod(annotations={"bursar.dev/hold": "{}"})),
    "preferences": (
        _pod(),
        _pod(spec={"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}),
    ),
}

DIFFERENT = {
    "namespace": _pod(namespace="other"),
    "labels": _pod(labels={"a": "b"}),
    "annotations": _pod(annotations={"a": "b"}),
    "requests": _pod(spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}),
    "limits": _pod(spec={"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}),
    "init containers": _pod(spec={"initContainers": [{"name": "i"}]}),
    "overhead": _pod(spec={"overhead": {"cpu": "1"}}),
    "resources of the pod": _pod(spec={"resources": {"requests": {"cpu": "2"}}}),
    "selector": _pod(spec={"nodeSelector": {"zone": "a"}}),
    "node affinity": _pod(spec=_affinity("nodeAffinity", {"nodeSelectorTerms": [_TERM]})),
    "tolerations": _pod(spec={"tolerations": [{"operator": "Exists"}]}),
    "priority": _pod(spec={"priority": 5}),
    "priority class": _pod(spec={"priorityClassName": "high"}),
    "preemption": _pod(spec={"preemptionPolicy": "Never"}),
    "host network": _pod(spec={"hostNetwork": True}),
    "volumes of a node": _pod(spec=_volume("a", "persistentVolumeClaim")),
    "topology": _pod(spec={"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}),
    "pod affinity": _pod(spec=_affinity("podAffinity", [{}])),
    "devices": _pod(spec={"resourceClaims": [{"name": "gpu"}]}),
}


def _mirror() -> Mirror:
    mirror = Mirror(default_registry(), MirrorOptions())
    list(mirror.building([], []))
    return mirror


@pytest.mark.parametrize("what", ALIKE)
def test_what_makes_no_difference(what: str) -> None:
    one, other = ALIKE[what]
    gated_pods = _mirror().pods.gated_pods
    assert gated_pods.read(one) is gated_pods.read(other)
    assert _without_name(one) == _without_name(other)


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_makes_a_difference(what: str) -> None:
    assert class_key(DIFFERENT[what]) != class_key(_pod())


@pytest.mark.parametrize("what", [*DIFFERENT])
def test_what_is_kept_is_what_would_be_read_anew(what: str) -> None:
    pod = DIFFERENT[what]
    gated_pods = _mirror().pods.gated_pods
    if "class" in what:
        with pytest.raises(ManifestError):
            gated_pods.read(pod)
        return
    gated_pods.read(_pod())
    assert gated_pods.read(pod) == gated_pods.read(pod) == _mirror().pods.gated_pods.read(pod)


def test_all_is_read_anew_when_an_object_comes_changes_or_goes() -> None:
    mirror = _mirror()
    gated_pods = mirror.pods.gated_pods
    kind = next(kind for kind in mirror.kinds if kind.name == PRIORITY_CLASS.name)

    def priority() -> int | None:
        return gated_pods.read(_pod()).spec.priority

    assert priority() == 0
    for value in (7, 9):
        body = {"metadata": {"name": "usual"}, "value": value, "globalDefault": True}
        mirror.object_seen(kind, msgspec.json.encode(body))
        assert priority() == value
    mirror.objects.gone(kind, "", "usual")
    assert priority() == 0


def test_what_cannot_be_read_is_an_error_each_time() -> None:
    gated_pods = _mirror().pods.gated_pods
    bad = _pod(spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]})
    for _ in range(2):
        with pytest.raises(ManifestError, match=r"Pod team/p.*cpu"):
            gated_pods.read(bad)


def test_admission_sees_what_the_server_would_show() -> None:
    pod = DIFFERENT["node affinity"]
    assert manifest_of(pod) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "labels": {}, "annotations": {}},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "schedulingGates": [{"name": GATE}],
            **_affinity("nodeAffinity", {"nodeSelectorTerms": [_TERM]}),
        },
    }


def _without_name(pod: SeenPod) -> dict[str, Any]:
    found = manifest_of(pod)
    del found["metadata"]["name"]
    return found
