"""The golden record: what users and programs rely on, as plain data, and how two records differ.

A record has parts, one file each in this folder. Texts for people are taken out of the parts and kept in
``wording.json``: they may change, and the test does not compare them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
WORDING = "wording"
TEXT_FIELDS = frozenset(
    ("description", "detail", "help", "helps", "means", "message", "note", "sentence", "summary", "text", "title"),
)
WIDTH = 240

Part = dict[str, Any]
Record = dict[str, Part]


class Difference(NamedTuple):
    path: str
    recorded: object
    found: object

    def line(self) -> str:
        return f"{self.path}\n  recorded: {_short(self.recorded)}\n  found:    {_short(self.found)}"


class Missing:
    """Stands for a field that one of the two records does not have."""

    def __repr__(self) -> str:
        return "(nothing)"


MISSING = Missing()


def make(parts: Mapping[str, Callable[[], Part]]) -> Record:
    """Make each part, and move the texts for people into a part of their own, each text once."""
    record: Record = {}
    wording: dict[str, list[str]] = {}
    for name, part in parts.items():
        texts: set[str] = set()
        record[name] = _without_texts(_plain(part()), texts)
        wording[name] = sorted(texts)
    return {**record, WORDING: wording}


def _plain(value: object) -> Any:  # noqa: ANN401 what JSON can hold
    return json.loads(json.dumps(value))


def _without_texts(value: Any, texts: set[str]) -> Any:  # noqa: ANN401 what JSON can hold
    if isinstance(value, list):
        return [_without_texts(item, texts) for item in value]
    if not isinstance(value, dict):
        return value
    texts.update(item for key, item in value.items() if _is_text(key, item))
    return {key: _without_texts(item, texts) for key, item in value.items() if not _is_text(key, item)}


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters as it is; of a longer one the beginning and a hash."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}... {hashed(text)}"


def hashed(value: object) -> str:
    """A short hash of a value without the texts in it."""
    text = json.dumps(_without_texts(_plain(value), set()), separators=(",", ":"))
    return blake2b(text.encode(), digest_size=4).hexdigest()


def _is_text(key: str, item: object) -> bool:
    return key in TEXT_FIELDS and isinstance(item, str)


def compare(recorded: Record, found: Record) -> list[Difference]:
    """All fields in which two records differ, except in wording."""
    parts = [part for part in dict.fromkeys([*found, *recorded]) if part != WORDING]
    return [one for part in parts for one in differences(recorded.get(part, {}), found.get(part, {}), part)]


def differences(recorded: object, found: object, path: str) -> Iterator[Difference]:
    """All fields in which two records differ, in the order of the first one."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in dict.fromkeys([*recorded, *found]):
            yield from differences(recorded.get(key, MISSING), found.get(key, MISSING), f"{path}.{key}")
    elif isinstance(recorded, list) and isinstance(found, list):
        for index in range(max(len(recorded), len(found))):
            first, second = (items[index] if index < len(items) else MISSING for items in (recorded, found))
            yield from differences(first, second, f"{path}[{index}]")
    elif recorded != found or type(recorded) is not type(found):
        yield Difference(path, recorded, found)


def _short(value: object, most: int = 300) -> str:
    text = repr(value) if value is MISSING else json.dumps(value)
    return text if len(text) <= most else f"{text[:most]}..."


# Files


def load(folder: Path = FOLDER) -> Record:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def save(record: Record, folder: Path = FOLDER) -> None:
    for name, part in record.items():
        (folder / f"{name}.json").write_text("\n".join(_lines(part, "")) + "\n")


def _lines(value: object, indent: str) -> list[str]:
    """JSON in which whatever fits on one line stands on one line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not isinstance(value, dict | list) or not value or len(indent) + len(text) <= WIDTH:
        return [text]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        items = [(f"{json.dumps(key, ensure_ascii=False)}:", item) for key, item in value.items()]
    else:
        items = [("", item) for item in value]
    lines = [opening]
    inner = f"{indent} "
    for number, (start, item) in enumerate(items, 1):
        first, *more = _lines(item, inner)
        lines += [f"{inner}{start}{first}", *more]
        lines[-1] += "," if number < len(items) else ""
    return [*lines, f"{indent}{closing}"]
