"""The limits policy: the workers of a namespace stay within every GPUResourceQuota of that namespace.

The ledger has one account ``limits/<namespace>`` for each namespace that has a worker or a quota. Its usage is right
with and without quotas, and its limits are the least of what they allow, so a change of quotas moves no charge. It is
opened with the first worker or quota, and closed when no quota and no claim of the namespace is left. Cells hold
quotas, declared demand, and alerts that are on.

A worker whose cost depends on its GPU is charged its largest footprint while it has no node. On a node it is charged
for the GPUs that the allocator chooses there.

A pod that requests whole GPUs, or MIG slices, of a device plugin costs all that these have, and is one worker. So is a
pod that gets devices by ResourceClaims, which costs the tflops and vram that these are charged as. Both are governed
where their namespace has a quota; with its first quota a namespace is charged for those that run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast, final

from bursar.ledger.claims import PENDING, Binding, Claim
from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Transaction
from bursar.policies.gpus.fleet import ONLY
from bursar.policies.gpus.selection import follow, importance
from bursar.policies.gpus.worker import Unreadable, Worker, WorkerCache, total_cost
from bursar.policies.namespace.costs import NAME, Costs, claimed
from bursar.policies.namespace.settings import (
    CHECKS,
    COUNT,
    DemandBody,
    NamespaceQuotaBody,
    Space,
    WholeGpusBody,
    spoiled,
)
from bursar.policies.namespace.status import NamespaceStatusWriter, NamespaceUsage, View, alerting
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.policy import NeedsSource, QuotaPolicy
from bursar.policies.results import Check, Output, Refusal, Setting, SettingError
from bursar.resources import EMPTY, Tally, Vector, dimension, first_short, from_amounts, from_indices, shortfall

INVALID: Final = "limits.invalid"
PREFIX: Final = "limits/"
QUOTA: Final = "limits.Quota"
WHOLE_GPUS: Final = "limits.WholeGPUs"
DEMAND: Final = "limits.Demand"
QUOTAS: Final = "limits.quotas"  # table: namespace/name -> quota
DECLARED: Final = "limits.declared"  # table: namespace/kind/name -> amounts
ALERTS: Final = "limits.alerts"  # table: namespace/name -> True
_NOTHING_USED: Final = Tally()
ONE_WORKER: Final = total_cost([])
OPTIONS: Final = "limits.options"  # table with one key: True if whole GPUs are not counted


def quota_refusal(space: Space, namespace: str, account: Account, cost: Vector, count: int) -> Refusal | None:
    """The first check that fails when the cost is added to what is used; a ``count`` of 0 GPUs is not checked.

    Limits of one workload come first, because waiting does not help there. Then come the totals of the namespace.
    """
    if space.unusable:
        quota = space.quotas[space.unusable]
        note = f"quota {quota.key} is invalid and was never valid: {quota.problem}"
        return Refusal(NAME, INVALID, note, account.name)
    if (
        first_short(_NOTHING_USED, cost, space.singles) < 0
        and (space.count < 0 or count <= space.count)
        and first_short(account.used, cost, space.totals) < 0
    ):
        return None
    return _first_failed(space, namespace, account, cost, count)


def _first_failed(space: Space, namespace: str, account: Account, cost: Vector, count: int) -> Refusal | None:
    return next(failed_checks(space, namespace, account, cost, count), None)


def failed_checks(space: Space, namespace: str, account: Account, cost: Vector, count: int) -> Iterator[Refusal]:
    """All checks that fail, in their order."""
    for name, code, single in CHECKS:
        wanted = count if name == COUNT else cost.amount(name)
        used = 0 if single else account.used.amount(name)
        for quota in space.quotas.values():
            most = (quota.singles if single else quota.totals).get(name)
            if most is not None and wanted > 0 and used + wanted > most:
                show = dimension(name).show
                amounts = f"requested {show(wanted)}, limit {show(most)}"
                note = f"quota exceeded in namespace {namespace} for {code}: {amounts}"
                shown = "" if single else show(used)
                yield Refusal(NAME, code, note, account.name, name, show(wanted), shown, show(most), single)


_NO_QUOTAS: Final = Space({})


@final
class LimitsPolicy(QuotaPolicy):
    """Namespace quotas over tflops, vram and workers."""

    def __init__(self) -> None:
        super().__init__(NAME, (QUOTA, DEMAND, WHOLE_GPUS))
        self.workers: Final = WorkerCache()
        self.costs: Costs = Costs(self.state, self.nodes)
        self.counts_whole: bool = True
        self.status: Final = NamespaceStatusWriter()
        self.last_view: View = View(0, {})
        self.spaces: Final[dict[str, Space]] = {}
        self.declared: Final[dict[str, dict[str, Vector]]] = {}  # by namespace, by workload
        self.residents: Final[dict[str, dict[str, Claim]]] = {}  # by account name: the claims charged to it
        self.unsettled: Final[dict[str, None]] = {}  # namespaces whose alerts may have to change
        self.unviewed: Final[dict[str, None]] = {}  # namespaces that changed since the last view

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        super().attach(state, nodes, needs_of)
        self.costs = Costs(state, nodes)

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        namespace = setting.key.partition("/")[0]
        if setting.kind == DEMAND:
            body = setting.body
            tx.put(NAME, DECLARED, setting.key, tuple(body.cost.pairs()) if isinstance(body, DemandBody) else None)
            self._forget_view(namespace)
            return []
        if setting.kind == WHOLE_GPUS:
            tx.put(NAME, OPTIONS, ONLY, True if isinstance(setting.body, WholeGpusBody) else None)
            return self._with_whole_gpus("")
        governed = namespace in self.spaces
        old = tx.get(QUOTAS, setting.key)
        quota = setting.body
        if quota is None:
            tx.put(NAME, QUOTAS, setting.key, None)
            tx.put(NAME, ALERTS, setting.key, None)
        elif isinstance(quota, NamespaceQuotaBody):
            tx.put(NAME, QUOTAS, setting.key, spoiled(old, quota.problem) if quota.problem else quota.cell())
        else:
            raise SettingError(f"GPUResourceQuota {setting.key}", "", "is no quota")
        tx.set_limits(self._open(tx, namespace), self.space(namespace).totals)
        self.close_accounts(tx, namespace)
        return [] if governed == (namespace in self.spaces) else self._with_whole_gpus(namespace)

    def _with_whole_gpus(self, namespace: str) -> list[str]:
        """Claims of a namespace, or of all with a quota, that request whole GPUs or devices.

        It is slow: for changes of settings.
        """
        spaces = [namespace] if namespace else list(self.spaces)
        claims = [claim for claim in self.state.claims.values() if claim.namespace in spaces]
        return sorted([c.uid for c in claims if c.spec.devices or self.costs.requests.of(c.spec.requests)])

    def _open(self, tx: Transaction, namespace: str) -> Account:
        account = self.state.accounts.get(PREFIX + namespace)
        return account if account is not None else tx.open_account(NAME, PREFIX + namespace)

    def close_accounts(self, tx: Transaction, namespace: str) -> None:
        if namespace in self.state.namespaces or namespace in self.spaces:
            return
        account = self.state.accounts.get(PREFIX + namespace)
        if account is not None:
            tx.close_account(account)
            self.costs.forget(account)
            self.residents.pop(account.name, None)
        self._forget_view(namespace)

    def _forget_view(self, namespace: str) -> None:
        """A namespace that is gone, and was in no view, does not change the next one."""
        gone = PREFIX + namespace not in self.state.accounts and namespace not in self.declared
        if gone and namespace not in self.last_view.usages:
            self.unviewed.pop(namespace, None)

    def space(self, namespace: str) -> Space:
        return self.spaces.get(namespace, _NO_QUOTAS)

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        follow(self.residents, claim, account, sign)
        self._touched(claim.namespace)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == OPTIONS:
            self.counts_whole = new is None
            self.concerns_changed()
            return
        namespace = key.partition("/")[0]
        if table == QUOTAS:
            if (namespace in self.spaces) != (new is not None):
                self.concerns_changed()
            space = self.space(namespace).with_quota(key, new)
            if space.quotas:
                self.spaces[namespace] = space
            else:
                self.spaces.pop(namespace, None)
        elif table == DECLARED:
            workloads = self.declared.setdefault(namespace, {})
            if new is not None:
                workloads[key] = from_amounts(dict(cast("tuple[tuple[str, int], ...]", new)))
            else:
                workloads.pop(key, None)
                if not workloads:
                    del self.declared[namespace]
        self._touched(namespace)

    def _touched(self, namespace: str) -> None:
        self.unsettled[namespace] = None
        self.status.dirty.add(namespace)
        self.unviewed[namespace] = None

    # One claim

    def concerns(self, claim: Claim) -> bool:
        return self.workers.of(claim.spec) is not None or self._takes_whole(claim) or self._takes_devices(claim)

    def _takes_devices(self, claim: Claim) -> bool:
        return len(claim.spec.devices) > 0 and claim.namespace in self.spaces

    def _takes_whole(self, claim: Claim) -> bool:
        governed = self.counts_whole and claim.namespace in self.spaces
        return governed and bool(self.costs.requests.of(claim.spec.requests))

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        return self._bind(claim, place, runs=False)

    def bind_anyway(self, claim: Claim, place: str, old: Binding | None) -> Binding | None:
        """A pod that runs with GPUs of which nothing is known counts as a worker."""
        found = self._bind(claim, place, runs=True)
        return old if isinstance(found, Refusal) else found

    def _bind(self, claim: Claim, place: str, *, runs: bool) -> Binding | Refusal | None:
        worker = self.workers.of(claim.spec)
        if isinstance(worker, Unreadable):
            return Refusal(NAME, "limits.annotation", str(worker), permanent=True)
        whole = self._takes_whole(claim)
        devices = self._takes_devices(claim)
        if worker is None and not whole and not devices:
            return None
        account = self.state.accounts.get(PREFIX + claim.namespace)
        if account is None:
            return Binding(NAME, (), ())  # nothing to charge yet: ``open_accounts`` follows
        cost = EMPTY
        count = 0
        if worker is not None:
            varying = worker.cost if worker.cost is not None else self.costs.varying(claim, worker, place)
            if varying is None:
                return self._unknown_refusal(account, self.costs.fleet.unknown_models(worker))
            cost = varying
            count = worker.count
        if whole:
            found = self.costs.whole(claim, place)
            if found is None:
                return claim.binding_of(NAME)
            (tflops, vram), units, models = found
            if models and not runs and self._limits_lacking(claim.namespace, tflops, vram):
                return self._unknown_refusal(account, models)
            taken = total_cost([(tflops, vram, tflops, vram)])
            cost = taken if worker is None else cost.plus(taken).minus(ONE_WORKER)
            count += units
        if devices:
            (tflops, vram), units, models = claimed(claim.spec)
            if models and not runs and self._limits_tflops(claim.namespace):
                return self._unknown_refusal(account, models)
            taken = total_cost([(tflops, vram, tflops, vram)])
            cost = cost.plus(taken).minus(ONE_WORKER) if cost else taken
            count += units
        return self.costs.shared(account, cost, count)

    def _limits_tflops(self, namespace: str) -> bool:
        space = self.space(namespace)
        names = [*space.totals.listed, *space.singles.listed]
        return len([name for name in names if name.endswith(".tflops")]) > 0

    def _limits_lacking(self, namespace: str, tflops: int, vram: int) -> bool:
        """Whether a quota of the namespace limits the one of the two that is not known."""
        space = self.space(namespace)
        names = [*space.totals.listed, *space.singles.listed]
        lacking = (".tflops" if tflops <= 0 else "-", ".vram" if vram <= 0 else "-")
        return len([name for name in names if name.endswith(lacking)]) > 0

    def _unknown_refusal(self, account: Account, models: list[str]) -> Refusal:
        out = self.costs.fleet.out_of_service()
        if out and not models:
            gpus = f"{out} of {len(self.costs.fleet.gpus)} GPUs"
            note = f"{gpus} are out of service, and no other one suits, so what it takes of one cannot be counted"
            return Refusal(NAME, "limits.capacity", note, account.name, topics=("nodes", account.topic))
        which = f"GPUs of model {', '.join(models)} have" if models else "the GPUs that it may use have"
        note = (
            f"nothing says what {which}, so what it takes of one cannot be counted: "
            "set spec.gpus.models, apply GPU objects, or ask for tflops and vram instead"
        )
        return Refusal(NAME, "limits.capacity", note, account.name, topics=("nodes", account.topic))

    def open_accounts(self, tx: Transaction, claim: Claim) -> None:
        """The namespace of a worker, or of a pod with whole GPUs under a quota, has an account."""
        if isinstance(self.workers.of(claim.spec), Worker) or self._takes_whole(claim) or self._takes_devices(claim):
            self._open(tx, claim.namespace)

    def check(self, claim: Claim, binding: Binding) -> Refusal | None:
        return self.quota_refusal(claim, binding.accounts[0], self._admission_cost(claim, binding), _count(binding))

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        if not binding.accounts:
            raise RuntimeError(f"claim {claim.uid} was not submitted: namespace {claim.namespace} has no account")
        return super().charge(tx, claim, binding, forced)

    def _admission_cost(self, claim: Claim, binding: Binding) -> Vector:
        """The cost by which a claim is admitted: its largest footprint, so that the choice of node does not matter."""
        worker = self.workers.of(claim.spec)
        fixed = worker is None or isinstance(worker, Unreadable) or worker.cost is not None
        if claim.state != PENDING or (fixed and not self._takes_whole(claim)):
            return binding.costs[0]
        bound = self.bind(claim, "")
        return bound.costs[0] if isinstance(bound, Binding) else binding.costs[0]

    def _growth_refusal(self, claim: Claim, old: Binding, new: Binding) -> Refusal | None:
        grown = _grown(old.costs[0] if old.costs else EMPTY, new.costs[0])
        count = _count(new) if _count(new) > _count(old) else 0
        return self.quota_refusal(claim, new.accounts[0], grown, count) if grown or count else None

    def quota_refusal(self, claim: Claim, account: Account, cost: Vector, count: int) -> Refusal | None:
        space = self.spaces.get(claim.namespace)
        return None if space is None else quota_refusal(space, claim.namespace, account, cost, count)

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        """Workers of the same namespace with a lower priority that hold some of what is short."""
        if refusal.permanent or not refusal.resource or not binding.accounts:
            return iter(())
        return self._victims(claim, binding.accounts[0], binding.costs[0])

    def _victims(self, claim: Claim, account: Account, cost: Vector) -> Iterator[Claim]:
        residents = self.residents.get(account.name, {})
        lower = [other for other in residents.values() if other.spec.priority < claim.spec.priority]
        lower.sort(key=importance)
        for other in lower:
            short = shortfall(account.used, cost, account.limits)
            if not short:
                return
            if other.uid in residents and _holds(other, short):
                yield other

    def settle(self, tx: Transaction) -> None:
        """Records which alerts go on or off."""
        for namespace in self.unsettled:
            account = self.state.accounts.get(PREFIX + namespace)
            for key, quota in self.space(namespace).quotas.items():
                alert = True if account is not None and alerting(quota, account.used) else None
                before = tx.get(ALERTS, key)
                if before is not alert:
                    self.status.alert_was(key, before is not None)
                    tx.put(NAME, ALERTS, key, alert)
        self.unsettled.clear()

    # Answers

    def explain(self, claim: Claim, binding: Binding) -> Check:
        if not binding.accounts:
            return Check(NAME, True)
        account, cost = binding.accounts[0], binding.costs[0]
        failed: list[Refusal] = []
        first = None if claim.counts() else self.quota_refusal(claim, account, cost, _count(binding))
        if first is not None:
            failed = list(failed_checks(self.space(claim.namespace), claim.namespace, account, cost, _count(binding)))
        checks = [Check.of_refusal(refusal) for refusal in failed or ([] if first is None else [first])]
        return Check(NAME, first is None, "", (*checks, Check.of_account(account, cost, None)))

    def outputs(self, now: int) -> list[Output]:
        for namespace in sorted(self.status.dirty):
            account = self.state.accounts.get(PREFIX + namespace)
            if account is None:
                continue
            declared = self._declared(namespace)
            for quota in self.space(namespace).quotas.values():
                alert = self.state.cell(ALERTS, quota.key) is not None
                self.status.publish(quota, account.used, declared, alert, now)
        self.status.dirty.clear()
        self.status.forget(self.state.cells(QUOTAS))
        return self.status.take()

    def _declared(self, namespace: str) -> Vector:
        declared = EMPTY
        for cost in self.declared.get(namespace, {}).values():
            declared = declared.plus(cost)
        return declared

    def view(self, version: int) -> View:
        """Usage at the current version. Call it under the engine's lock; read the view without it."""
        usages = self.last_view.usages
        if self.unviewed:
            usages = {**usages, **{namespace: self._usage(namespace) for namespace in self.unviewed}}
            for namespace in self.unviewed:
                if PREFIX + namespace not in self.state.accounts:
                    del usages[namespace]  # all of it is gone
        self.unviewed.clear()
        self.last_view = View(version, usages)
        return self.last_view

    def _usage(self, namespace: str) -> NamespaceUsage:
        account = self.state.accounts.get(PREFIX + namespace)
        residents = self.residents.get(PREFIX + namespace, {})
        workers = [(claim.key, _cost_of(claim)) for claim in residents.values()]
        workers.sort(key=lambda worker: worker[0])
        used = EMPTY if account is None else account.used.vector()
        quotas = tuple(self.space(namespace).quotas.values())
        return NamespaceUsage(quotas, used, self._declared(namespace), workers)


def _count(binding: Binding) -> int:
    return cast("int", binding.data[0]) if binding.data else 0


def _grown(before: Vector, after: Vector) -> Vector:
    """The whole new amounts of the dimensions that grow."""
    return from_indices([(dim, after.get(dim)) for dim in after.indices() if after.get(dim) > before.get(dim)])


def _cost_of(claim: Claim) -> Vector:
    binding = claim.binding_of(NAME)
    return binding.costs[0] if binding is not None and binding.costs else EMPTY


def _holds(claim: Claim, short: Vector) -> bool:
    cost = _cost_of(claim)
    for dim in short.indices():
        if cost.get(dim) > 0:
            return True
    return False
