"""What callers can have done to a cluster, and how what came of it is told: in the answer and in the log of changes.

An action knows neither locks nor disks. It runs on the cluster of now and on a copy of it alike, and what is told is
read off the cluster that it ran on, right after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bursar.objects.corekinds import POD
from bursar.objects.kinds import Kind
from bursar.objects.manifests import Document
from bursar.server import chronicle, moments
from bursar.server.changelog import ChangeRecord, ObjectChange, Result
from bursar.server.undoing import Inverse
from bursar.sim.cluster import Cluster
from bursar.sim.news import Happening
from bursar.sim.store import timestamp

Outcome = tuple[Kind, str, Result]
Run = Callable[[Cluster], list[Outcome]]


@dataclass(frozen=True, slots=True)
class Action:
    """One change that is asked for; a repetition of it has the same ``key``, if the caller gave one."""

    verb: str
    run: Run
    key: str = ""
    request: str = ""  # what was asked, as a fingerprint
    inverse: Inverse | None = None  # of the change that this one takes back

    @property
    def fingerprint(self) -> str:
        return f"{self.verb} {self.request}"


def applying(documents: Sequence[Document]) -> Run:
    def run(cluster: Cluster) -> list[Outcome]:
        return [(one.kind, one.key, one.result) for one in cluster.apply(documents)]

    return run


def deleting(references: Sequence[str]) -> Run:
    def run(cluster: Cluster) -> list[Outcome]:
        found = [cluster.kinds.reference(text) for text in dict.fromkeys(references)]
        cluster.delete(found)
        return [(kind, key, "deleted") for kind, key in found]

    return run


def finishing(pods: Sequence[str]) -> Run:
    def run(cluster: Cluster) -> list[Outcome]:
        cluster.finish(pods)
        kind = cluster.kinds.find(POD.name)
        return [(kind, pod, "changed") for pod in dict.fromkeys(pods)]

    return run


def described(
    cluster: Cluster,
    number: int,
    action: Action,
    outcomes: Sequence[Outcome],
    happenings: Sequence[Happening],
    *,
    dry_run: bool = False,
) -> chronicle.Change:
    """A change as it is answered."""
    inverse = action.inverse
    return chronicle.Change(
        id=number,
        moment=moments.moment_of(cluster),
        verb=action.verb,
        objects=[_object_outcome(cluster, *outcome) for outcome in outcomes],
        pods=[_pod_news(happening) for happening in happenings],
        dry_run=dry_run,
        undoes=0 if inverse is None else inverse.number,
        lost=[] if inverse is None else inverse.lost,
    )


def _object_outcome(cluster: Cluster, kind: Kind, key: str, result: Result) -> chronicle.ObjectOutcome:
    stored = cluster.objects.find(kind.name, key)
    version = "" if stored is None else str(stored.version)
    return chronicle.ObjectOutcome(kind=kind.name, key=key, result=result, resource_version=version)


def _pod_news(happening: Happening) -> chronicle.PodNews:
    return chronicle.PodNews(
        time=timestamp(happening.at),
        pod=happening.pod,
        what=happening.what,
        node=happening.node,
        reason=happening.reason,
    )


def logged(
    cluster: Cluster, change: chronicle.Change, changed: Sequence[Outcome], happenings: Sequence[Happening]
) -> ChangeRecord:
    """A change as it is kept, so that it can be taken back; ``changed``: the outcomes that are not "unchanged"."""
    touched = cluster.objects.touched
    objects = [ObjectChange(kind.name, key, result, touched.get((kind.name, key), 0)) for kind, key, result in changed]
    return ChangeRecord(change, objects, [happening.pod for happening in happenings if happening.what == "evicted"])
