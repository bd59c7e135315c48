"""The shortest fixes for a claim that waits: what to change, so that it gets in now. Each was tried before it is shown.

The kinds of fixes, in the order in which they are given, from what the asker can do alone to what others pay for:

* ``ask-less``: the largest amount, of each resource that was refused, with which it would get in;
* ``other-nodes``: another value of a node selector, a constraint dropped, a taint tolerated;
* ``preemptible``: without the mark that forbids to preempt it;
* ``wait``: which claims must end first, the fewest, and those that end soonest;
* ``raise-quota``: which quotas must be raised to what, at least;
* ``priority``: the lowest priority class with which it would get in.

A fix that could not be verified is not given. The search is deterministic and its effort is bounded; ``complete`` says
whether it came to its end.

Waiting: which claims must end, so that one that waits gets in: the fewest, and those that end soonest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from bursar.control.queue import Queue
from bursar.control.suggestions.edits import knobs, largest_each, smallest_raise
from bursar.control.suggestions.trial import (
    Attempt,
    Edit,
    Effort,
    ManifestSource,
    Raise,
    TiredError,
    TrialResult,
    Trials,
    number,
)
from bursar.engine.engine import Engine
from bursar.ledger.claims import PENDING, RESERVED, Claim
from bursar.objects.pods import PREEMPTIBLE_LABEL, SYSTEM_CLASSES
from bursar.objects.validation import few
from bursar.policies.fix_fields import Path, look_up
from bursar.policies.plugin import Registry
from bursar.policies.results import Refusal
from bursar.resources import UNLIMITED, dimension

ALONE_AT_MOST = 24  # claims of which it is tried whether the end of one alone is enough
TOGETHER_AT_MOST = 64
NODES_AT_MOST = 4


def fewest_to_end(tries: Trials) -> list[Claim]:
    """The claims whose end lets it in, none of whom can be spared; empty: there are no such claims."""

    def enough(claims: list[Claim]) -> bool:
        return tries.admits(Attempt(ended=tuple(claim.uid for claim in claims)))

    return _fewest(_in_the_way(tries), enough)


def _in_the_way(tries: Trials) -> list[Claim]:
    """Claims that count where it was refused, then others of the policies that refused it; in each part those that end
    soonest first, then the least urgent and youngest.
    """
    topics = {topic for refusal in tries.refusals for topic in (*refusal.topics, refusal.account) if topic}
    policies = {refusal.policy for refusal in tries.refusals}
    own = {claim.uid for claim in tries.unit}
    found: list[tuple[bool, Claim]] = []
    for claim in tries.engine.state.claims.values():
        if claim.state < RESERVED or claim.leaving or claim.uid in own:
            continue
        bindings = [binding for binding in claim.bindings if binding is not None]
        near = any(not topics.isdisjoint((a.topic, a.name)) for binding in bindings for a in binding.accounts)
        if near or any(binding.policy in policies for binding in bindings):
            found.append((not near, claim))
    found.sort(key=lambda pair: (pair[0], _end(tries, pair[1]), *_harm(pair[1])))
    return [claim for _, claim in found]


def _harm(claim: Claim) -> tuple[int, int, str, str]:
    return claim.spec.priority, -claim.created, claim.key, claim.uid


def _end(tries: Trials, claim: Claim) -> tuple[bool, int]:
    end = tries.desk.ends(claim.uid)
    return end is None, end or 0


def _fewest(candidates: list[Claim], enough: Callable[[list[Claim]], bool]) -> list[Claim]:
    """One that is enough; else the smallest that is found among all, and among those of a node."""
    for claim in candidates[:ALONE_AT_MOST]:
        if enough([claim]):
            return [claim]
    found = [_needed(line[:TOGETHER_AT_MOST], enough) for line in (candidates, *_by_node(candidates))]
    return min((claims for claims in found if claims), key=len, default=[])


def _by_node(candidates: list[Claim]) -> list[list[Claim]]:
    """The claims of each node, for the nodes of the first few candidates: room has to be in one place."""
    lines: dict[str, list[Claim]] = {}
    for claim in candidates:
        if claim.place in lines or (claim.place and len(lines) < NODES_AT_MOST):
            lines.setdefault(claim.place, []).append(claim)
    return list(lines.values())


def _needed(line: list[Claim], enough: Callable[[list[Claim]], bool]) -> list[Claim]:
    """The shortest beginning of the line that is enough, without those who can be spared; empty: not even all are."""
    if len(line) < 2 or not enough(line):
        return []
    low, high = 1, len(line)  # the first ``high`` are enough
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(line[:middle]) else (middle + 1, high)
    chosen = line[:high]
    for claim in reversed(line[: high - 1]):
        fewer = [other for other in chosen if other is not claim]
        if enough(fewer):
            chosen = fewer
    return chosen


EFFORT = 5_000  # decisions on a small cluster
NODES_A_UNIT = 200  # a decision takes one unit of effort, and one more for so many nodes
VALUES_AT_MOST = 8


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Something that lets the claim in, verified."""

    code: str
    sentence: str
    edits: tuple[Edit, ...] = ()
    waits_for: tuple[str, ...] = ()  # claims that must end first
    ends_at: int | None = None  # when they have ended, if that is known
    raises: tuple[Raise, ...] = ()  # accounts whose manifests are not known here
    evicts: tuple[str, ...] = ()  # whom it costs the place
    node: str = ""


