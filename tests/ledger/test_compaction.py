"""Snapshots of arbitrary ledgers: equal state, equal digest, and watchers that know the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.compaction import Summary
from bursar.ledger.replay import ReplayError
from bursar.ledger.transaction import Ledger, Snapshot, read_snapshot
from bursar.resources import from_amounts
from tests.ledger.world import POLICY, STEPS, Step, World

ONE = from_amounts({"cpu": 1})


@given(st.lists(st.lists(STEPS, max_size=15), max_size=6))
@settings(max_examples=150)
def test_a_snapshot_builds_the_same_state(transactions: list[list[Step]]) -> None:
    world, copy = World(), World()
    for steps in transactions:
        world.ledger.begin()
        world.run(steps)
        world.ledger.commit(1, ("step",))
    summary = Summary()
    list(summary.follow(world.ledger.journal.take()))
    if any(uid not in world.ledger.state.claims for uid in summary.provenance.charges):
        with pytest.raises(ReplayError, match="is gone, but still charged"):
            summary.snapshot([])
        return
    copy.ledger.restore(read_snapshot(summary.snapshot([]).text()))
    assert copy.ledger.digest == world.ledger.digest
    assert copy.ledger.version == world.ledger.version
    assert copy.ledger.journal.head == world.ledger.journal.head
    assert copy.snapshot() == world.snapshot()


def test_a_claim_bound_to_a_closed_account_stays_apart_from_its_successor() -> None:
    ledger = Ledger()
    tx = ledger.begin()
    old = tx.open_account(POLICY, "p/a0")
    early, late = Claim("early", ClaimSpec()), Claim("late", ClaimSpec())
    tx.add_claim(early)
    tx.set_bindings(early, (Binding(POLICY, (old,), (ONE,)),))
    tx.close_account(old)
    new = tx.open_account(POLICY, "p/a0", physical=True)
    tx.add_claim(late)
    binding = Binding(POLICY, (new,), (ONE,))
    tx.set_bindings(late, (binding,))
    tx.charge(late, binding.accounts, binding.costs)
    tx.vacate(late, binding.accounts, binding.costs)
    ledger.commit(0, ())
    summary = Summary()
    list(summary.follow(ledger.journal.take()))
    copy = Ledger()
    copy.restore(summary.snapshot([]))
    assert copy.state.plain() == ledger.state.plain()
    assert copy.digest == ledger.digest
    bound = copy.state.claims["early"].bindings[0]
    assert bound is not None
    assert bound.accounts[0] is not copy.state.accounts["p/a0"]


def test_a_snapshot_is_restored_in_a_new_ledger_only() -> None:
    ledger = Ledger()
    ledger.begin()
    ledger.commit(0, ())
    with pytest.raises(RuntimeError, match="only be restored in a new ledger"):
        ledger.restore(Snapshot(1, 0, "", 0, [], []))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'["bursar-snapshot",2,1,1,"","0",[]]', b'["bursar-snapshot",1,1,1,"","x",[]]', b"\xff"]
)
def test_what_is_no_snapshot(text: bytes) -> None:
    with pytest.raises(ReplayError, match="not a snapshot"):
        read_snapshot(text)


@pytest.mark.parametrize("line", [b"", b'[["dance"]]', b'[["cell","p","t","k",1]]', b"\xff", b'[["drop","u"]]'])
def test_lines_that_build_something_else(line: bytes) -> None:
    with pytest.raises(ReplayError, match=r"^snapshot: "):
        Ledger().restore(Snapshot(1, 0, "", 0, [], [line]))
