"""What a policy is: one rule set over accounts of its own.

A policy sees each claim in its own terms: ``bind`` names the accounts that govern the claim and what it costs there;
``charge`` counts it or refuses; ``release`` gives it back. Quota policies judge a claim wherever it runs; placement
policies judge it on a node and also filter and score nodes in bulk.

Rules every policy keeps:

* All state is in the ledger: usage in accounts, everything else in cells, written through the transaction. What is
  derived from it (indexes, parsed settings) is kept by the ``Watcher`` callbacks, which also fire on undo and replay.
* ``bind`` and ``explain`` change nothing. ``charge`` and ``recharge`` are all or nothing: a refusal leaves no trace.
* Only what grows is checked; ``forced`` skips the check, never the counting.
* No clock, no randomness, total orders everywhere.

The defaults below serve a policy that only says which accounts bind a claim: charge where it fits, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import Account, State, Watcher, first_unfit
from bursar.ledger.transaction import Transaction
from bursar.policies.node_slots import NodeIndex
from bursar.policies.results import Check, Output, Refusal, Revocation, Setting, refusal_for
from bursar.resources import Vector
from bursar.selectors import NodeNeeds


@mypyc_attr(allow_interpreted_subclasses=True)
class NeedsSource:
    """Where placement policies learn what other policies require of a claim's node."""

    def needs(self, claim: Claim) -> tuple[NodeNeeds, ...]:
        """Each of them must select the node; only selector, affinity and node name are looked at."""
        return ()


