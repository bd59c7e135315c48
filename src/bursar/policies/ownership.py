"""Owners of quotas: which namespaces may use a quota or tree node, and the highest priority that counts inside it.

Every dialect translates its objects to ``AccessRule``s (``Plugin.access``); the policy ``access`` enforces them all.
Objects of an upstream project carry them as annotations, because their specs are not ours:

* ``bursar.dev/namespaces: a,b`` and ``bursar.dev/namespace-selector: team=a,env in (x,y)``; either suffices;
* ``bursar.dev/max-priority: "1000"``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast, final

from mypy_extensions import mypyc_attr

from bursar.ledger.claims import Claim
from bursar.objects.decode import ManifestError, join
from bursar.objects.validation import check_namespace, is_qualified
from bursar.policies.results import Body
from bursar.selectors import Requirement, Selector

ACCESS: Final = "access"  # the policy that enforces the rules
NAMESPACES: Final = "bursar.dev/namespaces"
NAMESPACE_SELECTOR: Final = "bursar.dev/namespace-selector"
PLACE: Final = "bursar.dev/place"  # of quotas, profiles and namespaces
BY_SCHEDULER: Final = "scheduler"
MAX_PRIORITY: Final = "bursar.dev/max-priority"
RULES_SETTING: Final = "access.Rules"
NAMESPACE_SETTING: Final = "access.Namespace"
OPTIONS_SETTING: Final = "access.Options"
_ANNOTATIONS: Final = "metadata.annotations"
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_HIGHEST: Final = 2**31 - 1


@mypyc_attr(allow_interpreted_subclasses=True)
class OwnerRules:
    """Where status writers and the control loop learn what the rules say."""

    def __init__(self) -> None:
        self.followers: Final[list[dict[str, None]]] = []

    def follow(self) -> dict[str, None]:
        """The objects of which ``unowned`` may say something else from now on; the caller empties it."""
        touched: dict[str, None] = {}
        self.followers.append(touched)
        return touched

    def touch(self, source: str) -> None:
        for touched in self.followers:
            touched[source] = None

    def unowned(self, source: str) -> list[str]:
        """The quotas of an object (``Kind.group/key``) that everybody may use, as people call them."""
        return []

    def most_priority(self, claim: Claim) -> int | None:
        """The highest priority that counts for the claim in its quotas; None: any."""
        return None

    def by_scheduler(self, claim: Claim) -> bool:
        """Whether quota alone admits the claim, and the scheduler chooses its node."""
        return False


@final
@dataclass(frozen=True)
class AccessRule:
    """What one object says about one quota. ``quota`` tells quotas apart: ``<policy>/...``."""

    quota: str
    subject: str  # names it for people
    parent: str = ""  # the quota above, whose rules hold here too
    label: str = ""  # pods name it by this label
    value: str = ""  # and this value
    members: tuple[str, ...] = ()  # namespaces whose pods belong to it without naming it
    home: str = ""  # the namespace of the object, which may always use it
    named: bool = False  # whether it names who may use it
    namespaces: tuple[str, ...] = ()
    selector: Selector | None = None
    max_priority: int | None = None
    by_scheduler: bool = False  # quota alone admits its pods

    def admits(self, namespace: str, labels: Mapping[str, str]) -> bool:
        if not self.named or namespace == self.home or namespace in self.namespaces:
            return True
        return self.selector is not None and self.selector.matches(labels)

    def cell(self) -> tuple[object, ...]:
        rows = (
            None
            if self.selector is None
            else tuple([(r.key, r.operator, r.values) for r in self.selector.requirements])
        )
        place = (self.quota, self.subject, self.parent, self.label, self.value, self.members, self.home)
        return (*place, self.named, self.namespaces, rows, self.max_priority, self.by_scheduler)


_Rows = tuple[tuple[str, str, tuple[str, ...]], ...]


def rule_in(cell: object) -> AccessRule:
    quota, subject, parent, label, value, members, home, named, namespaces, rows, most, placed = cast(
        "tuple[str, str, str, str, str, tuple[str, ...], str, bool, tuple[str, ...], _Rows | None, int | None, bool]",
        cell,
    )
    selector = None
    if rows is not None:
        selector = Selector(tuple([Requirement(key, operator, values) for key, operator, values in rows]))
    place = (quota, subject, parent, label, value, members, home)
    return AccessRule(*place, named, namespaces, selector, most, placed)


@final
@dataclass(frozen=True)
class AccessRules(Body):
    """The rules of one object."""

    rules: tuple[AccessRule, ...]


@final
@dataclass(frozen=True)
class NamespaceLabels(Body):
    labels: tuple[tuple[str, str], ...]
    by_scheduler: bool = False


@final
@dataclass(frozen=True)
class AccessOptions(Body):
    """Of the Configuration."""

    refuse_unowned: bool  # a quota that names no namespace is closed to all


@final
@dataclass(frozen=True)
class Named:
    """Who may use a quota, and the cap on priorities, as its object says."""

    named: bool
    namespaces: tuple[str, ...]
    selector: Selector | None
    max_priority: int | None
    by_scheduler: bool

    @property
    def fields(self) -> tuple[bool, tuple[str, ...], Selector | None, int | None, bool]:
        """Those of a rule, in their order."""
        return (self.named, self.namespaces, self.selector, self.max_priority, self.by_scheduler)


def named_by(annotations: Mapping[str, str], more: tuple[str, ...] = ()) -> Named:
    """Reads the annotations of a quota; ``more``: namespaces that its dialect names. Raises ``ManifestError``."""
    listed = annotations.get(NAMESPACES)
    path = join(_ANNOTATIONS, NAMESPACES)
    given = [] if listed is None else [part.strip() for part in listed.split(",") if part.strip()]
    for name in given:
        check_namespace(name, path)
    text = annotations.get(NAMESPACE_SELECTOR)
    selector = None if text is None else selector_of_text(text, join(_ANNOTATIONS, NAMESPACE_SELECTOR))
    named = listed is not None or text is not None or bool(more)
    return Named(
        named, tuple(dict.fromkeys((*given, *more))), selector, _priority(annotations), by_scheduler(annotations)
    )


def by_scheduler(annotations: Mapping[str, str]) -> bool:
    given = annotations.get(PLACE)
    if given not in (None, BY_SCHEDULER):
        raise ManifestError(f"{given!r:.40} is not {BY_SCHEDULER}", join(_ANNOTATIONS, PLACE))
    return given is not None


def _priority(annotations: Mapping[str, str]) -> int | None:
    text = annotations.get(MAX_PRIORITY)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is None or abs(int(text)) > _HIGHEST:
        raise ManifestError(f"{text!r:.40} is not a priority: a whole number", join(_ANNOTATIONS, MAX_PRIORITY))
    return int(text)


_SET: Final = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_PART: Final = re.compile(r"[^,()]*(?:\([^()]*\))?[^,()]*")


def selector_of_text(text: str, path: str) -> Selector:
    """A label selector as kubectl takes it: ``a=b``, ``a!=b``, ``a in (b,c)``, ``a notin (b)``, ``a``, ``!a``."""
    found: list[Requirement] = []
    at = 0
    while at <= len(text):
        match = _PART.match(text, at)
        part = "" if match is None else match.group()
        found.append(_requirement(part.strip(), path))
        at += len(part)
        if at < len(text) and text[at] != ",":
            raise ManifestError(f"{text!r:.80} is not a label selector", path)
        at += 1
    return Selector(tuple(found))


def _requirement(part: str, path: str) -> Requirement:
    of_set = _SET.fullmatch(part)
    if of_set is not None:
        values = tuple([value.strip() for value in of_set.group(3).split(",") if value.strip()])
        found = Requirement(of_set.group(1), "In" if of_set.group(2) == "in" else "NotIn", values)
        if not values:
            raise ManifestError(f"{part!r:.80} lists no value", path)
    elif "!=" in part:
        key, _, value = part.partition("!=")
        found = Requirement(key.strip(), "NotIn", (value.strip(),))
    elif "=" in part:
        key, _, value = part.partition("=")
        found = Requirement(key.strip(), "In", (value.removeprefix("=").strip(),))
    elif part.startswith("!"):
        found = Requirement(part[1:].strip(), "DoesNotExist")
    else:
        found = Requirement(part, "Exists")
    if not is_qualified(found.key):
        raise ManifestError(f"{part!r:.80} is not a requirement on a label", path)
    return found
