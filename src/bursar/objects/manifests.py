"""Manifests from text, files and folders: one ``Document`` for each object.

YAML (see ``yamltext``) and JSON, each with any number of documents; lists (``kind: List``, ``PodList``) are taken
apart, empty documents left out. Nothing is typed here. All that can go wrong with the text is a ``ManifestError``
with the source, the document and, where the text is malformed, the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bursar.objects import yamltext
from bursar.objects.errors import ManifestError, join

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
    return yamltext.documents(text)


def _json_documents(text: str) -> Iterator[tuple[int, object]]:
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_int=yamltext.scalar,
        parse_float=yamltext.scalar,
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


_TOO_DEEP = f"nested deeper than {yamltext.MAX_DEPTH} levels"


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
    for _ in range(yamltext.MAX_DEPTH):
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
