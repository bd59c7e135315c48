"""What a request asks for, apart from HTTP: who asks, the operation, its parameters by name, and its body.

An unknown or malformed part is a ``RefusedError``, whoever reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document, load_text
from bursar.selectors import Requirement, Selector
from bursar.server.access import OPEN, Identity
from bursar.server.operations import PAGE, Operation
from bursar.server.problems import RefusedError

JSON_TYPES = ("application/json",)
_TERM = re.compile(r"\s*(?P<not>!?)\s*(?P<key>[^=!,\s]+)\s*(?:(?P<op>==?|!=)\s*(?P<value>[^=!,\s]*))?\s*")


@dataclass(frozen=True, slots=True)
class RequestQuery:
    """One request: its parameters by name, its body, and who asks."""

    operation: Operation[Any]
    values: dict[str, Any]
    body: bytes
    content_type: str
    identity: Identity = OPEN  # who asks

    def text(self, name: str) -> str:
        return str(self.values.get(name, ""))

    def number(self, name: str, default: int = 0) -> int:
        return int(self.values.get(name, default))

    def truth(self, name: str) -> bool:
        return bool(self.values.get(name, False))

    @property
    def limit(self) -> int:
        return self.number("limit", PAGE)

    def documents(self) -> list[Document]:
        """The manifests of the body; what a journal could not hold is refused."""
        source = self.text("source")
        if self.content_type in JSON_TYPES:
            source = source if source.endswith(".json") else f"{source or 'request'}.json"
        try:
            text = self.body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise RefusedError(400, f"the body is not UTF-8 text: {error}") from None
        try:
            found = load_text(text, source)
        except RecursionError:
            raise RefusedError(400, "the body is nested too deeply") from None
        if not found:
            raise RefusedError(400, "the body holds no object")
        for document in found:
            _check_plain(document)
        return found

    def names(self) -> list[str]:
        """The objects or pods that the body names."""
        wanted = self.operation.accepts
        try:
            found = msgspec.json.decode(self.body, type=dict[str, list[str]])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RefusedError(400, f"the body is not understood: {error}") from None
        if list(found) != [wanted]:
            raise RefusedError(400, f"the body is not understood: expected only the field {wanted}")
        if not found[wanted]:
            raise RefusedError(400, f"{wanted} is empty")
        return found[wanted]


def _check_plain(document: Document) -> None:
    try:
        msgspec.json.encode(document.body)
    except (UnicodeEncodeError, OverflowError, msgspec.EncodeError, TypeError, ValueError, RecursionError) as error:
        raise document.error(ManifestError(f"cannot be stored: {error}")) from None


def label_filter(text: str) -> Callable[[Mapping[str, str]], bool]:
    """Whether labels match ``a=b,c!=d,e,!f``."""
    return Selector(tuple(_requirement(part) for part in text.split(",") if text)).matches


def _requirement(part: str) -> Requirement:
    found = _TERM.fullmatch(part)
    if found is None or (found["not"] and found["op"]):
        raise RefusedError(400, f"the label filter {part!r:.60} has none of the forms a=b, a!=b, a, !a")
    if found["op"]:
        return Requirement(found["key"], "NotIn" if found["op"] == "!=" else "In", (found["value"],))
    return Requirement(found["key"], "DoesNotExist" if found["not"] else "Exists")


def claim_key(asked: RequestQuery) -> str:
    """The claim that the request names; - stands for no namespace."""
    namespace = asked.text("namespace")
    return key_of("" if namespace == "-" else namespace, asked.text("name"))


def key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
