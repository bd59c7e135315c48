"""Plain data into structs, with errors that name the field.

msgspec decodes. Only when it refuses a value is the value compared with its type again, to name the exact field
(msgspec omits the keys of mappings) in words that do not mention Python.

A null field is absent, as in Kubernetes, where tools write ``creationTimestamp: null``. A null inside a free mapping is
refused: ``max: {cpu: }`` must not mean that there is no limit.

A ``ManifestError`` is one line with file, document, object and field. The innermost layer raises it with the path of
the field; outer layers add what they know with ``located``, which never overwrites.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

_LONGEST = 400
"""Characters of one part that are shown: a name or a path can be as long as the file."""


class ManifestError(ValueError):
    """Input that cannot be accepted. ``str()`` gives the whole line."""

    def __init__(
        self, problem: str, path: str = "", *, subject: str = "", source: str = "", document: int = 0, line: int = 0
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path  # of the field, such as spec.min.cpu
        self.subject = subject  # the object: Kind namespace/name
        self.source = source  # the file
        self.document = document  # from 1; 0: unknown
        self.line = line  # in the file, from 1; only where the text itself is malformed

    def __str__(self) -> str:
        document = f"document {self.document}" if self.document else ""
        line = f"line {self.line}" if self.line else ""
        parts = (self.source, document, line, self.subject, self.path, self.problem)
        return ": ".join(_one_line(part) for part in parts if part)

    def located(self, source: str = "", document: int = 0, subject: str = "") -> ManifestError:
        """The same error with what an inner layer did not know."""
        return ManifestError(
            self.problem,
            self.path,
            subject=self.subject or subject,
            source=self.source or source,
            document=self.document or document,
            line=self.line,
        )

    def inside(self, path: str) -> ManifestError:
        """The same error, its path taken as relative to ``path``."""
        inner = ManifestError(self.problem, join(path, self.path), line=self.line)
        return inner.located(self.source, self.document, self.subject)


def join(path: str, step: str) -> str:
    """``path`` and one step further: a key, or an index such as ``[0]``."""
    if not path or not step or step.startswith("["):
        return path + step
    return f"{path}.{step}"


def check_choice(value: str, choices: Collection[str], path: str) -> None:
    """An empty choice means that the field may be missing."""
    if value not in choices:
        raise ManifestError(f"{value!r:.40} is none of {', '.join(filter(None, choices))}", path)


_COMPARED = 2000
_SHORTENED = 3  # so many letters at least


def nearest(text: str, known: Iterable[str]) -> str:
    """The known name that a misspelt or shortened one probably means; "" if none is close. Only so many are read."""
    folded = {name.casefold(): name for name in islice(known, _COMPARED)}
    wanted = text[:100].casefold()
    close = difflib.get_close_matches(wanted, list(folded), n=1, cutoff=0.7)
    longer = [name for name in folded if name.startswith(wanted)] if len(wanted) >= _SHORTENED else []
    if not close and len(longer) == 1:
        close = longer
    return folded[close[0]] if close else ""


def or_nearest(text: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that is not there."""
    close = nearest(text, known)
    return f"; did you mean {close}?" if close else ""


def _one_line(text: str) -> str:
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


S = TypeVar("S", bound=msgspec.Struct)

