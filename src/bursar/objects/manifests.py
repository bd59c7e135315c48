"""Manifests from text, files and folders: one ``Document`` for each object.

YAML and JSON, each with any number of documents; lists (``kind: List``, ``PodList``) are split, empty documents are
skipped. Nothing is typed here. Every error is a ``ManifestError`` with the source, the document and, where the text is
malformed, the line.

YAML follows the rules that Kubernetes users expect. PyYAML's composer is not used: it follows YAML 1.1 (``on`` is true,
``2024-01-01`` a date), lets a repeated key win silently and overflows the C stack on deep nesting. Here:

* Plain scalars are null, true, false, integers (also ``0x``, ``0o``, ``0b`` and octal after a leading zero), finite
  floats, or else text. Mapping keys are always text, exactly as written.
* A repeated key, an unknown tag, a key that is no scalar and more than ``MAX_DEPTH`` levels are errors with a line.
* An alias is replaced by a copy. The copies of one document are bounded, so an alias bomb is an error. ``<<`` merges
  mappings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from bursar.objects.decode import ManifestError, join

MAX_DEPTH = 100
MAX_COPIED = 100_000
MAX_DIGITS = 400
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")
_COLLECTION_TAGS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


def documents(text: str) -> Iterator[tuple[int, object]]:
    """(number from 1, content) of each document of a stream; an empty document has the content None."""
    number = 0
    try:
        events: Iterator[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                number += 1
                yield number, _Composer(events).node(next(events), 0)
    except ManifestError as error:
        raise error.located(document=number) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "malformed"
        raise ManifestError(f"not YAML: {problem}", document=number, line=mark.line + 1 if mark else 0) from None
    except yaml.YAMLError as error:
        first_line = str(error).partition("\n")[0]
        raise ManifestError(f"not YAML: {first_line}", document=number) from None


def scalar(text: str, line: int = 0) -> object:
    """What an unquoted scalar stands for."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _INTEGER.fullmatch(text):
        return _number(text, _integer, line)
    if _FLOAT.fullmatch(text):
        return _number(text, float, line)
    return text


def _number(text: str, convert: Callable[[str], int | float], line: int) -> int | float:
    """Bounded before it is converted: Python refuses very long integers, and a float may come out infinite."""
    if len(text) <= MAX_DIGITS:
        value = convert(text)
        if isinstance(value, int) or math.isfinite(value):
            return value
    raise ManifestError(f"{text[:40]!r} is out of the range of numbers", line=line)


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits.startswith("0") and digits.isdigit():
        value = int(digits, 8)
        return -value if text.startswith("-") else value
    return int(text, 0)


class _Composer:
    """Builds one document from its events. Nesting is bounded, so that it may recurse."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, object] = {}
        self._copied = 0

    def node(self, event: yaml.NodeEvent, depth: int) -> object:
        """The value that begins with the event, inside so many collections."""
        value: object
        if isinstance(event, yaml.AliasEvent):
            return self._resolved(event)
        if isinstance(event, yaml.ScalarEvent):
            value = scalar(event.value, _line(event)) if _is_plain(event) else event.value
        else:
            _check_collection(event, depth)
            mapping = isinstance(event, yaml.MappingStartEvent)
            value = self._mapping(depth + 1) if mapping else [self.node(inner, depth + 1) for inner in self._inside()]
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _inside(self) -> Iterator[yaml.NodeEvent]:
        """The first event of each node of the collection that was just opened."""
        while not isinstance(event := next(self._events), yaml.CollectionEndEvent):
            yield event

    def _mapping(self, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        merged: list[dict[str, object]] = []
        inside = self._inside()
        for event in inside:
            key = self._key(event, found, depth)
            start = next(inside)
            value = self.node(start, depth)
            if key is None:
                merged += _mappings(value, _line(start))
            else:
                found[key] = value
        for source in merged:
            found |= {name: value for name, value in source.items() if name not in found}
        return found

    def _key(self, event: yaml.NodeEvent, known: dict[str, object], depth: int) -> str | None:
        """The text of a key; None for ``<<``, which merges mappings."""
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            value = self._resolved(event)
            if not isinstance(value, str) or value in known:
                raise ManifestError("a key must be text, and given once", line=line)
            return value
        if not isinstance(event, yaml.ScalarEvent):
            _check_collection(event, depth)
            raise ManifestError("a key must be text, not a list or a mapping", line=line)
        plain, text = _is_plain(event), str(event.value)
        if event.anchor:
            self._anchors[event.anchor] = text
        if plain and text == "<<":
            return None
        if plain and _NULL.fullmatch(text):
            raise ManifestError("a key is missing or null", line=line)
        if text in known:
            raise ManifestError(f"the key {text!r} is given twice", line=line)
        return text

    def _resolved(self, event: yaml.AliasEvent) -> object:
        name = cast("str", event.anchor)
        if name not in self._anchors:
            raise ManifestError(f"the alias {name!r} stands for nothing, or for itself", line=_line(event))
        return self._copy(self._anchors[name], _line(event), 0)

    def _copy(self, value: object, line: int, depth: int) -> object:
        self._copied += 1
        if self._copied > MAX_COPIED or depth > MAX_DEPTH:
            raise ManifestError(f"aliases stand for more than {MAX_COPIED} values or {MAX_DEPTH} levels", line=line)
        if isinstance(value, dict):
            return {key: self._copy(inner, line, depth + 1) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._copy(inner, line, depth + 1) for inner in value]
        return value


def _is_plain(event: yaml.ScalarEvent) -> bool:
    """Whether the scalar is unquoted and untagged, so that it may be something else than text."""
    if event.tag is not None and event.tag not in _TEXT_TAGS:
        raise ManifestError(f"the tag {event.tag!r} is not known", line=_line(event))
    return event.tag is None and bool(event.implicit[0])


def _check_collection(event: yaml.NodeEvent, depth: int) -> None:
    tag = cast("yaml.CollectionStartEvent", event).tag
    if tag not in _COLLECTION_TAGS:
        raise ManifestError(f"the tag {tag!r} is not known", line=_line(event))
    if depth >= MAX_DEPTH:
        raise ManifestError(_TOO_DEEP, line=_line(event))


def _mappings(value: object, line: int) -> list[dict[str, object]]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise ManifestError("'<<' merges mappings only", line=line)
    return cast("list[dict[str, object]]", sources)


def _line(event: yaml.Event) -> int:
    return 0 if event.start_mark is None else event.start_mark.line + 1


SUFFIXES = (".yaml", ".yml", ".json")
_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Document:
    """One object as it was written, and where. ``item`` is its place inside a list (``items[3]``)."""

    source: str
    number: int
    body: dict[str, Any]
    item: str = ""

    def error(self, error: ManifestError) -> ManifestError:
        """The error with this document's place; the path is that inside the document."""
        return error.inside(self.item).located(self.source, self.number)


