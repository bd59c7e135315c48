"""Trials: would a pending claim be admitted after edits of manifests, ends of claims, or raised limits?

A trial runs in ``engine.what_if`` and is undone. It follows the queue as the control loop would: first the change, then
the entries before this one, then this one with its gang, then those behind. Only entries that wait for something that
changed are decided again, and an entry is skipped while one of its equivalence class was just refused. So a fix that
works here works in the cluster, unless something else happens first.

The effort is bounded: a search that has spent it finds nothing more. Manifests are never changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bursar.control.admission import ObjectChange, PodBook, settings_of
from bursar.control.device_book import charged_alike
from bursar.control.gangs import urgency
from bursar.control.queue import Queue
from bursar.control.wakeups import Helped
from bursar.engine.charging import Core
from bursar.engine.decide import decide, group
from bursar.engine.decision import NEVER, Decision
from bursar.engine.engine import Engine
from bursar.engine.what_if import Adjust, Assumption, Configure, Outlook, Release
from bursar.ledger.claims import PENDING, Claim
from bursar.objects.decode import ManifestError, join
from bursar.objects.manifests import Document
from bursar.objects.pods import SpecCache
from bursar.policies.fix_fields import Path
from bursar.policies.plugin import ObjectView, Registry
from bursar.policies.results import Refusal, SettingError
from bursar.quantity import QuantityError
from bursar.resources import Limits, dimension


@dataclass(frozen=True)
class Raise(Assumption):
    """A raised limit of an account, for policies that state no fields."""

    account: str
    resource: str
    amount: int

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        account = core.ledger.state.accounts[self.account]
        listed = {**account.limits.listed, self.resource: self.amount}
        core.tx.set_limits(account, Limits(listed, account.limits.stock))


@dataclass(frozen=True)
class Enqueue(Assumption):
    """A claim is submitted, and waits in the queue."""

    claim: Claim

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        core.enter(self.claim)


@dataclass(frozen=True, slots=True)
class OtherEntries:
    """The other queue entries, each with its claims, ahead of and behind the one that is tried."""

    ahead: list[list[Claim]]
    behind: list[list[Claim]]


class SearchBudgetSpentError(Exception):
    """The effort of a search is spent."""


@dataclass(slots=True)
class SearchBudget:
    """What is left of the effort; the cost of a decision grows with the number of nodes."""

    left: int
    each: int = 1

    def spend(self) -> None:
        if self.left <= 0:
            raise SearchBudgetSpentError
        self.left -= self.each


@dataclass(slots=True)
class Woken:
    """Finds the pending claims that the changes of the transaction so far would wake."""

    everything: bool  # settings change: every entry is decided again
    helped: Helped = field(default_factory=Helped)
    seen: int = 0

    def includes(self, core: Core, claims: list[Claim]) -> bool:
        log = core.tx.log
        for change in log[self.seen :]:
            self.helped.add(change)
        self.seen = len(log)
        return self.everything or self.helped.preempting or any(self._waits_for_it(claim) for claim in claims)

    def _waits_for_it(self, claim: Claim) -> bool:
        decision = claim.decision
        if not isinstance(decision, Decision):
            return True
        topics = [topic for refusal in decision.refusals for topic in refusal.topics]
        return decision.outcome != NEVER and (not topics or any(topic in self.helped.topics for topic in topics))


@dataclass
class QueueTrial(Assumption):
    """Decides the entries ahead, then the entry itself, then those behind.

    ``kept`` is True if its claims are admitted, and not displaced by an entry behind.
    """

    others: OtherEntries
    uids: list[str]  # of the claims of the entry
    strict: bool
    budget: SearchBudget
    woken: Woken
    refused: set[tuple[int, str]] = field(default_factory=set)  # equivalence classes
    kept: bool = False

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        claims = [core.ledger.state.claims[uid] for uid in self.uids]
        mark = core.tx.savepoint()
        alone = Outlook()
        if not self._decide(core, claims, at, alone).admitted:  # nor will it be after others
            for decision in alone.decisions:
                outlook.add(core, decision)
            return
        core.tx.rollback_to(mark)
        for entry in self.others.ahead:
            tried = self._try(core, entry, at, outlook)
            if self.strict and tried is not None and not tried.admitted and tried.outcome != NEVER:
                return
        if not self._decide(core, claims, at, outlook).admitted:
            return
        self.refused.clear()
        for entry in self.others.behind:
            self._try(core, entry, at, outlook)
        self.kept = all(claim.state != PENDING and not claim.leaving for claim in claims)

    def _try(self, core: Core, entry: list[Claim], at: int, outlook: Outlook) -> Decision | None:
        """Decide an entry again, unless nothing that it waits for changed, or its equivalence class was just refused.

        Returns None if the entry is skipped.
        """
        claims = [claim for claim in entry if claim.state == PENDING]
        if not claims or not (self.strict or self.woken.includes(core, claims)):
            return None
        like = (int(claims[0].spec.mark), claims[0].namespace) if len(claims) == 1 else None
        if like in self.refused and not self.strict:
            return None
        decision = self._decide(core, claims, at, outlook)
        if decision.admitted:
            self.refused.clear()
        elif like is not None:
            self.refused.add(like)
        return decision

    def _decide(self, core: Core, claims: list[Claim], at: int, outlook: Outlook) -> Decision:
        self.budget.spend()
        alone = len(claims) == 1
        decisions = [decide(core, claims[0], at)] if alone else group(core, claims, at)
        for decision in decisions:
            outlook.add(core, decision)
        core.settle()
        return decisions[0]


Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Edit:
    """A new value for one field of an object; None if the field is absent before or after."""

    kind: str  # Kind.group, or Kind for core kinds
    key: str
    path: Path
    before: object
    after: object
    anew: bool = False  # the object must be deleted and created again, because the field is immutable

    @property
    def field(self) -> str:
        return show_path(self.path)


def show_path(path: Path) -> str:
    """The path in the form ``spec.containers[0].resources``."""
    text = ""
    for step in path:
        text = join(text, f"[{step}]" if isinstance(step, int) else step)
    return text


def edited(body: Mapping[str, Any], edits: Iterable[Edit]) -> Body:
    """The manifest with these edits made."""
    changed: Any = body
    for edit in edits:
        changed = _with(changed, edit.path, edit.after)
    result: Body = changed
    return result


def _with(value: Any, path: Path, new: object) -> Any:  # noqa: ANN401 any part of a manifest
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        copy = list(value)
        copy[step] = _with(copy[step], rest, new)
        return copy
    known = dict(value) if isinstance(value, Mapping) else {}
    inner = _with(known.get(step), rest, new)
    if inner is None:
        known.pop(step, None)
    else:
        known[step] = inner
    return known


class ManifestSource(ObjectView, Protocol):
    """The manifests as they were applied, without what Bursar wrote, and what a change of them would mean."""

    def now(self) -> int: ...

    def staged(self, documents: Sequence[Document], without: Iterable[str]) -> list[ObjectChange]:
        """The changes that applying these documents would make. ``without`` names pods that are deleted first."""

    def ends(self, uid: str) -> int | None:
        """When a running claim ends by itself, in milliseconds, if that is known."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a trial changes: edits of manifests, claims that end, limits that are raised."""

    edits: tuple[Edit, ...] = ()
    ended: tuple[str, ...] = ()
    raised: tuple[Raise, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a trial."""

    admitted: bool
    refusals: tuple[Refusal, ...] = ()
    evicts: tuple[str, ...] = ()
    node: str = ""


REFUSED = TrialResult(False)


@dataclass(slots=True)
class Trials:
    """Runs trials for a pending claim and its gang."""

    engine: Engine
    registry: Registry
    source: ManifestSource
    queue: Queue
    subject: Claim
    entry: list[Claim]  # the subject, and the pending claims of its gang
    budget: SearchBudget
    refusals: tuple[Refusal, ...] = ()  # what refuses the claims as things are
    base: tuple[Edit, ...] = ()  # edits that are made in every trial
    _others: OtherEntries = field(init=False)
    _book: PodBook = field(init=False)

    def __post_init__(self) -> None:
        self._book = PodBook(self.registry, SpecCache())
        self._others = self._standing(min(urgency(claim) for claim in self.entry))

    def attempt(self, wanted: Attempt) -> TrialResult:
        """Run one trial. A change that is not acceptable admits nothing."""
        try:
            changes, uids, trial = self._changes(wanted)
            outlook = self.engine.what_if([*changes, trial], self.source.now())
        except (ManifestError, SettingError):
            return REFUSED
        decisions = [outlook.of(uid) for uid in trial.uids]
        known = [decision for decision in decisions if decision is not None]
        return TrialResult(
            admitted=trial.kept,
            refusals=tuple(refusal for decision in known for refusal in decision.refusals),
            evicts=tuple(sorted({self._name(uid) for uid in outlook.evicted} - {c.key for c in self.entry})),
            node=next((one.place for one in known if one.uid == uids[self.subject.key]), ""),
        )

    def admits(self, wanted: Attempt) -> bool:
        return self.attempt(wanted).admitted

    def pod(self, claim: Claim) -> Mapping[str, Any] | None:
        return self.source.get("Pod", claim.key)

    # What to run

    def _changes(self, wanted: Attempt) -> tuple[list[Assumption], dict[str, str], QueueTrial]:
        """The changes, the uids of the claims by key (a pod that is created again has another), and the queue."""
        found: list[Assumption] = [*map(Release, wanted.ended), *wanted.raised]
        uids = {claim.key: claim.uid for claim in self.entry}
        others = self._others
        reconfigured = bool(wanted.raised)
        edits = (*self.base, *wanted.edits)
        if edits:
            staged = self._staged(edits)
            settings = settings_of(self.registry, staged)
            if settings:
                found.append(Configure(settings))
                reconfigured = True
            entered = []
            specs = {claim.key: claim.spec for claim in self.entry}
            for claim in (self._book.read(change)[0] for change in staged if change.is_pod):
                if claim is None:
                    continue
                claim.spec = charged_alike(claim.spec, specs.get(claim.key, claim.spec))
                known = uids.get(claim.key, claim.uid)
                if claim.uid == known:
                    found.append(Adjust(claim.uid, claim.spec))
                else:
                    found.extend([Release(known), Enqueue(claim)])
                    uids[claim.key] = claim.uid
                    entered.append(claim)
            if entered:
                others = self._standing(min(urgency(claim) for claim in entered))
        trial = QueueTrial(others, list(uids.values()), self.queue.strict, self.budget, Woken(reconfigured))
        return found, uids, trial

    def _staged(self, edits: Iterable[Edit]) -> list[ObjectChange]:
        by_object: dict[tuple[str, str], list[Edit]] = {}
        for edit in edits:
            by_object.setdefault((edit.kind, edit.key), []).append(edit)
        documents: list[Document] = []
        for number, ((kind, key), changed) in enumerate(by_object.items(), 1):
            body = self.source.get(kind, key)
            if body is None:
                raise ManifestError("does not exist", subject=f"{kind} {key}")
            documents.append(Document("", number, _recreated(edited(body, changed), changed)))
        gone = {edit.key for edit in edits if edit.anew}
        return self.source.staged(documents, gone)

    def _standing(self, here: tuple[int, int, str, str]) -> OtherEntries:
        """The queue, seen from a place in it."""
        own = {claim.uid for claim in self.entry}
        entries: dict[str, list[Claim]] = {}
        for claim in self.queue.waiting():
            if claim.uid not in own and self.queue.missing(claim.uid) is None:
                entries.setdefault(claim.spec.group or f"claim {claim.uid}", []).append(claim)
        ahead = [claims for claims in entries.values() if urgency(claims[0]) < here]
        return OtherEntries(ahead, [claims for claims in entries.values() if urgency(claims[0]) >= here])

    def _name(self, uid: str) -> str:
        claim = self.engine.state.claims.get(uid)
        return uid if claim is None else claim.key


def _recreated(body: Body, edits: Sequence[Edit]) -> Body:
    """A pod that is created again gets its priority from its class again."""
    if not any(edit.anew for edit in edits):
        return body
    spec: Mapping[str, Any] = body.get("spec") or {}
    kept = {name: value for name, value in spec.items() if name != "priority"}
    return {**body, "spec": kept}


def number(resource: str, text: object) -> int | None:
    """The amount in a refusal or a manifest; None if there is none, or it is unlimited."""
    if not resource or text in {"", "unlimited", None}:
        return None
    try:
        return dimension(resource).parse(text)
    except QuantityError:
        return None
