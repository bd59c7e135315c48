"""The guards: ValidatingAdmissionPolicies that keep everybody else's hands off what only Bursar may decide.

They look at the pod as it was (``oldObject``), so that dropping a label together with the gate is no way out. Those
about the gate, Bursar's annotations and quota labels ask for no namespace: what they protect speaks for itself.
The fence compares the term of a patch that opens the gate with the Lease: a leader that lost it, frozen and woken
again, is refused by the API server.
"""

from __future__ import annotations

from bursar.kube.admission.governed import EXEMPT, HAS_GATE, IS_MIRROR, OF_DAEMON_SET, Arm, Namespaces, arms
from bursar.kube.admission.marks import OWN_ANNOTATIONS, QUOTA_ANNOTATIONS, quota_labels
from bursar.kube.admission.options import GATE, LEASE, TERM_ANNOTATION, Options
from bursar.kube.admission.shapes import Check, Guard, Object, rule
from bursar.kube.admission.terms import Marked, listed, quoted

NODES_GROUP = "system:nodes"


def guards(options: Options) -> list[Object]:
    """All guards, each with its binding."""
    found = [_opening(options), _own_annotations(options), _quota_marks(options), _binding_marks(options)]
    for arm in arms(options):
        found += [_creation(arm), _origin(arm, options), _resizing(arm)]
        if arm.reaches is None:
            found.append(_binding(arm, options))
    return [one for guard in found for one in guard.objects()]


