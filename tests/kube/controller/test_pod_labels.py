"""Labels that Bursar keeps on pods."""

from bursar.kube.controller.pod_writer import LabelKeeper

OVER = {"capacity": "over"}


def test_a_label_is_written_once() -> None:
    keeper = LabelKeeper()
    assert keeper.want("u", {"capacity": "in"}, {}) == {"capacity": "in"}
    assert keeper.seen("u", {}) == {}, "the write has not arrived yet"
    assert keeper.seen("u", {"capacity": "in"}) == {}


def test_a_label_that_somebody_changes_is_written_again_once() -> None:
    keeper = LabelKeeper()
    keeper.want("u", {"capacity": "in"}, {})
    keeper.seen("u", {"capacity": "in"})
    assert keeper.seen("u", OVER) == {"capacity": "in"}
    assert keeper.seen("u", OVER | {"other": "x"}) == {}, "it is on its way"
    assert keeper.seen("u", {"capacity": "in"}) == {}
    assert keeper.seen("u", {}) == {"capacity": "in"}


def test_what_a_predecessor_wrote_is_not_written_again() -> None:
    keeper = LabelKeeper()
    assert keeper.want("u", dict(OVER), OVER) == {}
    assert keeper.seen("u", {}) == OVER


def test_a_label_that_is_not_wanted_any_more_is_taken_away_and_stays_away() -> None:
    keeper = LabelKeeper()
    keeper.want("u", dict(OVER), {})
    keeper.seen("u", OVER)
    assert keeper.want("u", {"capacity": None}, OVER) == {"capacity": None}
    assert keeper.seen("u", OVER) == {}, "an event from before the write"
    assert keeper.seen("u", {}) == {}
    assert keeper.seen("u", OVER) == {"capacity": None}


def test_what_is_newly_wanted_is_written_whatever_is_seen_meanwhile() -> None:
    """The pod still shows the label of before: it may be an old sight, while another value is on its way."""
    keeper = LabelKeeper()
    keeper.want("u", {"capacity": "in"}, {})
    assert keeper.want("u", dict(OVER), OVER) == OVER


def test_pods_that_are_forgotten_have_no_labels_of_ours() -> None:
    keeper = LabelKeeper()
    keeper.want("u", dict(OVER), OVER)
    keeper.forget("u")
    assert keeper.seen("u", {}) == {}
    assert keeper.want("v", {}, {}) == {}
