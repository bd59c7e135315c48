from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bursar.ledger.claims import BOUND, Binding, Claim, ClaimSpec
from bursar.ledger.state import Account
from bursar.ledger.transaction import Ledger, Transaction
from bursar.quantity import MAX_AMOUNT
from bursar.resources import Limits, Vector, from_amounts
from tests.ledger.world import COSTS, LIMITS, POLICY, SPECS, STEPS, Step, World, plain_of, rebuilt

CPU = from_amounts({"cpu": 3})


def furnished() -> World:
    """Claims, accounts and cells of every sort, committed."""
    world = World()
    tx = world.ledger.begin()
    for number in range(4):
        world.step(Step("open", 0, number, 0))
    for number in range(3):
        world.step(Step("add", number, number, number))
        world.step(Step("put", number, 0, 7))
    claim, accounts = world.ledger.state.claims["c1"], tuple(world.ledger.state.accounts.values())
    tx.charge(claim, accounts, (CPU,) * 4)
    tx.set_bindings(claim, (Binding(POLICY, accounts, (CPU,) * 4),))
    tx.set_state(claim, BOUND)
    tx.set_place(claim, "n1")
    tx.set_limits(accounts[0], LIMITS[1])
    world.ledger.commit(0, ())
    return world


Change = Callable[[Transaction, Claim, tuple[Account, ...]], object]


def close_first(tx: Transaction, claim: Claim, accounts: tuple[Account, ...]) -> None:
    tx.release(claim, accounts[:1], (CPU,))
    tx.close_account(accounts[0])


def put_one_then_true(tx: Transaction, _claim: Claim, _accounts: tuple[Account, ...]) -> None:
    tx.put(POLICY, "t0", "k", 1)
    tx.put(POLICY, "t0", "k", True)


