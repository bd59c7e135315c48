"""Suggested fixes for a pending claim: changes that would admit it now. Each is tried before it is shown.

The kinds of fixes, in their order, from what the owner can do alone to what others pay for:

* ``other-quota``: another label in place of one that names no quota;
* ``ask-less``: the largest amount of each refused resource with which it would be admitted;
* ``other-nodes``: another value of a node selector, a constraint dropped, a taint tolerated;
* ``preemptible``: without the label that forbids preemption;
* ``wait``: the fewest claims that must end first, and of these the ones that end soonest;
* ``raise-quota``: the quotas to raise, and the least amounts;
* ``priority``: the lowest priority class with which it would be admitted.

The search is deterministic and its effort is bounded; ``complete`` tells whether it was finished.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from bursar.control.queue import Queue
from bursar.control.suggestions.edits import largest_each, raise_sentence, requested_amounts, smallest_raise
from bursar.control.suggestions.trial import (
    Attempt,
    Edit,
    ManifestSource,
    Raise,
    SearchBudget,
    SearchBudgetSpentError,
    Trials,
    number,
)
from bursar.engine.engine import Engine
from bursar.ledger.claims import PENDING, RESERVED, Claim
from bursar.objects.pods import PREEMPTIBLE_LABEL, SYSTEM_CLASSES
from bursar.objects.validation import few
from bursar.policies.fix_fields import LabelChoice, Path, look_up
from bursar.policies.plugin import Registry
from bursar.policies.results import Refusal
from bursar.resources import UNLIMITED

ALONE_AT_MOST = 24  # claims that are tried one by one
TOGETHER_AT_MOST = 64
NODES_AT_MOST = 4


def _ended(claims: Sequence[Claim]) -> Attempt:
    return Attempt(ended=tuple(claim.uid for claim in claims))


def _fewest(trials: Trials) -> list[Claim]:
    """The claims that must end, each of them needed; empty if no ends of claims help.

    It is one claim that is enough alone; else the smallest set that is found among all, or among those of a node.
    """
    candidates = _blocking(trials)
    for claim in candidates[:ALONE_AT_MOST]:
        if trials.admits(_ended([claim])):
            return [claim]
    by_node: dict[str, list[Claim]] = {}  # of the first few nodes: the room has to be on one node
    for claim in candidates:
        if claim.place in by_node or (claim.place and len(by_node) < NODES_AT_MOST):
            by_node.setdefault(claim.place, []).append(claim)
    found = [_needed(trials, line[:TOGETHER_AT_MOST]) for line in (candidates, *by_node.values())]
    return min((claims for claims in found if claims), key=len, default=[])


def _blocking(trials: Trials) -> list[Claim]:
    """Claims that count where it was refused, then others of the policies that refused it.

    In each part those that end soonest come first, then the lowest priority and the youngest.
    """
    topics = {topic for refusal in trials.refusals for topic in (*refusal.topics, refusal.account) if topic}
    policies = {refusal.policy for refusal in trials.refusals}
    own = {claim.uid for claim in trials.entry}
    found: list[tuple[bool, Claim]] = []
    for claim in trials.engine.state.claims.values():
        if claim.state < RESERVED or claim.leaving or claim.uid in own:
            continue
        bindings = [binding for binding in claim.bindings if binding is not None]
        near = any(not topics.isdisjoint((a.topic, a.name)) for binding in bindings for a in binding.accounts)
        if near or any(binding.policy in policies for binding in bindings):
            found.append((not near, claim))

    def order(pair: tuple[bool, Claim]) -> tuple[object, ...]:
        far, claim = pair
        end = trials.source.ends(claim.uid)
        return far, end is None, end or 0, claim.spec.priority, -claim.created, claim.key, claim.uid

    return [claim for _, claim in sorted(found, key=order)]


def _needed(trials: Trials, line: list[Claim]) -> list[Claim]:
    """The shortest prefix that is enough, without claims that are not needed; empty if all are not enough."""

    def enough(claims: list[Claim]) -> bool:
        return trials.admits(_ended(claims))

    if len(line) < 2 or not enough(line):
        return []
    chosen = line[: bisect_left(range(len(line)), True, lo=1, key=lambda most: enough(line[:most]))]
    for claim in reversed(chosen[:-1]):
        fewer = [other for other in chosen if other is not claim]
        if enough(fewer):
            chosen = fewer
    return chosen


EFFORT = 5_000  # decisions on a small cluster
NODES_A_UNIT = 200  # a decision takes one unit of effort, and one more for so many nodes
VALUES_AT_MOST = 8


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change that admits the claim, verified by a trial."""

    code: str
    sentence: str
    edits: tuple[Edit, ...] = ()
    waits_for: tuple[str, ...] = ()  # claims that must end first
    ends_at: int | None = None  # when they have ended, if that is known
    raises: tuple[Raise, ...] = ()  # accounts of policies that state no fields
    evicts: tuple[str, ...] = ()  # the claims that it displaces
    node: str = ""


