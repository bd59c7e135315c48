"""Pods: which of them are wishes and which are facts, and what became of them since.

A pod with our gate is a *wish*: it is queued and decided. A pod on a node is a *fact*, and so is one that was let go
and is not bound yet (its record says where it counts). Everything else is none of our business until it is bound: also
a pod whose gate somebody else removed. One that is deleted before it is bound never is, so it is gone at once.
Facts count whoever made them.

What a wish asks for is read as long as it is gated; after that only what can still grow or shrink (see ``counting``).
"""

from __future__ import annotations

from collections.abc import Callable, Container

import msgspec

from bursar.control.admission import Admission
from bursar.control.loop import Controller
from bursar.control.translation import ObjectChange
from bursar.kube.controller.counting import adjusted, bare, fact
from bursar.kube.controller.names import INVALID, PREEMPTED, UNJUDGED
from bursar.kube.controller.placement import Placement
from bursar.kube.controller.records import admission_of, hold_of
from bursar.kube.controller.seenpod import SeenPod, asks, grew, milliseconds, unjudged
from bursar.kube.controller.shadow import Shadow
from bursar.kube.controller.sight import Sight
from bursar.kube.controller.wishes import UnjudgedError, Wishes
from bursar.kube.controller.world import Report, World
from bursar.objects.core import Pod
from bursar.objects.corekinds import POD
from bursar.objects.errors import ManifestError
from bursar.objects.kindset import TypedObject
from bursar.objects.pods import GROUP_LABEL, owner_of


class PodIntake:
    """Tells the loop of pods."""

    def __init__(
        self,
        controller: Controller,
        world: World,
        admission: Admission,
        placement: Placement,
        governs: Callable[[SeenPod], bool],
        report: Report,
        obstacle: Callable[[SeenPod], str],
        shadow: Shadow | None = None,
    ) -> None:
        """``obstacle``: why a wish has to wait before anybody may decide over it; "": it has not."""
        self._controller = controller
        self.wishes = Wishes(controller, world, admission, placement)
        self._governs = governs
        self._report = report
        self._obstacle = obstacle
        self._shadow = shadow
        self.by_key: dict[str, Sight] = {}
        self.by_uid: dict[str, Sight] = {}
        self.unbound: dict[str, Sight] = {}  # by uid: let go, and on no node yet
        self._troubled: dict[str, Sight] = {}  # by uid: wishes that cannot be read as things are
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
            sight = Sight(pod, None, governed=True, hold=hold_of(marks), wish=True)
            self._keep(sight)
            self._wish(sight)
        elif node or record is not None:
            governed = record is not None or self._governs(pod)
            sight = Sight(pod, None, governed, record)
            self._keep(sight)
            self._fact(sight, node or (record.place if record is not None else ""))

    def _overshadowed(self, pod: SeenPod) -> bool:
        """A pod that somebody else decides over, and that is looked at as if it were gated."""
        return self._shadow is not None and not pod.spec.node_name and self._governs(pod)

    def _keep(self, sight: Sight) -> None:
        self.by_key[sight.key] = sight
        self.by_uid[sight.uid] = sight

    def _fact(self, sight: Sight, place: str) -> None:
        pod = sight.seen
        counted = fact(pod, sight.governed, place)
        if not (self._tell(sight, counted) or self._tell(sight, bare(counted, pod))):
            return
        if sight.record is not None and sight.record.displaced:
            self._controller.displaced_before(sight.uid, sight.record.displaced)
        self._progress(sight, pod)

    # A wish

    def _wish(self, sight: Sight) -> None:
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

    def _hinders(self, sight: Sight) -> bool:
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

    def set_aside(self, sight: Sight) -> None:
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

    def _again(self, sight: Sight, pod: SeenPod, now: int) -> None:
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

    def _let_go(self, sight: Sight, now: int) -> None:
        """It is a wish no longer."""
        if self._shadow is not None:
            self._shadow.bound(sight.uid, now)
        sight.wish, sight.reading = False, None
        self._troubled.pop(sight.uid, None)

    def _adjust(self, sight: Sight, pod: SeenPod) -> None:
        """Requests, labels and annotations may change while a pod runs."""
        if sight.counted is not None:
            self._tell(sight, adjusted(sight.counted, pod, sight.governed))

    def tell_again(self, sight: Sight) -> None:
        """The ledger is wrong about what it asks for, or knows nothing of it."""
        if sight.wish:
            self._wish(sight)
        else:
            self._adjust(sight, sight.seen)

    def _progress(self, sight: Sight, pod: SeenPod) -> None:
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

    def _tell(self, sight: Sight, counted: Pod) -> bool:
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

    def _uncountable(self, sight: Sight, error: OverflowError) -> None:
        """A pod that chose its node itself may ask for anything: it stops nobody else."""
        self.set_aside(sight)
        self._refuse(sight, INVALID, f"it cannot be counted: {error}")

    def _refuse(self, sight: Sight, reason: str, problem: str) -> None:
        if sight.problem != problem:
            self._report("Pod", sight.key, reason, problem)
        sight.problem = problem
        self._troubled[sight.uid] = sight
