"""All elastic quotas and the sums over them, how settings change them, and what they lend each other.

The derived state changes only with cells and charges that are done, undone or replayed. A quota takes part in a
dimension only if its min lists it. A removed quota takes part in none, and stays while claims are charged to it.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, Ordered, State
from bursar.ledger.transaction import Transaction
from bursar.policies.elastic.fair_share import Loan, first_victim, guaranteed, loans
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.settings import (
    BY_CAPACITY,
    BY_PRIORITY,
    COMPOSITE,
    DEFAULT_OPTIONS,
    ELASTIC_QUOTA,
    IN_FORCE,
    NAME,
    OPTIONS,
    QUOTAS,
    REMOVED,
    TAKEN_OVER,
    TOTAL,
    ElasticOptionsBody,
    ElasticQuotaBody,
    GpuMemory,
    quota_in,
)
from bursar.policies.results import Setting, SettingError
from bursar.resources import NO_LIMITS, Limits, Vector, dimension, dimension_at


@final
class QuotaBook:
    """Quotas by id, by account and by namespace."""

    def __init__(self) -> None:
        self.options: ElasticOptionsBody = DEFAULT_OPTIONS
        self.memory: GpuMemory = GpuMemory(DEFAULT_OPTIONS.gpu_gb, DEFAULT_OPTIONS.slices)
        self.quotas: Final[dict[str, ElasticQuotaState]] = {}
        self.by_account: Final[dict[str, ElasticQuotaState]] = {}
        self.by_namespace: Final[dict[str, str]] = {}  # ids
        self.removed: Final[set[str]] = set()  # ids of those no longer in force
        self.pool: Final[dict[int, int]] = {}  # by dimension: what quotas leave unused of their min
        self.total_min: Final[dict[int, int]] = {}
        self.listing: Final[dict[int, int]] = {}  # how many quotas list the dimension; it has sums only while some do
        self.heads: Final = Ordered()  # of the quotas with over-quota claims; see refresh_heads
        self.heads_of: Final[dict[str, tuple[object, ...]]] = {}  # by id
        self.stale: Final[set[str]] = set()  # ids whose head may be another one now

    # Settings

    def set_options(self, options: ElasticOptionsBody) -> None:
        reorder = options.order != self.options.order
        self.options = options
        self.memory = GpuMemory(options.gpu_gb, options.slices)
        for quota in list(self.quotas.values()):
            if reorder:
                self._replace(quota, ElasticQuotaState(quota.id, quota.body, options.order == BY_PRIORITY, quota.state))
            else:
                quota.bindings.clear()  # they hold costs

    def set_quota(self, id: str, cell: object) -> None:  # noqa: A002 as the ledger calls it
        """The quota's cell changed. The claims that count in its account stay."""
        new = None
        if cell is not None:
            body, state = quota_in(cell)
            new = ElasticQuotaState(id, body, self.options.order == BY_PRIORITY, state)
        self._replace(self.quotas.get(id), new)

    def _replace(self, old: ElasticQuotaState | None, new: ElasticQuotaState | None) -> None:
        if old is not None:
            self._take_out(old)
        if new is not None:
            self._put_in(new)
            if old is not None:
                for member in old.members.values():
                    self.shift(new, member.claim, member.measure.cost, 1)

    def _take_out(self, quota: ElasticQuotaState) -> None:
        del self.quotas[quota.id]
        del self.by_account[quota.account]
        self.stale.discard(quota.id)
        head = self.heads_of.pop(quota.id, None)
        if head is not None:
            self.heads.remove(head)
        self.removed.discard(quota.id)
        if quota.state != IN_FORCE:
            return
        self._lend(quota, -1)
        for namespace in quota.body.namespaces:
            del self.by_namespace[namespace]

    def _put_in(self, quota: ElasticQuotaState) -> None:
        self.quotas[quota.id] = quota
        self.by_account[quota.account] = quota
        self.stale.add(quota.id)
        if quota.state != IN_FORCE:
            self.removed.add(quota.id)
            return
        self._lend(quota, 1)
        for namespace in quota.body.namespaces:
            self.by_namespace[namespace] = quota.id

    def _lend(self, quota: ElasticQuotaState, sign: int) -> None:
        for k in range(len(quota.dims)):
            dim = quota.dims[k]
            self.pool[dim] = self.pool.get(dim, 0) + sign * quota.idle[k]
            self.total_min[dim] = self.total_min.get(dim, 0) + sign * quota.floor[k]
            self.listing[dim] = self.listing.get(dim, 0) + sign
            if self.listing[dim] == 0:
                del self.pool[dim]
                del self.total_min[dim]
                del self.listing[dim]

    # Charges

    def shift(self, quota: ElasticQuotaState, claim: Claim, cost: Vector, sign: int) -> None:
        """The claim starts (+1) or stops (-1) to count in the quota."""
        amounts = quota.add(claim, cost) if sign > 0 else quota.remove(claim)
        used = quota.used
        if quota.state != IN_FORCE:
            for k in range(len(amounts)):
                used[k] += sign * amounts[k]
            return
        idle = quota.idle
        over = False
        for k in range(len(amounts)):
            now = used[k] + sign * amounts[k]
            used[k] = now
            left = quota.floor[k] - now
            if left < 0:
                over = True
                left = 0
            if left != idle[k]:
                self.pool[quota.dims[k]] += left - idle[k]
                idle[k] = left
        if over or quota.id in self.heads_of:
            self.stale.add(quota.id)

    def refresh_heads(self) -> Ordered:
        """The quotas that have over-quota claims, by the claim that would have to go first."""
        for id in sorted(self.stale):  # noqa: A001 as the ledger calls it
            old = self.heads_of.pop(id, None)
            if old is not None:
                self.heads.remove(old)
            quota = self.quotas.get(id)
            first = None if quota is None or quota.state != IN_FORCE else first_victim(quota.inside())
            if first is not None:
                head: tuple[object, ...] = (*first, id)
                self.heads_of[id] = head
                self.heads.add(head)
        self.stale.clear()
        return self.heads

    # Answers

    def governing(self, namespace: str) -> ElasticQuotaState | None:
        found = self.by_namespace.get(namespace)
        return None if found is None else self.quotas[found]

    def guaranteed(self, quota: ElasticQuotaState) -> list[int]:
        """The over-quota guaranteed to the quota now, aligned with its dimensions."""
        return [guaranteed(self.pool[dim], quota.floor[k], self.total_min[dim]) for k, dim in enumerate(quota.dims)]

    def share(self, quota: ElasticQuotaState) -> list[int]:
        """Min + guaranteed."""
        extra = self.guaranteed(quota)
        return [quota.floor[k] + extra[k] for k in range(len(extra))]

    def live(self) -> list[ElasticQuotaState]:
        """The quotas in force, by id."""
        return [self.quotas[id] for id in sorted(self.quotas) if self.quotas[id].state == IN_FORCE]  # noqa: A001