@dataclass(slots=True)
class Found:
    fixes: list[Suggestion] = field(default_factory=list)
    complete: bool = True


def find_fixes(
    engine: Engine, registry: Registry, queue: Queue, source: ManifestSource, uid: str, effort: int = EFFORT
) -> Found:
    """The fixes for a pending claim; none while members of its gang are missing."""
    found = Found()
    claim = engine.state.claims.get(uid)
    if claim is None or claim.state != PENDING or queue.missing(uid) is not None:
        return found
    nodes = sum(1 for _ in source.list("Node"))
    budget = SearchBudget(effort, 1 + nodes // NODES_A_UNIT)
    trials = Trials(engine, registry, source, queue, claim, _entry(queue, claim), budget)
    try:
        trials.refusals = trials.attempt(Attempt()).refusals
        for search in (_other_quota, _ask_less, _other_nodes, _preemptible, _wait, _raise_quota, _priority):
            found.fixes.extend(search(trials))
        if not found.fixes:
            found.fixes.extend(_elsewhere(trials))
    except SearchBudgetSpentError:
        found.complete = False
    return found


def _entry(queue: Queue, claim: Claim) -> list[Claim]:
    group = claim.spec.group
    return [other for other in queue.waiting() if other is claim or (group and other.spec.group == group)]


def _fix(trials: Trials, code: str, sentence: str, wanted: Attempt) -> Iterator[Suggestion]:
    """The fix, if it works."""
    result = trials.attempt(wanted)
    if result.admitted:
        price = f"; it takes the place of {', '.join(result.evicts)}" if result.evicts else ""
        edits = (*trials.base, *wanted.edits)
        yield Suggestion(code, sentence + price, edits, raises=wanted.raised, evicts=result.evicts, node=result.node)


# Another quota


def _other_quota(trials: Trials) -> Iterator[Suggestion]:
    """The label that was probably meant: of several the first that works."""
    for refusal in trials.refusals:
        for plugin in trials.registry:
            if plugin.name == refusal.policy and plugin.fixes.labels is not None:
                choices = list(plugin.fixes.labels(trials.source, trials.entry[0], refusal))[:VALUES_AT_MOST]
                for choice in choices:
                    fixes = list(_relabelled(trials, choice))
                    yield from fixes
                    if fixes:
                        return


def _relabelled(trials: Trials, choice: LabelChoice) -> Iterator[Suggestion]:
    path: Path = ("metadata", "labels")
    edits = _edits(trials, (*path, choice.name), choice.value)
    sentence = f"name {choice.value} in its label {choice.name}"
    if choice.given != choice.name:
        edits = (*_edits(trials, (*path, choice.given), None), *edits)
        sentence = f"label it {choice.name}={choice.value} instead of {choice.given}"
    yield from _fix(trials, "other-quota", sentence, Attempt(edits))


# Asking for less


def _ask_less(trials: Trials) -> Iterator[Suggestion]:
    found = requested_amounts(trials)
    for reduced in largest_each(trials, found, _guesses(trials.refusals)):
        edits = tuple(edit for asked, amount in reduced for edit in asked.edits(amount))
        parts = [
            f"{asked.show(amount)} instead of {asked.show(asked.amount)} {asked.resource}" for asked, amount in reduced
        ]
        each = " each" if len(trials.entry) > 1 else ""
        yield from _fix(trials, "ask-less", f"ask for {' and '.join(parts)}{each}", Attempt(edits))


def _guesses(refusals: Sequence[Refusal]) -> dict[str, int]:
    """What is free where it was refused: often the answer, so it is tried first."""
    found: dict[str, int] = {}
    for refusal in refusals:
        used, limit = number(refusal.resource, refusal.used), number(refusal.resource, refusal.limit)
        if limit is not None:
            found[refusal.resource] = min(found.get(refusal.resource, UNLIMITED), limit - (used or 0))
    return found


# Other nodes


def _elsewhere(trials: Trials) -> Iterator[Suggestion]:
    """If nothing helps alone: another place, and the fixes that it needs there."""
    for _, sentence, edits in _lifted(trials):
        trials.base = edits
        trials.refusals = trials.attempt(Attempt()).refusals
        found = [fix for search in (_ask_less, _wait, _raise_quota) for fix in search(trials)]
        if found:
            yield from (replace(fix, sentence=f"{sentence}, and {fix.sentence}") for fix in found)
            return


def _other_nodes(trials: Trials) -> Iterator[Suggestion]:
    """Each constraint alone; of the values of a selector the first that works."""
    done: set[Path] = set()
    for path, sentence, edits in _lifted(trials):
        for fix in [] if path in done else _fix(trials, "other-nodes", sentence, Attempt(edits)):
            done.update({path} if path[-1] != "tolerations" else ())
            yield fix


def _lifted(trials: Trials) -> Iterator[tuple[Path, str, tuple[Edit, ...]]]:
    """The constraints on nodes, each replaced or dropped: (field, sentence, edits)."""
    body = trials.pod(trials.entry[0])
    if body is None:
        return
    for key, value in sorted((look_up(body, ("spec", "nodeSelector")) or {}).items()):
        path: Path = ("spec", "nodeSelector", key)
        for other in [one for one in _label_values(trials, key) if one != value][:VALUES_AT_MOST]:
            yield path, f"use nodes with {key}={other} instead of {key}={value}", _edits(trials, path, other)
        yield path, f"drop the node selector {key}={value}", _edits(trials, path, None)
    affinity: Path = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if look_up(body, affinity) is not None:
        yield affinity, "drop the required node affinity", _edits(trials, affinity, None)
    known = look_up(body, ("spec", "tolerations")) or []
    for key, value, effect in _taints(trials):
        toleration = {"key": key, "operator": "Equal", "value": value, "effect": effect}
        path = ("spec", "tolerations")
        if toleration not in known:
            shown = f"{key}={value}:{effect}" if value else f"{key}:{effect}"
            yield path, f"tolerate the taint {shown}", _edits(trials, path, [*known, toleration])


def _label_values(trials: Trials, key: str) -> list[str]:
    labels = (look_up(node, ("metadata", "labels", key)) for node in trials.source.list("Node"))
    return sorted({value for value in labels if isinstance(value, str)})


def _taints(trials: Trials) -> list[tuple[str, str, str]]:
    taints = {
        (taint.get("key", ""), taint.get("value") or "", taint.get("effect", ""))
        for node in trials.source.list("Node")
        for taint in look_up(node, ("spec", "taints")) or ()
    }
    return [taint for taint in sorted(taints) if taint[2] != "PreferNoSchedule"][:VALUES_AT_MOST]


def _edits(trials: Trials, path: Path, after: object, *, anew: bool = False) -> tuple[Edit, ...]:
    """The same edit of each pod of the gang."""
    bodies = [(claim.key, trials.pod(claim)) for claim in trials.entry]
    return tuple(Edit("Pod", key, path, look_up(body, path), after, anew) for key, body in bodies if body is not None)


def _preemptible(trials: Trials) -> Iterator[Suggestion]:
    if trials.entry[0].spec.preemptible:
        return
    labels = (plugin.fixes.preemptible for plugin in trials.registry)
    for label in (PREEMPTIBLE_LABEL, *filter(None, labels)):
        if trials.entry[0].spec.labels.get(label) == "false":
            wanted = Attempt(_edits(trials, ("metadata", "labels", label), None))
            yield from _fix(trials, "preemptible", f"let it be preempted: drop the label {label}", wanted)


# Waiting


def _wait(trials: Trials) -> Iterator[Suggestion]:
    chosen = _fewest(trials)
    if chosen:
        ends = [trials.source.ends(claim.uid) for claim in chosen]
        known = [end for end in ends if end is not None]
        names = tuple(claim.key for claim in chosen)
        for fix in _fix(trials, "wait", f"wait for {few(names, 4)} to end", _ended(chosen)):
            yield replace(fix, waits_for=names, ends_at=max(known) if len(known) == len(ends) else None)


# Raising quotas


def _raise_quota(trials: Trials) -> Iterator[Suggestion]:
    wanted = smallest_raise(trials)
    if wanted is not None:
        yield from _fix(trials, "raise-quota", raise_sentence(wanted), wanted)


# Priority


def _priority(trials: Trials) -> Iterator[Suggestion]:
    claim = trials.entry[0]
    if not claim.spec.preempts:
        return
    path: Path = ("spec", "priorityClassName")
    classes = sorted(
        (body.get("value", 0), str(look_up(body, ("metadata", "name"))))
        for body in trials.source.list("PriorityClass")
        if body.get("value", 0) > claim.spec.priority and body.get("preemptionPolicy") != "Never"
    )
    ours = [pair for pair in classes if pair[1] not in SYSTEM_CLASSES]  # those are for what clusters cannot do without
    for value, name in ours[:VALUES_AT_MOST]:
        edits = _edits(trials, path, name, anew=True)
        sentence = f"recreate it with the priority class {name} ({value})"
        for fix in _fix(trials, "priority", sentence, Attempt(edits)) if edits else ():
            yield fix
            return
