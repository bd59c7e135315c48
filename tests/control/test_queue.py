"""Who is next, who waits for what, and who is woken by what."""

import pytest

from bursar.control import gangs
from bursar.control.gangs import urgency
from bursar.control.queue import Queue
from bursar.engine.decision import WAITING, Decision
from bursar.ledger.claims import RUNNING, TERMINATING, Claim, ClaimSpec
from bursar.policies.results import Refusal


def claim(
    uid: str,
    priority: int = 0,
    created: int = 0,
    *,
    group: str = "",
    size: int = 0,
    preempts: bool = True,
    owner: str = "",
    job: str = "",
) -> Claim:
    """Claims of the same ``job`` are of one equivalence class; without it, each is of its own."""
    spec = ClaimSpec(
        priority=priority, group=group, group_size=size, preempts=preempts, owner=owner, labels={"job": job or uid}
    )
    return Claim(uid, spec, created, "ns", uid)


def empty(queue: Queue) -> bool:
    return not (queue._units or queue._unit_of or queue._topics or queue._classes or queue._class_of)


def drained(queue: Queue) -> list[str]:
    """The uids in the order they are decided; everybody is refused for good."""
    order: list[str] = []
    while (claims := queue.next()) is not None:
        order.append("+".join(c.uid for c in claims))
        queue.wait(claims[0], (), never=True)
    return order


@pytest.mark.parametrize(
    ("claims", "order"),
    [
        ([claim("a", 1), claim("b", 3), claim("c", 2)], ["b", "c", "a"]),
        ([claim("a", 0, 30), claim("b", 0, 10), claim("c", 0, 20)], ["b", "c", "a"]),
        ([claim("b"), claim("a")], ["a", "b"]),
        ([claim("low", 0, 0), claim("high", 9, 99)], ["high", "low"]),
    ],
    ids=["priority", "creation", "key", "priority before creation"],
)
def test_the_most_urgent_is_next(claims: list[Claim], order: list[str]) -> None:
    queue = Queue()
    for one in claims:
        queue.add(one)
    assert drained(queue) == order


def waiting_queue(**topics: tuple[str, ...]) -> Queue:
    queue = Queue()
    for uid, names in topics.items():
        one = claim(uid)
        queue.add(one)
        queue.next()
        queue.wait(one, names, never=False)
    return queue


@pytest.mark.parametrize(
    ("changed", "woken"),
    [
        (["x"], ["a", "both"]),
        (["y"], ["b", "both"]),
        (["x", "y"], ["a", "b", "both"]),
        (["z"], []),
    ],
)
def test_a_topic_wakes_only_those_who_wait_for_it(changed: list[str], woken: list[str]) -> None:
    queue = waiting_queue(a=("x",), b=("y",), both=("x", "y"))
    queue.wake(changed)
    assert drained(queue) == woken


def test_a_refusal_without_topics_is_woken_by_anything() -> None:
    queue = waiting_queue(a=())
    queue.wake(["whatever"])
    assert drained(queue) == ["a"]


def test_never_is_woken_by_settings_only() -> None:
    queue = Queue()
    one = claim("a")
    queue.add(one)
    queue.next()
    queue.wait(one, ("x",), never=True)
    queue.wake(["x"])
    queue.wake_preempting()
    assert queue.next() is None
    queue.wake_all()
    assert queue.next() == [one]


def test_whoever_may_preempt_is_woken_when_victims_differ() -> None:
    queue = waiting_queue(a=("x",))
    meek = claim("meek", preempts=False)
    queue.add(meek)
    queue.next()
    queue.wait(meek, ("x",), never=False)
    queue.wake_preempting()
    assert drained(queue) == ["a"]


def test_gone_claims_leave_no_trace() -> None:
    queue = waiting_queue(a=("x",), b=("x",))
    queue.remove("a")
    queue.wake(["x"])
    assert "a" not in queue
    assert len(queue) == 1
    assert drained(queue) == ["b"]
    queue.remove("b")
    assert empty(queue)


def job(queue: Queue, *, topics: tuple[str, ...] = ("x",), never: bool = False) -> list[Claim]:
    """Three claims of one job, all of which were refused."""
    claims = [claim(f"j{number}", created=number, job="j") for number in range(3)]
    for one in claims:
        queue.add(one)
    while (found := queue.next()) is not None:
        refuse(queue, found[0], topics, never=never)
    return claims


def refuse(queue: Queue, one: Claim, topics: tuple[str, ...] = ("x",), *, never: bool = False) -> None:
    one.decision = Decision(one.uid, WAITING, 0, "", (Refusal("p", "p.full"),))
    queue.wait(one, topics, never=never)