_KEY = "options"


def configure_options(tx: Transaction, book: QuotaBook, setting: Setting) -> list[str]:
    body = setting.body
    if body is not None and not isinstance(body, ElasticOptionsBody):
        raise SettingError(f"Configuration {setting.key}", "spec.elastic", "is no set of options")
    tx.put(NAME, OPTIONS, _KEY, None if body is None else body.cell())
    _bound_borrowing(tx, book)
    governed = [claim for quota in book.live() for claim in quota.members]
    pending = [uid for uid, claim in tx.state.claims.items() if claim.namespace in book.by_namespace]
    return sorted({*governed, *pending})


def configure_quota(tx: Transaction, book: QuotaBook, setting: Setting) -> list[str]:
    known = book.quotas.get(setting.key)
    body = setting.body
    if body is None:
        return [] if known is None else _remove(tx, book, known, REMOVED)
    if not isinstance(body, ElasticQuotaBody):
        raise SettingError(setting.key, "", "is no elastic quota")
    check_quota(body)
    stale: set[str] = set()
    for namespace in body.namespaces:
        stale.update(_make_way(tx, book, setting.key, body, namespace))
    _open(tx, setting.key, body)
    tx.put(NAME, QUOTAS, setting.key, body.cell(IN_FORCE))
    _bound_borrowing(tx, book)
    stale.update(_claims_to_rebind(tx.state, known, body))
    return sorted(stale)


