"""A decoder for Protocol Buffers, and the envelope of Kubernetes objects in it.

A ``Message`` says which fields are read: by number, each with its JSON name and type. All other fields are skipped.
The result is what ``json.loads`` would give for the same object, so one struct serves both forms. Malformed bytes
raise ValueError. Text that is not UTF-8 is read as the API server would write it to JSON. An envelope begins with four
bytes with which no JSON begins.

The reasons for an own decoder are in docs/decisions/0012-pod-watch-in-protobuf.md.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec
from mypy_extensions import i64

from bursar.kube.client.models import ApiStatus

TEXT: Final = 1  # left out if it is empty
NAME: Final = 2  # text that JSON has also if it is empty
NUMBER: Final = 3  # left out if it is zero
AMOUNT: Final = 4  # a number that may be missing, and says something if it is zero
FLAG: Final = 5  # left out if it is false
MESSAGE: Final = 6
INLINE: Final = 7  # a message whose fields are, in JSON, fields of the message around it
THERE: Final = 8  # a message of which nothing is read but that it is there
TIME: Final = 9
TEXTS: Final = 10  # a map of text to text
QUANTITIES: Final = 11  # a map of text to quantities
BYTES: Final = 12

_VARINT: Final = 0
_EIGHT_BYTES: Final = 1
_SIZED: Final = 2
_FOUR_BYTES: Final = 5
_LAST_SHIFT: Final = 63
_HALF_OF_SIGN: Final = 2**62
_FIRST_SECOND: Final = -62135596800  # 0001-01-01T00:00:00Z
_LAST_SECOND: Final = 253402300799  # 9999-12-31T23:59:59Z
_MOST_KEYS: Final = 4096
_KEYS: Final[dict[bytes, str]] = {}
_AS_IN_JSON: Final = "bursar-as-in-json"
_CUT_OFF: Final = "ends in the middle of a field"


class MessageField:
    """One field. ``message``: what it consists of, if that is read; ``many``: it may come often, and is a list."""

    def __init__(self, name: str, kind: int, message: Message | None = None, many: bool = False) -> None:
        self.name: Final = name
        self.kind: Final[i64] = kind
        self.message: Final = message
        self.many: Final = many
        self.wire: Final[i64] = _VARINT if kind in (NUMBER, AMOUNT, FLAG) else _SIZED


class Message:
    """What is read of a message: its fields by number. ``others``: the numbers of all other fields that it has, too."""

    def __init__(self, fields: dict[int, MessageField], others: bool = False) -> None:
        self.fields: Final[list[MessageField | None]] = [
            fields.get(number) for number in range(max(fields, default=0) + 1)
        ]
        self.others: Final = others

    def read(self, data: bytes, start: int = 0) -> dict[str, object]:
        """The message that these bytes are, from there on."""
        found: dict[str, object] = {}
        try:
            _MessageReader(data, start).message(self, len(data), found)
        except IndexError:
            raise ValueError(_CUT_OFF) from None
        return found


_TIME: Final = Message({1: MessageField("seconds", NUMBER)})
_QUANTITY: Final = Message({1: MessageField("string", TEXT)})


class _MessageReader:
    """Goes through the bytes once."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data: Final = data
        self._at: i64 = start

    def message(self, described: Message, end: i64, found: dict[str, object]) -> None:
        """All fields up to ``end``."""
        fields = described.fields
        known: i64 = len(fields)
        while self._at < end:
            tag = self._varint()
            number = tag >> 3
            field = fields[number] if 0 <= number < known else None
            if field is None:
                self._skip(tag & 7, end)
                if described.others:
                    found[str(number)] = {}
            elif field.wire != tag & 7:
                raise ValueError(f"{field.name} is of another kind")
            elif field.wire == _SIZED:
                self._sized(field, self._end(end), found)
            else:
                self._number(field, found)
        self._ended(end)

    def _number(self, field: MessageField, found: dict[str, object]) -> None:
        value = self._varint()
        if field.kind == FLAG:
            if value != 0:
                found[field.name] = True
        elif value != 0 or field.kind == AMOUNT:
            found[field.name] = int(value)

    def _sized(self, field: MessageField, end: i64, found: dict[str, object]) -> None:
        """Something that says how long it is."""
        kind = field.kind
        if kind in (TEXTS, QUANTITIES):
            self._entry(field, end, found)
        elif field.many:
            value = self._value(field, end)
            values = found.get(field.name)
            if isinstance(values, list):
                values.append(value)
            else:
                found[field.name] = [value]
        elif kind == INLINE and field.message is not None:
            self.message(field.message, end, found)
        elif kind == TIME:
            self._time(field, end, found)
        elif kind != TEXT or self._at < end:
            found[field.name] = self._value(field, end)

    def _value(self, field: MessageField, end: i64) -> object:
        kind = field.kind
        if kind in (TEXT, NAME):
            return self._text(end)
        if kind == MESSAGE and field.message is not None:
            inner: dict[str, object] = {}
            self.message(field.message, end, inner)
            return inner
        start = self._at
        self._at = end
        if kind == BYTES:
            return self._data[start:end]
        nothing: dict[str, object] = {}
        return nothing

    def _time(self, field: MessageField, end: i64, found: dict[str, object]) -> None:
        """A moment; what is no moment at all is an empty message."""
        if self._at == end:
            return
        inner: dict[str, object] = {}
        self.message(_TIME, end, inner)
        seconds = inner.get("seconds")
        found[field.name] = _timestamp(seconds if isinstance(seconds, int) else 0)

    def _entry(self, field: MessageField, end: i64, found: dict[str, object]) -> None:
        """One entry of a map: its key is the first field, its value the second."""
        key, value = "", ""
        while self._at < end:
            tag = self._varint()
            if tag & 7 != _SIZED:
                raise ValueError(f"{field.name} is of another kind")
            inner = self._end(end)
            if tag >> 3 == 1:
                key = self._key(inner)
            elif tag >> 3 == 2:
                value = self._text(inner) if field.kind == TEXTS else self._quantity(inner)
            else:
                self._at = inner
        self._ended(end)
        entries = found.get(field.name)
        if isinstance(entries, dict):
            entries[key] = value
        else:
            found[field.name] = {key: value}

    def _quantity(self, end: i64) -> str:
        inner: dict[str, object] = {}
        self.message(_QUANTITY, end, inner)
        found = inner.get("string")
        return found if isinstance(found, str) else "0"

    def _key(self, end: i64) -> str:
        """A key of a map: there are few, and they are the same in most objects, so these share them."""
        data = self._data[self._at : end]
        found = _KEYS.get(data)
        if found is None:
            found = _decoded(data)
            if len(_KEYS) >= _MOST_KEYS:
                _KEYS.clear()
            _KEYS[data] = found
        self._at = end
        return found

    def _text(self, end: i64) -> str:
        found = _decoded(self._data[self._at : end])
        self._at = end
        return found

    def _end(self, limit: i64) -> i64:
        """Where something ends that begins with its length."""
        size = self._varint()
        if size < 0 or size > limit - self._at:
            raise ValueError("a field is longer than what it is a part of")
        return self._at + size

    def _ended(self, end: i64) -> None:
        if self._at != end:
            raise ValueError(_CUT_OFF)

    def _varint(self) -> i64:
        """A number of 64 bits, the highest of which is its sign."""
        byte: i64 = self._data[self._at]
        self._at += 1
        if byte < 128:
            return byte
        value = byte & 127
        shift: i64 = 7
        while shift < _LAST_SHIFT:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        byte = self._data[self._at]
        self._at += 1
        if byte > 1:
            raise ValueError("a number of more than 64 bits")
        return value if byte == 0 else value - _HALF_OF_SIGN - _HALF_OF_SIGN

    def _skip(self, wire: i64, end: i64) -> None:
        if wire == _SIZED:
            self._at = self._end(end)
        elif wire == _VARINT:
            self._varint()
        elif wire == _EIGHT_BYTES:
            self._at += 8
        elif wire == _FOUR_BYTES:
            self._at += 4
        else:
            raise ValueError("a field of a kind that there is not")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("utf-8", _AS_IN_JSON)


