"""What the control loop needs of the world outside: a clock, pods that start and leave, objects to write to.

The embedded cluster and Kubernetes each stand behind these ports. None of the calls may call the controller back: what
follows from them (a pod runs, a pod is gone) is told to the controller later, as something that was seen.
"""

from __future__ import annotations

from typing import Protocol

from bursar.engine.decisions import Decision
from bursar.ledger.claims import Claim
from bursar.policies.settings import Output

NORMAL = "Normal"
WARNING = "Warning"

ADMITTED = "Admitted"
HELD = "Held"
EVICTED = "Evicted"
RESIZE_REFUSED = "ResizeRefused"


class Ports(Protocol):
    """One way of running pods."""

    def now(self) -> int:
        """Milliseconds. Never goes back."""

    def start(self, claim: Claim) -> None:
        """Let the claim's pod run; where, stands in ``claim.place`` ("" if it takes no node)."""

    def evict(self, claim: Claim, decision: Decision) -> None:
        """Make the claim's pod leave. May be called again for one that is leaving already."""

    def write(self, output: Output) -> None:
        """Write what a policy wants written; whoever does it must not fail when the object is gone."""

    def event(self, kind: str, key: str, type: str, reason: str, message: str) -> None:  # noqa: A002 as Kubernetes says
        """Tell people what happened to an object: on edges only."""
