"""Marks of plain values: the ledger's and the auditor's are worked out apart and must be the same."""

from itertools import combinations_with_replacement

import pytest

from bursar.audit.digest import plain_mark as audited
from bursar.ledger.claims import cell_mark, plain_mark
from bursar.resources import EMPTY, Vector, from_amounts

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
    from_amounts({"cpu": 3, "memory": 7}),
    (from_amounts({"cpu": 7, "memory": 3}), EMPTY),
]


def as_read(value: object) -> object:
    """The value as a journal gives it back: tuples are lists there, and vectors amounts by name."""
    if isinstance(value, Vector):
        return dict(value.pairs())
    return [as_read(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:30])
def test_the_auditor_finds_the_same_mark(value: object) -> None:
    assert plain_mark(value) == audited(as_read(value))


def test_all_marks_differ() -> None:
    assert len({plain_mark(value) for value in VALUES}) == len(VALUES)


@pytest.mark.parametrize("value", [7, "root", ("root", 3), (("a", 1),)])
def test_a_cell_is_marked_as_the_tuple_of_its_parts(value: object) -> None:
    assert cell_mark(plain_mark("at"), "uid", value) == plain_mark(("at", "uid", value))


@pytest.mark.parametrize("prefix", [0, "n", "pod-", "team-a/"])
def test_sums_of_neighbours_differ(prefix: int | str) -> None:
    names = [number if isinstance(prefix, int) else f"{prefix}{number}" for number in range(12)]
    sums = [sum(plain_mark(name) for name in three) for three in combinations_with_replacement(names, 3)]
    assert len(set(sums)) == len(sums)


def test_each_residue_alone_tells_texts_apart() -> None:
    texts = [f"{letter}{number}" for letter in ("", "a", "b", "ab", "ba", "\0", "\0a") for number in range(2000)]
    for residues in zip(*(divmod(plain_mark(text), 2147483629) for text in texts), strict=True):
        assert len(set(residues)) == len(texts)


def test_what_is_not_plain_has_no_mark() -> None:
    with pytest.raises(TypeError, match="is not plain"):
        plain_mark(1.5)
