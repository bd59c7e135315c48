"""Dry runs: changes are made in a transaction that is never committed.

The changes run in order, each as the engine would run it; then, if asked, the pending claims are tried by priority and
age. The caller (``Engine.what_if``) undoes everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from mypy_extensions import mypyc_attr

from bursar.engine.charging import Core
from bursar.engine.decide import apply_settings, decide, group, refused
from bursar.engine.decision import ADMITTED, RELEASED, Decision
from bursar.engine.demand import settle
from bursar.engine.eviction import drop
from bursar.engine.rebinding import respec
from bursar.ledger.claims import PENDING, Claim, ClaimSpec
from bursar.policies.results import Setting


@final
@dataclass(frozen=True)
class Outlook:
    """The decisions that would be made, in order, and the claims that would be evicted."""

    decisions: list[Decision] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)

    def of(self, uid: str) -> Decision | None:
        """The last decision about a claim; None if it was not tried."""
        for decision in reversed(self.decisions):
            if decision.uid == uid:
                return decision
        return None

    def add(self, core: Core, decision: Decision) -> None:
        """A victim that was only held has not started: it loses its hold and is not evicted."""
        self.decisions.append(decision)
        for uid in decision.victims:
            if core.ledger.state.claims[uid].leaving:
                self.evicted.append(uid)


@mypyc_attr(allow_interpreted_subclasses=True)
class Assumption:
    """A change to try."""

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        raise RuntimeError("a change must say what it does")


@final
class Submit(Assumption):
    """A claim is submitted and decided; several are a gang, all or none."""

    def __init__(self, *claims: Claim) -> None:
        self.claims: Final = claims

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        for claim in self.claims:
            core.enter(claim)
        if len(self.claims) == 1:
            outlook.add(core, decide(core, self.claims[0], at))
            return
        for decision in group(core, list(self.claims), at):
            outlook.add(core, decision)


@final
@dataclass(frozen=True)
class Release(Assumption):
    """A claim ends."""

    uid: str

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        claim = core.ledger.state.claims[self.uid]
        drop(core, claim, claim.leaving)
        outlook.add(core, Decision(self.uid, RELEASED, at))


@final
@dataclass(frozen=True)
class Adjust(Assumption):
    """A claim grows or shrinks."""

    uid: str
    spec: ClaimSpec

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        claim = core.ledger.state.claims[self.uid]
        mark = core.tx.savepoint()
        refusals = respec(core, claim, self.spec)
        if refusals:
            core.tx.rollback_to(mark)
            outlook.add(core, refused(claim, at, refusals))
        else:
            outlook.add(core, Decision(self.uid, ADMITTED, at, claim.place))


@final
@dataclass(frozen=True)
class Configure(Assumption):
    """Settings change."""

    settings: list[Setting]

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        apply_settings(core, self.settings)


def look_ahead(core: Core, changes: list[Assumption], at: int, pending: bool) -> Outlook:
    """Run the changes; the caller undoes them."""
    outlook = Outlook()
    for change in changes:
        change.run(core, at, outlook)
        settle(core)
    if pending:
        for claim in waiting_claims(core):
            decision = decide(core, claim, at)
            settle(core)
            outlook.add(core, decision)
    return outlook


def waiting_claims(core: Core) -> list[Claim]:
    """Pending claims, the most urgent first."""
    found = [claim for claim in core.ledger.state.claims.values() if claim.state == PENDING]
    found.sort(key=_urgency)
    return found


def _urgency(claim: Claim) -> tuple[int, int, str, str]:
    return (-claim.spec.priority, claim.created, claim.key, claim.uid)
