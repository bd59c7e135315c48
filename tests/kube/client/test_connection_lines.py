"""Lines out of pieces, wherever the pieces are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursar.kube.client import connections
from bursar.kube.client.connections import Lines
from bursar.kube.client.errors import Malformed


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and line.strip())), st.data())
def test_cuts_do_not_matter(wanted: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in wanted)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=12)))
    splitter = Lines()
    found = [
        line
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
        for line in splitter.feed(whole[start:end])
    ]
    assert found == wanted


def test_blank_lines_are_left_out() -> None:
    assert Lines().feed(b"\n \r\na\n\n") == [b"a"]


def test_a_line_without_end_waits() -> None:
    splitter = Lines()
    assert splitter.feed(b"ab") == []
    assert splitter.feed(b"c\nd") == [b"abc"]
    assert splitter.feed(b"\n") == [b"d"]


def test_a_line_beyond_all_measure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LONGEST", 10)
    splitter = Lines()
    splitter.feed(b"x" * 10)
    with pytest.raises(Malformed):
        splitter.feed(b"x")
