"""One quota: its numbers, its counted claims in order, and what claims cost in it.

All of it is derived: built from the quota's cell, and updated by charges that are done, undone or replayed.
"""

from __future__ import annotations

from math import lcm
from typing import Final, final

from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.state import Account
from bursar.policies.elastic.fair_share import Standing
from bursar.policies.elastic.member_order import FirstFit, Measure, Member, MemberOrder
from bursar.policies.elastic.settings import FIRM_SUFFIX, IN_FORCE, NAME, PREFIX, RUNNING_SUFFIX, ElasticQuotaBody
from bursar.resources import Vector, dimension, from_indices

_BOUND: Final = 65_536  # of each cache; a full one is cleared


@final
class ElasticQuotaState:
    """One quota and the claims that count in it."""

    def __init__(self, id: str, body: ElasticQuotaBody, by_priority: bool, state: int = IN_FORCE) -> None:  # noqa: A002
        self.id: Final = id
        self.body: Final = body
        self.state: Final = state
        self.by_priority: Final = by_priority
        self.account: Final = PREFIX + id  # the names of its accounts
        self.non_preemptible: Final = self.account + FIRM_SUFFIX
        self.running: Final = self.account + RUNNING_SUFFIX
        self.dims: Final = [dimension(name).index for name in body.min.listed]  # sorted by name
        self.floor: Final = list(body.min.listed.values())
        self.scale: Final = lcm(*[amount for amount in self.floor if amount > 0])
        self.used: Final = [0 for _ in self.dims]
        self.idle: Final = list(self.floor)  # what it lends: max(0, min - used)
        self.members: Final[dict[str, Member]] = {}
        self.measures: Final[dict[Vector, Measure]] = {}
        self.bindings: Final[dict[Vector, dict[int, Binding]]] = {}
        self.last_measure: Measure | None = None  # most claims of a quota are alike
        self.order: Final = MemberOrder(self.floor, by_priority)

    # Costs

    def measure(self, cost: Vector) -> Measure:
        last = self.last_measure
        if last is not None and last.cost is cost:
            return last
        known = self.measures.get(cost)
        if known is None:
            amounts = [cost.get(dim) for dim in self.dims]
            listed = from_indices([(self.dims[k], amounts[k]) for k in range(len(amounts))])
            if len(self.measures) >= _BOUND:
                self.measures.clear()
                self.order.drop_unused_shapes()
            shape = self.order.shape(amounts)
            known = Measure(cost, shape, cost if listed == cost else listed, self._size(cost, amounts))
            self.measures[cost] = known
        self.last_measure = known
        return known

    def _size(self, cost: Vector, amounts: list[int]) -> tuple[object, ...]:
        """The largest request/min share as an exact integer, then the amounts in order of dimension names."""
        endless = False
        share = 0
        for k in range(len(amounts)):
            if amounts[k] > 0 and self.floor[k] == 0:
                endless = True
            elif amounts[k] > 0:
                share = max(share, amounts[k] * (self.scale // self.floor[k]))
        parts: list[object] = [1 if endless else 0, share]
        for name, amount in cost.pairs():
            parts.append(_descending(name))
            parts.append(amount)
        return tuple(parts)

    def known_binding(self, spec: ClaimSpec) -> Binding | None:
        """The binding of claims with the same requests, priority and preemptibility, if there was one."""
        alike = self.bindings.get(spec.quota_requests)
        return None if alike is None else alike.get(_mark(spec))

    def new_binding(self, spec: ClaimSpec, cost: Vector, accounts: dict[str, Account], total: Account) -> Binding:
        """``cost`` must follow from the requests."""
        if len(self.bindings) >= _BOUND:
            self.bindings.clear()
        known = self.measure(cost)
        listed = known.listed
        own = accounts[self.account]
        if spec.preemptible:
            found = Binding(NAME, (own, total), (known.cost, listed))
        else:
            found = Binding(NAME, (own, total, accounts[self.non_preemptible]), (known.cost, listed, listed))
        self.bindings.setdefault(spec.quota_requests, {})[_mark(spec)] = found
        return found

    # Members

    def add(self, claim: Claim, cost: Vector) -> list[int]:
        """The claim counts; returns what it takes of the quota's dimensions."""
        measure = self.measure(cost)
        member = self.order.member(claim, measure)
        self.members[claim.uid] = member
        self.order.add(member)
        return measure.amounts

    def remove(self, claim: Claim) -> list[int]:
        """The claim no longer counts; returns what it took."""
        member = self.members.pop(claim.uid)
        self.order.remove(member)
        return member.shape.amounts

    def inside(self) -> FirstFit:
        """First fit against min. Within min all claims are in-quota, whatever their order."""
        return self.order.first_fit(self.floor) if self.is_over() else self.order.everything

    def standing(self, share: list[int]) -> Standing:
        """The classes of its members."""
        inside = self.inside()
        sharing = inside
        for k in range(len(share)):
            if inside.firsts and share[k] > self.floor[k]:
                sharing = self.order.first_fit(share)
                break
        return Standing(list(self.used), share, inside, sharing)

    def is_over(self) -> bool:
        """Whether it uses more than min of something that min lists: only then has it over-quota claims."""
        for k in range(len(self.floor)):
            if self.used[k] > self.floor[k]:
                return True
        return False

    def position(self, dim: int) -> int:
        """The index of the dimension in the quota's own lists; -1 when min does not list it."""
        for k in range(len(self.dims)):
            if self.dims[k] == dim:
                return k
        return -1


def _mark(spec: ClaimSpec) -> int:
    """Differs when a claim's priority or preemptibility changes, so that it is counted with a new binding."""
    return spec.priority * 2 + (1 if spec.preemptible else 0)


def _descending(name: str) -> tuple[int, ...]:
    """A key that sorts names backwards: of two requests, the one without the first differing dimension is smaller."""
    return (*[-ord(character) for character in name], 1)
