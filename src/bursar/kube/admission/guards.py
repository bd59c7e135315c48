"""The guards: ValidatingAdmissionPolicies that keep everybody else's hands off what only Bursar may decide.

One policy judges updates; creations, bindings and growth are judged by one for each arm of the predicate. Updates are
judged by the pod as it was (``oldObject``), so that dropping a label together with the gate is no way out; what that
protects speaks for itself, so it asks for no namespace. Whoever may write ``pods/status`` (nodes and controllers, no
role for people) is trusted.

The guard of updates is the *fence*, too: it compares the term of a patch that opens the gate with that of whoever
leads, which stands on Bursar's own namespace. A leader that lost its lease, frozen and woken again, is refused by the
API server. Why it reads a namespace, and not the Lease: docs/decisions/0010-the-fence-reads-a-namespace.md.
"""

from __future__ import annotations

from bursar.kube.admission.governed import (
    HAS_GATE,
    IS_MIRROR,
    OF_DAEMON_SET,
    Arm,
    Namespaces,
    arms,
    names_an_original,
)
from bursar.kube.admission.marks import OWN_ANNOTATIONS, QUOTA_ANNOTATIONS, quota_labels
from bursar.kube.admission.options import ENFORCED, GATE, NAMESPACE_LABEL, TERM_ANNOTATION, Options
from bursar.kube.admission.shapes import Check, Guard, Object, rule
from bursar.kube.admission.terms import MOST, Marked, listed, quoted

NODES_GROUP = "system:nodes"
_OPENS = f"({HAS_GATE.cel('oldObject')} && !{HAS_GATE.cel('object')})"
_HAS_NODE = "(has(object.spec.nodeName) && object.spec.nodeName != '')"
_NOT_THEIRS = "only Bursar writes it, leave it as it is"
_OWNERS, _OWNERS_BEFORE = "object.metadata.ownerReferences", "oldObject.metadata.ownerReferences"
_TOO_MANY_OWNERS = f"a pod has at most {MOST} owners: remove some of its owner references"
_ORIGIN = "only the DaemonSet controller makes pods of a DaemonSet: remove that owner reference"


def guards(options: Options) -> list[Object]:
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


def _creation(arm: Arm, options: Options) -> Guard:
    """The checks ask for what is costly last, so that for most pods the predicate is evaluated once."""
    by_node = f"(has(request.userInfo.groups) && {quoted(NODES_GROUP)} in request.userInfo.groups)"
    by_controller = _is(options.daemon_set_accounts)
    own = f"object.metadata.annotations.filter(k, {OWN_ANNOTATIONS.cel_of_key('k')})"
    return Guard(
        f"bursar-guard-creation-{arm.name}",
        arm.namespaces,
        (rule(["CREATE"], "pods"),),
        (
            Check(_few("object.spec.schedulingGates"), f"a pod has at most {MOST} scheduling gates: remove some"),
            Check(_few(_OWNERS), _TOO_MANY_OWNERS),
            Check(
                f"!{_HAS_NODE} || !variables.governed",
                "a governed pod must not choose its node itself: remove spec.nodeName, use node affinity instead",
            ),
            _has_gate(arm),
            _own_scheduler(options),
            Check(
                f"{_is(options.accounts)} || !{OWN_ANNOTATIONS.cel('object')}",
                f"one of its annotations: {_NOT_THEIRS}",
                _naming("annotation", own, _NOT_THEIRS),
            ),
            Check(f"!{OF_DAEMON_SET.cel('object')} || {by_controller} || !variables.spared", _ORIGIN),
            Check(
                f"!{IS_MIRROR.cel('object')} || {by_node} || !variables.spared",
                "only a node makes mirror pods: remove the annotation kubernetes.io/config.mirror",
            ),
        ),
        variables={"governed": arm.governs().cel("object"), "spared": arm.spares().cel("object")},
    )


def _has_gate(arm: Arm) -> Check:
    """The policy that adds the gate may be missing. Or somebody came after it: no policy is asked for the first time
    when all are asked again.
    """
    needs = f"a governed pod needs the scheduling gate {GATE}"
    missing = "the policy that adds it is not in force (try again)"
    if arm.reaches is None:
        late = "a webhook took it away (see admission.reinvocationPolicy)"
    else:
        late = f"a webhook marked the pod too late (label the namespace {NAMESPACE_LABEL}={ENFORCED})"
    return Check(
        f"{_HAS_NODE} || {HAS_GATE.cel('object')} || !variables.governed",
        f"{needs}: {missing}",
        f"'{needs}: {missing}, or {late}'",
    )


