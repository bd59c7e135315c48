"""Decisions about claims, small enough to keep one for every claim, and the explain tree.

Outcomes:

* ``admitted``: the claim holds its quota (and its node, if it needs one) and may start;
* ``held``: the same, but it waits until its victims have left;
* ``waiting``: refused for now; a release or a change of settings may help;
* ``never``: refused, and only a change of the claim or of the settings can help;
* ``evicted``: another claim displaced it, or a policy revoked it;
* ``released``: it ended.

The explain tree has every check of every policy for one claim and is built on request. For a pending claim each policy
checks on its own, so that all failures show; the first is marked as the binding one. For a counted claim the tree shows
what it holds, for an evicted one the recorded decision.
"""

from __future__ import annotations

from typing import Final, cast, final

from mypy_extensions import mypyc_attr

from bursar.engine.charging import Core
from bursar.ledger.claims import PENDING, STATES, Binding, Claim
from bursar.ledger.journal import Recordable
from bursar.policies.plugin import Reason
from bursar.policies.policy import PlacementPolicy, Policy
from bursar.policies.results import Check, Refusal

ADMITTED: Final = 0
HOLDING: Final = 1
WAITING: Final = 2
NEVER: Final = 3
EVICTED: Final = 4
RELEASED: Final = 5
PROTECTED: Final = "engine.protected"
SEARCH_LIMIT: Final = "engine.search-limit"
_ADDED: Final = (PROTECTED, SEARCH_LIMIT)  # what the engine adds to the refusals of policies
OUTCOMES: Final = ("admitted", "held", "waiting", "never", "evicted", "released")


@final
@mypyc_attr(acyclic=True)
class Decision(Recordable):
    """The outcome for one claim, with what led to it."""

    __slots__ = ("at", "by", "outcome", "outdated", "place", "refusals", "seq", "uid", "victims", "waits")

    def __init__(
        self,
        uid: str,
        outcome: int,
        at: int,
        place: str = "",
        refusals: tuple[Refusal, ...] = (),
        victims: tuple[str, ...] = (),
        waits: tuple[str, ...] = (),
        by: str = "",
    ) -> None:
        self.uid: Final = uid
        self.outcome: Final = outcome
        self.at: Final = at
        self.place: Final = place
        self.refusals: Final = refusals  # the first one is the binding one
        self.victims: Final = victims  # whom it displaces
        self.waits: Final = waits  # who must have left before it may start
        self.by: Final = by  # whose victim it is, if it is another claim's
        self.outdated: bool = False  # the claim asks for something else since then
        self.seq: int = 0  # the journal record that proves it: its own, or that of an equal one before; 0: in a dry run

    def __repr__(self) -> str:
        return f"Decision({self.uid}, {self.name}, {self.reason or self.place or '-'})"

    @property
    def name(self) -> str:
        return OUTCOMES[self.outcome]

    @property
    def admitted(self) -> bool:
        """Whether the claim holds what it asked for (it may still have to wait for victims)."""
        return self.outcome <= HOLDING

    @property
    def reason(self) -> str:
        """The stable code of the binding check; empty when nothing refused."""
        if self.refusals:
            return self.refusals[0].reason
        if self.outcome == EVICTED:
            return "engine.preempted"
        return ""

    def sentence(self) -> str:
        """One sentence for people."""
        if self.refusals:
            more = [refusal.note for refusal in self.refusals[1:] if refusal.reason in _ADDED]
            return "; ".join([self.refusals[0].sentence(), *more])
        if self.outcome == EVICTED:
            return f"gave its place to {self.by}"
        if self.outcome == HOLDING:
            return f"waits for {len(self.waits)} to leave: {', '.join(self.waits)}"
        return f"{self.name} on {self.place}" if self.place else self.name

    def same_as(self, other: object) -> bool:
        """Whether it repeats the other decision: then it needs no record."""
        return (
            isinstance(other, Decision)
            and not other.outdated
            and self.outcome == other.outcome
            and self.reason == other.reason
            and self.place == other.place
        )

    def record(self) -> list[object]:
        refusals = [r.record() for r in self.refusals]
        who = [list(self.victims), list(self.waits), self.by]
        return [self.uid, self.name, self.at, self.place, refusals, who]


@final
@mypyc_attr(acyclic=True)
class GangDecisions(Recordable):
    """The decisions of a gang, as one journal record holds them."""

    __slots__ = ("decisions",)

    def __init__(self, decisions: list[Decision]) -> None:
        self.decisions: Final = decisions

    def record(self) -> list[object]:
        return [decision.record() for decision in self.decisions]


