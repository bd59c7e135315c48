from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.ledger.claims import Binding, Claim, ClaimSpec, spec_from_record
from bursar.ledger.journal import FORMAT, GENESIS, Journal, Recordable, chain
from bursar.ledger.replay import ReplayError
from bursar.ledger.state import Account
from bursar.ledger.transaction import Ledger
from bursar.resources import Limits, from_amounts
from tests.ledger.world import POLICY, SPECS, STEPS, Step, World, plain_of

ONE = from_amounts({"cpu": 1})


class Verdict(Recordable):
    def record(self) -> list[object]:
        return ["admitted", 7]


def written() -> list[bytes]:
    """Four lines: an account, a claim, its charge, its end."""
    ledger = Ledger()
    tx = ledger.begin()
    account = tx.open_account(POLICY, "p/a0", "topic", True)
    tx.set_limits(account, Limits({"cpu": 5}, stock=True))
    ledger.commit(10, ("configure", "p/a0"))
    ledger.begin()
    claim = Claim("u", ClaimSpec(labels={"k": ',"x"]'}), 9, "ns", "n")
    tx.add_claim(claim)
    ledger.commit(11, ("submit", "u"))
    ledger.begin()
    tx.charge(claim, (account,), (ONE,))
    tx.set_bindings(claim, (None, Binding(POLICY, (account,), (ONE,), ("d", (1, 2)))))
    tx.set_state(claim, 2)
    ledger.commit(12, ("decide", "u"))
    ledger.begin()
    tx.release(claim, (account,), (ONE,))
    tx.drop_claim(claim)
    ledger.commit(13, ("release", "u"))
    return ledger.journal.take()


def sealed(fields: list[object], head: str = GENESIS) -> bytes:
    body = msgspec.json.encode(fields)
    return body[:-1] + b',"' + chain(head, body).encode() + b'"]'


def forged(effects: object, digest: str = "0", seq: int = 1) -> bytes:
    """A line whose chain is right, whatever it says."""
    return sealed([FORMAT, seq, 0, "0", [], None, effects, digest])


@given(st.lists(st.tuples(st.lists(STEPS, max_size=12), st.booleans()), max_size=6), st.integers(0, 6))
@settings(max_examples=150)
def test_a_replay_gives_the_same_state_in_one_go_or_in_pieces(
    transactions: list[tuple[list[Step], bool]], cut: int
) -> None:
    world, whole, pieces = World(), World(), World()
    lines: list[bytes] = []
    for steps, kept in transactions:
        world.ledger.begin()
        world.run(steps)
        if kept:
            world.ledger.commit(len(lines), ("step", len(lines)))
        else:
            world.ledger.abort()
        if len(lines) % 2:  # sealing now or later makes no difference
            lines += world.ledger.journal.take()
    lines += world.ledger.journal.take()
    assert len(lines) == sum(kept for _, kept in transactions)
    replayed = list(whole.ledger.replay(lines))
    list(pieces.ledger.replay(lines[:cut]))
    list(pieces.ledger.replay(lines[cut:]))
    assert [line.seq for line in replayed] == list(range(1, len(lines) + 1))
    for copy in (whole, pieces):
        assert copy.snapshot() == world.snapshot()
        assert copy.ledger.digest == world.ledger.digest
        assert copy.ledger.version == world.ledger.version
        assert copy.ledger.journal.head == world.ledger.journal.head


def test_a_replayed_ledger_goes_on_writing_the_same_journal() -> None:
    lines = written()
    ledger = Ledger()
    list(ledger.replay(lines))
    tx = ledger.begin()
    tx.put(POLICY, "t", "k", 1)
    ledger.commit(14, ("more",))
    follower = Ledger()
    list(follower.replay(lines + ledger.journal.take()))
    assert follower.state.plain() == ledger.state.plain()


def test_a_line_tells_cause_time_and_decision() -> None:
    ledger = Ledger()
    ledger.begin()
    ledger.commit(99, ("decide", "u"), Verdict())
    (line,) = Ledger().replay(ledger.journal.take())
    assert (line.seq, line.at, line.cause, line.decision, line.effects) == (
        1,
        99,
        ["decide", "u"],
        ["admitted", 7],
        [],
    )


