"""What of an answer a caller sees who may not see the pods of every namespace.

Rows about pods of hidden namespaces are left out, and names of such pods are taken out of lists and sentences. What is
left of quotas of others is their names and numbers. A name of the form ``namespace/name`` in a hidden namespace is
hidden unless it is known to be that of another object than a pod, so a sentence of a new kind hides too much rather
than too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

HIDDEN = "a pod of another namespace"
_NAMED = re.compile(r"(?<![\w./:-])([a-z0-9][-a-z0-9]*)/([A-Za-z0-9][-A-Za-z0-9._]*)")
_ROWS = ("claims", "queue")  # operations whose rows are about one pod each

IsObject = Callable[[str], bool]
"""Whether a key is that of an object that is no pod."""


def named_namespaces(answer: object, known: Collection[str]) -> set[str]:
    """The namespaces that an answer, as plain data, says something about."""
    found = {text for text in _texts(answer) if text in known}
    for text in _texts(answer):
        if "/" in text:
            found.update(match[1] for match in _NAMED.finditer(text) if match[1] in known)
    return found


def _texts(answer: object) -> Iterator[str]:
    if isinstance(answer, str):
        yield answer
    elif isinstance(answer, dict):
        for name, value in answer.items():
            yield name
            yield from _texts(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from _texts(value)


class Redaction:
    """Takes out of answers what is about pods of hidden namespaces."""

    def __init__(self, hidden: Collection[str], is_object: IsObject) -> None:
        self._hidden = hidden
        self._is_object = is_object

    def apply(self, operation: str, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer of that operation as the caller sees it."""
        if not self._hidden:
            return answer
        if operation in _ROWS:
            items = [row for row in answer["items"] if row.get("namespace") not in self._hidden]
            answer = {**answer, "items": items}
        elif operation == "quotas":
            answer = {**answer, "items": [self._quota(row) for row in answer["items"]]}
        found: dict[str, Any] = self._seen(answer)
        return found

    def _quota(self, row: dict[str, Any]) -> dict[str, Any]:
        """A quota of others is its name and its numbers."""
        return {**row, "message": ""} if row.get("namespace") in self._hidden else row

    def _seen(self, value: Any) -> Any:  # noqa: ANN401 plain data of any form
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return {self._text(name): self._seen(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return self._list(value)
        return value

    def _list(self, values: list[Any]) -> list[Any]:
        """Names of hidden pods are counted instead; what follows them stays."""
        kept = [value for value in values if not (isinstance(value, str) and self._hides(value))]
        count = len(values) - len(kept)
        found = [self._seen(value) for value in kept]
        if count:
            found.append(HIDDEN if count == 1 else f"{count} pods of other namespaces")
        return found

    def _text(self, text: str) -> str:
        return _NAMED.sub(self._replaced, text) if "/" in text else text

    def _replaced(self, match: re.Match[str]) -> str:
        return HIDDEN if self._hides(match[0]) else match[0]

    def _hides(self, text: str) -> bool:
        match = _NAMED.fullmatch(text)
        return match is not None and match[1] in self._hidden and not self._is_object(text)
