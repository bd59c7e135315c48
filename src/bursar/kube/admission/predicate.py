"""Which pods are governed: predicates written once and read twice, as CEL by the API server and as Python by Bursar.

Both readings agree for every pod that the API server can hold; tests compare them over random pods. The CEL uses only
``has``, ``in``, ``exists``, ``filter``, ``size``, ``startsWith``, ``contains`` and operators. Users choose how many
labels, annotations, gates and owners a pod has, and the cost of a CEL loop grows with the square of its length. So pods
are searched in two ways only: lists of at most ``MOST`` entries, which the guards enforce, and ``filter`` with a test
that begins with ``k in [...]``, which costs linear time. A test on a real API server checks it.

A pod is governed if an *arm* selects it: a namespace selector and a predicate on the pod. One arm covers namespaces in
which quota is enforced; in all others, one selects pods that name a tree, a quota or a GPU fraction. Every namespace
is in exactly one arm, so that no pod is judged twice. Pods of kube-system, of Bursar's own namespace and of
``spared_namespaces``, and mirror pods are never governed. A pod that has the gate or the admission record stays
governed, also when a DaemonSet adopts it or its namespace loses its label.

Pods of DaemonSets are governed if they ask for devices: an extended resource, or a ResourceClaim. Who may create
DaemonSets would have all GPUs otherwise. Those that ask for none are agents of their nodes, which must never wait.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bursar.objects.pods import GROUP_LABEL, GROUP_SIZE_LABEL, PREEMPTIBLE_LABEL
from bursar.policies.plugin import AnnotatedDemand, installed_marks

MOST = 100  # gates, owners, containers of a pod, and limits or requests of a container, that are looked through

_PLAIN = re.compile(r"[A-Za-z0-9 ._/:@-]*")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What predicates look at. ``controllers``: (apiVersion, kind) of owners that control the pod. ``limits`` and
    ``init_limits``: the names of the resources that each container and init container limits.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    gates: tuple[str, ...] = ()
    controllers: tuple[tuple[str, str], ...] = ()
    limits: tuple[Collection[str], ...] = ()
    init_limits: tuple[Collection[str], ...] = ()
    claims: bool = False  # it uses ResourceClaims
    bound: bool = False  # it has its node


def facts_of(pod: Mapping[str, Any]) -> PodFacts:
    """The facts of a pod as the API server writes it."""
    metadata = pod.get("metadata") or {}
    spec = pod.get("spec") or {}
    return PodFacts(
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
        tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
        tuple(
            (owner.get("apiVersion", ""), owner.get("kind", ""))
            for owner in metadata.get("ownerReferences") or ()
            if owner.get("controller")
        ),
        _limits(spec.get("containers")),
        _limits(spec.get("initContainers")),
        bool(spec.get("resourceClaims")),
        bool(spec.get("nodeName")),
    )


def _limits(containers: Iterable[Mapping[str, Any]] | None) -> tuple[Collection[str], ...]:
    return tuple(((one.get("resources") or {}).get("limits") or {}).keys() for one in containers or ())


class Predicate(Protocol):
    """One statement about a pod. ``subject`` is the variable that holds the pod: ``object`` or ``oldObject``."""

    def cel(self, subject: str, /) -> str: ...

    def holds(self, pod: PodFacts, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class FunctionPredicate:
    """A predicate, given by its two readings."""

    cel: Callable[[str], str]
    holds: Callable[[PodFacts], bool]


@dataclass(frozen=True, slots=True)
class Marked:
    """A label or annotation is there whose key is one of ``keys`` or begins with one of ``prefixes``."""

    part: Literal["labels", "annotations"]
    keys: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def cel(self, subject: str, /) -> str:
        marks = f"{subject}.metadata.{self.part}"
        if self.prefixes:
            return f"(has({marks}) && {marks}.filter(k, {self.cel_of_key('k')}).size() > 0)"
        if len(self.keys) == 1:
            return f"(has({marks}) && {quoted(self.keys[0])} in {marks})"
        return f"(has({marks}) && {listed(self.keys)}.exists(k, k in {marks}))"

    def cel_of_key(self, key: str) -> str:
        """Whether a key, in a variable of that name, is one of these: cheap for ``filter``, as said above."""
        tests = [f"{key}.startsWith({quoted(prefix)})" for prefix in self.prefixes]
        return " || ".join((f"{key} in {listed(self.keys or self.prefixes)}", *tests))

    def names(self, key: str) -> bool:
        """Whether a key is one of these."""
        return key in self.keys or key.startswith(self.prefixes)

    def holds(self, pod: PodFacts) -> bool:
        return any(self.names(key) for key in (pod.labels if self.part == "labels" else pod.annotations))


def labelled(key: str, value: str) -> Predicate:
    """A label has that value."""

    def cel(subject: str) -> str:
        labels = f"{subject}.metadata.labels"
        return f"(has({labels}) && {quoted(key)} in {labels} && {labels}[{quoted(key)}] == {quoted(value)})"

    return FunctionPredicate(cel, lambda pod: pod.labels.get(key) == value)


def controlled(api_version: str, kind: str) -> Predicate:
    """The pod belongs to a controller of that kind."""

    def cel(subject: str) -> str:
        owners = f"{subject}.metadata.ownerReferences"
        ours = f"o.apiVersion == {quoted(api_version)} && o.kind == {quoted(kind)}"
        some = f"{owners}.exists(o, {ours} && has(o.controller) && o.controller)"
        return f"(has({owners}) && {owners}.size() <= {MOST} && {some})"

    return FunctionPredicate(cel, lambda pod: (api_version, kind) in pod.controllers)


def gated(gate: str) -> Predicate:
    """The pod has that scheduling gate."""

    def cel(subject: str) -> str:
        gates = f"{subject}.spec.schedulingGates"
        return f"(has({gates}) && ({gates}.size() > {MOST} || {gates}.exists(g, g.name == {quoted(gate)})))"

    return FunctionPredicate(cel, lambda pod: gate in pod.gates)


def any_of(*predicates: Predicate) -> Predicate:
    def cel(subject: str) -> str:
        return "(" + " || ".join(predicate.cel(subject) for predicate in predicates) + ")"

    return FunctionPredicate(cel, lambda pod: any(predicate.holds(pod) for predicate in predicates))


def all_of(*predicates: Predicate) -> Predicate:
    def cel(subject: str) -> str:
        return "(" + " && ".join(predicate.cel(subject) for predicate in predicates) + ")"

    return FunctionPredicate(cel, lambda pod: all(predicate.holds(pod) for predicate in predicates))


def negated(predicate: Predicate) -> Predicate:
    return FunctionPredicate(lambda subject: f"!{predicate.cel(subject)}", lambda pod: not predicate.holds(pod))


_OF_KUBERNETES = "kubernetes.io/"  # part of the names of its own resources, and of
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"  # which stands for devices


def _asks_for_devices(subject: str) -> str:
    device = f"r.contains('/') && (!r.contains({quoted(_OF_KUBERNETES)}) || r.startsWith({quoted(_DEVICE_CLASS)}))"
    limits = "c.resources.limits"
    some = f"({limits}.size() > {MOST} || {limits}.exists(r, {device}))"
    asks = [f"(has({subject}.spec.resourceClaims) && {subject}.spec.resourceClaims.size() > 0)"]
    for part in ("containers", "initContainers"):
        containers = f"{subject}.spec.{part}"
        found = f"{containers}.exists(c, has(c.resources) && has({limits}) && {some})"
        asks.append(f"(has({containers}) && ({containers}.size() > {MOST} || {found}))")
    return f"({' || '.join(asks)})"


def _limit_devices(limits: tuple[Collection[str], ...]) -> bool:
    """Whether containers do, or there is more than is looked through."""
    return len(limits) > MOST or any(len(names) > MOST or any(map(_is_device, names)) for names in limits)


def _is_device(name: str) -> bool:
    return "/" in name and (_OF_KUBERNETES not in name or name.startswith(_DEVICE_CLASS))


def quoted(text: str) -> str:
    """A CEL string. Names of Kubernetes need no escapes, so anything that would is a mistake."""
    if _PLAIN.fullmatch(text) is None:
        raise ValueError(f"{text!r} cannot stand in a CEL expression")
    return f"'{text}'"


def listed(texts: Iterable[str]) -> str:
    """A CEL list of strings."""
    return "[" + ", ".join(quoted(text) for text in texts) + "]"


GATE = "bursar.dev/quota"
NAMESPACE_LABEL = "bursar.dev/quota"
ENFORCED = "enforced"
TERM_ANNOTATION = "bursar.dev/term"
RECORD_ANNOTATION = "bursar.dev/admission"
OWN_PREFIX = "bursar.dev/"
LEASE = "bursar-controller"
SERVICE = "bursar-webhook"
CERTIFICATES = "bursar-webhook-tls"
ANSWERS_SERVICE = "bursar-answers"
ANSWERS_API = "v1alpha1.answers.bursar.dev"
MANAGED_BY = {"app.kubernetes.io/name": "bursar", "app.kubernetes.io/component": "admission"}


Reinvocation = Literal["Never", "IfNeeded"]
"""Whether a policy is reinvoked after others changed an object: the words of Kubernetes."""


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """Names of accounts and namespaces, and how far Bursar reaches."""

    namespace: str = "bursar-system"  # Bursar's own: never governed
    accounts: tuple[str, ...] = ("system:serviceaccount:bursar-system:bursar",)
    schedulers: tuple[str, ...] = (  # who may bind governed pods: the cluster's scheduler, and HAMi's
        *("system:kube-scheduler", "system:serviceaccount:kube-system:hami-scheduler"),
    )
    daemon_set_accounts: tuple[str, ...] = (
        "system:serviceaccount:kube-system:daemon-set-controller",
        "system:kube-controller-manager",
    )
    scheduler_names: tuple[str, ...] = (
        *("n8s-scheduler", "nos-scheduler", "koord-scheduler", "volcano", "tensor-fusion-scheduler"),
    )
    cluster_scheduler: str = "default-scheduler"  # what those become
    everywhere: bool = False  # a policy such as CrossQuota governs all namespaces but the exempt ones
    exempt_namespaces: tuple[str, ...] = ()  # by that policy, beside those that are never governed
    reinvocation: Reinvocation = "Never"  # of the gate, where all pods of a namespace are governed
    forget_managed_fields: bool = False  # of governed pods: who wrote which field
    more_labels: tuple[str, ...] = ()  # that quotas read too, such as those of CrossQuota's label selector
    running_schedulers: tuple[str, ...] = ()  # beside the cluster's own: pods that name others are reported
    spared_namespaces: tuple[str, ...] = ("gpu-operator",)  # whose agents come before any quota: never governed

    @property
    def known_schedulers(self) -> tuple[str, ...]:
        """Those that run in the cluster."""
        return ("", self.cluster_scheduler, *self.running_schedulers)

    @property
    def never(self) -> tuple[str, ...]:
        """Namespaces in which no pod is governed."""
        return tuple(dict.fromkeys(("kube-system", self.namespace, *self.spared_namespaces)))


MIRROR = "kubernetes.io/config.mirror"

_MARKS = installed_marks()


def _asks(demand: AnnotatedDemand) -> Predicate:
    unlabelled = all_of(negated(Marked("labels", (demand.label,))), Marked("annotations", demand.annotations))
    return any_of(labelled(demand.label, demand.value), unlabelled)


NAMES_A_QUOTA = Marked("labels", _MARKS.quota_labels, _MARKS.quota_prefixes)
OWN_ANNOTATIONS = Marked("annotations", _MARKS.own_annotations, (OWN_PREFIX,))
QUOTA_ANNOTATIONS = Marked("annotations", _MARKS.fixed_annotations)


def quota_labels(options: AdmissionOptions) -> Marked:
    """Labels that decide which quotas govern a pod and how, and so stay as they were when it was created."""
    keys = (*_MARKS.quota_labels, *_MARKS.fixed_labels, PREEMPTIBLE_LABEL, GROUP_LABEL, GROUP_SIZE_LABEL)
    return Marked("labels", (*keys, *options.more_labels), _MARKS.quota_prefixes)


NAMESPACE_NAME = "kubernetes.io/metadata.name"  # the API server keeps this label on every namespace

HAS_GATE = gated(GATE)
TAKEN = any_of(HAS_GATE, Marked("annotations", (RECORD_ANNOTATION,)))
OF_DAEMON_SET = controlled("apps/v1", "DaemonSet")
IS_MIRROR = Marked("annotations", (MIRROR,))
ASKS_FOR_DEVICES = FunctionPredicate(
    _asks_for_devices, lambda pod: pod.claims or _limit_devices(pod.limits) or _limit_devices(pod.init_limits)
)
EXEMPT = any_of(all_of(OF_DAEMON_SET, negated(ASKS_FOR_DEVICES)), IS_MIRROR)
MARKING = (*map(_asks, _MARKS.demands), NAMES_A_QUOTA)  # what loops over labels comes last
MARKED = any_of(*MARKING)


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Some namespaces: those among the given names (all if there are none given), without others, with labels."""

    without: tuple[str, ...]
    among: tuple[str, ...] = ()
    enforced: bool | None = None  # with the label, without it, or either

    def selector(self) -> dict[str, Any]:
        """As a ``namespaceSelector``."""
        expressions: list[dict[str, Any]] = []
        if self.among:
            expressions.append({"key": NAMESPACE_NAME, "operator": "In", "values": list(self.among)})
        if self.without:
            expressions.append({"key": NAMESPACE_NAME, "operator": "NotIn", "values": list(self.without)})
        if self.enforced is not None:
            operator = "In" if self.enforced else "NotIn"
            expressions.append({"key": NAMESPACE_LABEL, "operator": operator, "values": [ENFORCED]})
        return {"matchExpressions": expressions}

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        if name in self.without or (self.among and name not in self.among):
            return False
        return self.enforced in (None, labels.get(NAMESPACE_LABEL) == ENFORCED)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to be governed: in these namespaces, the pods for which ``reaches`` holds and that are not exempt."""

    name: str  # part of the names of its policies
    namespaces: Namespaces
    reaches: Predicate | None = None  # None: all

    def governs(self) -> Predicate:
        """About the pod alone: it is governed, if its namespace is one of these."""
        reached = negated(EXEMPT) if self.reaches is None else all_of(negated(EXEMPT), self.reaches)
        return any_of(TAKEN, reached)

    def spares(self) -> Predicate:
        """About the pod alone: it would be governed, if it were not what it says it is."""
        exempt = (EXEMPT, negated(TAKEN))
        return all_of(*exempt) if self.reaches is None else all_of(*exempt, self.reaches)


def arms(options: AdmissionOptions) -> tuple[Arm, ...]:
    """All arms. With CrossQuota in force one covers every namespace but the exempt ones; the others cover those."""
    never = options.never
    if not options.everywhere:
        return _by_mark(never, ())
    exempt = tuple(name for name in options.exempt_namespaces if name not in never)
    everywhere = Arm("everywhere", Namespaces((*never, *exempt)))
    if not exempt:
        return (everywhere,)
    return everywhere, *_by_mark(never, exempt)


def _by_mark(without: tuple[str, ...], among: tuple[str, ...]) -> tuple[Arm, Arm]:
    return (
        Arm("enforced", Namespaces(without, among, enforced=True)),
        Arm("marked", Namespaces(without, among, enforced=False), MARKED),
    )


def names_an_original(options: AdmissionOptions) -> str:
    """Whether a pod names the scheduler of an upstream project, which does not run here, as CEL."""
    scheduler = "object.spec.schedulerName"
    of_others = (
        f"{scheduler} in {listed(options.scheduler_names)} && {scheduler} != {quoted(options.cluster_scheduler)}"
    )
    return f"(has({scheduler}) && {of_others})"


class Governed:
    def __init__(self, options: AdmissionOptions) -> None:
        self._arms = [(arm.namespaces, arm.governs()) for arm in arms(options)]

    def holds(self, namespace: str, labels: Mapping[str, str], pod: PodFacts) -> bool:
        """Whether a pod is governed; ``labels`` are those of its namespace.

        Pods of DaemonSets that run without having been admitted count, and are nobody's victims.
        """
        if pod.bound and OF_DAEMON_SET.holds(pod) and not TAKEN.holds(pod):
            return False
        return any(namespaces.holds(namespace, labels) and predicate.holds(pod) for namespaces, predicate in self._arms)
