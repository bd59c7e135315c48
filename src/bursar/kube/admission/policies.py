"""The gate: MutatingAdmissionPolicies that hold governed pods back until quota admits them.

At creation a governed pod gets the scheduling gate, beside any that it has, and one that names the scheduler of an
original gets the cluster's own. Pods that come with a node are left alone here, because a gate beside a node is
invalid; the guards refuse them with advice.
"""

from __future__ import annotations

from bursar.kube.admission.governed import HAS_GATE, arms
from bursar.kube.admission.guards import fence, guards
from bursar.kube.admission.options import GATE, Options
from bursar.kube.admission.shapes import Object, mutating, rule
from bursar.kube.admission.terms import listed, quoted

NO_NODE = "(!has(object.spec.nodeName) || object.spec.nodeName == '')"


def gate(options: Options) -> list[Object]:
    """One policy, with its binding, for each arm of the predicate."""
    found: list[Object] = []
    for arm in arms(options):
        wanted = f"{arm.governs().cel('object')} && {NO_NODE}"
        name = f"bursar-gate-{arm.name}"
        rules = [rule(["CREATE"], "pods")]
        if arm.reaches is None:  # nearly all pods are: asked once, where they are changed
            found += mutating(name, arm.namespaces, rules, {}, f"{wanted} ? ({_gated(options)}) : []")
        else:  # few pods are: the others are not touched
            found += mutating(name, arm.namespaces, rules, {"governed": wanted}, _gated(options))
    return found


def _gated(options: Options) -> str:
    """What is done to a governed pod, as JSON patches: the API server needs less time for those than for a merge."""
    gates = "object.spec.schedulingGates"
    first = _patch("add", "/spec/schedulingGates", f"[{{'name': {quoted(GATE)}}}]")
    another = _patch("add", "/spec/schedulingGates/-", f"{{'name': {quoted(GATE)}}}")
    done = f"has({gates}) ? ({HAS_GATE.cel('object')} ? [] : {another}) : {first}"
    if not options.scheduler_names:
        return done
    theirs = f"has(object.spec.schedulerName) && object.spec.schedulerName in {listed(options.scheduler_names)}"
    ours = _patch("replace", "/spec/schedulerName", quoted(options.cluster_scheduler))
    return f"({done}) + ({theirs} ? {ours} : [])"


def _patch(operation: str, path: str, value: str) -> str:
    return f"[JSONPatch{{op: {quoted(operation)}, path: {quoted(path)}, value: {value}}}]"


def policies(options: Options) -> list[Object]:
    """All admission policies: gate, guards and fence."""
    return [*gate(options), *guards(options), *fence(options)]
