"""What the elastic policy wants written: the status of quotas, and the capacity label of pods that run.

Notes of the moment, not state: which quotas changed since the last call, and what was last written, so that only
differences are written. After a restart everything counts as changed and is written once more.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, State
from bursar.policies.elastic.fair_share import over_quota
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.quotas import QuotaBook
from bursar.policies.elastic.settings import (
    CAPACITY_LABEL,
    GROUP,
    IN_FORCE,
    IN_QUOTA,
    OVER_QUOTA,
    PREFIX,
    RUNNING_SUFFIX,
    TAKEN_OVER,
)
from bursar.policies.results import Output
from bursar.resources import Vector, dimension

_POD: Final = "Pod"


@final
class Reports:
    """Which quotas and pods are to be written about."""

    def __init__(self, book: QuotaBook) -> None:
        self.book: Final = book
        self.dirty: Final[set[str]] = set()  # ids of quotas
        self.started: Final[dict[str, dict[str, None]]] = {}  # by id of the quota: uids that run, to be labelled
        self.over: Final[dict[str, set[str]]] = {}  # by id of the quota: uids labelled as over-quota
        self.ended: Final[dict[str, Claim]] = {}  # by uid: no longer runs in a quota
        self.labels: Final[dict[str, str]] = {}  # by uid: as last written
        self.statuses: Final[dict[str, dict[str, object]]] = {}  # by id: as last written
        self.deletions: Final[set[str]] = set()  # ids whose object was said to be deleted

    def changed(self, id: str) -> None:  # noqa: A002 as the ledger calls it
        self.dirty.add(id)

    def all_changed(self) -> None:
        self.dirty.update(self.book.quotas)

    def runs(self, account: str, claim: Claim, running: bool) -> None:
        """The claim begins or ceases to run in a quota, which the account names."""
        id = account.removeprefix(PREFIX).removesuffix(RUNNING_SUFFIX)  # noqa: A001 as the ledger calls it
        self.dirty.add(id)
        if running:
            self.started.setdefault(id, {})[claim.uid] = None
            self.ended.pop(claim.uid, None)
        else:
            self.ended[claim.uid] = claim

    def outputs(self, state: State, runners: dict[str, tuple[Account, Vector]]) -> list[Output]:
        found: list[Output] = []
        self._unlabel(state, found)
        for id in sorted(self.dirty):  # noqa: A001 as the ledger calls it
            quota = self.book.quotas.get(id)
            if quota is None or quota.state != IN_FORCE:
                self._gone(id, quota, found)
            else:
                self._label(quota, runners, found)
                self._status(state, quota, found)
        self.dirty.clear()
        return found

    def _unlabel(self, state: State, found: list[Output]) -> None:
        """A pod that no quota governs any more loses its label; one that is gone needs nothing."""
        for uid in sorted(self.ended):
            claim = self.ended[uid]
            if self.labels.pop(uid, None) is not None and uid in state.claims:
                found.append(Output(_POD, claim.key, "labels", {CAPACITY_LABEL: None}))
        self.ended.clear()

    def _gone(self, id: str, quota: ElasticQuotaState | None, found: list[Output]) -> None:  # noqa: A002 as the ledger calls it
        self.statuses.pop(id, None)
        if quota is None:
            self.started.pop(id, None)
            self.over.pop(id, None)
        if quota is None or quota.state != TAKEN_OVER:
            self.deletions.discard(id)
        elif id not in self.deletions:
            self.deletions.add(id)
            found.append(Output(_kind(quota), quota.body.key, "object", None))

    def _label(self, quota: ElasticQuotaState, runners: dict[str, tuple[Account, Vector]], found: list[Output]) -> None:
        """Only who began to run, or is over-quota and was not when it was labelled, or the other way, is looked at."""
        over = over_quota(quota.walk())
        said = self.over.pop(quota.id, set())
        looked_at = self.started.pop(quota.id, {})
        if over or said:
            looked_at.update(dict.fromkeys(sorted(over ^ said)))
        for uid in looked_at:
            said.discard(uid)
            running = runners.get(uid)
            if running is None or running[0].name != quota.running:
                continue
            member = quota.members.get(uid)
            if member is None:  # on its way out, and may yet stay
                self.started.setdefault(quota.id, {})[uid] = None
                continue
            if uid in over:
                said.add(uid)
            self._write_label(member.claim, OVER_QUOTA if uid in over else IN_QUOTA, found)
        if said:
            self.over[quota.id] = said

    def _write_label(self, claim: Claim, label: str, found: list[Output]) -> None:
        if self.labels.get(claim.uid) != label:
            self.labels[claim.uid] = label
            found.append(Output(_POD, claim.key, "labels", {CAPACITY_LABEL: label}))

    def _status(self, state: State, quota: ElasticQuotaState, found: list[Output]) -> None:
        status = status_of(quota, state.accounts[quota.account], state.accounts[quota.running])
        if self.statuses.get(quota.id) != status:
            self.statuses[quota.id] = status
            found.append(Output(_kind(quota), quota.body.key, "status", status))


def _kind(quota: ElasticQuotaState) -> str:
    return f"{quota.body.kind}.{GROUP}"


def status_of(quota: ElasticQuotaState, reserved: Account, running: Account) -> dict[str, object]:
    """Used counts what runs, reserved what decisions count; both in the dimensions that min or max list."""
    listed = sorted({*quota.body.min.listed, *quota.body.max.listed})
    borrowed: dict[str, object] = {}
    for k in range(len(quota.dims)):
        if quota.used[k] > quota.floor[k]:
            name = list(quota.body.min.listed)[k]
            borrowed[name] = dimension(name).show(quota.used[k] - quota.floor[k])
    return {
        "used": {name: dimension(name).show(running.used.amount(name)) for name in listed},
        "reserved": {name: dimension(name).show(reserved.used.amount(name)) for name in listed},
        "borrowed": borrowed,
        "conditions": [_exceeded(quota, reserved)],
    }


def _exceeded(quota: ElasticQuotaState, reserved: Account) -> dict[str, object]:
    """Only a max that was lowered, or a pod that is a fact, can be exceeded."""
    over = [name for name, most in quota.body.max.listed.items() if reserved.used.amount(name) > most]
    if not over:
        return {"type": "Exceeded", "status": "False", "reason": "WithinMax", "message": ""}
    message = f"more than max is in use of {', '.join(over)}; nobody is evicted for it, new claims are refused"
    return {"type": "Exceeded", "status": "True", "reason": "MaxLowered", "message": message}
