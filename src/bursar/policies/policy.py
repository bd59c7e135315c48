"""What a policy is: one rule set over accounts of its own.

A policy sees each claim in its own terms: ``bind`` names the accounts that govern the claim and what it costs there;
``charge`` counts it or refuses; ``release`` gives it back. A ``QuotaPolicy`` decides over a claim wherever it runs; a
``PlacementPolicy`` decides over it on one node, and filters and scores all nodes at once.

A policy takes part in what it overrides: the engine looks once, when it is built, which hooks a class implements.

Rules for every policy:

* All state is in the ledger: usage in accounts, everything else in cells, written through the transaction. What is
  derived from it (indexes, parsed settings) follows the ``Watcher`` callbacks, which also fire on undo and replay.
* ``bind`` and ``explain`` change nothing. ``charge`` and ``recharge`` are all or nothing: a refusal leaves no trace.
* Only growth is checked; ``forced`` skips the check, never the counting.
* No clock, no randomness, total orders everywhere. The time is ``tx.now`` or the ``now`` that a hook is given. By
  default a claim is charged in the accounts that bind it, where it fits, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import Account, State, Watcher, first_unfit
from bursar.ledger.transaction import Transaction
from bursar.policies.ownership import OwnerRules
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.results import Check, Output, Refusal, Revocation, Setting, refusal_for
from bursar.policies.rights import ANY_STANDING, Rights, Row, missing_rows
from bursar.resources import Vector
from bursar.selectors import NodeNeeds


@mypyc_attr(allow_interpreted_subclasses=True)
class NeedsSource:
    """Where placement policies learn what other policies require of a claim's node."""

    def needs(self, claim: Claim) -> tuple[NodeNeeds, ...]:
        """Each of them must select the node; only selector, affinity and node name are looked at."""
        return ()


@mypyc_attr(allow_interpreted_subclasses=True)
class EvictionRules:
    """Where policies learn which claims the engine lets a claim displace, whatever the policies say."""

    def obstacle(self, claim: Claim, victim: Claim) -> str:
        """Why the claim may not displace that one as things are now; "" if it may."""
        return ""

    def protection(self, victim: Claim) -> str:
        """Why the claim may not be evicted for any other; "" if it may."""
        return ""


@mypyc_attr(allow_interpreted_subclasses=True)
class DemandRules:
    """Where policies learn whether the demand of a pending claim counts, whatever the policies say."""

    def counts(self, claim: Claim) -> bool:
        """Whether the claim may be admitted one day: some node could take it, and its gang is not held back."""
        return True

    def has_node(self, claim: Claim) -> bool:
        """Whether some node could take the claim if it were empty. A claim that takes no node needs none."""
        return True

    def changed(self) -> None:
        """What the policy counts as demand may have changed: call it in ``cell_changed``."""


@final
class ConcernVersion:
    """Counts the changes of what ``Policy.concerns`` depends on, over all policies of an engine."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number: int = 0


def overrides(policy: Watcher, base: type, hook: str) -> bool:
    """Whether the policy's class has its own version of a hook of ``base``."""
    return getattr(type(policy), hook, None) is not getattr(base, hook)


@mypyc_attr(allow_interpreted_subclasses=True)
class StatusHooks(Watcher):
    """What a policy writes for people and for monitoring."""

    def outputs(self, now: int) -> list[Output]:
        """The statuses, labels, objects and events that changed since the last call."""
        return []

    def counters(self) -> dict[str, int]:
        """Counts since the process started, by name, for metrics. They are not kept and decide nothing."""
        return {}