def test_a_record_tells_what_was_although_the_claim_changed_before_it_was_written() -> None:
    ledger = Ledger()
    tx = ledger.begin()
    claim = Claim("u", SPECS[1])
    tx.add_claim(claim)
    ledger.commit(0, ())
    ledger.begin()
    tx.set_spec(claim, SPECS[2])
    ledger.commit(0, ())
    first, second = (line.effects for line in Ledger().replay(ledger.journal.take()))
    assert first[0][5] == msgspec.to_builtins(SPECS[1].record())
    assert second[0][3] == msgspec.json.decode(msgspec.json.encode(SPECS[2].record()))


def test_a_claim_is_named_once_while_effects_are_about_it() -> None:
    effects = [[effect[:2] for effect in line.effects] for line in Ledger().replay(written())]
    assert effects[2:] == [
        [["charge", "u"], ["bind", ""], ["state", ""]],
        [["charge", "u"], ["drop", ""]],
    ]


def test_a_claim_that_comes_after_one_of_its_uid_was_dropped_is_named() -> None:
    ledger = Ledger()
    tx = ledger.begin()
    for created in (1, 2):
        claim = Claim("u", ClaimSpec(), created)
        tx.add_claim(claim)
        tx.set_place(claim, "n")
        tx.drop_claim(claim)
    ledger.commit(0, ())
    (line,) = Ledger().replay(ledger.journal.take())
    assert [effect[1] for effect in line.effects] == ["u", "", "", "u", "", ""]


def test_a_charge_that_follows_a_binding_of_its_claim_names_it() -> None:
    ledger = Ledger()
    tx = ledger.begin()
    account = tx.open_account(POLICY, "p/a0")
    claim = Claim("u", ClaimSpec())
    binding = Binding(POLICY, (account, account), (ONE, ONE))
    tx.add_claim(claim)
    tx.set_bindings(claim, (None, binding))
    tx.charge(claim, binding.accounts, binding.costs)
    tx.charge(claim, (account, account), (ONE, ONE))
    ledger.commit(0, ())
    follower = Ledger()
    (line,) = follower.replay(ledger.journal.take())
    assert line.effects[2:] == [
        ["bind", "", [None, [POLICY, ["p/a0", "p/a0"], [{"cpu": 1}], []]]],
        ["bound", "", 0, 1],
        ["charge", "", 0, ["p/a0", "p/a0"], [{"cpu": 1}]],
    ]
    assert follower.state.plain() == ledger.state.plain()
    assert plain_of(follower)["accounts"][0]["used"] == [("cpu", 4)]


def test_a_replay_shares_what_is_written_alike() -> None:
    ledger = Ledger()
    tx = ledger.begin()
    account = tx.open_account(POLICY, "p/a0")
    for uid in ("u", "v"):
        claim = Claim(uid, ClaimSpec(labels={"a": "b"}), 0, "ns")
        tx.add_claim(claim)
        tx.set_place(claim, "n1")
        tx.set_bindings(claim, (Binding(POLICY, (account,), (from_amounts({"cpu": 2}),), (uid,)[:0]),))
    ledger.commit(0, ())
    follower = Ledger()
    list(follower.replay(ledger.journal.take()))
    one, other = (follower.state.claims[uid] for uid in ("u", "v"))
    assert one.spec is other.spec
    assert one.bindings[0] is other.bindings[0]
    assert one.namespace is other.namespace
    assert one.place is other.place


def test_an_account_that_was_closed_and_opened_again_is_another_one() -> None:
    ledger = Ledger()
    tx = ledger.begin()
    claim = Claim("u", ClaimSpec())
    tx.add_claim(claim)
    old = tx.open_account(POLICY, "p/a0")
    tx.charge(claim, (old,), (ONE,))
    tx.release(claim, (old,), (ONE,))
    tx.close_account(old)
    ledger.commit(0, ())
    ledger.begin()
    new = tx.open_account(POLICY, "p/a0")
    with pytest.raises(ValueError, match="not in the ledger"):
        tx.charge(claim, (old,), (ONE,))
    tx.charge(claim, (new,), (ONE,))
    ledger.commit(0, ())
    assert not old.used.vector()
    follower = Ledger()
    list(follower.replay(ledger.journal.take()))
    assert plain_of(follower)["accounts"][0]["used"] == [("cpu", 1)]
    assert follower.digest == ledger.digest