def _own_scheduler(options: Options) -> Check:
    """The gate replaces the scheduler of an original. Who comes after it may write that name once more."""
    advice = "was written after the gate: remove what writes it, or see admission.reinvocationPolicy"
    return Check(
        f"!{names_an_original(options)} || !variables.governed",
        f"its schedulerName {advice}",
        f"'schedulerName ' + object.spec.schedulerName + ' {advice}'",
    )


# Updates


def _updates(options: Options) -> Guard:
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


def _update_checks(options: Options) -> tuple[Check, ...]:
    stays = "quota depends on it, so it stays as it was when the pod was created: create another pod"
    was = OF_DAEMON_SET.cel("oldObject")
    not_more = f"(has({_OWNERS_BEFORE}) && {_OWNERS}.size() <= {_OWNERS_BEFORE}.size())"
    return (
        Check(
            f"variables.isBursar || !{_OPENS}",
            f"only Bursar removes the scheduling gate {GATE}: wait until quota admits the pod, or delete it",
        ),
        _fence(options),
        _unchanged("ownAnnotations", "annotation", _NOT_THEIRS),
        _unchanged("quotaLabels", "label", stays),
        _unchanged("quotaAnnotations", "annotation", stays),
        Check(f"{_few(_OWNERS)} || {not_more}", _TOO_MANY_OWNERS),
        Check(f"!{OF_DAEMON_SET.cel('object')} || {was} || {_is(options.daemon_set_accounts)}", _ORIGIN),
    )


def _fence(options: Options) -> Check:
    """Who opens a gate names the term of whoever leads. Where none is written, nobody leads."""
    given, known = "object.metadata.annotations", "params.metadata.annotations"
    term = quoted(TERM_ANNOTATION)
    leads = f"has({known}) && {term} in {known}"
    right = f"({leads} && has({given}) && {term} in {given} && {given}[{term}] == {known}[{term}])"
    other = f"the annotation {TERM_ANNOTATION} is not that of the namespace {options.namespace}"
    why = "another leader decides now"
    nobody = f"the namespace {options.namespace} has no annotation {TERM_ANNOTATION}: nobody leads yet"
    return Check(
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


def _unchanged(variable: str, called: str, advice: str) -> Check:
    changed = f"variables.{variable}"
    return Check(f"variables.isBursar || {changed}.size() == 0", advice, _naming(called, changed, advice))


def _naming(called: str, keys: str, advice: str) -> str:
    return f"'{called} ' + string({keys}[0]) + ': {advice}'"


# Binding and growth


def _binding(arm: Arm, options: Options) -> Guard:
    """A binding does not show its pod, so this goes by namespace; pods governed elsewhere are held by the gate.

    A binding copies its annotations onto the pod, past the guard of updates.
    """
    by_scheduler = _is(options.schedulers)
    if arm.reaches is None:
        message = "pods of this namespace are bound by the cluster's scheduler only: do not bind them by hand"
        checks: tuple[Check, ...] = (Check(by_scheduler, message),)
    else:
        message = "a binding must not bring annotations that quota depends on: leave them out"
        brings = f"{OWN_ANNOTATIONS.cel('object')} || {QUOTA_ANNOTATIONS.cel('object')}"
        checks = (Check(f"{by_scheduler} || !({brings})", message),)
    rules = (rule(["CREATE"], "pods/binding", "bindings"),)
    return Guard(f"bursar-guard-binding-{arm.name}", arm.namespaces, rules, checks)


def _resizing(arm: Arm) -> Guard:
    advice = "a governed pod cannot grow in place, because quota admitted it as it is: create a larger pod"
    return Guard(
        f"bursar-guard-resize-{arm.name}",
        arm.namespaces,
        (rule(["UPDATE"], "pods/resize"),),
        (
            Check(
                f"{_few('object.spec.containers')} && {_few('object.spec.initContainers')}",
                f"a governed pod with more than {MOST} containers cannot be resized in place: create another pod",
            ),
            Check(_none_grows("containers"), advice),
            Check(f"!has(object.spec.initContainers) || {_none_grows('initContainers')}", advice),
            Check(_not_grown("object.spec", "oldObject.spec"), advice),
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
