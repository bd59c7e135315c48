"""Rehearsals: steps of a cluster that are taken by the same code as real ones, and undone in the end.

A rehearsal is a cluster over another one. The engine is the same: what it decides is undone (``begin_rehearsal``). The
control loop goes on from a copy of the queue; objects, pods and time are layers over those of the cluster, which it
never writes. So a rehearsal costs what happens in it and the length of the queue, and not the size of the cluster.

No time passes in it, so it does not say what policies revoke after a delay, and nothing is written by policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from copy import copy
from typing import NamedTuple

from bursar.control.admission import Admission
from bursar.control.controller import Controller
from bursar.control.gangs import urgency
from bursar.engine.decision import Decision
from bursar.ledger.claims import PENDING, Claim
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD
from bursar.objects.manifests import Document
from bursar.sim.apply import Staging
from bursar.sim.cluster import Cluster
from bursar.sim.pods import ENDED, Clock, PodLife, SimPod


class LayeredPods(MutableMapping[str, SimPod]):
    """Pods by key, over those of a cluster. One that is looked at is copied, because it may be changed."""

    def __init__(self, base: Mapping[str, SimPod], leaves_after: int) -> None:
        """``leaves_after``: evicted pods take at least so long to leave, in milliseconds."""
        self._base = base
        self._least = leaves_after
        self._own: dict[str, SimPod | None] = {}  # None: deleted

    def __getitem__(self, key: str) -> SimPod:
        if key not in self._own:
            found = self._own[key] = copy(self._base[key])
            found.leaves_after = max(self._least, found.leaves_after)
        pod = self._own[key]
        if pod is None:
            raise KeyError(key)
        return pod

    def __setitem__(self, key: str, pod: SimPod) -> None:
        self._own[key] = pod

    def __delitem__(self, key: str) -> None:
        self._own[key] = None

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._base if self._own.get(key, True) is not None)
        yield from (key for key, pod in self._own.items() if pod is not None and key not in self._base)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Taken(NamedTuple):
    """A pod that is evicted, and for which other one, if it is for one."""

    pod: str
    by: str


class Rehearsal(Cluster):
    """A cluster that begins as another one is now; make it with ``rehearse``."""

    def __init__(self, base: Cluster) -> None:  # nothing of its own but the layers
        self.registry = base.registry
        self.kinds = base.kinds
        self.engine = base.engine
        self.events = []
        self._owned = {}
        self.taken: list[Taken] = []
        self._clock = Clock(base.now())
        self._store = base.objects.stage()
        self._copied = base.staging.keeps_ages

    def take_over(self, base: Cluster, controller: Controller) -> None:
        """Go on with this copy of the cluster's controller. In a copy of a live cluster nothing leaves at once."""
        self.controller = controller
        self._pods = PodLife(self._store, self._clock, controller)
        self._pods.by_key = LayeredPods(base.pod_states, 1 if self._copied else 0)
        self.staging = Staging(self.kinds, Admission(self.registry, self.kinds), self._clock, self._pods)
        self.staging.keeps_ages = self._copied
        self._held = {claim.key for claim in controller.held()}

    def evict(self, claim: Claim, decision: Decision) -> None:
        pod = self._pods.by_key.get(claim.key)
        told = pod is not None and pod.evicted
        super().evict(claim, decision)
        if pod is not None and pod.evicted and not told:
            self.taken.append(Taken(claim.key, decision.by))

    # Trying pods

    def try_pods(self, documents: Iterable[Document]) -> list[str]:
        """Create these pods and settle; their keys, the most urgent first. They must be new."""
        given = self.kinds.read_all(documents)
        for one in given:
            pod = self._pods.by_key.get(one.key)
            if one.kind.name != POD.name or (pod is not None and pod.phase not in ENDED):
                problem = "exists already" if one.kind.name == POD.name else "is no pod"
                raise ManifestError(f"{problem}: only new pods can be tried", subject=f"{one.kind.kind} {one.key}")
        self._apply(given)
        claims = [claim for claim in (self.controller.claim(one.key) for one in given) if claim is not None]
        keys = [claim.key for claim in sorted(claims, key=urgency)]
        self.settle()
        return keys

    def victims(self, key: str) -> list[str]:
        """The pods that were evicted for this one."""
        return [one.pod for one in self.taken if one.by == key]

    # Knock-on effects

    def started(self) -> list[str]:
        """The pods that started, and were not evicted again."""
        found = (line.pod for line in self.happenings if line.what == "started")
        return sorted({key for key in found if not self._pods.by_key[key].evicted})

    def held(self) -> list[str]:
        """The pods that got a place, and start when others left."""
        return sorted({claim.key for claim in self.controller.held()} - self._held)

    def displaced(self) -> list[str]:
        """The pods that had a place and had not started, and wait again."""
        claims = (self.controller.claim(key) for key in sorted(self._held))
        return [claim.key for claim in claims if claim is not None and claim.state == PENDING]


@contextmanager
def rehearse(cluster: Cluster) -> Iterator[Rehearsal]:
    """A rehearsal on the cluster, whose lock the caller holds. Whatever is done in it is undone in the end."""
    rehearsal = Rehearsal(cluster)
    with cluster.controller.rehearsal(rehearsal) as controller:
        rehearsal.take_over(cluster, controller)
        yield rehearsal
