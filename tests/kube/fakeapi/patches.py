"""Merge patches, strategic ones, JSON patches and a small server-side apply, on plain data. Nothing given is changed.

Apply treats lists as one value; ownership is kept per manager as the set of paths that it applied last.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.kube.fakeapi.refusals import Refusal

Path = tuple[str, ...]
_MERGED_BY = {"schedulingGates": "name", "containers": "name", "conditions": "type"}  # lists with a key, of pods


def merge(target: Any, patch: Any) -> Any:  # noqa: ANN401 any JSON
    """RFC 7386: null removes, mappings merge, everything else replaces."""
    return _merged(target, patch, {})


def strategic(target: Any, patch: Any) -> Any:  # noqa: ANN401 any JSON
    """As ``merge``, but some lists are merged by a key of their entries; ``$patch: delete`` takes an entry away."""
    return _merged(target, patch, _MERGED_BY)


def _merged(target: Any, patch: Any, keys: dict[str, str]) -> Any:  # noqa: ANN401 any JSON
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif name in keys and isinstance(value, list):
            result[name] = _by_key(result.get(name) or [], value, keys[name])
        else:
            result[name] = _merged(result.get(name), value, keys)
    return result


def _by_key(entries: list[Any], changes: list[Any], key: str) -> list[Any]:
    found = {entry[key]: entry for entry in entries}
    for change in changes:
        if change.get("$patch") == "delete":
            found.pop(change[key], None)
        else:
            found[change[key]] = strategic(found.get(change[key]), change)
    return list(found.values())


def json_patch(target: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902 with add, remove, replace and test."""
    result = copy.deepcopy(target)
    for operation in operations:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        _operate(result, operation["op"], steps, operation.get("value"))
    return result


def _operate(root: dict[str, Any], op: str, steps: list[str], value: Any) -> None:  # noqa: ANN401 any JSON
    parent: Any = root
    try:
        for step in steps[:-1]:
            parent = parent[int(step)] if isinstance(parent, list) else parent[step]
        last = steps[-1]
        if isinstance(parent, list):
            _operate_list(parent, op, last, value)
        elif op == "add":
            parent[last] = value
        elif op == "test":
            _test(parent[last], value)
        elif op == "remove":
            del parent[last]
        else:
            parent[last]  # must exist
            parent[last] = value
    except (KeyError, IndexError, TypeError):
        raise Refusal(422, f"the server rejected our request: no such path {'/'.join(steps)}") from None


def _operate_list(parent: list[Any], op: str, last: str, value: Any) -> None:  # noqa: ANN401 any JSON
    if op == "add":
        parent.insert(len(parent) if last == "-" else int(last), value)
    elif op == "test":
        _test(parent[int(last)], value)
    elif op == "remove":
        del parent[int(last)]
    else:
        parent[int(last)] = value


def _test(found: Any, value: Any) -> None:  # noqa: ANN401 any JSON
    if found != value:
        raise Refusal(422, "the server rejected our request due to an error in our request")


def apply(
    target: dict[str, Any], wanted: dict[str, Any], owners: dict[str, set[Path]], manager: str, *, force: bool
) -> dict[str, Any]:
    """The object after an apply; ``owners`` is brought up to date."""
    leaves = dict(_leaves(wanted, ()))
    result = copy.deepcopy(target)
    conflicts = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{other}"', "field": "." + ".".join(path)}
        for other, paths in owners.items()
        if other != manager
        for path in sorted(paths & leaves.keys())
        if _at(result, path) != leaves[path]
    ]
    if conflicts and not force:
        message = f"Apply failed with {len(conflicts)} conflict(s)"
        raise Refusal(409, message, causes=conflicts)
    for path in owners.get(manager, set()) - leaves.keys():
        if not any(path in paths for other, paths in owners.items() if other != manager):
            _drop(result, path)
    for path, value in leaves.items():
        for other, paths in owners.items():
            if other != manager and _at(result, path) != value:
                paths.discard(path)
        _put(result, path, value)
    owners[manager] = set(leaves)
    return result


def _leaves(value: dict[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for key, inner in value.items():
        here = (*path, key)
        if here in {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}:
            continue
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, here)
        else:
            yield here, copy.deepcopy(inner)


def _at(target: Any, path: Path) -> Any:  # noqa: ANN401 any JSON
    for step in path:
        if not isinstance(target, dict) or step not in target:
            return None
        target = target[step]
    return target


def _put(target: dict[str, Any], path: Path, value: Any) -> None:  # noqa: ANN401 any JSON
    for step in path[:-1]:
        target = target.setdefault(step, {})
    target[path[-1]] = value


def _drop(target: dict[str, Any], path: Path) -> None:
    for step in path[:-1]:
        target = target.get(step, {})
    target.pop(path[-1], None)
