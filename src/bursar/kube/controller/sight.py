"""What is known of one pod, and the order in which pods enter a new ledger."""

from __future__ import annotations

from dataclasses import dataclass

from bursar.kube.controller.records import AdmissionRecord, HoldRecord, admission_of
from bursar.kube.controller.seenpod import SeenPod, milliseconds
from bursar.kube.controller.wishes import Reading
from bursar.objects.core import Pod


@dataclass(slots=True)
class Sight:
    """A pod that counts or wants to, as it was last seen."""

    seen: SeenPod
    counted: Pod | None  # as the ledger knows it; None: it cannot be read, or waits for somebody to change it
    governed: bool
    record: AdmissionRecord | None = None
    hold: HoldRecord | None = None
    wish: bool = False  # it is gated
    reading: Reading | None = None  # of a wish: what it wants; None: it cannot be read as things are
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
