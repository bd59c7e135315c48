"""Random pods for comparing the readings of the predicate: mostly made of keys that matter, or nearly do."""

from typing import Any

from hypothesis import strategies as st

from bursar.kube.admission.predicate import GATE, MIRROR, RECORD_ANNOTATION
from bursar.policies.gpus.worker import DEMANDS

Body = dict[str, Any]

LABELS = (
    "quota.bursar.dev/lab", "quota.bursar.dev/", "quota.bursar.dev", "xquota.bursar.dev/lab", "bursar.dev/group",
    "quota.scheduling.koordinator.sh/name", "quota.scheduling.koordinator.sh/tree-id", "tensor-fusion.ai/component",
    "app",
)  # fmt: skip
ANNOTATIONS = (*DEMANDS, RECORD_ANNOTATION, MIRROR, "tensor-fusion.ai/vendor", "bursar.dev/term", "app")
VALUES = ("worker", "client", "", "true", "x")
REFUSED = ("deviceclass.resource", "hugepages-2Mi", "attachable-volumes-x")  # by a server, unless with others
RESOURCES = (
    *("cpu", "nvidia.com/gpu", "example.com/kubernetes.io", "requests.kubernetes.io/x"),
    *("deviceclass.resource.kubernetes.io/gpu", *REFUSED),
)
MANY = tuple(f"kubernetes.io/r{number}" for number in range(101))  # a server refuses other names that mean no device
OWNERS = (("apps/v1", "DaemonSet"), ("apps/v1", "ReplicaSet"), ("apps.example.com/v1", "DaemonSet"), ("v1", "Node"))


def _marks(keys: tuple[str, ...]) -> st.SearchStrategy[dict[str, str] | None]:
    return st.none() | st.dictionaries(st.sampled_from(keys), st.sampled_from(VALUES), max_size=3)


_owners = st.lists(
    st.tuples(st.sampled_from(OWNERS), st.sampled_from([None, False, True])).map(
        lambda drawn: {
            "apiVersion": drawn[0][0],
            "kind": drawn[0][1],
            "name": "a",
            "uid": "1",
            **({} if drawn[1] is None else {"controller": drawn[1]}),
        }
    ),
    max_size=2,
)
_gates = st.lists(st.sampled_from([GATE, "example.com/other", "bursar.dev/quotas"]), max_size=2, unique=True)


_limits = st.none() | st.dictionaries(st.sampled_from(RESOURCES), st.just("1"), max_size=2)
_containers = st.lists(_limits, max_size=2) | st.just([None] * 101) | st.just([dict.fromkeys(MANY, "1")])


def _pod(
    labels: dict[str, str] | None,
    annotations: dict[str, str] | None,
    owners: list[Body],
    gates: list[str],
    asked: tuple[list[dict[str, str] | None], list[dict[str, str] | None], bool],
) -> Body:
    metadata: Body = {"name": "one"}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    if owners:
        metadata["ownerReferences"] = owners
    containers, init_containers, claims = asked
    spec: Body = {"containers": _named("main", [None, *containers])}
    if init_containers:
        spec["initContainers"] = _named("init", init_containers)
    if claims:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _named(prefix: str, given: list[dict[str, str] | None]) -> list[Body]:
    """The API server writes ``resources`` in any case."""
    resources: list[Body] = [{} if limits is None else {"limits": limits} for limits in given]
    return [{"name": f"{prefix}-{at}", "image": "none", "resources": found} for at, found in enumerate(resources)]


Limits = dict[str, str] | None
_nothing: tuple[list[Limits], list[Limits], bool] = ([], [], False)
_asked = st.just(_nothing) | st.tuples(_containers, _containers, st.sampled_from([False, False, True]))
pods = st.builds(_pod, _marks(LABELS), _marks(ANNOTATIONS), _owners, _gates, _asked)


def accepted(pod: Body) -> bool:
    """Whether a server takes the names of its resources."""
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    return not any(name in REFUSED for one in containers for name in one["resources"].get("limits", ()))
