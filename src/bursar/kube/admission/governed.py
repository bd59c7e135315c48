"""Which pods are governed: the one predicate behind the gate, the guards, the fallback webhook and the controller.

A pod is governed if an *arm* reaches it. An arm is a selection of namespaces (a ``namespaceSelector`` for the API
server) and a term about the pod itself (CEL for the API server); both are read as Python too. One arm covers the
namespaces in which quota is enforced; in all others one reaches pods that name a tree, a quota or a GPU fraction. Every
namespace that can be governed is in exactly one arm, so that no pod is judged twice.

Never governed are the pods of kube-system and of Bursar's own namespace, mirror pods and pods of DaemonSets. But a pod
that has the gate or the admission record is governed whatever else becomes of it: adoption by a DaemonSet, or a
namespace that loses its label, neither frees quota that is in use nor leaves a gated pod without anybody to admit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bursar.kube.admission.marks import ASKS_FOR_A_FRACTION, MIRROR, NAMES_A_QUOTA
from bursar.kube.admission.options import ENFORCED, GATE, NAMESPACE_LABEL, RECORD_ANNOTATION, Options
from bursar.kube.admission.terms import AllOf, AnyOf, Controlled, Gated, Marked, Not, PodFacts, Term, listed, quoted

NAMESPACE_NAME = "kubernetes.io/metadata.name"  # the API server keeps this label on every namespace

HAS_GATE: Term = Gated(GATE)
TAKEN: Term = AnyOf((HAS_GATE, Marked("annotations", (RECORD_ANNOTATION,))))
OF_DAEMON_SET: Term = Controlled("apps/v1", "DaemonSet")
IS_MIRROR: Term = Marked("annotations", (MIRROR,))
EXEMPT: Term = AnyOf((OF_DAEMON_SET, IS_MIRROR))
MARKED: Term = AnyOf((ASKS_FOR_A_FRACTION, NAMES_A_QUOTA))  # what loops over labels comes last, here and below


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
    reaches: Term | None = None  # None: all

    def governs(self) -> Term:
        """About the pod alone: it is governed, if its namespace is one of these."""
        reached = Not(EXEMPT) if self.reaches is None else AllOf((Not(EXEMPT), self.reaches))
        return AnyOf((TAKEN, reached))

    def spares(self) -> Term:
        """About the pod alone: it would be governed, if it were not what it says it is."""
        exempt: tuple[Term, ...] = (EXEMPT, Not(TAKEN))
        return AllOf(exempt if self.reaches is None else (*exempt, self.reaches))


def arms(options: Options) -> tuple[Arm, ...]:
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


def names_an_original(options: Options) -> str:
    """Whether a pod names the scheduler of an original, and so nobody who would schedule it here, as CEL."""
    scheduler = "object.spec.schedulerName"
    of_others = (
        f"{scheduler} in {listed(options.scheduler_names)} && {scheduler} != {quoted(options.cluster_scheduler)}"
    )
    return f"(has({scheduler}) && {of_others})"


class Governed:
    """The predicate in Python."""

    def __init__(self, options: Options) -> None:
        self._arms = [(arm.namespaces, arm.governs()) for arm in arms(options)]

    def holds(self, namespace: str, labels: Mapping[str, str], pod: PodFacts) -> bool:
        """Whether a pod is governed; ``labels`` are those of its namespace."""
        return any(namespaces.holds(namespace, labels) and term.holds(pod) for namespaces, term in self._arms)
