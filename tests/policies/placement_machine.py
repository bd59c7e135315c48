"""A placement policy alone over a ledger, and what random histories of claims on nodes are for every such policy.

Each policy brings a world of its own with its settings and questions, and a machine with the rules that differ and the
invariants. Here is the life of a claim, and undo and replay, which must leave no trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, Self, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from bursar.ledger.claims import PENDING, RESERVED, Binding, Claim
from bursar.ledger.transaction import Ledger
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.policy import PlacementPolicy
from bursar.policies.results import Refusal


class PlacementWorld(ABC):
    """One transaction stays open; ``commit`` closes it and opens the next."""

    policy: PlacementPolicy

    def __init__(self, name: str, policy: PlacementPolicy) -> None:
        self.ledger = Ledger()
        self.policy = policy
        self.nodes = NodeIndex()
        self.ledger.watch(name, policy)
        policy.attach(self.ledger.state, self.nodes)
        self.tx = self.ledger.begin()

    def submit(self, *claims: Claim) -> None:
        for one in claims:
            if one.uid not in self.ledger.state.claims:
                self.tx.add_claim(one)

    def place(self, one: Claim, node: str, forced: bool = False) -> Refusal | None:
        """Submit and charge the claim there, or say why not."""
        self.submit(one)
        bound = self.policy.bind(one, node)
        if isinstance(bound, Refusal):
            return bound
        if bound is not None:
            refusal = self.policy.charge(self.tx, one, bound, forced)
            if refusal is not None:
                return refusal
        self.tx.set_bindings(one, (bound,))
        self.tx.set_place(one, node)
        self.tx.set_state(one, RESERVED)
        return None

    def held(self, one: Claim) -> Binding:
        binding = one.bindings[0]
        assert binding is not None
        return binding

    def release(self, one: Claim) -> None:
        if one.bindings[0] is not None:
            self.policy.release(self.tx, one, one.bindings[0])
        self._let_go(one)

    def leave(self, one: Claim) -> None:
        if one.bindings[0] is not None:
            self.policy.begin_eviction(self.tx, one, one.bindings[0])
        self.tx.set_leaving(one, True)

    def stay(self, one: Claim) -> None:
        if one.bindings[0] is not None:
            self.policy.cancel_eviction(self.tx, one, one.bindings[0])
        self.tx.set_leaving(one, False)

    def left(self, one: Claim) -> None:
        if one.bindings[0] is not None:
            self.policy.finish_eviction(self.tx, one, one.bindings[0])
        self._let_go(one)

    def _let_go(self, one: Claim) -> None:
        self.tx.set_bindings(one, ())
        self.tx.set_place(one, "")
        self.tx.set_leaving(one, False)
        self.tx.set_state(one, PENDING)

    def commit(self) -> None:
        self.policy.settle(self.tx)
        self.ledger.commit(0, ("test",))
        self.tx = self.ledger.begin()

    def abort(self) -> None:
        self.ledger.abort()
        self.tx = self.ledger.begin()

    def repeat(self, other: PlacementWorld) -> None:
        """Repeat, in a world that is new, what the other one has committed and not yet handed out."""
        self.ledger.abort()
        for _ in self.ledger.replay(other.ledger.journal.take()):
            pass
        self.tx = self.ledger.begin()

    def reason(self, one: Claim, node: str) -> str:
        refusal = self.policy.explain_node(one, node)
        return "" if refusal is None else refusal.reason

    @abstractmethod
    def indexed(self) -> dict[str, object]:
        """Everything that the policy has derived, by name, without what is empty."""

    @abstractmethod
    def replayed(self) -> PlacementWorld:
        """Another world that repeats this one."""


class WithReferenceModel(Protocol):
    """The reference model of a policy."""

    placed: dict[str, tuple[Claim, str, bool]]  # by uid: the claim, its node, whether it is leaving

    def copy(self) -> Self: ...


W = TypeVar("W", bound=PlacementWorld)
T = TypeVar("T", bound=WithReferenceModel)


class PlacementMachine(RuleBasedStateMachine, Generic[W, T]):
    """Claims are placed by the rules of a policy's own machine; how they go, and what is undone, is told here."""

    def __init__(self, world: W, reference: T) -> None:
        super().__init__()
        self.world = world
        self.reference = reference
        self.committed = reference.copy()
        self.claims: list[Claim] = []
        self.savepoints: list[tuple[int, T, dict[str, object], dict[str, object]]] = []

    def chosen(self, number: int, placed: bool, leaving: bool = False) -> Claim | None:
        fitting = [
            one
            for one in self.claims
            if (one.uid in self.reference.placed) == placed
            and (not placed or self.reference.placed[one.uid][2] == leaving)
        ]
        return fitting[number % len(fitting)] if fitting else None

    @rule(number=st.integers(0, 99))
    def release(self, number: int) -> None:
        one = self.chosen(number, placed=True)
        if one is not None:
            self.world.release(one)
            del self.reference.placed[one.uid]

    @rule(number=st.integers(0, 99))
    def leave(self, number: int) -> None:
        one = self.chosen(number, placed=True)
        if one is not None:
            self.world.leave(one)
            self.reference.placed[one.uid] = (one, one.place, True)

    @rule(number=st.integers(0, 99), gone=st.booleans())
    def end_leaving(self, number: int, gone: bool) -> None:
        one = self.chosen(number, placed=True, leaving=True)
        if one is None:
            return
        if gone:
            self.world.left(one)
            del self.reference.placed[one.uid]
        else:
            self.world.stay(one)
            self.reference.placed[one.uid] = (one, one.place, False)

    @rule()
    def save(self) -> None:
        state = (self.world.ledger.state.plain(), self.world.indexed())
        self.savepoints.append((self.world.tx.savepoint(), self.reference.copy(), *state))

    @precondition(lambda self: bool(self.savepoints))
    @rule(depth=st.integers(0, 3))
    def rollback(self, depth: int) -> None:
        at = max(0, len(self.savepoints) - 1 - depth)
        savepoint, self.reference, plain, indexed = self.savepoints[at]
        del self.savepoints[at:]
        self.world.tx.rollback_to(savepoint)
        assert self.world.ledger.state.plain() == plain
        assert self.world.indexed() == indexed

    @rule()
    def commit(self) -> None:
        self.world.commit()
        self.settle_reference()
        self.savepoints.clear()
        self.committed = self.reference.copy()

    def settle_reference(self) -> None:
        """What the reference model does where the policy settles: nothing, unless a machine knows better."""

    @rule()
    def abort(self) -> None:
        self.world.abort()
        self.savepoints.clear()
        self.reference = self.committed.copy()

    def teardown(self) -> None:
        self.commit()
        copy = self.world.replayed()
        assert copy.ledger.state.plain() == self.world.ledger.state.plain()
        assert copy.ledger.digest == self.world.ledger.digest
        assert copy.indexed() == self.world.indexed()
