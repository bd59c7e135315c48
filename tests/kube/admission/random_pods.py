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


def _pod(
    labels: dict[str, str] | None, annotations: dict[str, str] | None, owners: list[Body], gates: list[str]
) -> Body:
    metadata: Body = {"name": "one"}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    if owners:
        metadata["ownerReferences"] = owners
    spec: Body = {"containers": [{"name": "main", "image": "none"}]}
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


pods = st.builds(_pod, _marks(LABELS), _marks(ANNOTATIONS), _owners, _gates)
