"""The gate: MutatingAdmissionPolicies that hold governed pods back until quota admits them.

At creation a governed pod gets the scheduling gate, beside any that it has, and one that names the scheduler of an
original gets the cluster's own. Pods that come with a node are left alone here, because a gate beside a node is
invalid; the guards refuse them with advice.

In the same patch the pod loses its ``managedFields``, unless somebody applied it server-side. While a pod has any, the
API server keeps account of every write: a third to a half of what the patch that starts the pod costs it. Kubernetes
does without them; whoever applies such a pod later begins a new account.

Where all pods of a namespace are governed, the gate is put on once, whatever webhooks write on the pod afterwards, and
the guards refuse what is wrong then: looking again would convert each pod twice more. Why that is enough:
docs/decisions/0011-the-gate-is-put-on-once.md. Elsewhere the gate looks again at the pods that it gated.
"""

from __future__ import annotations

from bursar.kube.admission.governed import HAS_GATE, Arm, arms, names_an_original
from bursar.kube.admission.guards import guards
from bursar.kube.admission.options import GATE, Options
from bursar.kube.admission.shapes import Object, mutating, mutating_once, rule
from bursar.kube.admission.terms import quoted

_MANAGED = "object.metadata.managedFields"
_NOT_APPLIED = (
    f"has({_MANAGED}) && {_MANAGED}.size() == 1 && has({_MANAGED}[0].operation) && {_MANAGED}[0].operation == 'Update'"
)
FORGET_MANAGERS = f" + ({_NOT_APPLIED} ? [JSONPatch{{op: 'remove', path: '/metadata/managedFields'}}] : [])"
"""What follows the other patches, unless the fields are to be kept."""


def to_be_gated(arm: Arm) -> str:
    """Whether a new pod is governed and comes without a node, as CEL."""
    return f"(!has(object.spec.nodeName) || object.spec.nodeName == '') && {arm.governs().cel('object')}"


def gate(options: Options) -> list[Object]:
    """One policy, with its binding, for each arm of the predicate."""
    found: list[Object] = []
    for arm in arms(options):
        once = arm.reaches is None and options.reinvocation == "Never"
        shape = mutating_once if once else mutating
        wanted = f"({_lacks(options)}) && {to_be_gated(arm)}"
        rules = [rule(["CREATE"], "pods")]
        found += shape(f"bursar-gate-{arm.name}", arm.namespaces, rules, wanted, _gated(options))
    return found


def _lacks(options: Options) -> str:
    """Whether anything is left to do. Asked first, in the same condition: of several the server evaluates all."""
    return f"!{HAS_GATE.cel('object')} || {names_an_original(options)}"


def _gated(options: Options) -> str:
    """What is done to a governed pod, as JSON patches: the API server needs less time for those than for a merge."""
    gates = "object.spec.schedulingGates"
    first = _patch("add", "/spec/schedulingGates", f"[{{'name': {quoted(GATE)}}}]")
    another = _patch("add", "/spec/schedulingGates/-", f"{{'name': {quoted(GATE)}}}")
    gate = f"has({gates}) ? ({HAS_GATE.cel('object')} ? [] : {another}) : {first}"
    scheduler = _patch("replace", "/spec/schedulerName", quoted(options.cluster_scheduler))
    forget = "" if options.keep_managed_fields else FORGET_MANAGERS
    return f"({gate}) + ({names_an_original(options)} ? {scheduler} : []){forget}"


def _patch(operation: str, path: str, value: str) -> str:
    return f"[JSONPatch{{op: {quoted(operation)}, path: {quoted(path)}, value: {value}}}]"


def policies(options: Options) -> list[Object]:
    """All admission policies: gate and guards."""
    return [*gate(options), *guards(options)]