CHANGES: dict[str, Change] = {
    "add_claim": lambda tx, _c, _a: tx.add_claim(Claim("new", SPECS[2], 7, "ns", "n")),
    "drop_claim": lambda tx, claim, _a: tx.drop_claim(claim),
    "set_state": lambda tx, claim, _a: tx.set_state(claim, 5),
    "set_bindings": lambda tx, claim, a: tx.set_bindings(claim, (None, Binding(POLICY, a[:1], (CPU,), ("x", 1)))),
    "set_place": lambda tx, claim, _a: tx.set_place(claim, "n2"),
    "set_leaving": lambda tx, claim, _a: tx.set_leaving(claim, True),
    "set_waits_for": lambda tx, claim, _a: tx.set_waits_for(claim, ("c0", "c2")),
    "set_spec": lambda tx, claim, _a: tx.set_spec(claim, SPECS[2]),
    "charge": lambda tx, claim, a: tx.charge(claim, a, tuple(COSTS)),
    "release": lambda tx, claim, a: tx.release(claim, a, (CPU,) * 4),
    "vacate": lambda tx, claim, a: tx.vacate(claim, a, (CPU,) * 4),
    "restore": lambda tx, claim, a: tx.restore(claim, a, (CPU,) * 4),
    "clear": lambda tx, claim, a: tx.clear(claim, a, (CPU,) * 4),
    "open_account": lambda tx, _c, _a: tx.open_account(POLICY, "p/a9", "topic", True),
    "close_account": close_first,
    "set_limits": lambda tx, _c, a: tx.set_limits(a[1], LIMITS[3]),
    "put": lambda tx, _c, _a: tx.put(POLICY, "t0", "k0", "other"),
    "put_new_table": lambda tx, _c, _a: tx.put(POLICY, "new table", "k", (1, 2)),
    "put_none": lambda tx, _c, _a: tx.put(POLICY, "t0", "k0", None),
    "put_one_then_true": put_one_then_true,
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_does_something_and_is_undone_exactly(name: str) -> None:
    world = furnished()
    before, digest = world.snapshot(), world.ledger.digest
    tx = world.ledger.begin()
    CHANGES[name](tx, world.ledger.state.claims["c1"], tuple(world.ledger.state.accounts.values()))
    assert world.snapshot() != before
    world.ledger.abort()
    assert (world.snapshot(), world.ledger.digest) == (before, digest)
    assert world.ledger.version == 1
    assert len(world.ledger.journal.records) == 1, "what was rolled back leaves no record"


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_moves_the_digest_to_that_of_the_new_state(name: str) -> None:
    world = furnished()
    digest = world.ledger.digest
    tx = world.ledger.begin()
    CHANGES[name](tx, world.ledger.state.claims["c1"], tuple(world.ledger.state.accounts.values()))
    assert world.ledger.digest == digest, "the digest is of what is committed"
    record = world.ledger.commit(5, ("test", name))
    assert world.ledger.digest != digest
    assert record.digest == world.ledger.digest
    if name != "open_account":  # an account that the world's numbers do not know
        assert world.ledger.digest == rebuilt(plain_of(world.ledger)).digest


UNDONE_AFTER_COMMIT = {"set_state", "set_bindings", "charge", "release", "vacate", "restore"} | {
    name for name in CHANGES if name.startswith("put")
}


@pytest.mark.parametrize("name", CHANGES)
def test_committed_changes_are_undone_exactly_or_refused(name: str) -> None:
    world = furnished()
    before, digest = world.snapshot(), world.ledger.digest
    tx = world.ledger.begin()
    CHANGES[name](tx, world.ledger.state.claims["c1"], tuple(world.ledger.state.accounts.values()))
    record = world.ledger.commit(5, ("test", name))
    world.ledger.begin()
    if name not in UNDONE_AFTER_COMMIT:
        with pytest.raises(ValueError, match="cannot be undone once it is committed"):
            tx.undo(record.changes)
        return
    tx.undo(record.changes)
    world.ledger.commit(6, ("undo", name))
    assert (world.snapshot(), world.ledger.digest) == (before, digest)


def refusals() -> dict[str, tuple[str, Change]]:
    stranger = Claim("stranger", SPECS[0])
    huge = from_amounts({"pods": MAX_AMOUNT})
    used = Claim("new", SPECS[0])
    used.state = BOUND
    unwritable = ClaimSpec(labels={"a": "\ud800"})
    closed = Account(POLICY, "p/closed")
    return {
        "duplicate claim": ("c1 exists already", lambda tx, _c, _a: tx.add_claim(Claim("c1", SPECS[0]))),
        "claim in use": ("must enter pending", lambda tx, _c, _a: tx.add_claim(used)),
        "unwritable spec": ("surrogates", lambda tx, _c, _a: tx.add_claim(Claim("new", unwritable))),
        "unwritable resize": ("surrogates", lambda tx, claim, _a: tx.set_spec(claim, unwritable)),
        "unknown claim dropped": ("not in the ledger", lambda tx, _c, _a: tx.drop_claim(stranger)),
        "namesake dropped": ("not in the ledger", lambda tx, _c, _a: tx.drop_claim(Claim("c1", SPECS[0]))),
        "duplicate account": ("p/a1 exists already", lambda tx, _c, _a: tx.open_account(POLICY, "p/a1")),
        "used account closed": ("p/a0 is still in use", lambda tx, _c, a: tx.close_account(a[0])),
        "unknown account closed": ("p/closed is not in", lambda tx, _c, _a: tx.close_account(closed)),
        "closed account charged": (
            "account p/closed is not in",
            lambda tx, claim, a: tx.charge(claim, (a[0], closed), (CPU, CPU)),
        ),
        "a cost too few": ("1 costs for 2 accounts", lambda tx, claim, a: tx.charge(claim, a[:2], (CPU,))),
        "overflow": (
            "sum of pods leaves",
            lambda tx, claim, a: tx.charge(claim, (*a, a[0], a[0]), (CPU, CPU, CPU, CPU, huge, huge)),
        ),
    }


@pytest.mark.parametrize("name", refusals())
def test_what_is_refused_leaves_no_trace(name: str) -> None:
    message, change = refusals()[name]
    world = furnished()
    before = world.snapshot()
    tx = world.ledger.begin()
    with pytest.raises((ValueError, OverflowError), match=message):
        change(tx, world.ledger.state.claims["c1"], tuple(world.ledger.state.accounts.values()))
    assert world.snapshot() == before
    assert tx.log == []


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1.5, (1, [2]), {1}, object()])
def test_cells_hold_plain_values_only(value: object) -> None:
    ledger = Ledger()
    with pytest.raises(TypeError, match=r"cell t/k: .* is not plain"):
        ledger.begin().put(POLICY, "t", "k", value)
    assert ledger.state.plain()["tables"] == {}