@mypyc_attr(allow_interpreted_subclasses=True)
class TimeHooks(StatusHooks):
    """What the passing of time alone changes."""

    def advance(self, tx: Transaction, now: int) -> None:
        """Set the limits that hold at ``now`` (milliseconds).

        It is called whenever time may have passed, so it must do nothing if nothing changes. Claims that wait for a
        changed account are decided again. A claim refused as permanent is not, so such limits refuse for now only.
        """

    def note_overuse(self, tx: Transaction, now: int) -> None:
        """Write down since when there is over-use, before ``revocations`` is asked."""

    def revocations(self, now: int) -> list[Revocation]:
        """The claims to evict because of over-use, as of ``now`` (milliseconds)."""
        return []

    def last_revocation(self) -> int | None:
        """The moment by which the over-use that there is now will be revoked; None if there is none."""
        return None

    def next_due(self, now: int) -> int | None:
        """The first moment after ``now`` at which time alone may change something, as of the last ``revocations``."""
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class PreemptionHooks(TimeHooks):
    """Whom a refused claim may displace."""

    def search_begins(self, claim: Claim) -> Rights | None:
        """A search for victims for this claim begins, before anything is evicted. Returns what it may displace if this
        policy has rules for it: they then hold wherever its own accounts or a node refuse.
        """
        return None

    def search_ends(self) -> None:
        """The search is over, with or without a plan."""

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        """Counted claims whose eviction may resolve the refusal, least harm first.

        It is read lazily: each victim is released in every policy before the next. A policy with rights needs none.
        """
        return iter(())

    def needs_all(self, claim: Claim, binding: Binding, victims: list[Claim]) -> bool:
        """Whether amounts tell that the claim fits only if each of these leaves, whoever else does not."""
        return False

    def missing(self, claim: Claim, binding: Binding) -> list[Row] | None:
        """What the claim is short of, [] if it fits; None if amounts do not tell, and victims are found by trial."""
        return None

    def standing(self, claim: Claim, binding: Binding, victim: Claim) -> int:
        """Where a claim stands among those of its priority that this policy may name as victims; the lowest go first.

        ``NEVER_NAMED`` says that it cannot be one, whoever else leaves; ``ANY_STANDING`` that this is not known. Asked
        where amounts do not tell, to rule out nodes. A policy that has it may name claims of any priority.
        """
        return ANY_STANDING

    def topics_of(self, binding: Binding) -> tuple[str, ...]:
        """The topics of what a claim that is bound so may free."""
        return tuple([account.topic for account in binding.accounts])

    def over_quota(self, claim: Claim) -> bool:
        """Whether the counted claim uses what its quota borrows."""
        return False

    def node_victims_topics(self, claim: Claim) -> tuple[str, ...]:
        """Topics whose change may change whom the claim may displace on nodes: a refused claim waits for them, too."""
        return ()