DAMAGE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "altered": (lambda lines: [*lines[:2], lines[2].replace(b'"cpu":1', b'"cpu":2', 1), lines[3]], 3),
    "altered hash": (lambda lines: [*lines[:3], lines[3][:-3] + b'0"]'], 4),
    "altered label": (lambda lines: [lines[0], lines[1].replace(b"x", b"y"), *lines[2:]], 2),
    "altered time": (lambda lines: [lines[0].replace(b"[1,1,10,", b"[1,1,11,"), *lines[1:]], 1),
    "dropped": (lambda lines: [lines[0], *lines[2:]], 2),
    "dropped at the start": (lambda lines: lines[1:], 1),
    "repeated": (lambda lines: [lines[0], *lines], 2),
    "reordered": (lambda lines: [lines[0], lines[2], lines[1], lines[3]], 2),
    "truncated": (lambda lines: [*lines[:3], lines[3][:40]], 4),
    "truncated by one": (lambda lines: [*lines[:3], lines[3][:-1]], 4),
    "empty": (lambda lines: [lines[0], b"", *lines[1:]], 2),
    "no text": (lambda lines: [lines[0], b'["\xff"]', *lines[1:]], 2),
    "too deep": (lambda lines: [lines[0], b"[" * 100_000, *lines[1:]], 2),
    "no list": (lambda lines: [lines[0], b'{"a":1}', *lines[1:]], 2),
    "an empty list": (lambda lines: [lines[0], b"[]", *lines[1:]], 2),
    "fields missing": (lambda lines: [lines[0], b'[1,2,0,"h"]', *lines[1:]], 2),
    "numbers for all": (lambda lines: [lines[0], b"[1,2,3,4,5,6,7,8,9]", *lines[1:]], 2),
    "digest no number": (lambda lines: [lines[0], b'[1,2,0,"",[],null,[],"x","h"]', *lines[1:]], 2),
    "newer format": (lambda lines: [*lines[:2], lines[2].replace(b"[1,", b"[3,", 1), lines[3]], 3),
    "newer format of another shape": (lambda lines: [*lines[:2], b'[3,{"seq":3}]', lines[3]], 3),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused_with_the_number_of_the_line(name: str) -> None:
    damage, number = DAMAGE[name]
    lines = written()
    ledger = Ledger()
    with pytest.raises(ReplayError, match=f"^journal line {number}: ") as caught:
        list(ledger.replay(damage(lines)))
    assert ("format 3 is not known here (this is format 2)" in str(caught.value)) == name.startswith("newer")
    good = Ledger()
    list(good.replay(lines[: number - 1]))
    assert ledger.version == number - 1
    assert ledger.state.plain() == good.state.plain(), "what was proven before it stays"
    assert ledger.digest == good.digest


@pytest.mark.parametrize(
    ("effects", "problem"),
    [
        ([["dance"]], "effect 'dance' is not known here"),
        ([["drop", "nobody"]], "nobody"),
        ([["charge", "nobody", 0, ["p/x"], [{"cpu": 1}]]], "p/x|nobody"),
        ([["open", "p", "p/x", "", False], ["open", "p", "p/x", "", False]], "p/x exists already"),
        ([["open", "p", "p/x", "", False], ["limits", "p/x", {"cpu": 2**64}, False]], "range|large"),
        ([["claim", "u", "", "", 0, {}], ["charge", "u", 5, [], []]], "mode 5 is not known here"),
        ([["cell", "p", "t", "k", 1]], "the state after it is not the recorded one"),
        ([["cell", "p", "t", "k", 1], ["cell", "p", "t", "k", {"a": 1}]], "is not plain"),
        ([["drop", ""]], "an effect names no claim"),
        ([["claim", "u", "", "", 0, {}], ["drop", ""], ["state", "", 3]], "an effect names no claim"),
        ([["open", "p"]], "length 5, got 2"),
        ([[]], "not a record"),
        ([[7]], "effect 7 is not known here"),
        (["text"], "Expected `array`"),
        ([["drop", "u", "v"]], "length"),
        ([["claim", "u", "", "", 0, []]], "is not a dict|has no attribute|dict object expected"),
        ([["claim", "u", "", "", 0, {}], ["charge", "u", 0, [], [{"cpu": 1.5}]]], "Expected `int`"),
        ([["claim", "u", "", "", 0, {}], ["bound", "u", 0, 0]], "claim u has no binding 0"),
        ([["claim", "u", "", "", 0, {}], ["bound", "u", 7, -1]], "claim u has no binding -1"),
        ([["claim", "u", "", "", 0, {}], ["field", "u", 99, 1]], "no field 99"),
        ([["claim", "u", "", "", 0, {}], ["field", "u", 1, 7]], "does not go into field 1"),
    ],
)
def test_a_line_that_cannot_be_repeated_changes_nothing(effects: object, problem: str) -> None:
    world = World()
    before = world.snapshot()
    with pytest.raises(ReplayError, match=f"^journal line 1: .*({problem})"):
        list(world.ledger.replay([forged(effects)]))
    assert (world.snapshot(), world.ledger.digest, world.ledger.version) == (before, 0, 0)
    assert world.ledger.journal.head == GENESIS