@mypyc_attr(allow_interpreted_subclasses=True)
class Policy(Watcher):
    """One rule set. Subclasses set ``name`` and ``placement`` and override what they need."""

    def __init__(
        self,
        name: str,
        placement: bool = False,
        kinds: tuple[str, ...] = (),
        demands: bool = False,
        settles: bool = False,
        directs: bool = False,
        follows: bool = False,
        contests: str = "",
    ) -> None:
        self.name: Final = name
        self.placement: Final = placement
        self.demands: Final = demands  # counts pending demand: ``demand`` is called
        self.settles: Final = settles  # ``settle`` is called before each commit
        self.directs: Final = directs  # its bindings say where a claim may run: ``node_needs`` is asked
        self.follows: Final = follows  # counts what runs: ``seen`` is called
        self.contests: Final = contests  # says who may displace whom on a node (``contest``): the topic of that
        self.kinds: Final = kinds  # kinds of settings it takes
        self.state: State = State()
        self.nodes: NodeIndex = NodeIndex()
        self.needs_of: NeedsSource = NeedsSource()

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        """Called once, before anything else: the ledger's state (to read), the shared node slots, and what other
        policies require of a claim's node.
        """
        self.state = state
        self.nodes = nodes
        if needs_of is not None:
            self.needs_of = needs_of

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        """A quota, profile, node or option came, changed (body) or went (body None); returns the uids of claims to
        bind anew. Raises ``SettingError`` for what it cannot accept; the whole change is then undone.
        """
        return []

    # One claim

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        """The accounts that govern the claim, and its cost there. None: not mine. A refusal: mine, but unreadable or
        unknown. ``place`` "": no node yet; quota policies then answer with an upper bound, placement policies None.
        """
        return None

    def demand(self, tx: Transaction, claim: Claim, binding: Binding, wanted: bool) -> None:
        """Pending demand begins (submitted) or ends (gone); it stays counted while the claim is placed."""

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        """Count the claim, or say why not."""
        if not forced:
            refusal = self.first_refusal(claim, binding.accounts, binding.costs)
            if refusal is not None:
                return refusal
        tx.charge(claim, binding.accounts, binding.costs)
        return None

    def recharge(self, tx: Transaction, claim: Claim, old: Binding, new: Binding, forced: bool) -> Refusal | None:
        """Move a counted claim to another binding (resized, placed, bound anew); only what grows is checked."""
        mark = tx.savepoint()
        self.release(tx, claim, old)
        refusal = None if forced else self._growth_refusal(claim, old, new)
        if refusal is None:
            refusal = self.charge(tx, claim, new, True)
        if refusal is not None:
            tx.rollback_to(mark)
        return refusal

    def release(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """The claim no longer counts."""
        tx.release(claim, binding.accounts, binding.costs)

    def leave(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """The claim was told to leave: decisions stop counting it; a physical place stays busy."""
        if self.placement:
            tx.vacate(claim, binding.accounts, binding.costs)
        else:
            self.release(tx, claim, binding)

    def stay(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """It was told to leave but stays: it counts again, whatever the limits say now."""
        if self.placement:
            tx.restore(claim, binding.accounts, binding.costs)
        else:
            self.charge(tx, claim, binding, True)

    def left(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """It was told to leave, and now it is physically gone."""
        if self.placement:
            tx.clear(claim, binding.accounts, binding.costs)

    def seen(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """A counted claim was seen to move on in its life (bound, running, terminating); its state says to what."""

    # Victims

    def search_begins(self, claim: Claim) -> None:
        """A search for victims for this claim begins; nobody has left yet. Rules that hold "as if nobody were
        evicted" look now; the search may try several places, each from this same state.
        """

    def search_ends(self) -> None:
        """The search is over, whatever came of it."""

    def contest(self, tx: Transaction, claim: Claim, occupants: list[Claim], short: Vector) -> list[Claim] | None:
        """Of those in the way at a place that is short of something, whom the claim may displace, least harm first.
        None: the claim is not this policy's, and the place's own rule holds.
        """
        return None

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        """Counted claims whose leaving may resolve the refusal, least harm first. Lazy: the engine releases each one
        in every policy before it asks for the next.
        """
        return iter(())

    def approve(self, tx: Transaction, claim: Claim, binding: Binding, victims: list[Claim]) -> bool:
        """The last word on a pruned plan: the victims have left and the claim is charged. False drops the plan."""
        return True

    def settle(self, tx: Transaction) -> None:
        """Once, at the end of every transaction that changed something, before it is committed."""

    # Answers

    def explain(self, claim: Claim, binding: Binding) -> Check:
        """Read-only: how this policy sees the claim now."""
        return self.account_checks(claim, binding)

    def due(self, now: int) -> list[Revocation]:
        """Claims to be taken back because of over-use, as of ``now`` (milliseconds)."""
        return []

    def next_due(self, now: int) -> int | None:
        """When after ``now`` the passing of time alone may make something due; None: never. As of the last ``due``."""
        return None

    def outputs(self, now: int) -> list[Output]:
        """What changed for the outside since the last call: statuses, labels, objects, events."""
        return []

    def counters(self) -> dict[str, int]:
        """What it has counted since it began, by name: for metrics. It decides nothing and is not kept."""
        return {}

    # Placement policies only

    def occupants(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> list[Claim] | None:
        """Counted claims at the place whose leaving may resolve the refusal, whoever may displace them. None: ask
        for ``victims`` instead.
        """
        return None

    def could(self, claim: Claim, mask: bytearray) -> None:
        """Clear ``mask[slot]`` for nodes on which the claim can never run, however empty they are."""

    def contestable(self, claim: Claim, mask: bytearray) -> None:
        """Clear ``mask[slot]`` for nodes on which nobody stands whom the claim's priority lets it displace. It saves
        the search for victims there; a policy that cannot tell leaves the mask alone.
        """

    def filter(self, claim: Claim, mask: bytearray) -> None:
        """Clear ``mask[slot]`` for nodes that cannot take the claim now."""

    def shut(self, claim: Claim, mask: bytearray) -> Refusal | None:
        """Why this policy closes all nodes of the mask, which the policies before it leave open: one reason for a
        claim that finds no place. None: say that the nodes are full.
        """
        return None

    def points(self, claim: Claim, mask: bytearray) -> vec[i64] | None:
        """The score of the nodes left in the mask, by slot: integers, millionths of the dialect's own score.

        None: it has nothing to say about this claim. The array may be the policy's own: whoever asks only reads it.
        """
        return None

    def rank(self, claim: Claim, mask: bytearray, ranks: list[int]) -> bool:
        """Add to ``ranks[slot]``: a sort key before the score, lower first (keep CPU pods off GPU nodes).

        Returns whether it says anything about this claim; where nobody does, ranks are not looked at.
        """
        return False

    def refuse(self, claim: Claim, node: str) -> Refusal | None:
        """Why this node cannot take the claim now: for explanations, one node at a time."""
        bound = self.bind(claim, node)
        if bound is None or isinstance(bound, Refusal):
            return bound
        return self.first_refusal(claim, bound.accounts, bound.costs)

    def survey(self, claim: Claim) -> Check | None:
        """Why no node takes the claim now, over all nodes: for explanations. None: nothing to say."""
        return None

    def ready(self, claim: Claim, binding: Binding) -> bool:
        """Whether the claim's place is physically free: nobody who was told to leave is still in the way."""
        for i in range(len(binding.accounts)):
            account = binding.accounts[i]
            for dim in binding.costs[i].indices():
                if account.busy.get(dim) > account.limits.get(dim) and account.busy.get(dim) > account.used.get(dim):
                    return False
        return True

    def node_needs(self, claim: Claim, binding: Binding) -> NodeNeeds | None:
        """Node requirements that the binding adds to the claim's own (the affinity of a quota tree)."""
        return None

    # Help for subclasses

    def first_refusal(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> Refusal | None:
        """The refusal of the first account in which the cost does not fit."""
        at = first_unfit(accounts, costs)
        if at < 0:
            return None
        return self.refusal(claim, accounts[at], accounts[at].short_dimension(costs[at]), costs[at])

    def refusal(self, claim: Claim, account: Account, dim: int, cost: Vector) -> Refusal:
        """How this policy words "does not fit"; override for codes and permanence of its own."""
        return refusal_for(self.name, "limit", account, dim, cost)

    def account_checks(self, claim: Claim, binding: Binding) -> Check:
        """One check an account: does the claim fit there, or (when it counts already) how full is it."""
        counted = claim.counts()
        children: list[Check] = []
        for i in range(len(binding.accounts)):
            account = binding.accounts[i]
            short = -1 if counted else account.short_dimension(binding.costs[i])
            refusal = None if short < 0 else self.refusal(claim, account, short, binding.costs[i])
            children.append(Check.of_account(account, binding.costs[i], refusal))
        return Check(self.name, all(c.passed for c in children), "", tuple(children))

    def _growth_refusal(self, claim: Claim, old: Binding, new: Binding) -> Refusal | None:
        """Check the new binding where it costs more than the old one; the old one is released already."""
        before = {old.accounts[i].name: old.costs[i] for i in range(len(old.accounts))}
        for i in range(len(new.accounts)):
            account = new.accounts[i]
            had = before.get(account.name)
            cost = new.costs[i]
            for dim in cost.indices():
                grows = had is None or cost.get(dim) > had.get(dim)
                if grows and account.used.get(dim) + cost.get(dim) > account.limits.get(dim):
                    return self.refusal(claim, account, dim, cost)
        return None
