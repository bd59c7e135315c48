"""The claims that count on one node: who would be asked to leave first, and who holds which host port.

Kept by charges being done, undone and replayed, so it only ever follows the ledger. The order is built when it is
first asked for and kept from then on: most nodes are never searched for victims, and a charge should cost little.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.ordered import Ordered
from bursar.policies.nodes.rules import Port, clash

NOBODY: Final = 2**40  # above every priority


@final
class Residents:
    """The counted claims of one node."""

    __slots__ = ("claims", "lowest", "lowest_known", "order", "ports")

    def __init__(self) -> None:
        self.claims: Final[dict[str, Claim]] = {}
        self.ports: Final[dict[str, tuple[Port, ...]]] = {}  # by uid, of those that hold some
        self.order: Ordered | None = None
        self.lowest: int = NOBODY
        self.lowest_known: bool = True

    def add(self, claim: Claim) -> None:
        self.claims[claim.uid] = claim
        self.lowest = min(self.lowest, claim.spec.priority)
        ports = claim.spec.needs.host_ports
        if ports:
            self.ports[claim.uid] = ports
        if self.order is not None:
            self.order.add(importance(claim))

    def remove(self, claim: Claim) -> None:
        del self.claims[claim.uid]
        if claim.spec.priority == self.lowest:
            self.lowest_known = False
        if self.ports:
            self.ports.pop(claim.uid, None)
        if self.order is not None:
            try:
                self.order.remove(importance(claim))
            except KeyError:
                self.order = None  # its priority changed while it stood here: sort anew when asked

    def lowest_priority(self) -> int:
        """The lowest priority of all who stand here; ``NOBODY`` on an empty node."""
        if not self.lowest_known:
            self.lowest = min([claim.spec.priority for claim in self.claims.values()], default=NOBODY)
            self.lowest_known = True
        return self.lowest

    def least_important_first(self) -> list[Claim]:
        if self.order is None:
            self.order = Ordered()
            for claim in self.claims.values():
                self.order.add(importance(claim))
        keys = self.order.keys()
        return [self.claims[str(key[-1])] for key in keys]

    def clash(self, wanted: tuple[Port, ...]) -> Port | None:
        """The first wanted port that is taken."""
        taken = [port for held in self.ports.values() for port in held]
        return clash(wanted, tuple(taken))

    def clashing(self, wanted: tuple[Port, ...]) -> list[Claim]:
        """Those who hold a wanted port."""
        return [self.claims[uid] for uid, held in self.ports.items() if clash(wanted, held) is not None]


def importance(claim: Claim) -> tuple[object, ...]:
    """Sorts the least important first: lower priority, then newer, then by name."""
    return (claim.spec.priority, -claim.created, claim.namespace, claim.name, claim.uid)