def check_quota(body: ElasticQuotaBody) -> None:
    """What must hold of a quota by itself."""
    if not body.namespaces:
        raise SettingError(body.subject, "spec.namespaces", "must name at least one namespace")
    for name, most in body.max.listed.items():
        least = body.min.listed.get(name)
        if least is not None and most < least:
            show = dimension(name).show
            raise SettingError(body.subject, f"spec.max.{name}", f"{show(most)} is less than the min of {show(least)}")


def _make_way(tx: Transaction, book: QuotaBook, id: str, body: ElasticQuotaBody, namespace: str) -> list[str]:  # noqa: A002
    """One namespace, one quota: refuses another, unless a composite takes the namespace over."""
    other = book.governing(namespace)
    if other is None or other.id == id:
        return []
    if body.kind == COMPOSITE and other.body.kind == ELASTIC_QUOTA and body.takeover:
        return _remove(tx, book, other, TAKEN_OVER)
    problem = f"namespace {namespace} is governed by {other.body.subject} already"
    if body.kind == COMPOSITE and other.body.kind == ELASTIC_QUOTA:
        problem += "; takeover: true would replace it"
    field = "spec.namespaces" if body.kind == COMPOSITE else "metadata.namespace"
    raise SettingError(body.subject, field, problem)


def _remove(tx: Transaction, book: QuotaBook, quota: ElasticQuotaState, state: int) -> list[str]:
    """The quota governs no namespace any more; its accounts close when no claim is charged to them."""
    if quota.state == REMOVED:
        return []
    tx.put(NAME, QUOTAS, quota.id, quota.body.cell(state))
    _bound_borrowing(tx, book)
    return _claims_in(tx.state, set(quota.body.namespaces))


def _open(tx: Transaction, id: str, body: ElasticQuotaBody) -> None:  # noqa: A002 as the ledger calls it
    if TOTAL not in tx.state.accounts:
        tx.open_account(NAME, TOTAL)
    names = ElasticQuotaState(id, body, True)
    tx.set_limits(_account(tx, names.account), body.max)
    # Another min changes the rights of all claims, so it must wake all pending ones: the topic of the total.
    tx.set_limits(_account(tx, names.non_preemptible, TOTAL), body.min)
    _account(tx, names.running)


def _account(tx: Transaction, name: str, topic: str = "") -> Account:
    found = tx.state.accounts.get(name)
    return tx.open_account(NAME, name, topic) if found is None else found


def _bound_borrowing(tx: Transaction, book: QuotaBook) -> None:
    """All quotas together may use the sum of their minimums, or (by option) whatever the nodes have."""
    account = tx.state.accounts.get(TOTAL)
    if account is None:
        return
    limits = NO_LIMITS
    if book.options.borrowing != BY_CAPACITY:
        limits = Limits({dimension_at(dim).name: total for dim, total in book.total_min.items()})
    tx.set_limits(account, limits)


def _claims_to_rebind(state: State, known: ElasticQuotaState | None, body: ElasticQuotaBody) -> list[str]:
    """Claims of namespaces that come or go; all of them when the dimensions that min lists change."""
    if known is None or known.state != IN_FORCE or list(known.body.min.listed) != list(body.min.listed):
        before = () if known is None else known.body.namespaces
        return _claims_in(state, {*before, *body.namespaces})
    return _claims_in(state, set(known.body.namespaces) ^ set(body.namespaces))


def _claims_in(state: State, namespaces: set[str]) -> list[str]:
    if not namespaces:
        return []
    return [uid for uid, claim in state.claims.items() if claim.namespace in namespaces]


def lending(book: QuotaBook) -> dict[str, list[Loan]]:
    """The loans of each dimension that quotas list, by its name; quotas are named as ``Kind namespace/name``."""
    standing: dict[str, dict[str, tuple[int, int]]] = {}
    for quota in book.live():
        for k in range(len(quota.dims)):
            name = dimension_at(quota.dims[k]).name
            standing.setdefault(name, {})[quota.body.subject] = (quota.floor[k], quota.used[k])
    return {name: loans(standing[name]) for name in sorted(standing)}
