"""The explain tree: every check of every policy for one claim, built when somebody asks.

For a claim that waits the checks are made now, each policy on its own, so that all that fails is shown and the first
failing one is marked as the binding one. For a claim that counts they show what it holds. For an evicted one the
recorded decision is all there is.
"""

from __future__ import annotations

from bursar.engine.core import Core
from bursar.engine.decisions import Decision
from bursar.ledger.claims import PENDING, STATES, Binding, Claim
from bursar.policies.base import Policy
from bursar.policies.checks import Check, Refusal


def explain_claim(core: Core, claim: Claim) -> Check:
    """The tree for a claim that is in the ledger. Changes nothing."""
    waiting = claim.state == PENDING
    children: list[Check] = []
    for i in range(len(core.policies)):
        policy = core.policies[i]
        if not waiting:
            binding = claim.bindings[i] if i < len(claim.bindings) else None
            found = None if binding is None else policy.explain(claim, binding)
        elif policy.placement:
            found = policy.survey(claim) if claim.spec.placeable else None
        else:
            found = _quota_check(policy, claim)
        if found is not None:
            children.append(found)
    _mark_first(children)
    return Check(f"{claim.key} is {STATES[claim.state]}", not waiting, _last_word(claim), tuple(children))


def _quota_check(policy: Policy, claim: Claim) -> Check | None:
    bound = policy.bind(claim, "")
    if isinstance(bound, Binding):
        return policy.explain(claim, bound)
    if isinstance(bound, Refusal):
        return Check(policy.name, False, "", (Check.of_refusal(bound),))
    return None


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