@mypyc_attr(allow_interpreted_subclasses=True)
class Policy(PreemptionHooks):
    """One rule set. Subclass ``QuotaPolicy`` or ``PlacementPolicy``, and override what is needed."""

    def __init__(self, name: str, kinds: tuple[str, ...] = ()) -> None:
        """``kinds`` are the kinds of settings that the policy takes."""
        self.name: Final = name
        self.kinds: Final = kinds
        self.slot: int = -1  # the position of its binding in ``Claim.bindings``; the engine sets it
        self.state: State = State()
        self.nodes: NodeIndex = NodeIndex()
        self.needs_of: NeedsSource = NeedsSource()
        self.eviction_rules: EvictionRules = EvictionRules()  # the engine's, once it is attached
        self.concern_version: ConcernVersion = ConcernVersion()  # the engine's, once it is attached
        self.demand_rules: DemandRules = DemandRules()  # the engine's, once it is attached
        self.owner_rules: OwnerRules = OwnerRules()  # of the policy that has them
        self.excludes: bool = False  # whether a claim that it refuses counts nowhere, as demand neither

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        """Called once, first: the ledger's state (to read), the node slots, and what policies require of a node."""
        self.state = state
        self.nodes = nodes
        if needs_of is not None:
            self.needs_of = needs_of

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        """A quota, profile, node or option was created, changed (body) or deleted (body None).

        Returns the uids of claims to bind again. Raises ``SettingError`` if it is not acceptable; the whole change is
        then undone.
        """
        return []

    # One claim

    def concerns(self, claim: Claim) -> bool:
        """Whether the policy may govern claims of this spec in this namespace, at any place.

        Where it is False, ``bind`` and the node hooks are not called. The answer is kept for the spec and namespace.
        It may depend on ``claim.spec``, ``claim.namespace`` and the policy's cells. ``concerns_changed`` drops all
        kept answers: call it in ``cell_changed``, so that undo and replay drop them too.
        """
        return True

    def concerns_changed(self) -> None:
        self.concern_version.number += 1

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        """The accounts that govern the claim, and its cost there.

        Returns None if the policy does not govern the claim, or a Refusal if it does and cannot read it. ``place`` is
        empty before a node is chosen: quota policies then answer with an upper bound, placement policies with None.
        """
        return None

    def bind_anyway(self, claim: Claim, place: str, old: Binding | None) -> Binding | None:
        """What counts of a claim that runs although ``bind`` refuses it; by default, what counted before."""
        return old

    def check(self, claim: Claim, binding: Binding) -> Refusal | None:
        """Read-only: the refusal of ``charge``, if it is not forced.

        By default that of the first account without room. A policy that must change something to find out has none.
        """
        accounts, costs = binding.accounts, binding.costs
        at = first_unfit(accounts, costs)
        dim = -1 if at < 0 else accounts[at].short_dimension(costs[at])
        return None if at < 0 else self.refusal(claim, accounts[at], dim, costs[at])

    def standing_refusal(self, claim: Claim, binding: Binding) -> Refusal | None:
        """Read-only: a refusal that only room in its account resolves, and no victims. None: it takes a decision."""
        return None

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        """Count the claim, or return why not."""
        refusal = None if forced else self.check(claim, binding)
        if refusal is not None:
            return refusal
        tx.charge(claim, binding.accounts, binding.costs)
        return None

    def recharge(self, tx: Transaction, claim: Claim, old: Binding, new: Binding, forced: bool) -> Refusal | None:
        """Move a counted claim to another binding (resized, placed, bound again); only growth is checked."""
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

    def begin_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """The claim is evicted and still running: decisions stop counting it."""
        self.release(tx, claim, binding)

    def cancel_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """The eviction is cancelled: the claim counts again, whatever the limits are now."""
        self.charge(tx, claim, binding, True)

    def finish_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """The evicted claim is physically gone."""

    def settle(self, tx: Transaction) -> None:
        """Called once, at the end of every transaction that changed something, before it is committed."""

    def explain(self, claim: Claim, binding: Binding) -> Check:
        """Read-only: how this policy sees the claim now."""
        return self.account_checks(claim, binding)

    # Help for subclasses

    def refusal(self, claim: Claim, account: Account, dim: int, cost: Vector) -> Refusal:
        """How this policy words "does not fit"; override for codes and permanence of its own."""
        return refusal_for(self.name, "limit", account, dim, cost)

    def missing_in_accounts(self, binding: Binding) -> list[Row]:
        """The ``missing`` of a policy whose accounts alone decide."""
        found: list[Row] = []
        for i in range(len(binding.accounts)):
            cost, dims = binding.costs[i], binding.costs[i].indices()
            found.extend(missing_rows(binding.accounts[i], dims, [cost.get(dim) for dim in dims]))
        return found

    def account_checks(self, claim: Claim, binding: Binding) -> Check:
        """One check an account: does the claim fit there, or (when it counts already) how full is it."""
        counted = claim.counts()
        children: list[Check] = []
        for i in range(len(binding.accounts)):
            account, cost = binding.accounts[i], binding.costs[i]
            short = [] if counted else account.missing(cost).indices()
            failed = [self.refusal(claim, account, dim, cost) for dim in short]
            more = tuple(failed) if len(failed) > 1 else ()
            children.append(Check.of_account(account, cost, failed[0] if failed else None, more))
        return Check(self.name, all(c.passed for c in children), "", tuple(children))

    def _growth_refusal(self, claim: Claim, old: Binding, new: Binding) -> Refusal | None:
        """Check the new binding where it costs more than the old one; the old one is released already."""
        before = {old.accounts[i].name: old.costs[i] for i in range(len(old.accounts))}
        for i in range(len(new.accounts)):
            account, cost = new.accounts[i], new.costs[i]
            had = before.get(account.name)
            for dim in cost.indices():
                grows = had is None or cost.get(dim) > had.get(dim)
                if grows and account.used.get(dim) + cost.get(dim) > account.limits.get(dim):
                    return self.refusal(claim, account, dim, cost)
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class QuotaPolicy(Policy):
    """Decides over a claim wherever it runs."""

    def open_accounts(self, tx: Transaction, claim: Claim) -> None:
        """A claim was submitted, or asks for something else: open the accounts that ``bind`` needs to charge it.

        ``bind`` was asked before: without its account it returns None, or a binding without accounts.
        """

    def close_accounts(self, tx: Transaction, namespace: str) -> None:
        """A claim of the namespace is gone: close accounts that ``open_accounts`` opened, if none needs them.

        ``state.namespaces`` counts the claims that there are.
        """

    def demand(self, tx: Transaction, claim: Claim, binding: Binding, wanted: bool) -> None:
        """Pending demand begins (submitted) or ends (gone); it stays counted while the claim is placed."""

    def gang_obstacle(self, claims: list[Claim]) -> Refusal | None:
        """Why these claims, the members of a gang, could never count together, however much is free."""
        return None

    def state_changed(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """A claim was observed to be bound, running or terminating, as ``claim.state`` says, maybe while it leaves."""

    def node_needs(self, claim: Claim) -> NodeNeeds | None:
        """Node requirements that the claim's quota adds to its own (the affinity of a quota tree)."""
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class PlacementPolicy(Policy):
    """Decides over a claim on one node, whose physical capacity stays busy until an evicted claim is gone."""

    # All nodes at once

    def feasible(self, claim: Claim, mask: bytearray) -> None:
        """Clear ``mask[slot]`` for nodes on which the claim can never run, however empty they are."""

    def filter(self, claim: Claim, mask: bytearray) -> None:
        """Clear ``mask[slot]`` for nodes that cannot take the claim now."""

    def rank(self, claim: Claim, mask: bytearray, ranks: list[int]) -> bool:
        """Add to ``ranks[slot]``: a sort key before the score, lower first (keep CPU pods off GPU nodes).

        Returns whether it ranks this claim at all; ranks are not read if no policy does.
        """
        return False

    def score(self, claim: Claim, mask: bytearray) -> vec[i64] | None:
        """The score of the nodes left in the mask, by slot: integers, millionths of the dialect's own score.

        Returns None if it does not score this claim. The array may be the policy's own: callers only read it.
        """
        return None

    def spread(self, claim: Claim, mask: bytearray) -> vec[i64] | None:
        """Which of the nodes with equal scores is better, by slot, higher first: a sort key after the score.

        Returns None if it has no preference. The array may be the policy's own: callers only read it.
        """
        return None

    def why_no_node(self, claim: Claim, mask: bytearray) -> Refusal | None:
        """Why this policy filters out all nodes that the policies before it leave open; None if they are just full."""
        return None

    # One node

    def residents(self, slot: int) -> dict[str, Claim] | None:
        """The counted claims on a node, by uid; None if the policy does not keep them."""
        return None

    def least_important(self, slot: int) -> Claim | None:
        """Of those, the one with the lowest priority, the newest of several."""
        return None

    def fewest_victims(self, claim: Claim, slot: int) -> int:
        """At least so many residents of a full node must leave so that the claim fits, whichever they are."""
        return 1

    def victims_on_node(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> list[Claim] | None:
        """Counted claims on the node whose eviction may resolve the refusal, for a quota policy to choose from.

        Returns None to use ``victims`` instead.
        """
        return None

    def begin_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        tx.vacate(claim, binding.accounts, binding.costs)

    def cancel_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        tx.restore(claim, binding.accounts, binding.costs)

    def finish_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        tx.clear(claim, binding.accounts, binding.costs)

    def ready(self, claim: Claim, binding: Binding) -> bool:
        """Whether the claim's place is physically free: no evicted claim still blocks it."""
        for account, cost in zip(binding.accounts, binding.costs, strict=True):
            for dim in cost.indices():
                if account.busy.get(dim) > account.limits.get(dim) and account.busy.get(dim) > account.used.get(dim):
                    return False
        return True

    def explain_node(self, claim: Claim, node: str) -> Refusal | None:
        """Why this node cannot take the claim now."""
        bound = self.bind(claim, node)
        if bound is None or isinstance(bound, Refusal):
            return bound
        return self.check(claim, bound)

    def explain_nodes(self, claim: Claim) -> Check | None:
        """Why no node takes the claim now, over all nodes; None if the policy does not concern the claim."""
        return None
