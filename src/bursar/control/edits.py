"""Changes of single fields of manifests: what a fix asks people to do, and the manifest that results from it.

A path is a tuple of keys and list positions. Manifests are never changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bursar.objects.errors import join

Body = dict[str, Any]
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """One field of one object gets another value; None: the field is not there (any more)."""

    kind: str  # Kind.group, or Kind for core kinds
    key: str
    path: Path
    before: object
    after: object
    anew: bool = False  # the object must be deleted and created anew: this cannot change while it is there

    @property
    def field(self) -> str:
        return show_path(self.path)


def show_path(path: Path) -> str:
    """As people write it: ``spec.containers[0].resources``."""
    text = ""
    for step in path:
        text = join(text, f"[{step}]" if isinstance(step, int) else step)
    return text


def look_up(body: object, path: Path) -> Any:  # noqa: ANN401 whatever stands there
    """What stands at a path; None if there is nothing."""
    found = body
    for step in path:
        if isinstance(step, str) and isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(step, int) and isinstance(found, list) and step < len(found):
            found = found[step]
        else:
            return None
    return found


def edited(body: Body, edits: Iterable[Edit]) -> Body:
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
