"""JSON patches (RFC 6902) between two states of an object. Lists are replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Operation = dict[str, Any]


def patch_between(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[Operation]:
    """The operations that turn one mapping into the other, in order of keys."""
    found: list[Operation] = []
    for key in sorted({*before, *after}):
        where = f"{path}/{pointer(key)}"
        if key not in after:
            found.append({"op": "remove", "path": where})
        elif key not in before:
            found.append({"op": "add", "path": where, "value": after[key]})
        elif isinstance(before[key], dict) and isinstance(after[key], dict):
            found += patch_between(before[key], after[key], where)
        elif before[key] != after[key]:
            found.append({"op": "replace", "path": where, "value": after[key]})
    return found


def pointer(key: str) -> str:
    """One step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
