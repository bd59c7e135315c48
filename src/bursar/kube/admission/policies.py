"""The gate and the guards, as admission policies.

The gate (MutatingAdmissionPolicy) adds the scheduling gate to governed pods at creation, and replaces the scheduler of
an upstream project by the cluster's own. Pods that come with a node are left to the guards, because a gate beside a
node is invalid. If it is asked to, the same patch removes ``managedFields``, unless the pod was applied server-side:
they cost a third to a half of the patch that starts the pod (docs/decisions/0009-managed-fields.md). Where all pods of
a namespace are governed, the gate is not reinvoked (docs/decisions/0011-gate-reinvocation-policy.md).

The guards (ValidatingAdmissionPolicies) protect what only Bursar may decide. One policy judges updates; creations,
bindings and growth are judged by one policy for each arm of the predicate. Updates are judged by ``oldObject``, so
that dropping a label together with the gate does not help. Writers of ``pods/status`` (nodes, controllers) are
trusted. The guard of updates is also the fence: it compares the term of a patch that ungates a pod with the leader
term on Bursar's namespace (docs/decisions/0010-fencing-token-in-a-namespace.md).
"""

from __future__ import annotations

from bursar.kube.admission.policy_objects import Guard, Object, PolicyCheck, mutating, rule
from bursar.kube.admission.predicate import (
    ENFORCED,
    GATE,
    HAS_GATE,
    IS_MIRROR,
    MOST,
    NAMESPACE_LABEL,
    OF_DAEMON_SET,
    OWN_ANNOTATIONS,
    QUOTA_ANNOTATIONS,
    TERM_ANNOTATION,
    AdmissionOptions,
    Arm,
    Marked,
    Namespaces,
    arms,
    listed,
    names_an_original,
    quota_labels,
    quoted,
)

NODES_GROUP = "system:nodes"
_OPENS = f"({HAS_GATE.cel('oldObject')} && !{HAS_GATE.cel('object')})"
_HAS_NODE = "(has(object.spec.nodeName) && object.spec.nodeName != '')"
_NOT_THEIRS = "only Bursar writes it, leave it as it is"
_OWNERS, _OWNERS_BEFORE = "object.metadata.ownerReferences", "oldObject.metadata.ownerReferences"
_TOO_MANY_OWNERS = f"a pod has at most {MOST} owners: remove some of its owner references"
_ORIGIN = "only the DaemonSet controller makes pods of a DaemonSet: remove that owner reference"


def guards(options: AdmissionOptions) -> list[Object]:
    """All guards, each with its binding."""
    found = [_updates(options)]
    for arm in arms(options):
        found += [_creation(arm, options), _binding(arm, options), _resizing(arm)]
    return [one for guard in found for one in guard.objects()]


def _is(users: tuple[str, ...]) -> str:
    return f"request.userInfo.username in {listed(users)}"


def _few(things: str) -> str:
    """There are not so many that looking through them would take the API server's time."""
    return f"(!has({things}) || {things}.size() <= {MOST})"


# Creation


def _creation(arm: Arm, options: AdmissionOptions) -> Guard:
    """The checks ask for what is costly last, so that for most pods the predicate is evaluated once."""
    by_node = f"(has(request.userInfo.groups) && {quoted(NODES_GROUP)} in request.userInfo.groups)"
    by_controller = _is(options.daemon_set_accounts)
    own = f"object.metadata.annotations.filter(k, {OWN_ANNOTATIONS.cel_of_key('k')})"
    return Guard(
        f"bursar-guard-creation-{arm.name}",
        arm.namespaces,
        (rule(["CREATE"], "pods"),),
        (
            PolicyCheck(_few("object.spec.schedulingGates"), f"a pod has at most {MOST} scheduling gates: remove some"),
            PolicyCheck(_few(_OWNERS), _TOO_MANY_OWNERS),
            PolicyCheck(
                f"!{_HAS_NODE} || !variables.governed",
                "a governed pod must not choose its node itself: remove spec.nodeName, use node affinity instead",
            ),
            _has_gate(arm),
            _own_scheduler(options),
            PolicyCheck(
                f"{_is(options.accounts)} || !{OWN_ANNOTATIONS.cel('object')}",
                f"one of its annotations: {_NOT_THEIRS}",
                _naming("annotation", own, _NOT_THEIRS),
            ),
            PolicyCheck(f"!{OF_DAEMON_SET.cel('object')} || {by_controller} || !variables.spared", _ORIGIN),
            PolicyCheck(
                f"!{IS_MIRROR.cel('object')} || {by_node} || !variables.spared",
                "only a node makes mirror pods: remove the annotation kubernetes.io/config.mirror",
            ),
        ),
        variables={"governed": arm.governs().cel("object"), "spared": arm.spares().cel("object")},
    )