_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]*)`(, got `(?P<got>[^`]*)`)?(?P<rest>.*)", re.DOTALL)


def decode(body: dict[str, Any], struct: type[S]) -> tuple[S, dict[str, Any]]:
    """The struct, and the body without the fields that are null."""
    try:
        return msgspec.convert(body, struct), body
    except msgspec.ValidationError:
        body = cast("dict[str, Any]", _without_nulls(body, struct))
    try:
        return msgspec.convert(body, struct), body
    except msgspec.ValidationError as error:
        raise _diagnosis(body, struct, "", str(error)) from None


def require_strict(struct: type[msgspec.Struct]) -> None:
    """Every struct inside a strict one must refuse unknown fields, or a misspelt limit slips through deeper down."""
    for inner in _structs_within(struct, set()):
        if not inner.__struct_config__.forbid_unknown_fields:
            raise TypeError(f"{inner.__name__}, inside the strict {struct.__name__}, does not forbid unknown fields")


def _structs_within(annotation: object, seen: set[object]) -> Iterator[type[msgspec.Struct]]:
    for shape in _alternatives(annotation):
        if not _is_struct(shape):
            for argument in get_args(shape):
                yield from _structs_within(argument, seen)
        elif shape not in seen:
            seen.add(shape)
            yield shape
            for name, field in _fields(shape).items():
                if name != "metadata":  # Kubernetes' own, with more fields than anybody lists
                    yield from _structs_within(field.type, seen)


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def _is_struct(annotation: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _alternatives(annotation: object) -> list[Any]:
    """The types that a value may have, without None and without constraints."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return [inner for choice in get_args(annotation) for inner in _alternatives(choice) if inner is not NoneType]
    return [annotation]


def _children(value: object, annotation: object) -> Iterator[tuple[str, Any, object]]:
    """(step of the path, value, type) of what stands inside a value of that type."""
    for shape in _alternatives(annotation):
        arguments = get_args(shape)
        if isinstance(value, dict) and _is_struct(shape):
            fields = _fields(shape)
            yield from ((key, inner, fields[key].type) for key, inner in value.items() if key in fields)
        elif isinstance(value, dict) and get_origin(shape) is dict:
            yield from ((str(key), inner, arguments[1]) for key, inner in value.items())
        elif isinstance(value, list) and get_origin(shape) in {list, tuple}:
            yield from ((f"[{index}]", inner, arguments[0]) for index, inner in enumerate(value))


def _without_nulls(value: object, annotation: object) -> object:
    inside = {step: _without_nulls(inner, kind) for step, inner, kind in _children(value, annotation)}
    if isinstance(value, list):
        return list(inside.values()) if inside else value
    if not isinstance(value, dict):
        return value
    struct = next((shape for shape in _alternatives(annotation) if _is_struct(shape)), None)
    known = _fields(struct) if struct is not None else {}
    kept = {key: inside.get(str(key), inner) for key, inner in value.items()}
    return {key: inner for key, inner in kept.items() if inner is not None or key not in known}


def _diagnosis(value: object, annotation: object, path: str, failure: str) -> ManifestError:
    for shape in _alternatives(annotation):
        if isinstance(value, dict) and _is_struct(shape):
            problem = _wrong_fields(value, shape, path)
            if problem is not None:
                return problem
    for step, inner, kind in _children(value, annotation):
        inner_failure = _failure(inner, kind)
        if inner_failure is not None:
            return _diagnosis(inner, kind, join(path, step), inner_failure)
    return ManifestError(_in_words(failure, value, annotation), path)


def _wrong_fields(value: dict[str, Any], struct: type[msgspec.Struct], path: str) -> ManifestError | None:
    fields = _fields(struct)
    if struct.__struct_config__.forbid_unknown_fields:
        for key in value:
            if key not in fields:
                return ManifestError(
                    f"is not a known field; {_suggestion(str(key), list(fields))}", join(path, str(key))
                )
    for name, field in fields.items():
        if field.required and name not in value:
            return ManifestError("is required", join(path, name))
    return None


def _suggestion(key: str, known: list[str]) -> str:
    close = nearest(key, known)
    if close:
        return f"did you mean {close}?"
    return f"known are {', '.join(sorted(known))}" if known else "nothing is known here"


def _failure(value: object, annotation: object) -> str | None:
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _in_words(failure: str, value: object, annotation: object) -> str:
    text = failure.partition(" - at `")[0]
    if text.startswith("Invalid enum value"):
        literals = [shape for shape in _alternatives(annotation) if get_origin(shape) is Literal]
        choices = [str(choice) for shape in literals for choice in get_args(shape)]
        return f"{value!r:.40} is none of {', '.join(choices)}"
    match = _EXPECTED.fullmatch(text)
    if match is None:
        return text
    expected = _named(match["expected"])
    if match["got"] is None:
        return f"{value!r:.40} is not {expected}{match['rest']}"
    hint = "; put it in quotes" if "str" in match["expected"] and match["got"] in {"int", "float", "bool"} else ""
    return f"expected {expected}, not {_named(match['got'])}{hint}"


def _named(names: str) -> str:
    given = names.split(" | ")
    redundant = {"null", "int"} if "float" in given else {"null"}
    parts = [name for name in given if name not in redundant] or ["null"]
    return " or ".join(_WORDS.get(name, name) for name in parts)
