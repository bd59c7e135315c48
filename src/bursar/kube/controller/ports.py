"""The control loop's ports on Kubernetes: they take notes of what is to be done, and others do it.

The loop never waits for the API server. What it wants is kept by object, the newest wish of each, until it is taken;
a wish that is no longer held (a start whose claim lost its place) is dropped by whoever carries it out, which looks at
the ledger again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bursar.control import ports as outside
from bursar.engine.decisions import Decision
from bursar.ledger.claims import Claim
from bursar.objects.corekinds import POD
from bursar.policies.settings import Output

ObjectKey = tuple[str, str]
"""(kind, key)."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something to tell people about an object."""

    kind: str
    key: str
    type: str
    reason: str
    message: str


class Notes:
    """What the loop wants done, since it was last taken."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last = 0
        self.starts: dict[str, Claim] = {}
        self.evictions: dict[str, tuple[Claim, Decision]] = {}
        self.marks: dict[str, dict[str, dict[str, str | None]]] = {}  # by key of a pod: labels, annotations
        self.outputs: dict[ObjectKey, dict[str, Output]] = {}  # of other objects, by part
        self.events: list[Told] = []

    # Ports

    def now(self) -> int:
        """Wall clock, but never back: what is recorded must not be older than what came before."""
        self._last = max(self._last, self._clock())
        return self._last

    def start(self, claim: Claim) -> None:
        self.starts[claim.uid] = claim

    def evict(self, claim: Claim, decision: Decision) -> None:
        self.evictions[claim.uid] = (claim, decision)

    def write(self, output: Output) -> None:
        if output.kind == POD.name and output.part in {"labels", "annotations"}:
            marks = self.marks.setdefault(output.key, {}).setdefault(output.part, {})
            marks.update({name: None if value is None else str(value) for name, value in (output.value or {}).items()})
        else:
            self._write_object(output)

    def _write_object(self, output: Output) -> None:
        parts = self.outputs.setdefault((output.kind, output.key), {})
        known = parts.get(output.part)
        if known is not None and output.part in {"labels", "annotations"}:
            output = Output(output.kind, output.key, output.part, {**(known.value or {}), **(output.value or {})})
        parts[output.part] = output

    def event(self, kind: str, key: str, type: str, reason: str, message: str) -> None:  # noqa: A002 as Kubernetes says
        if reason != outside.ADMITTED:  # the admission's record on the pod says it, in the one write that starts it
            self.events.append(Told(kind, key, type, reason, message))