def test_a_ledger_with_work_in_hand_replays_nothing() -> None:
    lines = written()
    ledger = Ledger()
    ledger.begin()
    with pytest.raises(RuntimeError, match="in hand"):
        list(ledger.replay(lines))
    ledger.commit(0, ())
    with pytest.raises(RuntimeError, match="in hand"):
        list(ledger.replay(lines))


def test_a_record_that_cannot_be_written_costs_no_other() -> None:
    ledger = Ledger()
    ledger.begin()
    ledger.commit(0, ("good",))
    ledger.begin()
    ledger.commit(0, (object(),))
    for _ in range(2):
        with pytest.raises(TypeError):
            ledger.journal.take()
    assert (ledger.journal.head, ledger.journal.sealed_to) == (GENESIS, 0)
    assert len(ledger.journal.records) == 2


def test_a_decision_without_a_plain_form_is_an_error() -> None:
    ledger = Ledger()
    ledger.begin()
    ledger.commit(0, (), object())
    with pytest.raises((TypeError, AttributeError)):
        ledger.journal.take()


def test_a_journal_may_continue_another_one() -> None:
    lines = written()
    first = Ledger()
    list(first.replay(lines[:2]))
    second = Journal(first.journal.head, first.journal.sealed_to)
    assert (second.head, second.sealed_to) == (first.journal.head, 2)


@pytest.mark.parametrize("spec", SPECS)
def test_specs_come_back_from_their_record(spec: ClaimSpec) -> None:
    written = msgspec.json.decode(msgspec.json.encode(spec.record()))
    copy = spec_from_record(written)
    assert copy.record() == written
    assert copy.mark == spec.mark


def test_a_claim_needs_a_uid_and_takes_it_for_a_name() -> None:
    with pytest.raises(ValueError, match="needs a uid"):
        Claim("", ClaimSpec())
    assert Claim("u", ClaimSpec()).key == "u"
    assert repr(Claim("u", ClaimSpec())) == "Claim(u, pending)"


@pytest.mark.parametrize(
    ("state", "leaving", "counts"),
    [(0, False, False), (1, False, True), (2, False, True), (5, False, True), (6, False, False), (4, True, False)],
)
def test_a_claim_counts_while_it_holds_a_place_for_itself(state: int, leaving: bool, counts: bool) -> None:
    claim = Claim("u", ClaimSpec())
    claim.state, claim.leaving = state, leaving
    assert claim.counts() is counts


def test_accounts_answer_what_is_missing() -> None:
    account = Account(POLICY, "p/a")
    assert account.topic == "p/a"
    account.limits = Limits({"cpu": 2})
    account.used.add(ONE)
    assert account.short_dimension(ONE) == -1
    assert account.short_dimension(from_amounts({"cpu": 5})) >= 0
    assert account.missing(from_amounts({"cpu": 5, "pods": 1})).pairs() == [("cpu", 4)]
    assert repr(account) == "Account(p/a, used {'cpu': '1m'}, limits {'cpu': '2m'})"
