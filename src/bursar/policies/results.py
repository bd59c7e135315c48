"""Plain values that go into policies (settings) and come out of them: refusals, checks, outputs, revocations.

A ``Refusal`` is made on the decision path, so it only holds numbers; its sentence is written when it is read. Reasons
are short and stable: ``<policy>.<rule>[.<resource>]``; they appear in events, metrics and scenario files. A ``Check``
is a node of the explain tree, made on request.

A *setting* is a manifest in the policy's own terms: a node, a quota, a profile, an option. ``plugin.py`` beside each
policy translates manifests, outside of the compiled core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import mypyc_attr

from bursar.ledger.journal import Recordable
from bursar.ledger.state import Account
from bursar.resources import UNLIMITED, Vector, dimension_at


@final
class Refusal(Recordable):
    """One failed check: the policy, account and dimension that refused, with the numbers."""

    __slots__ = (
        "account",
        "limit",
        "note",
        "permanent",
        "place",
        "policy",
        "reason",
        "requested",
        "resource",
        "topics",
        "used",
    )

    def __init__(
        self,
        policy: str,
        reason: str,
        note: str = "",
        account: str = "",
        resource: str = "",
        requested: str = "",
        used: str = "",
        limit: str = "",
        permanent: bool = False,
        topics: tuple[str, ...] = (),
        place: str = "",
    ) -> None:
        self.policy: Final = policy
        self.reason: Final = reason
        self.note: Final = note  # a sentence of the policy's own, instead of the numbers
        self.account: Final = account
        self.resource: Final = resource
        self.requested: Final = requested
        self.used: Final = used
        self.limit: Final = limit
        self.permanent: Final = permanent  # nothing but a change of the claim or of the settings can help
        self.topics: Final = topics if topics or not account else (account,)  # a change of these may help
        self.place: Final = place  # the node it is about, if it is about one

    def __repr__(self) -> str:
        return f"Refusal({self.reason}: {self.sentence()})"

    def listening(self, topics: tuple[str, ...]) -> Refusal:
        """The same refusal, with more topics whose change may resolve it."""
        return self._with(self.note, (*self.topics, *topics)) if topics else self

    def remarked(self, remark: str) -> Refusal:
        """The same refusal, with something to add to its sentence."""
        return self._with(f"{self.sentence()}; {remark}", self.topics)

    def worded(self, subject: str, used_of: str) -> Refusal:
        """The same refusal, in a sentence about an object that people know: what is used of what."""
        return self._with(f"{subject}: needs {self._needs()}, {used_of}", self.topics)

    def _with(self, note: str, topics: tuple[str, ...]) -> Refusal:
        about, resource = self.account, self.resource
        asked, used, limit = self.requested, self.used, self.limit
        return Refusal(
            self.policy, self.reason, note, about, resource, asked, used, limit, self.permanent, topics, self.place
        )

    def _needs(self) -> str:
        unit = "pod" if self.resource == "pods" and self.requested == "1" else self.resource
        return f"{self.requested} {unit}"

    def sentence(self) -> str:
        """One sentence for people, with the numbers."""
        if self.note:
            return self.note
        return f"{self.account}: needs {self._needs()}, {self.used} of {self.limit} in use"

    def record(self) -> list[object]:
        numbers = [self.resource, self.requested, self.used, self.limit]
        return [
            self.policy,
            self.reason,
            self.note,
            self.account,
            numbers,
            self.permanent,
            list(self.topics),
            self.place,
        ]


def refusal_for(
    policy: str,
    rule: str,
    account: Account,
    dim: int,
    cost: Vector,
    permanent: bool = False,
    place: str = "",
    topics: tuple[str, ...] = (),
) -> Refusal:
    """The refusal of a cost that does not fit an account in one dimension."""
    resource = dimension_at(dim)
    limit = account.limits.get(dim)
    return Refusal(
        policy,
        f"{policy}.{rule}.{resource.name}",
        "",
        account.name,
        resource.name,
        resource.show(cost.get(dim)),
        resource.show(account.used.get(dim)),
        "unlimited" if limit == UNLIMITED else resource.show(limit),
        permanent,
        topics or (account.topic,),
        place,
    )


@final
@dataclass(eq=False, repr=False)
class Check:
    """A node of the explain tree."""

    title: str
    passed: bool
    note: str = ""
    children: tuple[Check, ...] = ()
    reason: str = ""  # stable code, only on failed checks
    binding: bool = False  # the first check that failed: the one to fix

    def __repr__(self) -> str:
        return f"Check({self.title}, {'passed' if self.passed else 'failed'}, {len(self.children)} children)"

    @staticmethod
    def of_account(account: Account, cost: Vector, refusal: Refusal | None, more: tuple[Refusal, ...] = ()) -> Check:
        """How much of the cost fits the limits. ``more``: all failed checks, if there are several, each a check of its
        own.
        """
        parts: list[str] = []
        for dim in cost.indices():
            resource = dimension_at(dim)
            limit = account.limits.get(dim)
            if limit == UNLIMITED:
                continue
            shown = resource.show(limit)
            wanted = resource.show(cost.get(dim))
            parts.append(f"{resource.name} {wanted} wanted, {resource.show(account.used.get(dim))} of {shown} in use")
        reason = "" if refusal is None else refusal.reason
        children = tuple([Check(other.resource, False, other.sentence(), (), other.reason) for other in more])
        return Check(account.name, refusal is None, "; ".join(parts), children, "" if children else reason)

    @staticmethod
    def of_refusal(refusal: Refusal) -> Check:
        return Check(refusal.account or refusal.policy, False, refusal.sentence(), (), refusal.reason)

    def record(self) -> dict[str, object]:
        """Plain data for JSON."""
        record: dict[str, object] = {"title": self.title, "passed": self.passed}
        if self.note:
            record["note"] = self.note
        if self.reason:
            record["reason"] = self.reason
        if self.binding:
            record["binding"] = True
        if self.children:
            record["checks"] = [child.record() for child in self.children]
        return record

    def lines(self, indent: str = "") -> list[str]:
        """The tree as text: one line a check, the binding one marked."""
        mark = "ok  " if self.passed else ("FAIL" if not self.binding else "FAIL <- first")
        code = f" [{self.reason}]" if self.reason else ""
        note = f": {self.note}" if self.note else ""
        found = [f"{indent}{mark} {self.title}{note}{code}"]
        for child in self.children:
            found.extend(child.lines(indent + "  "))
        return found


class SettingError(ValueError):
    """A setting that cannot be accepted; names the object and the field."""

    def __init__(self, subject: str, field: str, problem: str) -> None:
        super().__init__(f"{subject}: {field}: {problem}" if field else f"{subject}: {problem}")
        self.subject = subject
        self.field = field
        self.problem = problem


@mypyc_attr(allow_interpreted_subclasses=True)
class Body:
    """Base of the typed contents of settings; each policy has its own."""


@final
@dataclass(frozen=True)
class Setting:
    """An object that was created or changed (``body``), or deleted (``body`` None)."""

    kind: str
    key: str
    body: Body | None


@final
@dataclass(frozen=True)
class Output:
    """Something to write about an object.

    ``part``: ``status``, ``labels``, ``annotations`` (values by key; a None value removes the key), ``object`` (a
    whole manifest to create or replace, None to delete it) or ``event`` (keys: type, reason, message).
    """

    kind: str  # Kind.group, or Kind for core kinds
    key: str  # namespace/name, or name; for claims' pods the same
    part: str
    value: dict[str, object] | None


@final
@dataclass(frozen=True)
class Revocation:
    """A claim that a policy evicts, and why."""

    uid: str
    reason: str
    sentence: str
