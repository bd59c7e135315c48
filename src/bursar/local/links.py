"""What the agent needs of the cluster that decides: a port, with one implementation in the server and one over HTTP.

All methods may block, and are called in threads of their own. What they did is durable when they return. Reports may be
repeated: one about a pod that has ended before changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from bursar.local.usage import MachineUse
from bursar.objects.local_options import LocalOptions

PENDING: Final = "Pending"
RUNNING: Final = "Running"
TERMINATING: Final = "Terminating"
GONE: Final = ""  # the phase of a pod that was deleted
ACTIVE: Final = (RUNNING, TERMINATING)  # it is charged, and may have processes
GPU_IDS: Final = "tensor-fusion.ai/gpu-ids"


class LinkError(Exception):
    """The cluster cannot be asked now: one line that says why. What was asked may have happened."""


class RefusedByClusterError(Exception):
    """The cluster refused the request: one line that says why."""


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod with processes on this machine, as the cluster has it."""

    pod: str  # team/name
    uid: str
    phase: str
    gpus: tuple[str, ...] = ()  # names of GPU objects
    evicted: bool = False
    deleted: bool = False
    reason: str = ""
    message: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)  # only where the whole pod was read

    @property
    def active(self) -> bool:
        return self.phase in ACTIVE

    @property
    def ended(self) -> bool:
        return self.phase != PENDING and not self.active

    @property
    def number(self) -> str:
        """What tells pods of one name apart."""
        return self.uid.rpartition("#")[2]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended, for its pod."""

    pod: str
    uid: str
    exit_code: int
    reason: str = ""
    message: str = ""
    again: bool = False  # it is queued once more


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where a pending pod stands."""

    pod: str
    position: int
    length: int
    since: int  # milliseconds from 1970
    reason: str
    front: str  # the pod before it; "" for the first


Hear = Callable[[Sequence[PodState]], None]


class ClusterLink(Protocol):
    """The cluster of one or more machines."""

    def submit(self, manifests: Sequence[Mapping[str, Any]]) -> list[PodState]:
        """Queue these new pods, all or none; ``RefusedByClusterError`` or ``LinkError``."""

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Create or update objects of this machine."""

    def remove(self, pods: Sequence[str], objects: Sequence[str] = ()) -> None:
        """Delete pods (team/name), and other objects (Kind/name); those that are not there are no failure."""

    def report(self, ends: Sequence[JobEnd]) -> list[PodState]:
        """These jobs are gone from the machine; the pods that are queued again for them."""

    def event(self, reference: tuple[str, str], kind: str, reason: str, message: str) -> None:
        """Record an event (Normal or Warning) about an object (kind, key)."""

    def pods(self) -> list[PodState]:
        """The machine's pods, with their annotations."""

    def objects(self, kind: str) -> list[str]:
        """The names of objects of a kind that belong to this machine."""

    def queue(self) -> list[QueuePlace]:
        """All pending pods, in order."""

    def options(self) -> LocalOptions:
        """What the Configuration says now."""

    def borrowing(self, uids: Sequence[str]) -> set[str]:
        """Those of these pods that sit on quota which their own does not guarantee."""

    def usage(self, use: MachineUse) -> None:
        """What is used now; only the newest counts, and it need not be durable."""

    def gaps(self) -> int:
        """How often the cluster may have forgotten this machine since the beginning."""

    def follow(self, hear: Hear) -> Callable[[], None]:
        """Hear of changes of the machine's pods once they are durable, in any thread; returns how to stop.

        The annotations of pods are left out. After a gap all pods are told of again.
        """
