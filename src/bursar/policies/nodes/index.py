"""What the nodes policy derives from the ledger: arrays, masks and lists over node slots.

It is changed only by ``charged``, ``node_changed`` and ``leaving_changed``, which the ledger calls whenever a change
is done, undone or replayed; so after an undo it says what it said before.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Claim
from bursar.policies.nodes.columns import Columns
from bursar.policies.nodes.facts import NOTHING, REMOVED, Facts, facts_of
from bursar.policies.nodes.masks import Masks
from bursar.policies.nodes.residents import Residents
from bursar.policies.nodes.rules import Port
from bursar.vectors import Tally, Vector

NOTHING_USED: Final = Tally()


@final
class Index:
    """Everything about nodes that can be computed from accounts and cells."""

    __slots__ = ("columns", "leaving_ports", "masks", "porters", "removed", "residents", "slots", "soft")

    def __init__(self) -> None:
        self.slots: Final[dict[str, int]] = {}  # by account name; a slot is never given to another node
        self.columns: Final = Columns()
        self.masks: Final = Masks()
        self.residents: Final[list[Residents]] = []  # by slot
        self.removed: Final[set[str]] = set()  # names of deleted nodes that still have an account
        self.porters: Final[dict[int, Residents]] = {}  # by slot: nodes on which somebody holds a port
        self.soft: Final[dict[int, Facts]] = {}  # by slot: nodes with PreferNoSchedule taints
        self.leaving_ports: Final[dict[str, dict[str, tuple[Port, ...]]]] = {}  # by account name, by uid

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        slot = self.slots[account.name]
        self.columns.shift(slot, cost, sign)
        residents = self.residents[slot]
        if sign > 0:
            residents.add(claim)
        else:
            residents.remove(claim)
        if residents.ports:
            self.porters[slot] = residents
        elif self.porters:
            self.porters.pop(slot, None)

    def node_changed(self, slot: int, name: str, account_name: str, used: Tally, cell: object) -> None:
        self._reach(slot)
        self.slots[account_name] = slot
        facts = facts_of(name, cell)
        self.columns.set_slot(slot, NOTHING if facts is None else facts.limits, used)
        self.masks.set_slot(slot, facts)
        if facts is not None and facts.soft:
            self.soft[slot] = facts
        else:
            self.soft.pop(slot, None)
        if cell == REMOVED:
            self.removed.add(name)
        else:
            self.removed.discard(name)

    def _reach(self, slot: int) -> None:
        while len(self.residents) <= slot:
            self.residents.append(Residents())
        self.columns.reach(len(self.residents))

    def leaving_changed(self, uid: str, old: object, new: object) -> None:
        """The cell (account name, ports) of a claim that was told to leave came or went."""
        if old is not None:
            account = _account_of(old)
            del self.leaving_ports[account][uid]
            if not self.leaving_ports[account]:
                del self.leaving_ports[account]
        if new is not None:
            self.leaving_ports.setdefault(_account_of(new), {})[uid] = _ports_of(new)

    def facts(self, account: Account) -> Facts | None:
        """The facts of the node; None when it was deleted."""
        return self.masks.facts[self.slots[account.name]]

    def residents_of(self, account: Account) -> Residents:
        return self.residents[self.slots[account.name]]


def _account_of(cell: object) -> str:
    return cast("str", cast("tuple[object, ...]", cell)[0])


def _ports_of(cell: object) -> tuple[Port, ...]:
    return cast("tuple[Port, ...]", cast("tuple[object, ...]", cell)[1])