def _as_in_json(error: UnicodeError) -> tuple[str, int]:
    """What Go writes to JSON for bytes that are no UTF-8: a sign for each of them."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(_AS_IN_JSON, _as_in_json)


@lru_cache(maxsize=1024)
def _timestamp(seconds: int) -> str:
    """As JSON has it: to the second. Pods that come together were made in the same few."""
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        raise ValueError("a time that no calendar has")
    at = time.gmtime(seconds)
    return f"{at[0]:04}-{at[1]:02}-{at[2]:02}T{at[3]:02}:{at[4]:02}:{at[5]:02}Z"


PACKED = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

_TYPE_META = Message({1: MessageField("apiVersion", TEXT), 2: MessageField("kind", TEXT)})
_ENVELOPE = Message({1: MessageField("typeMeta", MESSAGE, _TYPE_META), 2: MessageField("raw", BYTES)})
_OWNER = Message(
    {
        1: MessageField("kind", TEXT),
        3: MessageField("name", TEXT),
        4: MessageField("uid", TEXT),
        5: MessageField("apiVersion", TEXT),
        6: MessageField("controller", FLAG),
    }
)
OBJECT_META = Message(
    {
        1: MessageField("name", TEXT),
        3: MessageField("namespace", TEXT),
        5: MessageField("uid", TEXT),
        6: MessageField("resourceVersion", TEXT),
        7: MessageField("generation", NUMBER),
        8: MessageField("creationTimestamp", TIME),
        9: MessageField("deletionTimestamp", TIME),
        11: MessageField("labels", TEXTS),
        12: MessageField("annotations", TEXTS),
        13: MessageField("ownerReferences", MESSAGE, _OWNER, many=True),
    }
)
_CAUSE = Message({1: MessageField("reason", TEXT), 2: MessageField("message", TEXT), 3: MessageField("field", TEXT)})
_DETAILS = Message(
    {
        1: MessageField("name", TEXT),
        3: MessageField("kind", TEXT),
        4: MessageField("causes", MESSAGE, _CAUSE, many=True),
        5: MessageField("retryAfterSeconds", NUMBER),
    }
)
_STATUS = Message(
    {
        2: MessageField("status", TEXT),
        3: MessageField("message", TEXT),
        4: MessageField("reason", TEXT),
        5: MessageField("details", MESSAGE, _DETAILS),
        6: MessageField("code", NUMBER),
    }
)


def is_packed(body: bytes) -> bool:
    return body.startswith(MAGIC)


def unpacked(body: bytes, described: Message) -> dict[str, object]:
    """The object in an envelope, with its apiVersion and kind. Raises ``ValueError``, if it is no envelope."""
    if not is_packed(body):
        raise ValueError("an object without its envelope")
    envelope = _ENVELOPE.read(body, len(MAGIC))
    found = described.read(bytes_of(envelope))
    what = envelope.get("typeMeta")
    if isinstance(what, dict):
        found.update(what)
    return found


def bytes_of(found: Mapping[str, object]) -> bytes:
    """What is wrapped in an event or envelope; nothing, if there is nothing."""
    raw = found.get("raw")
    return raw if isinstance(raw, bytes) else b""


def unpacked_status(body: bytes) -> ApiStatus:
    """The Status in an envelope. Raises ``ValueError`` or msgspec's errors, if it is none."""
    found = unpacked(body, _STATUS)
    if found.get("kind") != "Status":
        raise ValueError(f"{found.get('kind')!r:.40} is no Status")
    return msgspec.convert(found, ApiStatus)
