"""Pod sync: which pods are pending, which are bound, and how each is charged.

A pod with Bursar's gate is *pending*: it is queued and decided. A pod with a node is *bound*, and so is an ungated one
that waits for the scheduler; its admission record says where it is charged. Any other pod is ignored until it is
bound, also one whose gate was removed by another party. Bound pods are always charged, whether or not Bursar admitted
them.

The request of a pending pod is read while it is gated. Afterwards requests, labels and annotations may still change,
but not the node constraints: they contain the decision. Bound pods that are not governed are never victims.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

import msgspec

from bursar.control.admission import Admission, ObjectChange
from bursar.control.controller import Controller
from bursar.kube.controller.object_cache import ObjectCache, Report
from bursar.kube.controller.patches import (
    HOLD,
    INVALID,
    PREEMPTED,
    TOO_LARGE,
    UNJUDGED,
    UNKNOWN_SCHEDULER,
    AdmissionRecord,
    HistoryRecord,
    HoldRecord,
    PlacementRuleSet,
    admission_of,
    hold_of,
)
from bursar.kube.controller.pod_model import (
    GatedPodReader,
    PodRequest,
    SeenPod,
    UnjudgedError,
    anywhere,
    decision_input,
    input_changed,
    milliseconds,
    user_annotations,
    user_labels,
)
from bursar.kube.controller.shadow import Shadow
from bursar.objects.constraints import unjudged
from bursar.objects.core import ObjectMeta, Pod
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD, TypedObject
from bursar.objects.pods import GROUP_LABEL, GROUP_SIZE_LABEL, PREEMPTIBLE_LABEL, owner_of


@dataclass(slots=True)
class TrackedPod:
    """What the controller keeps of a pod that is bound or pending."""

    seen: SeenPod
    counted: Pod | None  # as the ledger has it; None: it cannot be read until its user changes it
    governed: bool
    record: AdmissionRecord | None = None
    hold: HoldRecord | None = None
    pending: bool = False  # it is gated
    reading: PodRequest | None = None  # while it is pending; None if it cannot be read now
    problem: str = ""

    @property
    def uid(self) -> str:
        return self.seen.metadata.uid

    @property
    def key(self) -> str:
        return self.seen.key


def entering(pod: SeenPod) -> tuple[int, int, int, int, str]:
    """The order in which pods enter a new ledger: not admitted by Bursar, then by admission, then pending ones.

    Pending pods with a hold come before others, which may inherit from those that had to leave for them.
    """
    record = admission_of(pod.metadata.annotations)
    created = milliseconds(pod.metadata.creation_timestamp)
    if record is not None:
        return 1, record.term, record.seq, created, pod.key
    pending = 2 if HOLD in pod.metadata.annotations else 3
    return (0 if pod.spec.node_name else pending), 0, 0, created, pod.key


DEFAULT_SCHEDULER = "default-scheduler"
_FOREIGN = {PREEMPTIBLE_LABEL: "false"}
_OUR_LABELS = (GROUP_LABEL, GROUP_SIZE_LABEL, PREEMPTIBLE_LABEL)


def bound_pod(pod: SeenPod, governed: bool, place: str) -> Pod:
    """The pod as it was seen, on the node where it is or will be."""
    spec = msgspec.structs.replace(pod.spec, node_name=place)
    return msgspec.structs.replace(pod, metadata=_meta(pod, governed, pod.metadata.annotations), spec=spec)


def resources_only(counted: Pod, pod: SeenPod) -> Pod:
    """The pod without its marks and node constraints: if they cannot be read, its resources still count."""
    labels = {name: value for name, value in pod.metadata.labels.items() if name not in _OUR_LABELS}
    meta = msgspec.structs.replace(counted.metadata, labels=labels | _FOREIGN)
    spec = msgspec.structs.replace(pod.spec, node_name=counted.spec.node_name)
    return msgspec.structs.replace(counted, metadata=meta, spec=anywhere(spec))


def adjusted(counted: Pod, pod: SeenPod, governed: bool) -> Pod:
    """The pod as it was counted, with the fields that may change while it runs."""
    ours = {k: v for k, v in counted.metadata.annotations.items() if k not in user_annotations({k: v})}
    annotations = user_annotations(pod.metadata.annotations) | ours
    spec = msgspec.structs.replace(
        counted.spec,
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers,
        resources=pod.spec.resources,
    )
    return msgspec.structs.replace(counted, metadata=_meta(pod, governed, annotations), spec=spec)


def _meta(pod: SeenPod, governed: bool, annotations: dict[str, str]) -> ObjectMeta:
    labels = user_labels(pod.metadata.labels)
    if not governed:
        labels = labels | _FOREIGN
    return msgspec.structs.replace(pod.metadata, labels=labels, annotations=annotations)


class PodSync:
    def __init__(
        self,
        controller: Controller,
        cache: ObjectCache,
        admission: Admission,
        placement: PlacementRuleSet,
        governs: Callable[[SeenPod], bool],
        report: Report,
        obstacle: Callable[[SeenPod], tuple[str, str]],
        shadow: Shadow | None = None,
    ) -> None:
        """``obstacle`` says why a pending pod may not be decided yet: reason and sentence, "" if it may."""
        self.known_schedulers: Container[str] = ("", DEFAULT_SCHEDULER)  # that run in the cluster, by its options
        self._controller = controller
        self.gated_pods = GatedPodReader(controller, cache, admission, placement)
        self._governs = governs
        self._report = report
        self._obstacle = obstacle
        self._shadow = shadow
        self.by_key: dict[str, TrackedPod] = {}
        self.by_uid: dict[str, TrackedPod] = {}
        self.unbound: dict[str, TrackedPod] = {}  # by uid: ungated, and on no node yet
        self.schedulers: set[str] = set()  # names of those that bound pods which Bursar started
        self._unreadable: dict[str, TrackedPod] = {}  # by uid: pending pods that cannot be read now
        self._waiting: dict[str, None] = {}  # those of them that are to be read again
        self.sliced = False  # whether the caller reads them, some at a time
        self._succeeded: dict[str, str] = {}  # by key: uids of pods of groups that are still there

    # Watch events

    def seen(self, pod: SeenPod, now: int) -> None:
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
        """A gang member that has finished counts for those that its controller recreates."""
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
            self._unreadable.pop(known.uid, None)
            self._controller.gone(known.uid)

    # New pods

    def _enter(self, pod: SeenPod) -> None:
        marks = pod.metadata.annotations
        record = admission_of(marks)
        node = pod.spec.node_name
        if not node and pod.leaving:
            return
        if not node and (pod.gated or self._shadowed(pod)):
            tracked = TrackedPod(pod, None, governed=True, hold=hold_of(marks), pending=True)
            self._keep(tracked)
            self._sync_pending(tracked)
            self._check_scheduler(tracked)
            if tracked.counted is not None:
                self._recall(tracked, tracked.hold)
        elif node or record is not None:
            governed = record is not None or self._governs(pod)
            tracked = TrackedPod(pod, None, governed, record)
            self._keep(tracked)
            self._sync_bound(tracked, node or (record.place if record is not None else ""))

    def _check_scheduler(self, tracked: TrackedPod) -> None:
        name = tracked.seen.spec.scheduler_name
        known = name in self.known_schedulers or name in self.schedulers
        if not known and self._shadow is None:
            note = f"schedulerName {name:.80} is none that is known to run here: without it nothing starts the pod"
            self._report("Pod", tracked.key, UNKNOWN_SCHEDULER, note)

    def _shadowed(self, pod: SeenPod) -> bool:
        """Whether shadow mode treats the pod, which another scheduler decides, as if it were gated."""
        return self._shadow is not None and not pod.spec.node_name and self._governs(pod)

    def _keep(self, tracked: TrackedPod) -> None:
        self.by_key[tracked.key] = tracked
        self.by_uid[tracked.uid] = tracked

    def _sync_bound(self, tracked: TrackedPod, place: str) -> None:
        pod = tracked.seen
        counted = bound_pod(pod, tracked.governed, place)
        if not (self._sync_claim(tracked, counted) or self._sync_claim(tracked, resources_only(counted, pod))):
            return
        if not place:
            self._controller.unplace(tracked.uid)
        self._recall(tracked, tracked.record)
        self._progress(tracked, pod)

    def _recall(self, tracked: TrackedPod, record: HistoryRecord | None) -> None:
        """Keep the preemption history that is recorded on the pod, also for heirs that enter later."""
        if record is not None and (record.lineage or record.displacements):
            self._controller.recall_history(tracked.uid, record.lineage, record.displacements)

    # Pending pods

    def _sync_pending(self, tracked: TrackedPod) -> None:
        """Read the request of a gated pod, as the embedded cluster would admit it."""
        if self._is_obstructed(tracked):
            return
        if tracked.seen.excess:
            self.back_off(tracked)
            self._refuse(tracked, TOO_LARGE, tracked.seen.excess)
            self._unreadable.pop(tracked.uid, None)  # only its user can change that
            return
        try:
            tracked.reading = reading = self.gated_pods.read(tracked.seen)
        except ManifestError as error:
            self._refuse(tracked, UNJUDGED if isinstance(error, UnjudgedError) else INVALID, str(error))
            return
        meta = msgspec.structs.replace(tracked.seen.metadata, labels=reading.labels, annotations=reading.annotations)
        if self._sync_claim(tracked, Pod(metadata=meta, spec=reading.spec)):
            tracked.problem = ""
            self._unreadable.pop(tracked.uid, None)

    def _is_obstructed(self, tracked: TrackedPod) -> bool:
        reason, problem = self._obstacle(tracked.seen)
        if problem:
            self.back_off(tracked)
            self._refuse(tracked, reason, problem)
        return bool(problem)

    def hold_back(self) -> None:
        """A quota is not in force: its pods are not decided until it is."""
        for tracked in list(self.by_key.values()):
            if tracked.pending:
                self._is_obstructed(tracked)

    def back_off(self, tracked: TrackedPod) -> None:
        """Removes the pod from the ledger until it is synced again: it may not be decided, or cannot be counted."""
        self._controller.gone(tracked.uid)
        tracked.counted = None

    def unplace(self, tracked: TrackedPod) -> None:
        """The node that was kept for a started pod is given back; the pod keeps its quota."""
        if tracked.record is not None:
            tracked.record = msgspec.structs.replace(tracked.record, place="")
            self._controller.unplace(tracked.uid)

    def retry(self) -> None:
        """Objects changed: pending pods that could not be read may be readable now."""
        self._waiting.update(dict.fromkeys(reversed(self._unreadable)))
        if not self.sliced:
            self.read_again(lambda: False)

    def read_again(self, enough: Callable[[], bool]) -> bool:
        """Read such pods until it is enough; returns whether some are left. There may be thousands of them."""
        while self._waiting:
            tracked = self._unreadable.get(self._waiting.popitem()[0])
            if tracked is not None and tracked.pending:
                self._sync_pending(tracked)
            if enough():
                break
        return bool(self._waiting)

    def rejudge(self) -> None:
        """The Configuration changed: reads pending pods again that only the scheduler judges, or that others gate."""
        for tracked in list(self.by_key.values()):
            if tracked.pending and (tracked.seen.foreign_gates or unjudged(tracked.seen.spec)):
                self._sync_pending(tracked)

    # Changed pods

    def _again(self, tracked: TrackedPod, pod: SeenPod, now: int) -> None:
        before = tracked.seen
        tracked.seen = pod
        node = pod.spec.node_name
        if pod.preempted and not before.preempted and tracked.governed:
            self._report("Pod", tracked.key, PREEMPTED, "the scheduler preempts it for a pod of higher priority")
        if pod.leaving and not node:
            self.gone(pod.key)
            return
        if not node and (pod.gated or self._shadowed(pod)):
            if decision_input(pod) != decision_input(before):
                self._sync_pending(tracked)
            return
        if tracked.pending:
            tracked.record = admission_of(pod.metadata.annotations)
            if tracked.counted is None or not (node or tracked.record):
                self.gone(pod.key)
                self._enter(pod)  # it was not admitted by this decision
                return
            self._ungated(tracked, now)
        if input_changed(before, pod):
            self._adjust(tracked, pod)
        self._progress(tracked, pod)

    def _ungated(self, tracked: TrackedPod, now: int) -> None:
        """The pod is no longer pending."""
        if self._shadow is not None:
            self._shadow.bound(tracked.uid, now)
        tracked.pending, tracked.reading = False, None
        self._unreadable.pop(tracked.uid, None)

    def _adjust(self, tracked: TrackedPod, pod: SeenPod) -> None:
        """Requests, labels and annotations may change while a pod runs."""
        if tracked.counted is not None:
            self._sync_claim(tracked, adjusted(tracked.counted, pod, tracked.governed))

    def sync_again(self, tracked: TrackedPod) -> None:
        """The ledger lacks the pod, or has wrong requests for it."""
        if tracked.pending:
            self._sync_pending(tracked)
        else:
            self._adjust(tracked, tracked.seen)

    def _progress(self, tracked: TrackedPod, pod: SeenPod) -> None:
        uid = tracked.uid
        if pod.spec.node_name:
            self.unbound.pop(uid, None)
            if tracked.record is not None and pod.spec.scheduler_name:
                self.schedulers.add(pod.spec.scheduler_name)
            self._controller.bound(uid, pod.spec.node_name)
        else:
            self.unbound[uid] = tracked
        if pod.status.phase == "Running":
            self._controller.running(uid)
        if pod.leaving:
            self._controller.terminating(uid)

    # Changed nodes and namespaces

    def node_came(self, node: str) -> None:
        """A node was added: pods that were bound to it before, or are being ungated for it, count on it."""
        for tracked in list(self.by_uid.values()):
            try:
                self._controller.counts_on(tracked.uid, node)
            except OverflowError as error:
                self._uncountable(tracked, error)

    def govern(self, namespaces: Container[str]) -> None:
        """Quotas of these namespaces came or went: bound pods that Bursar did not admit are governed or not."""
        for tracked in list(self.by_uid.values()):
            if tracked.record is not None or tracked.counted is None or tracked.pending:
                continue
            if tracked.seen.metadata.namespace in namespaces and self._governs(tracked.seen) != tracked.governed:
                tracked.governed = not tracked.governed
                self._adjust(tracked, tracked.seen)

    # The control loop

    def _sync_claim(self, tracked: TrackedPod, counted: Pod) -> bool:
        created = milliseconds(counted.metadata.creation_timestamp)
        whole = TypedObject(POD, counted.metadata.namespace, counted.metadata.name, {}, counted)
        try:
            self._controller.apply([ObjectChange(POD, tracked.key, whole, created)])
        except ManifestError as error:
            self._refuse(tracked, INVALID, str(error))
            return False
        except OverflowError as error:
            self._uncountable(tracked, error)
            return False
        tracked.counted = counted
        return True

    def _uncountable(self, tracked: TrackedPod, error: OverflowError) -> None:
        """A pod that names its own node may request anything; an overflow must not stop other pods."""
        self.back_off(tracked)
        self._refuse(tracked, INVALID, f"it cannot be counted: {error}")

    def _refuse(self, tracked: TrackedPod, reason: str, problem: str) -> None:
        if tracked.problem != problem:
            self._report("Pod", tracked.key, reason, problem)
        tracked.problem = problem
        self._unreadable[tracked.uid] = tracked
