"""Marks of plain values: the ledger's and the auditor's are worked out apart and must be the same."""

from itertools import combinations_with_replacement

import pytest

from bursar.audit.digests import plain_mark as audited
from bursar.ledger.marks import cell_mark, plain_mark

VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31 - 1,
    2**60 - 1,
    -(2**60) + 1,
    2**60,
    -(2**60),
    2**200,
    "",
    "1",
    "None",
    "gpu",
    "größe",
    "\ud800",
    "x" * 500,
    (),
    ((),),
    (None,),
    ("",),
    (1, 2),
    (2, 1),
    ("1", "2"),
    (("a", 1), ("b", (True, None))),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:30])
def test_the_auditor_finds_the_same_mark(value: object) -> None:
    assert plain_mark(value) == audited(value)


def test_all_marks_differ() -> None:
    assert len({plain_mark(value) for value in VALUES}) == len(VALUES)


@pytest.mark.parametrize("value", [7, "root", ("root", 3), (("a", 1),)])
def test_a_cell_is_marked_as_the_tuple_of_its_parts(value: object) -> None:
    assert cell_mark("at", "uid", value) == plain_mark(("at", "uid", value))


def test_a_mark_is_the_same_when_it_is_asked_again() -> None:
    assert plain_mark("somebody new") == plain_mark("somebody new") == audited("somebody new")


def test_sums_of_neighbouring_numbers_differ() -> None:
    sums = [sum(plain_mark(number) for number in three) for three in combinations_with_replacement(range(12), 3)]
    assert len(set(sums)) == len(sums)


def test_what_is_not_plain_has_no_mark() -> None:
    with pytest.raises(TypeError, match="is not plain"):
        plain_mark(1.5)