class TestClasses:
    def test_one_of_a_class_answers_for_all(self) -> None:
        queue = Queue()
        first, *_ = job(queue)
        queue.wake(["x"])
        assert queue.next() == [first]
        refuse(queue, first, ("y",))
        assert queue.next() is None
        queue.wake(["x"])  # what the others said when they were refused is out of date
        assert queue.next() is None
        queue.wake(["y"])
        assert queue.next() == [first]

    def test_the_next_one_follows_when_one_is_admitted(self) -> None:
        queue = Queue()
        first, second, third = job(queue)
        queue.wake(["x"])
        for one in (first, second):
            assert queue.next() == [one]
            queue.admitted(one)
        assert queue.next() == [third]
        refuse(queue, third)
        assert queue.next() is None

    def test_when_one_that_sleeps_is_gone_the_others_sleep_on(self) -> None:
        queue = Queue()
        first, second, _ = job(queue)
        queue.remove(first.uid)
        assert queue.next() is None
        queue.wake(["x"])
        assert queue.next() == [second]

    def test_a_new_one_is_decided_itself_and_wakes_nobody(self) -> None:
        queue = Queue()
        job(queue)
        new = claim("j9", created=9, job="j")
        queue.add(new)
        assert queue.next() == [new]
        refuse(queue, new)
        assert queue.next() is None

    def test_those_that_were_refused_before_a_restart_are_decided_once_a_class(self) -> None:
        before = job(Queue())
        queue = Queue()
        for one in before:
            queue.add(one)
        assert queue.next() == [before[0]]
        refuse(queue, before[0])
        assert queue.next() is None
        queue.wake(["x"])
        queue.remove(before[0].uid)
        assert queue.next() == [before[1]]

    def test_who_has_another_history_is_of_another_class(self) -> None:
        queue = Queue(lambda one: "j0" if one.uid == "j1" else None)
        first, second, _ = job(queue)
        queue.wake_preempting()
        assert queue.next() == [first]
        refuse(queue, first)
        assert queue.next() == [second]

    def test_who_helps_nobody_but_some_wakes_only_them(self) -> None:
        queue = waiting_queue(a=("x",), b=("x",))
        queue.wake(["x"], lambda entry: "b" in entry)
        assert drained(queue) == ["b"]

    def test_a_class_that_never_could_is_passed_until_it_is_woken(self) -> None:
        queue = Queue(strict=True)
        first, second, _ = job(queue, topics=(), never=True)
        last = claim("last", -1)
        queue.add(last)
        assert queue.next() == [last]
        refuse(queue, last)
        queue.wake_all()
        assert queue.next() == [first]
        queue.remove(first.uid)
        assert queue.next() == [second]
        refuse(queue, second)
        assert queue.next() is None

    def test_a_class_that_never_could_is_passed_until_one_of_it_could(self) -> None:
        queue = Queue(strict=True)
        job(queue, topics=(), never=True)
        queue.add(claim("last", -1))
        new = claim("j9", created=9, job="j")
        queue.add(new)
        assert queue.next() == [new]
        refuse(queue, new)
        assert queue.next() is None

    @pytest.mark.parametrize("strict", [False, True])
    def test_classes_that_are_woken_for_ever_take_no_more_room(self, strict: bool) -> None:
        queue = Queue(strict=strict)
        job(queue)
        for number in range(1000):
            queue.add(claim("new", created=number, job="j"))
            while (found := queue.next()) is not None:
                refuse(queue, found[0])
            queue.wake(["x"])
        known = next(iter(queue._classes.values()))
        assert len(known._line) < 100
        assert len(queue._ready) < 100


@pytest.mark.parametrize("strict", [False, True])
def test_waking_for_ever_takes_no_more_room(strict: bool) -> None:
    queue = Queue(strict=strict)
    queue.add(claim("first", 9))
    for number in range(100):
        queue.add(claim(f"c{number}"))
        queue.wake_all()
        while (claims := queue.next()) is not None:
            if claims[0].uid == "first":
                queue.wait(claims[0], ["x"], never=False)
            else:
                queue.admitted(claims[0])
    assert len(queue._ready._heap) <= 100
    assert len(queue._line._heap) <= (101 if strict else 0)


def test_coming_and_going_behind_one_that_nobody_passes_takes_no_more_room() -> None:
    queue = Queue(strict=True)
    first, last = claim("first", 9), claim("last", -1)
    queue.add(first)
    queue.next()
    queue.wait(first, ["x"], never=False)
    queue.add(last)
    for number in range(1000):
        queue.add(claim(f"c{number}"))
        assert queue.next() is None
        queue.remove(f"c{number}")
    assert len(queue._ready) < 100
    assert len(queue._line) < 100
    queue.remove("first")
    assert queue.next() == [last]


