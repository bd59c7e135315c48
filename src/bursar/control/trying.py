"""Would a waiting claim get in, if: edits of manifests, ends of claims and raised limits, tried and undone.

Everything runs in ``engine.what_if``, in the order in which the queue would run it for real: first the change, then the
claims that wait in front of this one, then this one (with its group). So what is found here holds when somebody does
it, as long as nothing else happens before.

The effort is bounded: a search that has used it up finds nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from bursar.control.edits import Body, Edit, edited
from bursar.control.lining import Effort, Enter, InLine, Line, Raise, RaiseLimit
from bursar.control.pods import PodBook
from bursar.control.queue import Queue
from bursar.control.translation import ObjectChange, settings_of
from bursar.control.units import urgency
from bursar.dimensions import dimension
from bursar.engine.engine import Engine
from bursar.engine.what_if import Adjust, Change, Configure, Release
from bursar.ledger.claims import Claim
from bursar.objects.errors import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.checks import Refusal
from bursar.policies.plugin import Registry
from bursar.policies.settings import SettingError
from bursar.quantity import QuantityError


class Desk(Protocol):
    """The objects that there are, and what a change of them would mean."""

    def now(self) -> int: ...

    def applied(self, kind: str, key: str) -> Body | None:
        """A manifest as it was applied, without what Bursar wrote."""

    def applied_all(self, kind: str) -> Iterable[Body]: ...

    def staged(self, documents: Sequence[Document], without: Iterable[str]) -> list[ObjectChange]:
        """The changes that these documents would be, checked as if applied. ``without``: pods that are gone then."""

    def ends(self, uid: str) -> int | None:
        """When a running claim ends by itself, if that is known; milliseconds."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What to try: edits of manifests, claims that end, limits that are raised."""

    edits: tuple[Edit, ...] = ()
    ended: tuple[str, ...] = ()
    raised: tuple[Raise, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the claims in a try."""

    admitted: bool
    refusals: tuple[Refusal, ...] = ()
    evicts: tuple[str, ...] = ()
    node: str = ""


REFUSED = Verdict(False)


@dataclass(slots=True)
class Tries:
    """Tries for one claim that waits, and those of its group."""

    engine: Engine
    registry: Registry
    desk: Desk
    queue: Queue
    subject: Claim
    unit: list[Claim]  # the subject, and those of its group that wait
    effort: Effort
    refusals: tuple[Refusal, ...] = ()  # what refuses the claims as things are
    base: tuple[Edit, ...] = ()  # edits that are made in every try
    _line: Line = field(init=False)
    _book: PodBook = field(init=False)

    def __post_init__(self) -> None:
        self._book = PodBook(self.registry)
        self._line = self._standing(min(urgency(claim) for claim in self.unit))

    def attempt(self, wanted: Attempt) -> Verdict:
        """Whether the claims would get in then; a change that is refused as such lets nobody in."""
        try:
            changes, named, standing = self._changes(wanted)
            uids = list(named.values())
            line = InLine(standing, uids, self.queue.strict, self.effort)
            outlook = self.engine.what_if([*changes, line], self.desk.now())
        except (ManifestError, SettingError):
            return REFUSED
        decisions = [outlook.of(uid) for uid in uids]
        known = [decision for decision in decisions if decision is not None]
        return Verdict(
            admitted=line.kept,
            refusals=tuple(refusal for decision in known for refusal in decision.refusals),
            evicts=tuple(sorted({self._name(uid) for uid in outlook.evicted} - {c.key for c in self.unit})),
            node=next((one.place for one in known if one.uid == named[self.subject.key]), ""),
        )

    def admits(self, wanted: Attempt) -> bool:
        return self.attempt(wanted).admitted

    def pod(self, claim: Claim) -> Body | None:
        return self.desk.applied("Pod", claim.key)

    # What to run

    def _changes(self, wanted: Attempt) -> tuple[list[Change], dict[str, str], Line]:
        """The changes, the claims to try (key to uid: created anew, they have others), and the line."""
        found: list[Change] = [Release(uid) for uid in wanted.ended]
        found.extend(RaiseLimit(one) for one in wanted.raised)
        uids = {claim.key: claim.uid for claim in self.unit}
        line = self._line
        reconfigured = bool(wanted.raised)
        edits = (*self.base, *wanted.edits)
        if edits:
            staged = self._staged(edits)
            settings = settings_of(self.registry, staged)
            if settings:
                found.append(Configure(settings))
                reconfigured = True
            entered = []
            for claim in (self._book.read(change)[0] for change in staged if change.is_pod):
                if claim is None:
                    continue
                known = uids.get(claim.key, claim.uid)
                if claim.uid == known:
                    found.append(Adjust(claim.uid, claim.spec))
                else:
                    found.extend([Release(known), Enter(claim)])
                    uids[claim.key] = claim.uid
                    entered.append(claim)
            if entered:
                line = self._standing(min(urgency(claim) for claim in entered))
        return found, uids, replace(line, reconfigured=reconfigured)

    def _staged(self, edits: Iterable[Edit]) -> list[ObjectChange]:
        by_object: dict[tuple[str, str], list[Edit]] = {}
        for edit in edits:
            by_object.setdefault((edit.kind, edit.key), []).append(edit)
        documents: list[Document] = []
        for number, ((kind, key), changed) in enumerate(by_object.items(), 1):
            body = self.desk.applied(kind, key)
            if body is None:
                raise ManifestError("does not exist", subject=f"{kind} {key}")
            documents.append(Document("", number, _wish(edited(body, changed), changed)))
        gone = {edit.key for edit in edits if edit.anew}
        return self.desk.staged(documents, gone)

    def _standing(self, here: tuple[int, int, str, str]) -> Line:
        """The line, seen from a place in it."""
        own = {claim.uid for claim in self.unit}
        units: dict[str, list[Claim]] = {}
        for claim in self.queue.waiting():
            if claim.uid not in own and self.queue.missing(claim.uid) is None:
                units.setdefault(claim.spec.group or f"claim {claim.uid}", []).append(claim)
        ahead = [claims for claims in units.values() if urgency(claims[0]) < here]
        return Line(ahead, [claims for claims in units.values() if urgency(claims[0]) >= here])

    def _name(self, uid: str) -> str:
        claim = self.engine.state.claims.get(uid)
        return uid if claim is None else claim.key


def _wish(body: Body, edits: Sequence[Edit]) -> Body:
    """A pod that is created anew gets its priority from its class once more, unless that is what is edited."""
    if not any(edit.anew for edit in edits):
        return body
    spec: Mapping[str, Any] = body.get("spec") or {}
    kept = {name: value for name, value in spec.items() if name != "priority"}
    return {**body, "spec": kept}


def number(resource: str, text: object) -> int | None:
    """An amount as a refusal or a manifest has it; None: there is none, or it has no limit."""
    if not resource or text in {"", "unlimited", None}:
        return None
    try:
        return dimension(resource).parse(text)
    except QuantityError:
        return None