@dataclass(slots=True)
class Found:
    fixes: list[Suggestion] = field(default_factory=list)
    complete: bool = True


def find_fixes(
    engine: Engine, registry: Registry, queue: Queue, desk: ManifestSource, uid: str, effort: int = EFFORT
) -> Found:
    """The fixes for a claim; none for one that does not wait, or waits for members of its group."""
    found = Found()
    claim = engine.state.claims.get(uid)
    if claim is None or claim.state != PENDING or queue.missing(uid) is not None:
        return found
    nodes = sum(1 for _ in desk.list("Node"))
    bound = Effort(effort, 1 + nodes // NODES_A_UNIT)
    tries = Trials(engine, registry, desk, queue, claim, _unit(queue, claim), bound)
    try:
        tries.refusals = tries.attempt(Attempt()).refusals
        for search in (_ask_less, _other_nodes, _preemptible, _wait, _raise_quota, _priority):
            found.fixes.extend(search(tries))
        if not found.fixes:
            found.fixes.extend(_elsewhere(tries))
    except TiredError:
        found.complete = False
    return found


def _unit(queue: Queue, claim: Claim) -> list[Claim]:
    group = claim.spec.group
    return [other for other in queue.waiting() if other is claim or (group and other.spec.group == group)]


def _fix(tries: Trials, code: str, sentence: str, wanted: Attempt) -> Iterator[Suggestion]:
    """The fix, if it works."""
    verdict = tries.attempt(wanted)
    if verdict.admitted:
        yield _verified(Suggestion(code, sentence, (*tries.base, *wanted.edits), raises=wanted.raised), verdict)


def _verified(fix: Suggestion, verdict: TrialResult) -> Suggestion:
    price = f"; it takes the place of {', '.join(verdict.evicts)}" if verdict.evicts else ""
    return replace(fix, sentence=fix.sentence + price, evicts=verdict.evicts, node=verdict.node)


# Asking for less


def _ask_less(tries: Trials) -> Iterator[Suggestion]:
    found = knobs(tries)
    for turned in largest_each(tries, found, _guesses(tries.refusals)):
        edits = tuple(edit for knob, amount in turned for edit in knob.edits(amount))
        parts = [f"{_show(knob.resource, amount)} instead of {_show(knob.resource, knob.amount)} {knob.resource}"
                 for knob, amount in turned]  # fmt: skip
        each = " each" if len(tries.unit) > 1 else ""
        yield from _fix(tries, "ask-less", f"ask for {' and '.join(parts)}{each}", Attempt(edits))


def _guesses(refusals: Sequence[Refusal]) -> dict[str, int]:
    """What is free where it was refused: often the answer, and always only a guess."""
    found: dict[str, int] = {}
    for refusal in refusals:
        used, limit = number(refusal.resource, refusal.used), number(refusal.resource, refusal.limit)
        if limit is not None:
            found[refusal.resource] = min(found.get(refusal.resource, UNLIMITED), limit - (used or 0))
    return found


# Other nodes


def _elsewhere(tries: Trials) -> Iterator[Suggestion]:
    """Where nothing helps alone: another place, and then what it takes there."""
    for _, sentence, edits in _lifted(tries):
        tries.base = edits
        tries.refusals = tries.attempt(Attempt()).refusals
        found = [fix for search in (_ask_less, _wait, _raise_quota) for fix in search(tries)]
        if found:
            yield from (replace(fix, sentence=f"{sentence}, and {fix.sentence}") for fix in found)
            return


def _other_nodes(tries: Trials) -> Iterator[Suggestion]:
    """Each constraint for itself; of the values of a selector the first that works."""
    done: set[Path] = set()
    for path, sentence, edits in _lifted(tries):
        for fix in [] if path in done else _fix(tries, "other-nodes", sentence, Attempt(edits)):
            done.update({path} if path[-1] != "tolerations" else ())
            yield fix


def _lifted(tries: Trials) -> Iterator[tuple[Path, str, tuple[Edit, ...]]]:
    """The constraints on nodes, each replaced or dropped: (field, sentence, edits)."""
    body = tries.pod(tries.unit[0])
    if body is None:
        return
    for key, value in sorted((look_up(body, ("spec", "nodeSelector")) or {}).items()):
        path: Path = ("spec", "nodeSelector", key)
        for other in [one for one in _label_values(tries, key) if one != value][:VALUES_AT_MOST]:
            yield path, f"use nodes with {key}={other} instead of {key}={value}", _edits(tries, path, other)
        yield path, f"drop the node selector {key}={value}", _edits(tries, path, None)
    affinity: Path = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if look_up(body, affinity) is not None:
        yield affinity, "drop the required node affinity", _edits(tries, affinity, None)
    known = look_up(body, ("spec", "tolerations")) or []
    for key, value, effect in _taints(tries):
        toleration = {"key": key, "operator": "Equal", "value": value, "effect": effect}
        path = ("spec", "tolerations")
        if toleration not in known:
            shown = f"{key}={value}:{effect}" if value else f"{key}:{effect}"
            yield path, f"tolerate the taint {shown}", _edits(tries, path, [*known, toleration])


def _label_values(tries: Trials, key: str) -> list[str]:
    labels = (look_up(node, ("metadata", "labels", key)) for node in tries.desk.list("Node"))
    return sorted({value for value in labels if isinstance(value, str)})


def _taints(tries: Trials) -> list[tuple[str, str, str]]:
    taints = {
        (taint.get("key", ""), taint.get("value") or "", taint.get("effect", ""))
        for node in tries.desk.list("Node")
        for taint in look_up(node, ("spec", "taints")) or ()
    }
    return [taint for taint in sorted(taints) if taint[2] != "PreferNoSchedule"][:VALUES_AT_MOST]


def _edits(tries: Trials, path: Path, after: object, *, anew: bool = False) -> tuple[Edit, ...]:
    """The same edit of each pod of the group."""
    bodies = [(claim.key, tries.pod(claim)) for claim in tries.unit]
    return tuple(Edit("Pod", key, path, look_up(body, path), after, anew) for key, body in bodies if body is not None)


def _preemptible(tries: Trials) -> Iterator[Suggestion]:
    if tries.unit[0].spec.preemptible:
        return
    labels = (plugin.fixes.preemptible for plugin in tries.registry)
    for label in (PREEMPTIBLE_LABEL, *filter(None, labels)):
        if tries.unit[0].spec.labels.get(label) == "false":
            wanted = Attempt(_edits(tries, ("metadata", "labels", label), None))
            yield from _fix(tries, "preemptible", f"let it be preempted: drop the label {label}", wanted)


# Waiting


def _wait(tries: Trials) -> Iterator[Suggestion]:
    chosen = fewest_to_end(tries)
    if not chosen:
        return
    ends = [tries.desk.ends(claim.uid) for claim in chosen]
    known = [end for end in ends if end is not None]
    verdict = tries.attempt(Attempt(ended=tuple(claim.uid for claim in chosen)))
    names = tuple(claim.key for claim in chosen)
    fix = Suggestion("wait", f"wait for {few(names, 4)} to end", tries.base, waits_for=names)
    if len(known) == len(ends):
        fix = replace(fix, ends_at=max(known))
    yield _verified(fix, verdict)


# Raising quotas


def _raise_quota(tries: Trials) -> Iterator[Suggestion]:
    found = smallest_raise(tries)
    if found is not None:
        wanted, sentence = found
        yield from _fix(tries, "raise-quota", sentence, wanted)


# Priority


def _priority(tries: Trials) -> Iterator[Suggestion]:
    claim = tries.unit[0]
    if not claim.spec.preempts:
        return
    path: Path = ("spec", "priorityClassName")
    classes = sorted(
        (body.get("value", 0), str(look_up(body, ("metadata", "name"))))
        for body in tries.desk.list("PriorityClass")
        if body.get("value", 0) > claim.spec.priority and body.get("preemptionPolicy") != "Never"
    )
    ours = [pair for pair in classes if pair[1] not in SYSTEM_CLASSES]  # those are for what clusters cannot do without
    for value, name in ours[:VALUES_AT_MOST]:
        edits = _edits(tries, path, name, anew=True)
        sentence = f"create it anew with the priority class {name} ({value})"
        for fix in _fix(tries, "priority", sentence, Attempt(edits)) if edits else ():
            yield fix
            return


def _show(resource: str, amount: int) -> str:
    return dimension(resource).show(amount)
