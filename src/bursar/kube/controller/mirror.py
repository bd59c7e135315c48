"""The mirror: a ledger that follows a cluster and writes nothing.

It is built from lists, then kept in sync by events. Objects come first, then bound pods in the order of their
admission, then gated pods, at last the holds of the previous leader. Actions that the control loop asks for collect in
``notes``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bursar.control.actions import Ports
from bursar.control.admission import Admission, known_kinds
from bursar.control.controller import Controller
from bursar.engine.engine import Engine
from bursar.kube.admission.predicate import AdmissionOptions, Governed, PodFacts
from bursar.kube.client.models import Meta
from bursar.kube.controller.object_cache import ObjectCache, published
from bursar.kube.controller.object_sync import ObjectSync, QuotaSelection
from bursar.kube.controller.patches import ENFORCED, GOVERNED_LABEL, INVALID, OTHER_GATES, PlacementRuleSet
from bursar.kube.controller.pod_model import SeenPod, other_gates
from bursar.kube.controller.pod_sync import PodSync, entering
from bursar.kube.controller.shadow import Shadow
from bursar.kube.controller.work_queue import PendingActions
from bursar.objects.core import Pod, PodContainer
from bursar.objects.devices import ResourceSlice
from bursar.objects.kinds import DEVICE_KINDS, NAMESPACE, NODE, POD, RESOURCE_SLICE, Kind
from bursar.objects.refused_pods import REFUSED_PODS, RefusedClass, pod_class
from bursar.policies.plugin import Registry
from bursar.policies.results import Output

log = logging.getLogger(__name__)
SLICE = 25  # pods that enter before other tasks run
CONFIGURATION_KIND = "Configuration.bursar.dev"


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    admission: AdmissionOptions = field(default_factory=AdmissionOptions)
    shadow: bool = False
    pin_all: bool = False


def _clock() -> Callable[[], int]:
    """Wall-clock milliseconds that advance by the monotonic clock, so that setting the wall clock ends no wait."""
    began = time.time_ns() - time.monotonic_ns()
    return lambda: (began + time.monotonic_ns()) // 1_000_000


class Mirror:
    """Engine and control loop, with the object cache and the syncs that feed them."""

    def __init__(
        self,
        registry: Registry,
        options: MirrorOptions,
        controls: Callable[[Engine, Registry, Ports], Controller] = Controller,
    ) -> None:
        self.notes = PendingActions(_clock())
        self.engine = Engine(registry.policies())
        self.controller = controls(self.engine, registry, self.notes)
        self.controller.leaves_nodes = True
        kinds = known_kinds(registry)
        self.kinds = [kind for kind in kinds if kind.name != POD.name]
        self.cache = ObjectCache(kinds)
        self.placement = PlacementRuleSet(registry, self.engine.policies, self.cache, pin_all=options.pin_all)
        self.shadow = Shadow(self.controller) if options.shadow else None
        if not options.shadow:  # which marks no nodes
            self.cache.unmarked = self.placement.unmarked
        self.selection = QuotaSelection(registry)
        self.news: Callable[[], None] = lambda: None  # called after a report
        admission = Admission(registry, kinds)
        governed = Governed(options.admission)
        self.pods = PodSync(
            self.controller,
            self.cache,
            admission,
            self.placement,
            lambda pod: self._governs(governed, pod),
            self.report,
            self._obstacle,
            self.shadow,
        )
        self.pods.known_schedulers = options.admission.known_schedulers
        self.named: Callable[[Iterable[str]], None] = lambda _: None  # quotas name these now, or do so no longer
        self.condition: Callable[[str, str, str], None] = lambda *_: None  # see ``ObjectSync``
        self.objects = ObjectSync(
            self.controller,
            self.cache,
            admission,
            self.report,
            lambda *given: self.condition(*given),  # noqa: PLW0108 it is set later
            self.notes.write,
            self._in_force,
            self._never_in_force,
        )

    # At the start

    def building(
        self,
        objects: Iterable[tuple[Kind, bytes]],
        pods: Iterable[SeenPod],
    ) -> Iterator[None]:
        """Build the ledger from lists, in steps, so that other tasks run in between."""
        yield from self.objects.start(objects)
        if self.cache.objects(CONFIGURATION_KIND):
            for node in self.cache.objects(NODE.name):
                yield
                self._reread(node.key)
        now = self.notes.now()
        for number, pod in enumerate(sorted(pods, key=entering)):
            if number % SLICE == 0:
                yield
            self.pods.seen(pod, now)
        for tracked in list(self.pods.by_uid.values()):
            hold = tracked.hold
            if hold is not None and tracked.counted is not None and hold.place:
                self.controller.held_before(tracked.uid, hold.place, [uid for uid, _ in hold.victims])

    # Later

    def object_seen(self, kind: Kind, raw: bytes) -> None:
        if self.objects.seen(kind, raw):
            self._changed(kind)

    def object_gone(self, kind: Kind, meta: Meta) -> None:
        if self.objects.gone(kind, meta.namespace, meta.name):
            self._changed(kind)

    def _changed(self, kind: Kind) -> None:
        if kind.name == CONFIGURATION_KIND:
            for node in self.cache.objects(NODE.name):  # what makes a GPU node may have changed
                self._reread(node.key)
            self.pods.rejudge()
        self.pods.retry()

    def _in_force(self, kind: Kind, key: str, new: bool) -> None:
        """An object came into force, or went out of it."""
        if kind.name == NODE.name:
            if new:
                self.pods.node_came(key)
        elif kind.name == NAMESPACE.name:
            self.pods.govern((key,))
        elif kind.name == RESOURCE_SLICE.name:
            self._slice_in_force(key)
        elif kind in DEVICE_KINDS:
            return
        else:
            self._name(self.selection.take(kind.name, key, self.cache.get(kind.name, key)))

    def _never_in_force(self, kind: str, key: str, body: Mapping[str, Any] | None, problem: str) -> None:
        """An object is invalid and never was in force (None: it is gone): pods that it governs stay pending."""
        self._name(self.selection.take(kind, key, body, problem))
        if problem:
            self.pods.hold_back()
            self.pods.retry()  # it may have named others before

    def _name(self, touched: Iterable[str]) -> None:
        """Quotas name these namespaces now, or do so no longer."""
        if touched and self.shadow is not None:
            self.pods.govern(frozenset(touched))
        if touched:
            self.named(touched)

    def _reread(self, node: str) -> None:
        manifest = self.cache.manifest(NODE.name, node)
        if manifest is not None:
            self.objects.seen(NODE, manifest)

    def _slice_in_force(self, name: str) -> None:
        """A driver published devices of a node, or does so no longer."""
        devices, known = self.cache.devices, self.cache.find(RESOURCE_SLICE.name, name)
        typed = None if known is None else known.given.typed
        for node in devices.seen(name, published(typed)) if isinstance(typed, ResourceSlice) else devices.gone(name):
            self._reread(node)

    def pod_seen(self, pod: SeenPod) -> None:
        self.pods.seen(pod, self.notes.now())

    def pod_gone(self, key: str) -> None:
        self.pods.gone(key)

    # What the scheduler found

    def refuse(self, node: str, pod: Pod, why: str, base: int) -> None:
        """The scheduler refused the pod on the node: none of its class goes there for a while."""
        if self.cache.find(NODE.name, node) is not None:
            now = self.notes.now()
            entry = RefusedClass(pod.metadata.namespace, now, now, why)
            self.cache.refused.remember(node, pod_class(pod), entry, base)
            self._refusals_changed(node)

    def end_refusals(self) -> None:
        """Nodes are tried again when their time has come."""
        for node in self.cache.refused.ended(self.notes.now()):
            self._refusals_changed(node)

    def _refusals_changed(self, node: str) -> None:
        self._reread(node)
        self.notes.write(Output(NODE.name, node, "annotations", {REFUSED_PODS: self.cache.refused.text(node)}))

    # Reports

    def report(self, kind: str, key: str, reason: str, message: str) -> None:
        """Log a fault and record an event about it."""
        log.warning("%s %s: %s: %s", kind, key, reason, message)
        self.notes.event(kind, key, "Warning", reason, message)
        self.news()

    def uid_of(self, kind: str, key: str) -> str:
        if kind == POD.name:
            tracked = self.pods.by_key.get(key)
            return "" if tracked is None else tracked.uid
        known = self.cache.find(kind, key)
        return "" if known is None else known.uid

    def _obstacle(self, pod: SeenPod) -> tuple[str, str]:
        """Why a pending pod may not be decided yet: reason and sentence."""
        gates = other_gates(pod, self.controller.options.ignored_gates)
        if gates:
            return OTHER_GATES, gates
        problem = self.selection.problem(pod.metadata.namespace, pod.metadata.labels)
        return (INVALID, problem) if problem else ("", "")

    def _governs(self, governed: Governed, pod: SeenPod) -> bool:
        meta = pod.metadata
        namespace = self.cache.get(NAMESPACE.name, meta.namespace) or {}
        labels = (namespace.get("metadata") or {}).get("labels") or {}
        if self.shadow is not None and meta.namespace in self.selection:
            labels = {**labels, GOVERNED_LABEL: ENFORCED}  # as the controller would have labelled it
        gates = tuple(gate.name for gate in pod.spec.scheduling_gates)
        owners = tuple((owner.api_version, owner.kind) for owner in meta.owner_references if owner.controller)
        spec = pod.spec
        limits, init_limits = (tuple(map(_limited, part)) for part in (spec.containers, spec.init_containers))
        asks = (limits, init_limits, bool(spec.resource_claims), bool(spec.node_name))
        return governed.holds(meta.namespace, labels, PodFacts(meta.labels, meta.annotations, gates, owners, *asks))


def _limited(container: PodContainer) -> Collection[str]:
    return container.resources.limits.keys()
