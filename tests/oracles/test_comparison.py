"""Decisions of Bursar on random small worlds, compared with brute force. ``python -m tests.oracles`` runs many more."""

from __future__ import annotations

from itertools import count

import pytest

from tests.oracles import elastic_worlds, trees_worlds
from tests.oracles.__main__ import main
from tests.oracles.elastic_oracle import Asking, Choice, Judge, MinMax, SmallWorld
from tests.oracles.elastic_worlds import fault_of
from tests.oracles.verdicts import ILLEGAL, OTHER, SAME, Play, Tally, Verdict, tally_first

PLAYS: dict[str, Play] = {"elastic": elastic_worlds.play, "trees": trees_worlds.play}


@pytest.fixture(scope="module", params=sorted(PLAYS))
def sums(request: pytest.FixtureRequest) -> Tally:
    return tally_first(PLAYS[request.param], count(7000), 300)


def test_no_difference(sums: Tally) -> None:
    assert [one.story for one in sums.differences] == []


def test_most_decisions_need_victims_or_are_refused(sums: Tally) -> None:
    assert sums.counts["with victims"] >= 30
    assert sums.counts["refused, room by some set"] >= 30
    assert sums.counts["with victims"] + sums.counts["refused"] >= 100


def test_a_difference_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict(5, ILLEGAL, admitted=True, victims=1, room=False, story="  wrong", mark="a part of the rules")
    monkeypatch.setitem(PLAYS, "elastic", lambda seed: [verdict] if seed == 5 else [])
    monkeypatch.setattr("tests.oracles.__main__.WORLDS", PLAYS)
    assert main(["elastic", "--instances", "1", "--seed", "4"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("elastic seed 5: illegal plan\n  wrong\n")
    assert "of the differences 1 touch a part of the rules" in said


@pytest.mark.parametrize(("room", "fault"), [(0, OTHER), (1, SAME)])
def test_of_equal_harm_the_first_name_is_taken_unless_the_other_node_has_room(room: int, fault: str) -> None:
    quotas = (MinMax("a", ("a",), {"gpu": 2}), MinMax("b", ("b",), {"gpu": 0}))
    nodes = {"n1": {"gpu": 1}, "n2": {"gpu": 1 + room}}
    small = SmallWorld(quotas, nodes, (Asking("p", "b", {"gpu": 1}, "n1"), Asking("q", "b", {"gpu": 1}, "n2")))
    judge = Judge(small, Asking("x", "a", {"gpu": 1}))
    best = judge.choose()
    assert best == Choice("n1", ("p",))
    assert fault_of(judge, best, Choice("n2", ("q",))) == fault


@pytest.mark.parametrize("seed", [900_652, 705_531, 707_538])
def test_worlds_in_which_full_nodes_decide_what_is_not_listed(seed: int) -> None:
    """A quota exceeds its share of a dimension that the claimant's own does not list; a lower priority is beyond-share
    on the full node only, although another node has room.
    """
    assert [one.fault for one in elastic_worlds.play(seed)] == [SAME]


def test_a_world_in_which_only_a_full_node_has_victims_although_another_has_room() -> None:
    assert [one.fault for one in elastic_worlds.play(82_583)] == [SAME]


@pytest.mark.parametrize("seed", [20_458, 51_386])
def test_worlds_in_which_equally_important_victims_on_a_node_decide_which_node_is_taken(seed: int) -> None:
    assert [one.fault for one in elastic_worlds.play(seed)] == [SAME]


def test_a_world_in_which_the_named_set_pushes_out_more_important_consumers_than_the_chosen_one() -> None:
    assert {one.fault for one in trees_worlds.play(3_009_733)} == {SAME}
