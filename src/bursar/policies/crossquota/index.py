"""What the policy derives from the ledger: facts of nodes, arrays over node slots, and who counts where.

It is changed only by ``charged``, ``node_changed`` and ``arguments_changed``, which the ledger calls whenever a
change is done, undone or replayed; so after an undo it says what it said before.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Claim
from bursar.ledger.state import State
from bursar.policies.crossquota.arguments import NO_ARGUMENTS, Arguments, arguments_of
from bursar.policies.crossquota.bindings import BindingCache
from bursar.policies.crossquota.columns import Columns
from bursar.policies.crossquota.names import NODES, PREFIX, RESERVE
from bursar.policies.crossquota.patterns import Patterns
from bursar.policies.crossquota.quotas import REMOVED, Facts, facts_of
from bursar.policies.crossquota.scope import Scope
from bursar.policies.node_index import NodeIndex
from bursar.policies.nodes.residents import Residents
from bursar.vectors import Tally, Vector

NOTHING_USED: Final = Tally()


@final
class Index:
    """Everything that can be computed from accounts and cells."""

    def __init__(self, state: State, nodes: NodeIndex) -> None:
        self.state: Final = state
        self.nodes: Final = nodes
        self.arguments: Arguments = NO_ARGUMENTS
        self.patterns: Patterns = Patterns(())
        self.scope: Scope = Scope(NO_ARGUMENTS, self.patterns)
        self.cache: BindingCache = BindingCache(NO_ARGUMENTS, self.scope)
        self.columns: Columns = Columns(NO_ARGUMENTS, 0)
        self.facts: Final[list[Facts | None]] = []  # by slot
        self.residents: Final[dict[str, Residents]] = {}  # by account name
        self.slots: Final[dict[str, int]] = {}  # by name of either account of a node
        self.removed: Final[set[str]] = set()  # deleted nodes that claims still hold
        self.changed: Final[dict[str, None]] = {}  # nodes to look at before the next outputs

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        name = account.name
        slot = self.slots[name]
        if name.endswith(RESERVE):
            self.columns.shift_all(slot, cost, sign)
        else:
            self.columns.shift(slot, cost, sign)
            self.changed[self.nodes.names[slot]] = None
        residents = self.residents.get(name)
        if residents is None:
            residents = Residents()
            self.residents[name] = residents
        if sign > 0:
            residents.add(claim)
        else:
            residents.remove(claim)
            if not residents.claims:
                del self.residents[name]

    def node_changed(self, name: str, cell: object) -> None:
        slot = self.nodes.slot(name)
        while len(self.facts) <= slot:
            self.facts.append(None)
        self.columns.reach(len(self.facts))
        self.slots[PREFIX + name] = slot
        self.slots[PREFIX + name + RESERVE] = slot
        if cell == REMOVED:
            self.removed.add(name)
        else:
            self.removed.discard(name)
        self._set_slot(name, slot, cell)

    def _set_slot(self, name: str, slot: int, cell: object) -> None:
        facts = facts_of(name, cell, self.arguments, self.patterns)
        self.facts[slot] = facts
        used = self._used(PREFIX + name)
        self.columns.set_slot(slot, facts, used, self._used(PREFIX + name + RESERVE))
        self.changed[name] = None

    def _used(self, account: str) -> Tally:
        found = self.state.accounts.get(account)
        return NOTHING_USED if found is None else found.used

    def arguments_changed(self, cell: object) -> None:
        """Everything that depends on the arguments is worked out anew."""
        self.arguments = arguments_of(cell)
        self.patterns = Patterns(self.arguments.gpu_names)
        self.scope = Scope(self.arguments, self.patterns)
        self.cache = BindingCache(self.arguments, self.scope)
        self.columns = Columns(self.arguments, len(self.facts))
        for name, known in self.state.cells(NODES).items():
            self._set_slot(name, self.nodes.slots[name], known)

    def node(self, name: str) -> Facts | None:
        """What is known of a node; None when it is unknown or deleted."""
        slot = self.nodes.slots.get(name)
        return None if slot is None or slot >= len(self.facts) else self.facts[slot]

    def residents_of(self, account: str) -> list[Claim]:
        """The claims that count there, the least important first."""
        found = self.residents.get(account)
        return [] if found is None else found.least_important_first()
