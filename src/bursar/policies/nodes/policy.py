"""The nodes policy: a claim runs on a node that has room for it and whose rules admit it.

In the ledger: an account ``nodes/<name>`` for each node, with its capacity as limits, and a cell with the rest. A
deleted node keeps its account, with no capacity, until the last claim that counts there is gone; a new node of that
name takes the account over. A second table holds the host ports of claims that are being evicted.

While a claim counts, its requests may change; its node constraints and host ports may not.

Resources that something else hands out, such as a scheduler extender, are no resources of nodes: a claim takes none of
them from its node. A cell has the names that the Configuration adds to those that are always known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast, final

from librt.vecs import vec
from mypy_extensions import i64

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Transaction
from bursar.policies.nodes.masks import masks_of
from bursar.policies.nodes.rules import (
    NAME,
    PORT,
    PREFIX,
    REFUSED,
    REPELLED,
    ROOM,
    IgnoredBody,
    NodeBody,
    NodeFacts,
    check_nodes,
    clash,
    facts_of,
    failed_rule,
    rule_note,
    show_port,
    untolerated_soft,
)
from bursar.policies.nodes.table import FULL_SCORE, NodeResidentIndex
from bursar.policies.placement_kit import (
    NOTHING,
    NOTHING_USED,
    ONE_POD,
    REMOVED,
    BindingCache,
    NodeIndex,
    close_if_empty,
    remember,
)
from bursar.policies.policy import NeedsSource, PlacementPolicy
from bursar.policies.results import Body, Check, Refusal, Setting, SettingError, refusal_for
from bursar.policies.rights import Row
from bursar.resources import Vector, dimension, first_short, from_amounts

KIND: Final = "nodes.Node"
OPTIONS: Final = "nodes.Options"
IGNORED: Final = "nodes.ignored"  # table with one key: names of resources
ONLY: Final = "all"
TABLE: Final = "nodes"
LEAVING_PORTS: Final = "nodes.leaving"
TOPIC: Final = "nodes"  # a change of one node may admit any claim that waits for a node


@final
class NodesPolicy(PlacementPolicy):
    """Physical capacity and admission rules of nodes."""

    def __init__(self) -> None:
        super().__init__(NAME, (KIND, OPTIONS))
        self.index: NodeResidentIndex = NodeResidentIndex(masks_of(self.nodes))
        self.bindings: Final = BindingCache()
        self.costs: Final[dict[Vector, Vector]] = {}  # by requests

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        super().attach(state, nodes, needs_of)
        self.index = NodeResidentIndex(masks_of(nodes))

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        if setting.kind == OPTIONS:
            return self._ignore(tx, setting.body)
        body = setting.body
        account = self.state.accounts.get(PREFIX + setting.key)
        if body is None:
            if account is not None:
                self._remove(tx, setting.key, account)
            return []
        if not isinstance(body, NodeBody):
            raise SettingError(f"Node {setting.key}", "", "is no node")
        if account is None:
            account = tx.open_account(NAME, PREFIX + setting.key, TOPIC, True)
        tx.set_limits(account, body.allocatable)
        tx.put(NAME, TABLE, setting.key, body.cell())
        return []

    def _ignore(self, tx: Transaction, body: Body | None) -> list[str]:
        """Returns the claims that take something else of their nodes now. Slow: not for decisions."""
        names = body.names if isinstance(body, IgnoredBody) else ()
        before = cast("tuple[str, ...] | None", self.state.cell(IGNORED, ONLY)) or ()
        tx.put(NAME, IGNORED, ONLY, names or None)
        changed = {dimension(name).index for name in {*names} ^ {*before}}
        placed = [claim for claim in self.state.claims.values() if claim.place]
        return sorted([claim.uid for claim in placed if not changed.isdisjoint(claim.spec.requests.indices())])

    def _remove(self, tx: Transaction, name: str, account: Account) -> None:
        tx.set_limits(account, NOTHING)
        tx.put(NAME, TABLE, name, REMOVED)
        close_if_empty(tx, NAME, TABLE, name, [account])

    def settle(self, tx: Transaction) -> None:
        """Closes the accounts of deleted nodes on which no claim is left."""
        if self.index.removed:
            for name in sorted(self.index.removed):
                close_if_empty(tx, NAME, TABLE, name, [self.state.accounts[PREFIX + name]])

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        self.index.charged(claim, account, cost, sign)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == LEAVING_PORTS:
            self.index.leaving_changed(key, old, new)
            return
        if table == IGNORED:
            self.nodes.ignore(cast("tuple[str, ...]", new) if new is not None else ())
            self.costs.clear()
            self.bindings.clear()
            self.nodes.any_node_changed()
            return
        before, after = facts_of(key, old), facts_of(key, new)
        if before is not None:
            self.nodes.offers(before.limits, -1)
        if after is not None:
            self.nodes.offers(after.limits, 1)
        account = self.state.accounts.get(PREFIX + key)
        used = NOTHING_USED if account is None else account.used
        slot = self.nodes.slot(key)
        self.index.node_changed(slot, key, PREFIX + key, used, new)
        self.nodes.node_changed(slot)

    # One claim

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        if not place:
            return None
        account = self.state.accounts.get(PREFIX + place)
        if account is None:
            return _refusal("unknown", f"there is no node {place}", place)
        requests = claim.spec.requests
        found = self.bindings.find(account, requests)
        if found is None:
            found = self.bindings.add(account, requests, Binding(NAME, (account,), (self.cost(claim),)))
        return found

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        if not forced:
            refusal = self._judge(claim, binding.accounts[0], binding.costs[0])
            if refusal is not None:
                return refusal
        tx.charge(claim, binding.accounts, binding.costs)
        return None

    def recharge(self, tx: Transaction, claim: Claim, old: Binding, new: Binding, forced: bool) -> Refusal | None:
        if new.accounts[0] is old.accounts[0]:
            return super().recharge(tx, claim, old, new, forced)
        mark = tx.savepoint()
        self.release(tx, claim, old)
        refusal = self.charge(tx, claim, new, forced)
        if refusal is not None:
            tx.rollback_to(mark)
        return refusal

    def begin_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        super().begin_eviction(tx, claim, binding)
        ports = claim.spec.needs.host_ports
        if ports:
            tx.put(NAME, LEAVING_PORTS, claim.uid, (binding.accounts[0].name, ports))

    def cancel_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        super().cancel_eviction(tx, claim, binding)
        tx.put(NAME, LEAVING_PORTS, claim.uid, None)

    def finish_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        super().finish_eviction(tx, claim, binding)
        tx.put(NAME, LEAVING_PORTS, claim.uid, None)

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        if refusal.reason == PORT or refusal.reason.startswith(ROOM):
            return self._victims(claim, binding.accounts[0], binding.costs[0])
        return iter(())

    def missing(self, claim: Claim, binding: Binding) -> list[Row] | None:
        account = binding.accounts[0]
        if self._closed(claim, account) is not None:
            return None
        return self.missing_in_accounts(binding)

    def residents(self, slot: int) -> dict[str, Claim] | None:
        return self.index.residents[slot].claims if slot < len(self.index.residents) else {}

    def least_important(self, slot: int) -> Claim | None:
        return self.index.residents[slot].least_important() if slot < len(self.index.residents) else None

    def fewest_victims(self, claim: Claim, slot: int) -> int:
        """What is missing of each resource, by the largest amount of it that a resident uses."""
        account = self.state.accounts[PREFIX + self.nodes.names[slot]]
        cost = self.cost(claim)
        found = 1
        for dim in cost.indices():
            lacking = account.used.get(dim) + cost.get(dim) - account.limits.get(dim)
            if lacking <= 0:
                continue
            largest = 1
            for resident in self.index.residents[slot].claims.values():
                binding = resident.bindings[self.slot]
                if binding is not None:
                    largest = max(largest, binding.costs[0].get(dim))
            found = max(found, -(-lacking // largest))
        return found

    def victims_on_node(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> list[Claim] | None:
        account = binding.accounts[0]
        cost = binding.costs[0]
        if not (refusal.reason == PORT or refusal.reason.startswith(ROOM)):
            return None
        if first_short(NOTHING_USED, cost, account.limits) >= 0:
            return []
        short = account.missing(cost)
        wanted = claim.spec.needs.host_ports
        found = self.index.residents_of(account).least_important_first()
        return [
            other
            for other in found
            if _overlap(self.cost(other), short) or clash(wanted, other.spec.needs.host_ports) is not None
        ]

    def _victims(self, claim: Claim, account: Account, cost: Vector) -> Iterator[Claim]:
        slot = self.index.slots[account.name]
        residents = self.index.residents[slot]
        wanted = claim.spec.needs.host_ports
        priority = claim.spec.priority
        for holder in self.index.port_holders(account, wanted):
            if holder.spec.priority >= priority:
                return
        if first_short(NOTHING_USED, cost, account.limits) >= 0:
            return
        for candidate in residents.least_important_first():
            if candidate.spec.priority >= priority:
                return
            if candidate.uid not in residents.claims:
                continue  # evicted already, for another reason
            short = account.missing(cost)
            if not short and self.index.taken_port(slot, wanted) is None:
                return
            if _overlap(self.cost(candidate), short) or clash(wanted, candidate.spec.needs.host_ports) is not None:
                yield candidate

    # Answers

    def explain(self, claim: Claim, binding: Binding) -> Check:
        account = binding.accounts[0]
        refusal = None if claim.counts() else self._judge(claim, account, binding.costs[0])
        if refusal is None or refusal.reason.startswith(ROOM):
            children = [Check.of_account(account, binding.costs[0], refusal)]
        else:
            children = [Check.of_refusal(refusal), Check.of_account(account, binding.costs[0], None)]
        return Check(NAME, refusal is None, "", tuple(children))

    def explain_node(self, claim: Claim, node: str) -> Refusal | None:
        account = self.state.accounts.get(PREFIX + node)
        if account is None:
            return _refusal("unknown", f"there is no node {node}", node)
        return self._judge(claim, account, self.cost(claim))

    def explain_nodes(self, claim: Claim) -> Check:
        nodes = [facts.name for facts in self.index.masks.facts if facts is not None]
        accounts = [self.state.accounts[PREFIX + name] for name in sorted(nodes)]
        return check_nodes(self, claim, accounts, self.cost(claim))

    def refusal(self, claim: Claim, account: Account, dim: int, cost: Vector) -> Refusal:
        place = account.name[len(PREFIX) :]
        if self.index.facts(account) is None:
            return _removed(place)
        return refusal_for(NAME, "room", account, dim, cost, False, place)

    def ready(self, claim: Claim, binding: Binding) -> bool:
        for held in self.index.leaving_ports.get(binding.accounts[0].name, {}).values():
            if clash(claim.spec.needs.host_ports, held) is not None:
                return False
        return super().ready(claim, binding)

    def _judge(self, claim: Claim, account: Account, cost: Vector) -> Refusal | None:
        """The first rule that refuses the claim on the node now."""
        closed = self._closed(claim, account)
        if closed is not None:
            return closed
        short = account.short_dimension(cost)
        return None if short < 0 else self.refusal(claim, account, short, cost)

    def _closed(self, claim: Claim, account: Account) -> Refusal | None:
        """The first rule, other than room, that refuses the claim on the node now."""
        facts = self.index.facts(account)
        if facts is None:
            return _removed(account.name[len(PREFIX) :])
        needs = claim.spec.needs
        rule = failed_rule(needs, facts)
        if rule:
            return _refusal(rule, rule_note(rule, needs, facts), facts.name)
        for more in self.needs_of.needs(claim):
            if not more.selects(facts.name, facts.labels):
                return _refusal("affinity", f"node {facts.name} is not one that the claim's quota allows", facts.name)
        if needs.host_ports:
            taken = self.index.taken_port(self.index.slots[account.name], needs.host_ports)
            if taken is not None:
                return _refusal("port", f"host port {show_port(taken)} of node {facts.name} is taken", facts.name)
        return self._excluded(claim, facts)

    def _excluded(self, claim: Claim, facts: NodeFacts) -> Refusal | None:
        """Whether other pods, or what the scheduler found, close the node to the claim now."""
        exclusions = self.index.exclusions
        said = exclusions.refusal_note(claim, facts)
        if said:
            note = f"the scheduler refused such pods on node {facts.name} not long ago: {said}"
            return _refusal(REFUSED, note, facts.name)
        other = exclusions.repelling(claim, facts, self.index.masks.facts)
        if other is None:
            return None
        note = f"{other.key} keeps such pods off node {facts.name} by its required anti-affinity"
        return _refusal(REPELLED, note, facts.name)

    # All nodes at once

    def feasible(self, claim: Claim, mask: bytearray) -> None:
        self.index.columns.narrow(mask, self._allowed(claim), self.cost(claim), True)

    def filter(self, claim: Claim, mask: bytearray) -> None:
        self.index.columns.narrow(mask, self._allowed(claim), self.cost(claim), False)
        ports = claim.spec.needs.host_ports
        if ports:
            for slot in self.index.ports:
                if slot < len(mask) and mask[slot] and self.index.taken_port(slot, ports) is not None:
                    mask[slot] = 0
        self.index.exclusions.narrow(claim, mask, self.index.masks.facts)

    def why_no_node(self, claim: Claim, mask: bytearray) -> Refusal | None:
        """If nodes with room are closed to the claim for now, the reason of the first by name."""
        self.index.columns.narrow(mask, self._allowed(claim), self.cost(claim), False)
        names = sorted([self.nodes.names[slot] for slot in range(len(mask)) if mask[slot]])
        for name in names:
            facts = self.index.facts(self.state.accounts[PREFIX + name])
            refusal = None if facts is None else self._excluded(claim, facts)
            if refusal is not None:
                return refusal
        return None

    def spread(self, claim: Claim, mask: bytearray) -> vec[i64]:
        """Free cpu and memory. It breaks ties of scores only.

        Each PreferNoSchedule taint that the claim does not tolerate weighs more, so that such nodes come last.
        """
        points = self.index.columns.least_allocated(self.cost(claim))
        if not self.index.soft:
            return points
        found = vec[i64](points)
        for slot, facts in self.index.soft.items():
            found[slot] = found[slot] - FULL_SCORE * untolerated_soft(claim.spec.needs, facts)
        return found

    def _allowed(self, claim: Claim) -> list[bytes]:
        masks = self.index.masks
        return [masks.allowing(claim.spec.needs), *[masks.selecting(more) for more in self.needs_of.needs(claim)]]

    def cost(self, claim: Claim) -> Vector:
        """What the claim takes of a node: its requests, and one pod."""
        requests = claim.spec.requests
        found = self.costs.get(requests)
        if found is None:
            foreign = [(name, amount) for name, amount in requests.pairs() if name in self.nodes.foreign]
            taken = requests.minus(from_amounts(dict(foreign))) if foreign else requests
            found = remember(self.costs, requests, taken.plus(ONE_POD))
        return found


def _refusal(rule: str, note: str, place: str) -> Refusal:
    return Refusal(NAME, f"nodes.{rule}", note, PREFIX + place, "", "", "", "", False, (TOPIC,), place)


def _removed(place: str) -> Refusal:
    return _refusal("removed", f"node {place} was deleted; only claims that run there still hold it", place)


def _overlap(cost: Vector, short: Vector) -> bool:
    for dim in short.indices():
        if cost.get(dim) > 0:
            return True
    return False
