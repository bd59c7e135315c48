"""The status of elastic quotas, and the capacity label of running pods."""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, State
from bursar.policies.elastic.member_order import FirstFit, Member
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.quotas import QuotaBook
from bursar.policies.elastic.settings import (
    CAPACITY_LABEL,
    GPU_MEMORY,
    GROUP,
    IN_FORCE,
    IN_QUOTA,
    OVER_QUOTA,
    PREFIX,
    RUNNING_SUFFIX,
    TAKEN_OVER,
)
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.results import Output
from bursar.policies.status import StatusWriter, condition
from bursar.resources import Vector, dimension, dimension_at

_POD: Final = "Pod"


@final
class ElasticStatusWriter(StatusWriter):
    """Writes the status of quotas that changed, and the labels of the running pods that this concerns."""

    def __init__(self, book: QuotaBook) -> None:
        super().__init__()
        self.book: Final = book
        self.dirty: Final[set[str]] = set()  # ids of quotas
        self.started: Final[dict[str, dict[str, None]]] = {}  # by id of the quota: uids that run, to be labelled
        self.labelled: Final[dict[str, tuple[ElasticQuotaState, FirstFit]]] = {}  # by id: by what labels were written
        self.ended: Final[dict[str, Claim]] = {}  # by uid: no longer runs in a quota

    def runs(self, account: str, claim: Claim, running: bool) -> None:
        """The claim begins or ceases to run in the quota that the account names."""
        id = account.removeprefix(PREFIX).removesuffix(RUNNING_SUFFIX)  # noqa: A001 as the ledger calls it
        self.dirty.add(id)
        if running:
            self.started.setdefault(id, {})[claim.uid] = None
            self.ended.pop(claim.uid, None)
        else:
            self.ended[claim.uid] = claim

    def outputs(self, state: State, runners: dict[str, tuple[Account, Vector]], nodes: NodeIndex) -> list[Output]:
        for uid in sorted(self.ended):
            if self.changed(CAPACITY_LABEL, uid, None) and uid in state.claims:  # no quota governs it any more
                self.write(_POD, self.ended[uid].key, "labels", {CAPACITY_LABEL: None})
        self.ended.clear()
        for id in sorted(self.dirty):  # noqa: A001 as the ledger calls it
            self._quota(state, id, runners, nodes)
        self.dirty.clear()
        return self.take()

    def _quota(self, state: State, id: str, runners: dict[str, tuple[Account, Vector]], nodes: NodeIndex) -> None:  # noqa: A002
        kind, _, key = id.partition("/")
        kind += f".{GROUP}"
        quota = self.book.quotas.get(id)
        if quota is not None and quota.state == IN_FORCE:
            self._label(quota, runners)
            reserved = state.accounts[quota.account]
            status = status_of(quota, reserved, state.accounts[quota.running])
            names = sorted({*quota.body.min.listed, *quota.body.max.listed})
            unknown = self.unknown_resources(kind, key, id, nodes.misspelt(names, (GPU_MEMORY,)))
            self.write_status(kind, key, {**status, "conditions": [_exceeded(quota, reserved), *unknown]})
            return
        self.write_status(kind, key, None)
        self.changed("resources", id, None)
        if quota is None:
            self.started.pop(id, None)
            self.labelled.pop(id, None)
        taken_over = quota is not None and quota.state == TAKEN_OVER
        if self.changed("taken over", id, taken_over) and taken_over:
            self.write(kind, key, "object", None)

    def _label(self, quota: ElasticQuotaState, runners: dict[str, tuple[Account, Vector]]) -> None:
        """Labels the claims that began to run, and those that became over-quota or in-quota since."""
        inside = quota.inside()
        todo = self.started.pop(quota.id, {})
        for moved in self._moved(quota, inside):
            todo[moved.claim.uid] = None
        self.labelled[quota.id] = (quota, inside)
        for uid in todo:
            running = runners.get(uid)
            if running is None or running[0].name != quota.running:
                continue
            member = quota.members.get(uid)
            if member is None:  # it is being evicted, and may yet stay
                self.started.setdefault(quota.id, {})[uid] = None
                continue
            label = IN_QUOTA if inside.takes(member) else OVER_QUOTA
            if self.changed(CAPACITY_LABEL, uid, label):
                self.write(_POD, member.claim.key, "labels", {CAPACITY_LABEL: label})

    def _moved(self, quota: ElasticQuotaState, inside: FirstFit) -> list[Member]:
        """The members that became over-quota or in-quota since labels were written; all if the quota is another one."""
        last = self.labelled.get(quota.id)
        if last is None:
            return []
        if last[0] is not quota:
            return quota.order.members()
        return sorted(quota.order.between(last[1], inside), key=_uid)


def _uid(member: Member) -> str:
    return member.claim.uid


def status_of(quota: ElasticQuotaState, reserved: Account, running: Account) -> dict[str, object]:
    """Used counts what runs, reserved what decisions count; both in the dimensions that min or max list."""
    listed = sorted({*quota.body.min.listed, *quota.body.max.listed})
    borrowed: dict[str, object] = {}
    for k in range(len(quota.dims)):
        if quota.used[k] > quota.floor[k]:
            resource = dimension_at(quota.dims[k])
            borrowed[resource.name] = resource.show(quota.used[k] - quota.floor[k])
    return {
        "used": {name: dimension(name).show(running.used.amount(name)) for name in listed},
        "reserved": {name: dimension(name).show(reserved.used.amount(name)) for name in listed},
        "borrowed": borrowed,
    }


def _exceeded(quota: ElasticQuotaState, reserved: Account) -> dict[str, object]:
    """Use exceeds max only after max was lowered, or for a pod that was bound without Bursar."""
    over = [name for name, most in quota.body.max.listed.items() if reserved.used.amount(name) > most]
    if not over:
        return condition("Exceeded", False, "WithinMax")
    message = f"more than max is in use of {', '.join(over)}; no pod is evicted for it, new ones are refused"
    return condition("Exceeded", True, "MaxLowered", message)
