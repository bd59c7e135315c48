"""The gate: MutatingAdmissionPolicies that hold governed pods back until quota admits them.

At creation a governed pod gets the scheduling gate, beside any that it has, and one that names the scheduler of an
original gets the cluster's own. Pods that come with a node are left alone here, because a gate beside a node is
invalid; the guards refuse them with advice.
"""

from __future__ import annotations

from bursar.kube.admission.governed import arms
from bursar.kube.admission.guards import fence, guards
from bursar.kube.admission.options import GATE, Options
from bursar.kube.admission.shapes import Object, mutating, rule
from bursar.kube.admission.terms import listed, quoted

NO_NODE = "!has(object.spec.nodeName) || object.spec.nodeName == ''"


def gate(options: Options) -> list[Object]:
    """One policy, with its binding, for each arm of the predicate."""
    gated = f"Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: {quoted(GATE)}}}]}}}}"
    theirs = f"has(object.spec.schedulerName) && object.spec.schedulerName in {listed(options.scheduler_names)}"
    renamed = f"Object{{spec: Object.spec{{schedulerName: {quoted(options.cluster_scheduler)}}}}}"
    applied = [gated]
    if options.scheduler_names:
        applied.append(f"{theirs} ? {renamed} : Object{{}}")
    found: list[Object] = []
    for arm in arms(options):
        conditions = {**arm.cel("object"), "has-no-node-yet": NO_NODE}
        name = f"bursar-gate-{arm.name}"
        found += mutating(name, arm.namespaces, [rule(["CREATE"], "pods")], conditions, applied)
    return found


def policies(options: Options) -> list[Object]:
    """All admission policies: gate, guards and fence."""
    return [*gate(options), *guards(options), *fence(options)]