def test_a_queue_that_becomes_strict_lets_nobody_pass_whoever_waits() -> None:
    queue = Queue()
    queue.add(claim("first", 9))
    assert drained_one(queue) == "first"
    queue.strict = True
    queue.add(claim("second"))
    assert queue.next() is None


def drained_one(queue: Queue) -> str:
    claims = queue.next()
    assert claims is not None
    queue.wait(claims[0], ["x"], never=False)
    return claims[0].uid


def running(queue: Queue, name: str, size: int) -> list[Claim]:
    """The members of a group, all of them on their nodes."""
    members = [claim(f"{name}{number}", group="ns/g", size=size) for number in range(size)]
    for one in members:
        one.state = RUNNING
        queue.follow(one)
    return members


class TestStrict:
    def test_nobody_passes_the_head(self) -> None:
        queue = Queue(strict=True)
        first, second = claim("first", 5), claim("second", 1)
        queue.add(first)
        queue.add(second)
        assert queue.next() == [first]
        queue.wait(first, ("x",), never=False)
        assert queue.next() is None
        queue.wake(["x"])
        assert queue.next() == [first]
        queue.admitted(first)
        assert queue.next() == [second]

    def test_a_hopeless_head_blocks_nobody(self) -> None:
        queue = Queue(strict=True)
        first, second = claim("first", 5), claim("second", 1)
        queue.add(first)
        queue.add(second)
        queue.next()
        queue.wait(first, (), never=True)
        assert queue.next() == [second]

    def test_an_incomplete_group_blocks_nobody(self) -> None:
        queue = Queue(strict=True)
        queue.add(claim("g1", 5, group="ns/g", size=2))
        second = claim("second", 1)
        queue.add(second)
        assert queue.next() == [second]