def fence(options: Options) -> list[Object]:
    """The policy that takes the Lease as its parameter."""
    wanted = "string(params.spec.?leaseTransitions.orValue(0))"
    annotations = "object.metadata.annotations"
    term = quoted(TERM_ANNOTATION)
    guard = Guard(
        "bursar-fence",
        Namespaces(options.never),
        (rule(["UPDATE"], "pods"),),
        {
            "is-bursar": f"request.userInfo.username in {listed(options.accounts)}",  # anybody else is refused already
            "opens-the-gate": f"{HAS_GATE.cel('oldObject')} && !{HAS_GATE.cel('object')}",
        },
        (
            Check(
                f"has({annotations}) && {term} in {annotations} && {annotations}[{term}] == {wanted}",
                f"the annotation {TERM_ANNOTATION} is not the term of the Lease {LEASE}: another leader decides now",
                f"'the annotation {TERM_ANNOTATION} must be ' + {wanted} + ', the term of the Lease {LEASE}'",
            ),
        ),
        param_kind={"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
        param_ref={"name": LEASE, "namespace": options.namespace, "parameterNotFoundAction": "Deny"},
    )
    return guard.objects()


def _others(options: Options) -> dict[str, str]:
    return {"not-bursar": f"!(request.userInfo.username in {listed(options.accounts)})"}


def _opening(options: Options) -> Guard:
    return Guard(
        "bursar-guard-gate",
        Namespaces(options.never),
        (rule(["UPDATE"], "pods"),),
        {**_others(options), "was-gated": HAS_GATE.cel("oldObject")},
        (
            Check(
                HAS_GATE.cel("object"),
                f"only Bursar removes the scheduling gate {GATE}: wait until quota admits the pod, or delete it",
            ),
        ),
    )


# Labels and annotations


def _map_of(subject: str, part: str) -> str:
    marks = f"{subject}.metadata.{part}"
    return f"{subject} != null && has({marks}) ? {marks} : {{}}"


def _changed(marks: Marked, part: str) -> dict[str, str]:
    """Variables: the marks before and after, and the keys among them that came, changed or went."""
    before, after = f"variables.{part}Before", f"variables.{part}After"
    ours = f"({marks.cel_of_key('k')})"
    lost = f"{before}.filter(k, {ours} && !(k in {after} && {after}[k] == {before}[k]))"
    gained = f"{after}.filter(k, {ours} && !(k in {before}))"
    return {
        f"{part}Before": _map_of("oldObject", part),
        f"{part}After": _map_of("object", part),
        f"{part}Changed": f"{lost} + {gained}",
    }


def _unchanged(part: str, called: str, advice: str) -> Check:
    changed = f"variables.{part}Changed"
    return Check(f"{changed}.size() == 0", advice, f"'{called} ' + string({changed}[0]) + ': {advice}'")


def _either(*marks: Marked) -> str:
    """Whether the pod has such marks, or had them."""
    now = " || ".join(one.cel("object") for one in marks)
    before = " || ".join(one.cel("oldObject") for one in marks)
    return f"{now} || (oldObject != null && ({before}))"


def _own_annotations(options: Options) -> Guard:
    return Guard(
        "bursar-guard-annotations",
        Namespaces(options.never),
        (rule(["CREATE", "UPDATE"], "pods"), rule(["UPDATE"], "pods/status")),
        {**_others(options), "has-own-annotations": _either(OWN_ANNOTATIONS)},
        (_unchanged("annotations", "annotation", "only Bursar writes it, leave it as it is"),),
        _changed(OWN_ANNOTATIONS, "annotations"),
    )


def _quota_marks(options: Options) -> Guard:
    labels = quota_labels(options)
    advice = "quota depends on it, so it stays as it was when the pod was created: create another pod"
    return Guard(
        "bursar-guard-marks",
        Namespaces(options.never),
        (rule(["UPDATE"], "pods", "pods/status"),),
        {**_others(options), "has-quota-marks": _either(labels, QUOTA_ANNOTATIONS)},
        (_unchanged("labels", "label", advice), _unchanged("annotations", "annotation", advice)),
        {**_changed(labels, "labels"), **_changed(QUOTA_ANNOTATIONS, "annotations")},
    )


def _binding_marks(options: Options) -> Guard:
    """A binding copies its annotations onto the pod, past every other guard."""
    return Guard(
        "bursar-guard-binding-annotations",
        Namespaces(options.never),
        (rule(["CREATE"], "pods/binding", "bindings"),),
        _others(options),
        tuple(
            Check(
                f"!{marks.cel('object')}", "a binding must not bring annotations that quota depends on: leave them out"
            )
            for marks in (OWN_ANNOTATIONS, QUOTA_ANNOTATIONS)
        ),
    )


# Creation, binding, growth


def _creation(arm: Arm) -> Guard:
    node = "a governed pod must not choose its node itself: remove spec.nodeName, use node affinity instead"
    gate = f"a governed pod needs the scheduling gate {GATE}, which Bursar adds: is its gate policy in force? Try again"
    return Guard(
        f"bursar-guard-creation-{arm.name}",
        arm.namespaces,
        (rule(["CREATE"], "pods"),),
        arm.cel("object"),
        (
            Check("!has(object.spec.nodeName) || object.spec.nodeName == ''", node),
            Check(f"{HAS_GATE.cel('object')} || (has(object.spec.nodeName) && object.spec.nodeName != '')", gate),
        ),
    )


def _origin(arm: Arm, options: Options) -> Guard:
    """Pods of DaemonSets and mirror pods are spared, so nobody else may pass for one."""
    by_controller = f"request.userInfo.username in {listed(options.daemon_set_accounts)}"
    by_node = f"has(request.userInfo.groups) && {quoted(NODES_GROUP)} in request.userInfo.groups"
    was = f"(oldObject != null && {OF_DAEMON_SET.cel('oldObject')})"
    return Guard(
        f"bursar-guard-origin-{arm.name}",
        arm.namespaces,
        (rule(["CREATE", "UPDATE"], "pods"),),
        {
            "spared": arm.spares().cel("object"),
            "comes-to-be-spared": f"oldObject == null || !{EXEMPT.cel('oldObject')}",
        },
        (
            Check(
                f"!{OF_DAEMON_SET.cel('object')} || {was} || {by_controller}",
                "only the DaemonSet controller makes pods of a DaemonSet: remove that owner reference",
            ),
            Check(
                f"!{IS_MIRROR.cel('object')} || {by_node}",
                "only a node makes mirror pods: remove the annotation kubernetes.io/config.mirror",
            ),
        ),
    )


def _binding(arm: Arm, options: Options) -> Guard:
    """A binding does not show its pod, so this goes by namespace; pods governed elsewhere are held by the gate."""
    return Guard(
        f"bursar-guard-binding-{arm.name}",
        arm.namespaces,
        (rule(["CREATE"], "pods/binding", "bindings"),),
        {},
        (
            Check(
                f"request.userInfo.username in {listed(options.schedulers)}",
                "pods of this namespace are bound by the cluster's scheduler only: do not bind them by hand",
            ),
        ),
    )


def _resizing(arm: Arm) -> Guard:
    advice = "a governed pod cannot grow in place, because quota admitted it as it is: create a larger pod"
    return Guard(
        f"bursar-guard-resize-{arm.name}",
        arm.namespaces,
        (rule(["UPDATE"], "pods/resize"),),
        arm.cel("oldObject"),
        (
            Check(_none_grows("containers"), advice),
            Check(f"!has(object.spec.initContainers) || {_none_grows('initContainers')}", advice),
            Check(_not_grown("object.spec", "oldObject.spec"), advice),
        ),
    )


def _none_grows(containers: str) -> str:
    same = f"b.name == a.name && {_not_grown('a', 'b')}"
    return f"object.spec.{containers}.all(a, oldObject.spec.{containers}.exists(b, {same}))"


def _not_grown(now: str, before: str) -> str:
    """No request is larger than before, and none is new."""
    asked, known = f"{now}.resources.requests", f"{before}.resources.requests"
    has_known = f"has({before}.resources) && has({known}) && r in {known}"
    fits = f"quantity({asked}[r]).compareTo(quantity({known}[r])) <= 0"
    return f"(!has({now}.resources) || !has({asked}) || {asked}.all(r, {has_known} && {fits}))"