def test_an_overflow_of_what_is_busy_gives_back_what_was_used() -> None:
    world = furnished()
    claim, node = world.ledger.state.claims["c1"], world.ledger.state.accounts["p/a3"]
    half = from_amounts({"pods": MAX_AMOUNT})
    tx = world.ledger.begin()
    tx.charge(claim, (node,), (half,))
    tx.vacate(claim, (node,), (half,))
    before = world.snapshot()
    with pytest.raises(OverflowError):
        tx.charge(claim, (node,), (from_amounts({"pods": 1, "cpu": 1}),))
    assert world.snapshot() == before


def test_undo_walks_back_through_the_sums_that_were_there() -> None:
    ledger = Ledger()
    tx = ledger.begin()
    account = tx.open_account(POLICY, "p/a0")
    claim, most = Claim("c", SPECS[0]), from_amounts({"cpu": MAX_AMOUNT})
    tx.charge(claim, (account,), (most,))
    mark = tx.savepoint()
    tx.charge(claim, (account, account), (from_amounts({"cpu": -MAX_AMOUNT}), most))
    tx.rollback_to(mark)
    assert account.used.vector() == most


def test_used_and_busy_follow_a_claim_that_leaves() -> None:
    world = furnished()
    claim, accounts = world.ledger.state.claims["c1"], tuple(world.ledger.state.accounts.values())
    room, node = accounts[0], accounts[3]

    def sums() -> tuple[Vector, ...]:
        return room.used.vector(), node.used.vector(), node.busy.vector()

    none = CPU.minus(CPU)
    tx = world.ledger.begin()
    assert sums() == (CPU, CPU, CPU)
    tx.vacate(claim, accounts, (CPU,) * 4)
    assert sums() == (none, none, CPU)
    mark = tx.savepoint()
    tx.restore(claim, accounts, (CPU,) * 4)
    assert sums() == (CPU, CPU, CPU)
    tx.rollback_to(mark)
    tx.clear(claim, accounts, (CPU,) * 4)
    assert sums() == (none, none, none)
    assert not room.busy.vector(), "only physical accounts keep what is busy"


def test_setting_what_is_set_already_is_no_change() -> None:
    world = furnished()
    claim, account = world.ledger.state.claims["c1"], world.ledger.state.accounts["p/a0"]
    tx = world.ledger.begin()
    tx.set_state(claim, BOUND)
    tx.set_place(claim, "n1")
    tx.set_leaving(claim, False)
    tx.set_waits_for(claim, ())
    tx.set_spec(claim, claim.spec)
    tx.set_bindings(claim, claim.bindings)
    tx.set_limits(account, Limits({"cpu": 5}))
    tx.put(POLICY, "t0", "k0", (1, (True, "x", None)))
    tx.put(POLICY, "t0", "nothing", None)
    assert tx.log == []
    assert tx.get("t0", "k0") == (1, (True, "x", None))


