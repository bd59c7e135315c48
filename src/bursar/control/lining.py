"""What happens in a try: changes that ``engine.what_if`` runs, and the queue after them, as the loop would run it.

The queue is followed as it is for real: only who waits for something that changed is decided once more, the most urgent
first, and one whose like was refused a moment ago is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from bursar.control.watching import touched_topics
from bursar.engine import deciding
from bursar.engine.core import Core
from bursar.engine.decisions import NEVER, Decision
from bursar.engine.what_if import Change, Outlook
from bursar.ledger.account_changes import PutCell
from bursar.ledger.claims import PENDING, Claim
from bursar.limits import Limits


@dataclass(frozen=True, slots=True)
class Raise:
    """An account may hold more of a resource: for policies whose manifests nobody here can read."""

    account: str
    resource: str
    amount: int


class RaiseLimit(Change):
    """Raise the limit of an account, as a change of its quota would."""

    def __init__(self, wanted: Raise) -> None:
        self.wanted = wanted

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        account = core.ledger.state.accounts[self.wanted.account]
        listed = {**account.limits.listed, self.wanted.resource: self.wanted.amount}
        core.tx.set_limits(account, Limits(listed, account.limits.stock))


class Enter(Change):
    """A claim comes and waits in line."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        core.enter(self.claim)


class InLine(Change):
    """Those in front try first, then the claims that it is about, together, then those behind; as in the queue, only
    who waits for something that changed.

    ``kept``: they got in, and nobody of those behind took it away again.
    """

    def __init__(self, line: Line, unit: list[str], strict: bool, effort: Effort) -> None:
        self._line = line
        self._unit = unit
        self._strict = strict
        self._effort = effort
        self._refused: set[tuple[int, str]] = set()
        self._woken = Woken(line.reconfigured)
        self.kept = False

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        claims = [core.ledger.state.claims[uid] for uid in self._unit]
        mark = core.tx.savepoint()
        alone = Outlook()
        if not self._decide(core, claims, at, alone).admitted:  # nor will it be when others come before it
            for decision in alone.decisions:
                outlook.add(decision)
            return
        core.tx.rollback_to(mark)
        for unit in self._line.ahead:
            tried = self._try(core, unit, at, outlook)
            if self._strict and tried is not None and not tried.admitted and tried.outcome != NEVER:
                return
        if not self._decide(core, claims, at, outlook).admitted:
            return
        self._refused.clear()
        for unit in self._line.behind:
            self._try(core, unit, at, outlook)
        self.kept = all(claim.state != PENDING and not claim.leaving for claim in claims)

    def _try(self, core: Core, unit: list[Claim], at: int, outlook: Outlook) -> Decision | None:
        """None: it waits no longer, or for something else, or its like was refused since anything last changed."""
        claims = [claim for claim in unit if claim.state == PENDING]
        if not claims or not (self._strict or self._woken.includes(core, claims)):
            return None
        like = (int(claims[0].spec.mark), claims[0].namespace) if len(claims) == 1 else None
        if like in self._refused and not self._strict:
            return None
        decision = self._decide(core, claims, at, outlook)
        if decision.admitted:
            self._refused.clear()
        elif like is not None:
            self._refused.add(like)
        return decision

    def _decide(self, core: Core, claims: list[Claim], at: int, outlook: Outlook) -> Decision:
        self._effort.spend()
        alone = len(claims) == 1
        decisions = [deciding.decide(core, claims[0], at)] if alone else deciding.group(core, claims, at)
        for decision in decisions:
            outlook.add(decision)
        core.settle()
        return decisions[0]


class Woken:
    """Who of those that wait would be decided once more, after what was changed in the transaction so far."""

    def __init__(self, everybody: bool) -> None:
        self._everybody = everybody
        self._topics: dict[str, None] = {}
        self._seen = 0

    def includes(self, core: Core, claims: list[Claim]) -> bool:
        log = core.tx.log
        for change in log[self._seen :]:
            if isinstance(change, PutCell):
                self._everybody = self._everybody or change.table == "displaced"
            else:
                self._everybody = touched_topics(change, self._topics) or self._everybody
        self._seen = len(log)
        return self._everybody or any(self._waits_for_it(claim) for claim in claims)

    def _waits_for_it(self, claim: Claim) -> bool:
        decision = claim.decision
        if not isinstance(decision, Decision):
            return True
        topics = [topic for refusal in decision.refusals for topic in refusal.topics]
        return decision.outcome != NEVER and (not topics or any(topic in self._topics for topic in topics))


@dataclass(frozen=True, slots=True)
class Line:
    """The other units that wait, each with its claims, before and after those that it is about."""

    ahead: list[list[Claim]]
    behind: list[list[Claim]]
    reconfigured: bool = False  # settings change: everybody is decided once more


class TiredError(Exception):
    """The effort is used up."""


@dataclass(slots=True)
class Effort:
    """How much may still be tried; each decision takes as much as there are nodes to look at."""

    left: int
    each: int = 1

    def spend(self) -> None:
        if self.left <= 0:
            raise TiredError
        self.left -= self.each