def _has_gate(arm: Arm) -> PolicyCheck:
    """The policy that adds the gate may be missing. Or another one ran after it: a reinvocation
    does not invoke a policy for the first time.
    """
    needs = f"a governed pod needs the scheduling gate {GATE}"
    missing = "the policy that adds it is not in force (try again)"
    if arm.reaches is None:
        late = "a webhook took it away (see admission.reinvocationPolicy)"
    else:
        late = f"a webhook marked the pod too late (label the namespace {NAMESPACE_LABEL}={ENFORCED})"
    return PolicyCheck(
        f"{_HAS_NODE} || {HAS_GATE.cel('object')} || !variables.governed",
        f"{needs}: {missing}",
        f"'{needs}: {missing}, or {late}'",
    )


def _own_scheduler(options: AdmissionOptions) -> PolicyCheck:
    """The gate replaces the scheduler of an original. Who comes after it may write that name once more."""
    advice = "was written after the gate: remove what writes it, or see admission.reinvocationPolicy"
    return PolicyCheck(
        f"!{names_an_original(options)} || !variables.governed",
        f"its schedulerName {advice}",
        f"'schedulerName ' + object.spec.schedulerName + ' {advice}'",
    )


# Updates


def _updates(options: AdmissionOptions) -> Guard:
    """Without its parameter, Bursar's own namespace, it does not apply: then there is no Bursar that could decide."""
    return Guard(
        "bursar-guard-update",
        Namespaces(options.never),
        (rule(["UPDATE"], "pods"),),
        _update_checks(options),
        variables={
            "isBursar": _is(options.accounts),
            **_before_and_after("labels"),
            **_before_and_after("annotations"),
            "ownAnnotations": _changed(OWN_ANNOTATIONS),
            "quotaLabels": _changed(quota_labels(options)),
            "quotaAnnotations": _changed(QUOTA_ANNOTATIONS),
        },
        param_kind={"apiVersion": "v1", "kind": "Namespace"},
        param_ref={"name": options.namespace, "parameterNotFoundAction": "Allow"},
    )


def _update_checks(options: AdmissionOptions) -> tuple[PolicyCheck, ...]:
    stays = "quota depends on it, so it stays as it was when the pod was created: create another pod"
    was = OF_DAEMON_SET.cel("oldObject")
    not_more = f"(has({_OWNERS_BEFORE}) && {_OWNERS}.size() <= {_OWNERS_BEFORE}.size())"
    return (
        PolicyCheck(
            f"variables.isBursar || !{_OPENS}",
            f"only Bursar removes the scheduling gate {GATE}: wait until quota admits the pod, or delete it",
        ),
        _fence(options),
        _unchanged("ownAnnotations", "annotation", _NOT_THEIRS),
        _unchanged("quotaLabels", "label", stays),
        _unchanged("quotaAnnotations", "annotation", stays),
        PolicyCheck(f"{_few(_OWNERS)} || {not_more}", _TOO_MANY_OWNERS),
        PolicyCheck(f"!{OF_DAEMON_SET.cel('object')} || {was} || {_is(options.daemon_set_accounts)}", _ORIGIN),
    )


def _fence(options: AdmissionOptions) -> PolicyCheck:
    """A patch that removes a gate names the current leader's term. Without a term there is no leader."""
    given, known = "object.metadata.annotations", "params.metadata.annotations"
    term = quoted(TERM_ANNOTATION)
    leads = f"has({known}) && {term} in {known}"
    right = f"({leads} && has({given}) && {term} in {given} && {given}[{term}] == {known}[{term}])"
    other = f"the annotation {TERM_ANNOTATION} is not that of the namespace {options.namespace}"
    why = "another leader decides now"
    nobody = f"the namespace {options.namespace} has no annotation {TERM_ANNOTATION}: no replica leads yet"
    return PolicyCheck(
        f"!variables.isBursar || !{_OPENS} || {right}",
        f"{other}: {why}",
        f"{leads} ? '{other}, ' + {known}[{term}] + ': {why}' : '{nobody}'",
    )


def _before_and_after(part: str) -> dict[str, str]:
    marks = f"metadata.{part}"
    return {
        f"{part}Before": f"has(oldObject.{marks}) ? oldObject.{marks} : {{}}",
        f"{part}After": f"has(object.{marks}) ? object.{marks} : {{}}",
    }


def _changed(marks: Marked) -> str:
    """The keys among these marks that came, changed or went."""
    before, after = f"variables.{marks.part}Before", f"variables.{marks.part}After"
    ours = f"({marks.cel_of_key('k')})"
    lost = f"{before}.filter(k, {ours} && !(k in {after} && {after}[k] == {before}[k]))"
    gained = f"{after}.filter(k, {ours} && !(k in {before}))"
    return f"{lost} + {gained}"


def _unchanged(variable: str, called: str, advice: str) -> PolicyCheck:
    changed = f"variables.{variable}"
    return PolicyCheck(f"variables.isBursar || {changed}.size() == 0", advice, _naming(called, changed, advice))


def _naming(called: str, keys: str, advice: str) -> str:
    return f"'{called} ' + string({keys}[0]) + ': {advice}'"


# Binding and growth