def test_one_transaction_at_a_time() -> None:
    ledger = Ledger()
    with pytest.raises(RuntimeError, match="no transaction is open"):
        ledger.commit(0, ())
    ledger.begin()
    with pytest.raises(RuntimeError, match="open already"):
        ledger.begin()
    ledger.abort()
    ledger.begin()
    ledger.commit(0, ())
    assert ledger.version == 1


def test_a_record_names_the_accounts_it_touched_once() -> None:
    world = furnished()
    claim, accounts = world.ledger.state.claims["c1"], tuple(world.ledger.state.accounts.values())
    tx = world.ledger.begin()
    tx.put(POLICY, "t", "k", 1)
    tx.set_limits(accounts[2], LIMITS[2])
    tx.release(claim, accounts[1:3], (CPU, CPU))
    record = world.ledger.commit(0, ())
    assert [account.name for account in record.touched()] == ["p/a2", "p/a1"]


def test_moments_rise_with_the_log_and_with_every_record() -> None:
    ledger = Ledger()
    moments = []
    for number in range(3):
        tx = ledger.begin()
        moments.append(tx.moment())
        tx.put(POLICY, "t", "k", number)
        moments.append(tx.moment())
        ledger.commit(0, ())
    assert moments == sorted(set(moments))


def test_a_moment_comes_again_when_its_transaction_was_undone() -> None:
    ledger = Ledger()
    tx = ledger.begin()
    before = tx.moment()
    tx.put(POLICY, "t", "k", 1)
    tx.rollback_to(0)
    assert tx.moment() == before
    ledger.abort()
    assert ledger.begin().moment() == before


class Nesting(RuleBasedStateMachine):
    """Steps, savepoints at any point, undo to any of them, commits that a follower repeats from the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.follower = World()
        self.marks: list[tuple[int, tuple[str, str, str]]] = []
        self.committed = self.world.snapshot()
        self.world.ledger.begin()

    @rule(steps=st.lists(STEPS, min_size=1, max_size=6))
    def change(self, steps: list[Step]) -> None:
        self.world.run(steps)

    @rule()
    def mark(self) -> None:
        self.marks.append((self.world.ledger.tx.savepoint(), self.world.snapshot()))

    @precondition(lambda self: self.marks)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        depth = data.draw(st.integers(0, len(self.marks) - 1))
        position, before = self.marks[depth]
        del self.marks[depth + 1 :]
        self.world.ledger.tx.rollback_to(position)
        assert self.world.snapshot() == before

    @rule()
    def abort(self) -> None:
        self.world.ledger.abort()
        assert self.world.snapshot() == self.committed
        self._begin()

    @rule()
    def commit(self) -> None:
        ledger = self.world.ledger
        ledger.commit(1, ("machine",))
        assert ledger.digest == rebuilt(plain_of(ledger)).digest
        list(self.follower.ledger.replay(ledger.journal.take()))
        assert self.follower.snapshot() == self.world.snapshot()
        assert self.follower.ledger.digest == ledger.digest
        self._begin()

    def _begin(self) -> None:
        self.marks.clear()
        self.committed = self.world.snapshot()
        self.world.ledger.begin()

    @invariant()
    def the_index_is_what_the_sums_say(self) -> None:
        accounts = self.world.ledger.state.accounts
        sums = dict.fromkeys(accounts, 0)
        for (account, _, _), amount in self.world.index.counted.items():
            sums[account] = sums.get(account, 0) + amount
        used = {name: sum(amount for _, amount in account.used.vector().pairs()) for name, account in accounts.items()}
        assert {name: total for name, total in sums.items() if total} == {n: t for n, t in used.items() if t}
        mirrored = {
            (t, k): repr(v) for t, table in self.world.ledger.state.tables.items() for k, v in table.cells.items()
        }
        assert {key: repr(value) for key, value in self.world.index.cells.items()} == mirrored


TestNesting = Nesting.TestCase
TestNesting.settings = settings(max_examples=100, stateful_step_count=25)