class TestGroups:
    def test_members_are_held_back_until_all_are_here(self) -> None:
        queue = Queue()
        queue.add(claim("m1", group="ns/g", size=2))
        assert queue.next() is None
        assert queue.missing("m1") == (1, 2)
        queue.add(claim("m2", group="ns/g", size=2))
        assert queue.missing("m1") is None
        claims = queue.next()
        assert claims is not None
        assert [c.uid for c in claims] == ["m1", "m2"]

    def test_a_group_is_as_urgent_as_its_most_urgent_member(self) -> None:
        queue = Queue()
        for one in (claim("m1", 0, group="ns/g", size=2), claim("m2", 9, group="ns/g", size=2), claim("x", 5)):
            queue.add(one)
        assert drained(queue) == ["m2+m1", "x"]

    def test_a_member_that_comes_back_joins_those_that_run(self) -> None:
        queue = Queue()
        first, second = claim("m1", group="ns/g", size=2), claim("m2", group="ns/g", size=2)
        queue.add(first)
        queue.add(second)
        queue.next()
        queue.admitted(first)
        queue.admitted(second)
        queue.remove("m2")
        again = claim("m2b", group="ns/g", size=2)
        queue.add(again)
        assert queue.next() == [again]

    def test_a_group_that_is_half_way_in_comes_first(self) -> None:
        """Whoever decided before meant all of it."""
        queue = Queue()
        for one in (claim("urgent", 9), claim("m1", group="ns/g", size=2), claim("m2", group="ns/g", size=2)):
            queue.add(one)
        queue.admitted(claim("m1", group="ns/g", size=2))
        assert drained(queue) == ["m2", "urgent"]

    def test_who_has_lost_all_others_of_its_group_is_no_more_urgent_than_it_was(self) -> None:
        queue = Queue()
        for one in (claim("urgent", 9), claim("m1", group="ns/g", size=1), claim("m2", group="ns/g", size=1)):
            queue.add(one)
        queue.admitted(claim("m1", group="ns/g", size=1))
        queue.remove("m1")
        assert drained(queue) == ["urgent", "m2"]

    def test_a_group_that_loses_a_member_waits_for_it(self) -> None:
        queue = Queue()
        for uid in ("m1", "m2"):
            queue.add(claim(uid, group="ns/g", size=2))
        queue.remove("m2")
        assert queue.next() is None
        assert queue.missing("m1") == (1, 2)

    def test_groups_of_other_names_are_other_groups(self) -> None:
        queue = Queue()
        queue.add(claim("m1", group="a/g", size=2))
        queue.add(claim("m2", group="b/g", size=2))
        assert queue.next() is None

    def test_a_member_joins_those_that_run_however_many_of_the_others_have_ended(self) -> None:
        queue = Queue()
        running(queue, "m", 3)
        queue.remove("m0")
        queue.remove("m1")
        again = claim("m1b", group="ns/g", size=3)
        queue.add(again)
        assert queue.next() == [again]
        assert queue.missing("m1b") is None

    @pytest.mark.parametrize(("leaving", "state"), [(True, RUNNING), (False, TERMINATING)])
    def test_who_is_about_to_go_is_no_member_any_more(self, leaving: bool, state: int) -> None:
        """The pods that come in place of a whole group start together, too."""
        queue = Queue()
        old = running(queue, "old", 2)
        for one in old:
            one.state, one.leaving = state, leaving
            queue.follow(one)
        queue.add(claim("new0", group="ns/g", size=2))
        assert queue.next() is None
        assert queue.missing("new0") == (1, 2)
        queue.add(claim("new1", group="ns/g", size=2))
        assert drained(queue) == ["new0+new1"]

    def test_who_stays_after_all_is_a_member_again(self) -> None:
        queue = Queue()
        old = claim("old", group="ns/g", size=2)
        old.state, old.leaving = RUNNING, True
        queue.follow(old)
        queue.add(claim("new", group="ns/g", size=2))
        assert queue.next() is None
        old.leaving = False
        queue.follow(old)
        assert drained(queue) == ["new"]

    def test_a_large_group_is_not_looked_through_for_each_of_its_members(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In one commit of thousands that would take longer than the lease lasts."""
        asked = 0

        def counted(one: Claim) -> gangs.Urgency:
            nonlocal asked
            asked += 1
            return urgency(one)

        monkeypatch.setattr(gangs, "urgency", counted)
        queue, size = Queue(), 500
        for number in range(size):
            queue.add(claim(f"m{number:03}", group="ns/g", size=size))
            assert (queue.missing("m000") is None) == (number == size - 1)
        members = queue.next()
        assert members is not None
        for one in members:
            queue.admitted(one)
        for one in members:
            queue.remove(one.uid)
        assert asked < 10 * size
        assert empty(queue)

    def test_the_urgency_of_a_group_follows_its_members(self) -> None:
        queue = Queue()
        first, second = claim("m1", 1, group="ns/g", size=1), claim("m2", 5, group="ns/g", size=1)
        queue.add(first)
        queue.add(second)
        queue.add(claim("x", 3))
        first.spec = ClaimSpec(priority=4, group="ns/g", group_size=2)
        queue.add(first)
        queue.remove("m2")
        assert queue.missing("m1") == (1, 2)
        queue.add(claim("m3", 0, group="ns/g", size=1))
        assert drained(queue) == ["m1+m3", "x"]

    def test_coming_back_for_ever_takes_no_more_room(self) -> None:
        queue = Queue()
        stays, comes = claim("m1", 9, group="ns/g", size=2), claim("m2", group="ns/g", size=2)
        queue.add(stays)
        for number in range(1000):
            comes.spec = ClaimSpec(priority=number % 7, group="ns/g", group_size=2)
            queue.add(comes)
        group = queue.group("ns/g")
        assert group is not None
        assert len(group._line) < 100

    def test_who_is_taken_back_by_a_policy_is_no_member_any_more(self) -> None:
        queue = Queue()
        old = running(queue, "old", 2)
        for one in old:
            queue.leaves(one.uid)
            queue.follow(one, revoked=True)
        queue.add(claim("new0", group="ns/g", size=2))
        assert queue.missing("new0") == (1, 2)

    @pytest.mark.parametrize(("owner", "missing"), [("Job/1", None), ("Job/2", (1, 3)), ("", (1, 3))])
    def test_who_has_finished_counts_for_others_of_the_same_controller(
        self, owner: str, missing: tuple[int, int] | None
    ) -> None:
        """And not for the next run of a group of that name."""
        queue = Queue()
        for uid in ("m1", "m2"):
            queue.finished(uid, "ns/g", "Job/1")
        queue.add(claim("m3", group="ns/g", size=3, owner=owner))
        assert queue.missing("m3") == missing
        queue.remove("m1")
        assert queue.missing("m3") == ((2, 3) if owner == "Job/1" else missing)
        queue.remove("m2")
        queue.remove("m3")
        assert empty(queue)

    def test_nobody_counts_who_finished_without_a_controller(self) -> None:
        queue = Queue()
        queue.finished("m1", "ns/g", "")
        queue.add(claim("m2", group="ns/g", size=2))
        assert queue.missing("m2") == (1, 2)

    def test_a_group_that_waits_for_a_member_hears_that_it_finished(self) -> None:
        queue = Queue()
        again = claim("m2b", group="ns/g", size=2, owner="Job/1")
        queue.add(again)
        assert queue.next() is None
        queue.finished("m1", "ns/g", "Job/1")
        assert queue.next() == [again]
