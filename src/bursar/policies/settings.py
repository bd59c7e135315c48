"""What goes into a policy (settings), and what comes out of it (outputs, revocations): plain values.

A *setting* is an object of the outside in the policy's own terms: a node, a quota, a profile, an option. The
translation from manifests is not done here but beside each policy (``plugin.py``), outside of the compiled core.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr


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
class Setting:
    """An object of the outside that came or changed (``body``), or went (``body`` None)."""

    __slots__ = ("body", "key", "kind")

    def __init__(self, kind: str, key: str, body: Body | None) -> None:
        self.kind: Final = kind
        self.key: Final = key
        self.body: Final = body


@final
class Output:
    """Something to write to the outside about an object.

    ``part``: ``status``, ``labels``, ``annotations`` (values by key; a None value removes the key), ``object`` (a
    whole manifest to create or replace, None to delete it) or ``event`` (keys: type, reason, message).
    """

    __slots__ = ("key", "kind", "part", "value")

    def __init__(self, kind: str, key: str, part: str, value: dict[str, object] | None) -> None:
        self.kind: Final = kind  # Kind.group, or Kind for core kinds
        self.key: Final = key  # namespace/name, or name; for claims' pods the same
        self.part: Final = part
        self.value: Final = value


@final
class Revocation:
    """A claim that a policy wants back, and why."""

    __slots__ = ("reason", "sentence", "uid")

    def __init__(self, uid: str, reason: str, sentence: str) -> None:
        self.uid: Final = uid
        self.reason: Final = reason
        self.sentence: Final = sentence
