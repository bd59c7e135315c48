"""Protocol Buffers: what was written is read, and bytes that nobody wrote do no harm."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursar.kube.client import protobuf
from bursar.kube.client.protobuf import (
    AMOUNT,
    BYTES,
    FLAG,
    INLINE,
    MESSAGE,
    NAME,
    NUMBER,
    QUANTITIES,
    TEXT,
    TEXTS,
    THERE,
    TIME,
    Message,
    MessageField,
)
from tests.kube.protobuf_writer import packed, plain, sized, varint

INNER = Message({1: MessageField("name", TEXT), 16: MessageField("count", NUMBER)})
INLINED = Message({3: MessageField("inlined", TEXT)})
OUTER = Message(
    {
        1: MessageField("text", TEXT),
        2: MessageField("name", NAME),
        3: MessageField("number", NUMBER),
        4: MessageField("amount", AMOUNT),
        5: MessageField("flag", FLAG),
        6: MessageField("inner", MESSAGE, INNER),
        7: MessageField("inners", MESSAGE, INNER, many=True),
        8: MessageField("around", INLINE, INLINED),
        9: MessageField("there", THERE),
        10: MessageField("theres", THERE, many=True),
        11: MessageField("time", TIME),
        12: MessageField("texts", TEXTS),
        13: MessageField("quantities", QUANTITIES),
        14: MessageField("names", NAME, many=True),
        15: MessageField("bytes", BYTES),
        2000: MessageField("far", TEXT),
    }
)
LEFT_OUT: dict[str, object] = {"text": "", "far": "", "inlined": "", "number": 0, "flag": False, "count": 0}
INT64 = st.integers(-(2**63), 2**63 - 1)
inners = st.fixed_dictionaries({}, optional={"name": st.text(min_size=1), "count": INT64})
outers = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(),
        "name": st.text(),
        "number": INT64,
        "amount": INT64,
        "flag": st.booleans(),
        "inner": inners,
        "inners": st.lists(inners, min_size=1),
        "inlined": st.text(),
        "there": st.just({}),
        "theres": st.lists(st.just({}), min_size=1),
        "time": st.datetimes().map(lambda when: f"{when.replace(microsecond=0).isoformat()}Z"),
        "texts": st.dictionaries(st.text(), st.text(), min_size=1),
        "quantities": st.dictionaries(st.text(), st.text("0123456789", min_size=1), min_size=1),
        "names": st.lists(st.text(), min_size=1),
        "bytes": st.binary(),
        "far": st.text(),
    },
)
undescribed = st.sampled_from(
    [
        plain(1999, 2**63),
        sized(17, b"\xff\xff"),
        varint(18 << 3 | 1) + b"8 bytes!",
        varint(2**29 - 1 << 3 | 5) + b"four",
    ]
)


def as_in_json(body: dict[str, Any]) -> dict[str, Any]:
    """What Kubernetes would write of it."""
    kept = {name: value for name, value in body.items() if (name, value) not in LEFT_OUT.items()}
    if "inner" in kept:
        kept["inner"] = as_in_json(kept["inner"])
    if "inners" in kept:
        kept["inners"] = [as_in_json(inner) for inner in kept["inners"]]
    return kept


@given(outers, st.lists(undescribed, max_size=3), st.lists(undescribed, max_size=3))
def test_what_was_written_is_read(body: dict[str, Any], before: list[bytes], after: list[bytes]) -> None:
    data = b"".join((*before, packed(OUTER, body), *after))
    assert OUTER.read(data) == as_in_json(body)
    assert OUTER.read(b"head" + data, 4) == as_in_json(body)


@given(outers, st.data())
def test_what_is_cut_off_or_changed_is_refused_or_read_but_never_worse(
    body: dict[str, Any], data: st.DataObject
) -> None:
    whole = bytearray(packed(OUTER, body))
    for _ in range(data.draw(st.integers(0, 3))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    for part in (bytes(whole), bytes(whole[: data.draw(st.integers(0, len(whole)))])):
        _read_or_refused(part)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    _read_or_refused(data)


def _read_or_refused(data: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(OUTER.read(data), dict)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x0a", "ends in the middle of a field"),
        (b"\x0a\x05abc", "a field is longer than what it is a part of"),
        (sized(6, b"\x0a\x7fx"), "a field is longer than what it is a part of"),
        (sized(6, b"\x0a") + b"\x01x", "a field is longer than what it is a part of"),
        (sized(6, varint(16 << 3)) + b"\x01", "ends in the middle of a field"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "a field is longer than what it is a part of"),
        (b"\x18" + b"\xff" * 9 + b"\x02", "a number of more than 64 bits"),
        (b"\x18" + b"\xff" * 11, "a number of more than 64 bits"),
        (plain(1, 5), "text is of another kind"),
        (sized(3, b"x"), "number is of another kind"),
        (sized(12, plain(1, 5)), "texts is of another kind"),
        (varint(99 << 3 | 3), "a field of a kind that there is not"),
        (varint(99 << 3 | 1) + b"only 7.", "ends in the middle of a field"),
        (sized(11, plain(1, 253402300800)), "a time that no calendar has"),
        (sized(11, plain(1, -62135596801)), "a time that no calendar has"),
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        OUTER.read(data)


def test_the_last_one_counts_where_there_is_one() -> None:
    assert OUTER.read(sized(1, b"a") + sized(1, b"b")) == {"text": "b"}
    assert OUTER.read(sized(12, sized(1, b"k") + sized(2, b"a")) + sized(12, sized(1, b"k"))) == {"texts": {"k": ""}}


def test_a_quantity_that_was_never_set_is_zero() -> None:
    assert OUTER.read(sized(13, sized(1, b"cpu") + sized(2, b""))) == {"quantities": {"cpu": "0"}}


def test_what_is_no_moment_at_all_is_left_out_and_the_first_second_is_not() -> None:
    assert OUTER.read(sized(11, b"")) == {}
    assert OUTER.read(sized(11, plain(1, 0) + plain(2, 0))) == {"time": "1970-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x82", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xe2\x82\xac", "\u20ac"),
    ],
)
def test_text_that_is_no_utf8_is_read_as_json_would_have_it(data: bytes, expected: str) -> None:
    assert OUTER.read(sized(1, data)) == {"text": expected}
    assert OUTER.read(sized(12, sized(1, data) + sized(2, data))) == {"texts": {expected: expected}}


def test_objects_share_the_keys_of_their_maps() -> None:
    def keys(number: int) -> list[str]:
        texts = OUTER.read(packed(OUTER, {"texts": {f"key-{number}": "x"}}))["texts"]
        assert isinstance(texts, dict)
        return list(texts)

    assert keys(0)[0] is keys(0)[0]
    assert [keys(number) for number in range(10_000)] == [[f"key-{number}"] for number in range(10_000)]
    assert len(protobuf._KEYS) <= 4096


def test_the_numbers_of_other_fields_can_be_asked_for() -> None:
    described = Message({1: MessageField("known", THERE)}, others=True)
    assert described.read(sized(1, b"x") + sized(31, b"x") + plain(2, 7)) == {"known": {}, "31": {}, "2": {}}