def _binding(arm: Arm, options: AdmissionOptions) -> Guard:
    """A binding does not show its pod, so this goes by namespace; pods governed elsewhere are held by the gate.

    A binding copies its annotations onto the pod, past the guard of updates.
    """
    by_scheduler = _is(options.schedulers)
    if arm.reaches is None:
        message = "pods of this namespace are bound by the cluster's scheduler only: do not bind them by hand"
        checks: tuple[PolicyCheck, ...] = (PolicyCheck(by_scheduler, message),)
    else:
        message = "a binding must not bring annotations that quota depends on: leave them out"
        brings = f"{OWN_ANNOTATIONS.cel('object')} || {QUOTA_ANNOTATIONS.cel('object')}"
        checks = (PolicyCheck(f"{by_scheduler} || !({brings})", message),)
    rules = (rule(["CREATE"], "pods/binding", "bindings"),)
    return Guard(f"bursar-guard-binding-{arm.name}", arm.namespaces, rules, checks)


def _resizing(arm: Arm) -> Guard:
    advice = "a governed pod cannot grow in place, because quota admitted it as it is: create a larger pod"
    return Guard(
        f"bursar-guard-resize-{arm.name}",
        arm.namespaces,
        (rule(["UPDATE"], "pods/resize"),),
        (
            PolicyCheck(
                f"{_few('object.spec.containers')} && {_few('object.spec.initContainers')}",
                f"a governed pod with more than {MOST} containers cannot be resized in place: create another pod",
            ),
            PolicyCheck(_none_grows("containers"), advice),
            PolicyCheck(f"!has(object.spec.initContainers) || {_none_grows('initContainers')}", advice),
            PolicyCheck(_not_grown("object.spec", "oldObject.spec"), advice),
        ),
        {"governed": arm.governs().cel("oldObject")},
    )


def _none_grows(containers: str) -> str:
    """Every container is looked for among those before, so only where there are few; else another check refuses."""
    now, same = f"object.spec.{containers}", f"b.name == a.name && {_not_grown('a', 'b')}"
    return f"({now}.size() > {MOST} || {now}.all(a, oldObject.spec.{containers}.exists(b, {same})))"


def _not_grown(now: str, before: str) -> str:
    """No request is larger than before, and none is new. Of more than are looked through, one may be."""
    asked, known = f"{now}.resources.requests", f"{before}.resources.requests"
    has_known = f"has({before}.resources) && has({known}) && r in {known}"
    fits = f"quantity({asked}[r]).compareTo(quantity({known}[r])) <= 0"
    none_larger = f"{asked}.size() <= {MOST} && {asked}.all(r, {has_known} && {fits})"
    return f"(!has({now}.resources) || !has({asked}) || ({none_larger}))"


_MANAGED = "object.metadata.managedFields"
_NOT_APPLIED = (
    f"has({_MANAGED}) && {_MANAGED}.size() == 1 && has({_MANAGED}[0].operation) && {_MANAGED}[0].operation == 'Update'"
)
FORGET_MANAGERS = f" + ({_NOT_APPLIED} ? [JSONPatch{{op: 'remove', path: '/metadata/managedFields'}}] : [])"
"""What follows the other patches, if the fields are to be removed."""


def to_be_gated(arm: Arm) -> str:
    """Whether a new pod is governed and comes without a node, as CEL."""
    return f"(!has(object.spec.nodeName) || object.spec.nodeName == '') && {arm.governs().cel('object')}"


def gate(options: AdmissionOptions) -> list[Object]:
    """One policy, with its binding, for each arm of the predicate."""
    found: list[Object] = []
    for arm in arms(options):
        reinvocation = options.reinvocation if arm.reaches is None else "IfNeeded"
        wanted = f"({_lacks(options)}) && {to_be_gated(arm)}"
        rules, patches = [rule(["CREATE"], "pods")], _gated(options)
        found += mutating(f"bursar-gate-{arm.name}", arm.namespaces, rules, wanted, patches, reinvocation)
    return found


def _lacks(options: AdmissionOptions) -> str:
    """Whether anything is left to do. Asked first, in the same condition: of several the server evaluates all."""
    return f"!{HAS_GATE.cel('object')} || {names_an_original(options)}"


def _gated(options: AdmissionOptions) -> str:
    """What is done to a governed pod, as JSON patches: the API server needs less time for those than for a merge."""
    gates = "object.spec.schedulingGates"
    first = _patch("add", "/spec/schedulingGates", f"[{{'name': {quoted(GATE)}}}]")
    another = _patch("add", "/spec/schedulingGates/-", f"{{'name': {quoted(GATE)}}}")
    gate = f"has({gates}) ? ({HAS_GATE.cel('object')} ? [] : {another}) : {first}"
    scheduler = _patch("replace", "/spec/schedulerName", quoted(options.cluster_scheduler))
    forget = FORGET_MANAGERS if options.forget_managed_fields else ""
    return f"({gate}) + ({names_an_original(options)} ? {scheduler} : []){forget}"


def _patch(operation: str, path: str, value: str) -> str:
    return f"[JSONPatch{{op: {quoted(operation)}, path: {quoted(path)}, value: {value}}}]"


def policies(options: AdmissionOptions) -> list[Object]:
    return [*gate(options), *guards(options)]
