"""An API server that lets one account do very little at once, and answers 429 to the rest of what it asks."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.waiting import eventually

PAGE = Path(__file__).resolve().parent.parent.parent.parent / "docs" / "kubernetes" / "failure-modes.md"
NAME = "bad-day"
LEASES_FIRST = "bursar-leader-election"
GROUP = "flowcontrol.apiserver.k8s.io/v1"
SHARES = 1  # of some 250: two or three requests at a time
_, _, NAMESPACE, ACCOUNT = BURSAR.split(":")


@contextmanager
def throttled(plane: ControlPlane) -> Iterator[None]:
    """While this holds, nothing that Bursar asks for beyond that is queued: it is refused at once."""
    for body in (_level(), _schema()):
        plane.kubectl("apply", "-f", "-", input=json.dumps(body))
    _wait_in_force(plane, NAME)
    try:
        yield
    finally:
        plane.kubectl("delete", "flowschema", NAME, LEASES_FIRST, "--ignore-not-found")
        plane.kubectl("delete", "prioritylevelconfiguration", NAME)


def put_leases_first(plane: ControlPlane) -> None:
    """As docs/kubernetes/failure-modes.md says; returns when it is in force, which ends with the limit."""
    _, _, rest = PAGE.read_text().partition("### A crowded API server")
    schema = rest.split("```yaml\n")[1].split("```")[0]
    plane.kubectl("apply", "-f", "-", input=schema)
    _wait_in_force(plane, LEASES_FIRST)


def refusals(plane: ControlPlane) -> int:
    """How many requests the API server answered 429, by its own count."""
    rejected = rf'^apiserver_flowcontrol_rejected_requests_total{{.*priority_level="{NAME}".*}} (\S+)$'
    samples = re.findall(rejected, _metrics(plane), re.MULTILINE)
    return sum(int(float(sample)) for sample in samples)


def _wait_in_force(plane: ControlPlane, schema: str) -> None:
    """Until a request went through by it: replicas look at their lease all the time."""
    dispatched = f'apiserver_flowcontrol_dispatched_requests_total{{flow_schema="{schema}"'
    eventually(lambda: dispatched in _metrics(plane), f"{schema} is in force")


def _metrics(plane: ControlPlane) -> str:
    return str(plane.api().get("/metrics")["text"])


def _level() -> dict[str, object]:
    limited = {
        "nominalConcurrencyShares": SHARES,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    spec = {"type": "Limited", "limited": limited}
    return {"apiVersion": GROUP, "kind": "PriorityLevelConfiguration", "metadata": {"name": NAME}, "spec": spec}


def _schema() -> dict[str, object]:
    account = {"kind": "ServiceAccount", "serviceAccount": {"namespace": NAMESPACE, "name": ACCOUNT}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
    spec = {
        "priorityLevelConfiguration": {"name": NAME},
        "matchingPrecedence": 500,
        "rules": [{"subjects": [account], "resourceRules": [everything]}],
    }
    return {"apiVersion": GROUP, "kind": "FlowSchema", "metadata": {"name": NAME}, "spec": spec}