def load_path(path: Path | str) -> list[Document]:
    """All objects of a file, or of the .yaml, .yml and .json files of a folder in the order of their names."""
    path = Path(path)
    if not path.is_dir():
        return _load_file(path)
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise ManifestError(f"the folder has no file that ends in {', '.join(SUFFIXES)}", source=str(path))
    return [document for file in files for document in _load_file(file)]


def _load_file(path: Path) -> list[Document]:
    source = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ManifestError(f"cannot be read: {error.strerror or error}", source=source) from None
    except ValueError as error:
        problem = f"is not UTF-8 text: {error}" if isinstance(error, UnicodeDecodeError) else f"cannot be read: {error}"
        raise ManifestError(problem, source=source) from None
    return load_text(text, source)


def load_text(text: str, source: str = "") -> list[Document]:
    """All objects of a text. A source that ends in .json holds JSON and nothing else."""
    found: list[Document] = []
    try:
        for number, content in _contents(text, source):
            if content is not None:
                found.extend(_objects(source, number, content))
    except ManifestError as error:
        raise error.located(source) from None
    return found


def _contents(text: str, source: str) -> Iterator[tuple[int, object]]:
    only_json = source.endswith(".json")
    if only_json or text.lstrip().startswith("{"):
        try:
            return iter(list(_json_documents(text)))
        except json.JSONDecodeError as error:
            if only_json:
                raise ManifestError(f"not JSON: {error.msg} (column {error.colno})", line=error.lineno) from None
            # YAML can start with a brace too; its parser has the last word, and the error, then.
    return documents(text)


def _json_documents(text: str) -> Iterator[tuple[int, object]]:
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_int=scalar,
        parse_float=scalar,
        parse_constant=_refuse_constant,
    )
    number = 0
    position = _skip_blank(text, 0)
    while position < len(text):
        number += 1
        try:
            content, position = decoder.raw_decode(text, position)
            _check_depth(content)
        except RecursionError:
            raise ManifestError(_TOO_DEEP, document=number) from None
        except ManifestError as error:
            raise error.located(document=number) from None
        yield number, content
        position = _skip_blank(text, position)


def _skip_blank(text: str, position: int) -> int:
    return cast("re.Match[str]", _BLANK.match(text, position)).end()


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique: dict[str, object] = {}
    for key, value in pairs:
        if key in unique:
            raise ManifestError(f"the key {key!r} is given twice")
        unique[key] = value
    return unique


def _refuse_constant(name: str) -> object:
    raise ManifestError(f"{name} is not a number")


def _check_depth(content: object) -> None:
    level = [content]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _children(value) if isinstance(inner, dict | list)]
        if not level:
            return
    raise ManifestError(_TOO_DEEP)


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _objects(source: str, number: int, content: object, place: str = "") -> Iterator[Document]:
    if not isinstance(content, dict):
        problem = f"an object must be a mapping, not {_shape(content)}"
        raise ManifestError(problem, place, source=source, document=number)
    kind = content.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in content):
        yield Document(source, number, content, place)
        return
    items = content["items"]
    if not isinstance(items, list | None):
        raise ManifestError("expected a list", join(place, "items"), source=source, document=number)
    for index, item in enumerate(items or ()):
        inner = _typed_as(item, kind.removesuffix("List"), content.get("apiVersion"))
        yield from _objects(source, number, inner, join(join(place, "items"), f"[{index}]"))


def _typed_as(item: object, kind: str, api_version: object) -> object:
    """The items of a PodList do not repeat their kind."""
    if kind and isinstance(item, dict) and "kind" not in item and "apiVersion" not in item:
        return {"apiVersion": api_version, "kind": kind, **item}
    return item


def _shape(content: object) -> str:
    return "a list" if isinstance(content, list) else f"{content!r:.40}"