def decision_from_record(record: list[object], seq: int) -> Decision:
    """The inverse of ``Decision.record``."""
    uid, name, at, place, refusals, who = record
    victims, waits, by = cast("list[object]", who)
    decision = Decision(
        cast("str", uid),
        OUTCOMES.index(cast("str", name)),
        cast("int", at),
        cast("str", place),
        tuple([_refusal(r) for r in cast("list[list[object]]", refusals)]),
        tuple([str(v) for v in cast("list[object]", victims)]),
        tuple([str(v) for v in cast("list[object]", waits)]),
        cast("str", by),
    )
    decision.seq = seq
    return decision


def _refusal(record: list[object]) -> Refusal:
    policy, reason, note, account, numbers, permanent, topics, place = record
    resource, requested, used, limit = cast("list[str]", numbers)
    return Refusal(
        cast("str", policy),
        cast("str", reason),
        cast("str", note),
        cast("str", account),
        resource,
        requested,
        used,
        limit,
        bool(permanent),
        tuple([str(t) for t in cast("list[object]", topics)]),
        cast("str", place),
    )


def explain_claim(core: Core, claim: Claim) -> Check:
    """The tree for a claim that is in the ledger. Changes nothing."""
    waiting = claim.state == PENDING
    children: list[Check] = []
    for i in range(len(core.policies)):
        policy = core.policies[i]
        if not waiting:
            binding = claim.bindings[i] if i < len(claim.bindings) else None
            found = None if binding is None else policy.explain(claim, binding)
        elif isinstance(policy, PlacementPolicy):
            found = policy.explain_nodes(claim) if claim.spec.placeable else None
        else:
            found = _quota_check(policy, claim)
        if found is not None:
            children.append(found)
    last = claim.decision
    if waiting and isinstance(last, Decision):
        children.extend([Check.of_refusal(refusal) for refusal in last.refusals if refusal.reason in _ADDED])
        if not _mark(children, last.reason):
            _mark_first(children)
    else:
        _mark_first(children)
    return Check(f"{claim.key} is {STATES[claim.state]}", not waiting, _last_word(claim), tuple(children))


def _quota_check(policy: Policy, claim: Claim) -> Check | None:
    bound = policy.bind(claim, "")
    if isinstance(bound, Binding):
        return policy.explain(claim, bound)
    if isinstance(bound, Refusal):
        return Check(policy.name, False, "", (Check.of_refusal(bound),))
    return None


def _mark(checks: list[Check], reason: str) -> bool:
    """Mark the check by which the claim was refused; False if it does not fail now."""
    for check in checks:
        if not check.passed and not check.children and check.reason == reason:
            check.binding = True
            return True
        if _mark(list(check.children), reason):
            return True
    return False


def _mark_first(checks: list[Check]) -> bool:
    """Mark the first failing leaf: the one to fix."""
    for check in checks:
        if check.passed:
            continue
        if not check.children or not _mark_first(list(check.children)):
            check.binding = True
        return True
    return False


def _last_word(claim: Claim) -> str:
    decision = claim.decision
    if not isinstance(decision, Decision):
        return "not decided yet"
    return decision.sentence()


def explain_departed(key: str, decision: Decision) -> Check:
    """The tree for a claim that was evicted and is gone."""
    children = tuple([Check.of_refusal(refusal) for refusal in decision.refusals])
    return Check(f"{key} is gone", False, decision.sentence(), children, decision.reason)


REASONS: Final = (
    Reason(
        "engine.preempted",
        "The pod was evicted: it gave its place to another one, which had a better right to it. The note names it.",
        "Submit it again: it starts when there is room. `bursar explain` of the other one shows its right.",
    ),
    Reason(
        "engine.displaced",
        "The pod had a place, but had not started; another one with a better right took it, and the pod waits again.",
        "Wait.",
    ),
    Reason(
        "engine.group",
        "The pod starts together with its group, and another one of the group cannot run.",
        "See the reason of the pod that the note names.",
    ),
    Reason(
        "engine.protected",
        "The pod could take the place of others, but these may not be displaced: one displaced it before, may not be "
        "preempted, or is kept by a disruption budget. The note names them and says why.",
        "Wait for them to end, or widen the disruption budget.",
    ),
    Reason(
        "engine.search-limit",
        "Disruption budgets or fair shares forbid so many sets of victims that not all were judged (4,096 a node).",
        "Widen the budgets that the pod runs into, or wait.",
    ),
    Reason(
        "engine.put-off",
        "Kubernetes only: the search for the pod's place takes so long that others would wait. It is made later.",
        "Wait. If it comes again, widen the disruption budgets that the pod runs into, or start smaller gangs.",
    ),
    Reason(
        "engine.out-of-range",
        "What the pod asks for, together with what others have, is more than can be counted exactly (4 Ei).",
        "Ask for an amount that exists.",
    ),
    Reason(
        "engine.fixed-needs",
        "What a pod requires of its node cannot change while it has a place.",
        "Create it again.",
    ),
    Reason(
        "engine.fixed-priority",
        "The priority of a pod cannot change while it has a place.",
        "Create it again.",
    ),
)
