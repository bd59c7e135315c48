"""Pods: which of them are wishes and which are facts, and what became of them since.

A pod with our gate is a *wish*: it is queued and decided. A pod on a node is a *fact*, and so is one that was let go
and is not bound yet (its record says where it counts). Everything else is none of our business until it is bound: also
a pod whose gate somebody else removed. One that is deleted before it is bound never is, so it is gone at once.
Facts count whoever made them.

What a wish asks for is read as long as it is gated; after that only what can still grow or shrink (see ``counting``).

What is known of one pod, and the order in which pods enter a new ledger.

How a pod counts that is no wish any more: as what it asks for, where it is.

Its own labels and annotations count, and the devices that it claims; those that nobody asked Bursar to govern are never
taken away for others. While it runs, requests, labels and annotations may change; where it is and may be stays as it
was when it was admitted, because its node constraints now contain what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

import msgspec

from bursar.control.admission import Admission, ObjectChange
from bursar.control.controller import Controller
from bursar.kube.controller.object_cache import ObjectCache, Report
from bursar.kube.controller.patches import (
    INVALID,
    PREEMPTED,
    UNJUDGED,
    AdmissionRecord,
    HoldRecord,
    PlacementJudge,
    admission_of,
    hold_of,
)
from bursar.kube.controller.pod_model import (
    GatedPodReader,
    PodRequest,
    SeenPod,
    UnjudgedError,
    anywhere,
    asks,
    claimed_devices,
    grew,
    milliseconds,
    unjudged,
    wished_annotations,
    wished_labels,
)
from bursar.kube.controller.shadow import Shadow
from bursar.objects.core import ObjectMeta, Pod
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD, TypedObject
from bursar.objects.pods import GROUP_LABEL, GROUP_SIZE_LABEL, PREEMPTIBLE_LABEL, owner_of


@dataclass(slots=True)
class TrackedPod:
    """A pod that counts or wants to, as it was last seen."""

    seen: SeenPod
    counted: Pod | None  # as the ledger knows it; None: it cannot be read, or waits for somebody to change it
    governed: bool
    record: AdmissionRecord | None = None
    hold: HoldRecord | None = None
    wish: bool = False  # it is gated
    reading: PodRequest | None = None  # of a wish: what it wants; None: it cannot be read as things are
    problem: str = ""

    @property
    def uid(self) -> str:
        return self.seen.metadata.uid

    @property
    def key(self) -> str:
        return self.seen.key


def entering(pod: SeenPod) -> tuple[int, int, int, int, str]:
    """Where it stands among those who enter: pods that nobody admitted, then by their admission, then wishes."""
    record = admission_of(pod.metadata.annotations)
    created = milliseconds(pod.metadata.creation_timestamp)
    if record is not None:
        return 1, record.term, record.seq, created, pod.key
    return (0 if pod.spec.node_name else 2), 0, 0, created, pod.key


_FOREIGN = {PREEMPTIBLE_LABEL: "false"}
_OUR_LABELS = (GROUP_LABEL, GROUP_SIZE_LABEL, PREEMPTIBLE_LABEL)


def fact(pod: SeenPod, governed: bool, place: str) -> Pod:
    """The pod as it was seen, on the node where it is or will be."""
    spec = msgspec.structs.replace(pod.spec, node_name=place)
    return msgspec.structs.replace(pod, metadata=_meta(pod, governed, pod.metadata.annotations), spec=spec)


def bare(counted: Pod, pod: SeenPod) -> Pod:
    """Whatever is wrong with its marks, or new about how nodes are chosen, it takes room: the pod without those."""
    labels = {name: value for name, value in pod.metadata.labels.items() if name not in _OUR_LABELS}
    meta = msgspec.structs.replace(counted.metadata, labels=labels | _FOREIGN)
    spec = msgspec.structs.replace(pod.spec, node_name=counted.spec.node_name)
    return msgspec.structs.replace(counted, metadata=meta, spec=anywhere(spec))


def adjusted(counted: Pod, pod: SeenPod, governed: bool) -> Pod:
    """As it counted, with what may change while it runs."""
    ours = {k: v for k, v in counted.metadata.annotations.items() if k not in wished_annotations({k: v})}
    annotations = wished_annotations(pod.metadata.annotations) | ours
    spec = msgspec.structs.replace(
        counted.spec,
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers,
        resources=pod.spec.resources,
    )
    return msgspec.structs.replace(counted, metadata=_meta(pod, governed, annotations), spec=spec)


def _meta(pod: SeenPod, governed: bool, annotations: dict[str, str]) -> ObjectMeta:
    labels = wished_labels(pod.metadata.labels)
    if not governed:
        labels = labels | _FOREIGN
    return msgspec.structs.replace(pod.metadata, labels=labels, annotations=annotations | claimed_devices(pod.spec))


class PodSync:
    """Tells the loop of pods."""

    def __init__(
        self,
        controller: Controller,
        world: ObjectCache,
        admission: Admission,
        placement: PlacementJudge,
        governs: Callable[[SeenPod], bool],
        report: Report,
        obstacle: Callable[[SeenPod], str],
        shadow: Shadow | None = None,
    ) -> None:
        """``obstacle``: why a wish has to wait before anybody may decide over it; "": it has not."""
        self._controller = controller
        self.wishes = GatedPodReader(controller, world, admission, placement)
        self._governs = governs
        self._report = report
        self._obstacle = obstacle
        self._shadow = shadow
        self.by_key: dict[str, TrackedPod] = {}
        self.by_uid: dict[str, TrackedPod] = {}
        self.unbound: dict[str, TrackedPod] = {}  # by uid: let go, and on no node yet
        self._troubled: dict[str, TrackedPod] = {}  # by uid: wishes that cannot be read as things are
        self._succeeded: dict[str, str] = {}  # by key: uids of pods of groups that are still there

    # What is seen

    def seen(self, pod: SeenPod, now: int) -> None:
        """A pod came or changed."""
        known = self.by_key.get(pod.key)
        if known is not None and known.uid != pod.metadata.uid:
            self.gone(pod.key)
            known = None
        if pod.ended:
            self.gone(pod.key)
            self._note_success(pod)
        elif known is None:
            self._enter(pod)
        else:
            self._again(known, pod, now)

    def _note_success(self, pod: SeenPod) -> None:
        """A pod of a group that needs no place any more counts for those that its controller creates anew."""
        if pod.status.phase == "Succeeded" and GROUP_LABEL in pod.metadata.labels:
            group = f"{pod.metadata.namespace}/{pod.metadata.labels[GROUP_LABEL]}"
            self._succeeded[pod.key] = pod.metadata.uid
            self._controller.queue.finished(pod.metadata.uid, group, owner_of(pod.metadata))

    def gone(self, key: str) -> None:
        """A pod is gone, or has ended."""
        if key in self._succeeded:
            self._controller.queue.remove(self._succeeded.pop(key))
        known = self.by_key.pop(key, None)
        if known is not None:
            del self.by_uid[known.uid]
            self.unbound.pop(known.uid, None)
            self._troubled.pop(known.uid, None)
            self._controller.gone(known.uid)

    # The first time

    def _enter(self, pod: SeenPod) -> None:
        marks = pod.metadata.annotations
        record = admission_of(marks)
        node = pod.spec.node_name
        if not node and pod.leaving:
            return
        if not node and (pod.gated or self._overshadowed(pod)):
            sight = TrackedPod(pod, None, governed=True, hold=hold_of(marks), wish=True)
            self._keep(sight)
            self._wish(sight)
        elif node or record is not None:
            governed = record is not None or self._governs(pod)
            sight = TrackedPod(pod, None, governed, record)
            self._keep(sight)
            self._fact(sight, node or (record.place if record is not None else ""))

    def _overshadowed(self, pod: SeenPod) -> bool:
        """A pod that somebody else decides over, and that is looked at as if it were gated."""
        return self._shadow is not None and not pod.spec.node_name and self._governs(pod)

    def _keep(self, sight: TrackedPod) -> None:
        self.by_key[sight.key] = sight
        self.by_uid[sight.uid] = sight

    def _fact(self, sight: TrackedPod, place: str) -> None:
        pod = sight.seen
        counted = fact(pod, sight.governed, place)
        if not (self._tell(sight, counted) or self._tell(sight, bare(counted, pod))):
            return
        if sight.record is not None and sight.record.displaced:
            self._controller.displaced_before(sight.uid, sight.record.displaced)
        self._progress(sight, pod)

    # A wish

    def _wish(self, sight: TrackedPod) -> None:
        """Read what a gated pod wants, as the embedded cluster would have admitted it."""
        if self._hinders(sight):
            return
        try:
            sight.reading = reading = self.wishes.read(sight.seen)
        except ManifestError as error:
            self._refuse(sight, UNJUDGED if isinstance(error, UnjudgedError) else INVALID, str(error))
            return
        meta = msgspec.structs.replace(sight.seen.metadata, labels=reading.labels, annotations=reading.annotations)
        if self._tell(sight, Pod(metadata=meta, spec=reading.spec)):
            sight.problem = ""
            self._troubled.pop(sight.uid, None)

    def _hinders(self, sight: TrackedPod) -> bool:
        problem = self._obstacle(sight.seen)
        if problem:
            self.set_aside(sight)
            self._refuse(sight, INVALID, problem)
        return bool(problem)

    def hold_back(self) -> None:
        """A quota turned out not to be known: whom it is for is not decided over until it is."""
        for sight in list(self.by_key.values()):
            if sight.wish:
                self._hinders(sight)

    def set_aside(self, sight: TrackedPod) -> None:
        """The ledger forgets it until it is told again: a wish is not to be granted, or a fact cannot be counted."""
        self._controller.gone(sight.uid)
        sight.counted = None

    def retry(self) -> None:
        """Objects changed: wishes that could not be read may be readable now."""
        for sight in list(self._troubled.values()):
            if sight.wish:
                self._wish(sight)

    def rejudge(self) -> None:
        """The rules about GPU nodes changed: wishes whose nodes only the scheduler judges are read once more."""
        for sight in list(self.by_key.values()):
            if sight.wish and unjudged(sight.seen.spec):
                self._wish(sight)

    # Again

    def _again(self, sight: TrackedPod, pod: SeenPod, now: int) -> None:
        before = sight.seen
        sight.seen = pod
        node = pod.spec.node_name
        if pod.preempted and not before.preempted and sight.governed:
            self._report("Pod", sight.key, PREEMPTED, "the scheduler takes its place for a pod of higher priority")
        if pod.leaving and not node:
            self.gone(pod.key)
            return
        if not node and (pod.gated or self._overshadowed(pod)):
            if asks(pod) != asks(before):
                self._wish(sight)
            return
        if sight.wish:
            sight.record = admission_of(pod.metadata.annotations)
            if sight.counted is None or not (node or sight.record):
                self.gone(pod.key)
                self._enter(pod)  # whatever it is now, it is no wish that was granted
                return
            self._let_go(sight, now)
        if grew(before, pod):
            self._adjust(sight, pod)
        self._progress(sight, pod)

    def _let_go(self, sight: TrackedPod, now: int) -> None:
        """It is a wish no longer."""
        if self._shadow is not None:
            self._shadow.bound(sight.uid, now)
        sight.wish, sight.reading = False, None
        self._troubled.pop(sight.uid, None)

    def _adjust(self, sight: TrackedPod, pod: SeenPod) -> None:
        """Requests, labels and annotations may change while a pod runs."""
        if sight.counted is not None:
            self._tell(sight, adjusted(sight.counted, pod, sight.governed))

    def tell_again(self, sight: TrackedPod) -> None:
        """The ledger is wrong about what it asks for, or knows nothing of it."""
        if sight.wish:
            self._wish(sight)
        else:
            self._adjust(sight, sight.seen)

    def _progress(self, sight: TrackedPod, pod: SeenPod) -> None:
        uid = sight.uid
        if pod.spec.node_name:
            self.unbound.pop(uid, None)
            self._controller.bound(uid, pod.spec.node_name)
        else:
            self.unbound[uid] = sight
        if pod.status.phase == "Running":
            self._controller.running(uid)
        if pod.leaving:
            self._controller.terminating(uid)

    # What changes around them

    def node_came(self, node: str) -> None:
        """A node is known now: pods that were seen on it before, or are being let go to it, count on it."""
        for sight in list(self.by_uid.values()):
            try:
                self._controller.counts_on(sight.uid, node)
            except OverflowError as error:
                self._uncountable(sight, error)

    def govern(self, namespaces: Container[str]) -> None:
        """Who governs these namespaces changed: pods that were there before, and not admitted, are theirs or not."""
        for sight in list(self.by_uid.values()):
            if sight.record is not None or sight.counted is None or sight.wish:
                continue
            if sight.seen.metadata.namespace in namespaces and self._governs(sight.seen) != sight.governed:
                sight.governed = not sight.governed
                self._adjust(sight, sight.seen)

    # Telling

    def _tell(self, sight: TrackedPod, counted: Pod) -> bool:
        created = milliseconds(counted.metadata.creation_timestamp)
        whole = TypedObject(POD, counted.metadata.namespace, counted.metadata.name, {}, counted)
        try:
            self._controller.apply([ObjectChange(POD, sight.key, whole, created)])
        except ManifestError as error:
            self._refuse(sight, INVALID, str(error))
            return False
        except OverflowError as error:
            self._uncountable(sight, error)
            return False
        sight.counted = counted
        return True

    def _uncountable(self, sight: TrackedPod, error: OverflowError) -> None:
        """A pod that chose its node itself may ask for anything: it stops nobody else."""
        self.set_aside(sight)
        self._refuse(sight, INVALID, f"it cannot be counted: {error}")

    def _refuse(self, sight: TrackedPod, reason: str, problem: str) -> None:
        if sight.problem != problem:
            self._report("Pod", sight.key, reason, problem)
        sight.problem = problem
        self._troubled[sight.uid] = sight
