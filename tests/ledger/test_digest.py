from collections.abc import Callable, Iterator
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.state import Account
from bursar.ledger.transaction import Ledger, Transaction
from bursar.resources import Limits, from_amounts
from bursar.selectors import NodeNeeds
from tests.ledger.world import POLICY, STEPS, Step, World, plain_of, rebuilt

ONE = from_amounts({"cpu": 1})
TWO = from_amounts({"cpu": 2})


def digest_after(*writers: Callable[[Transaction], object], apart: bool = False) -> int:
    """The digest after the writers, in one transaction or each in one of its own."""
    ledger = Ledger()
    for writer in writers:
        writer(ledger.tx if ledger.opened else ledger.begin())
        if apart:
            ledger.commit(0, ())
    if not apart:
        ledger.commit(0, ())
    return ledger.digest


@given(st.lists(st.lists(STEPS, max_size=15), max_size=4))
@settings(max_examples=150)
def test_the_digest_depends_on_the_state_and_not_on_the_way(transactions: list[list[Step]]) -> None:
    world = World()
    for steps in transactions:
        world.ledger.begin()
        world.run(steps)
        world.ledger.commit(0, ())
    assert world.ledger.digest == rebuilt(plain_of(world.ledger)).digest


@given(st.lists(STEPS, max_size=20), st.lists(STEPS, max_size=4), st.lists(STEPS, max_size=4))
@settings(max_examples=200)
def test_digests_are_equal_exactly_when_states_are(common: list[Step], left: list[Step], right: list[Step]) -> None:
    worlds = World(), World()
    for world, steps in zip(worlds, (left, right), strict=True):
        world.ledger.begin()
        world.run(common + steps)
        world.ledger.commit(0, ())
    same = worlds[0].snapshot()[0] == worlds[1].snapshot()[0]
    assert (worlds[0].ledger.digest == worlds[1].ledger.digest) is same


def test_independent_changes_commute() -> None:
    writers: list[Callable[[Transaction], object]] = [
        lambda tx: tx.add_claim(Claim("a", ClaimSpec())),
        lambda tx: tx.add_claim(Claim("b", ClaimSpec(priority=1))),
        lambda tx: tx.set_limits(tx.open_account(POLICY, "p/x"), Limits({"cpu": 1})),
        lambda tx: tx.put(POLICY, "t", "k", 1),
    ]
    ways = {digest_after(*order, apart=apart) for order in permutations(writers) for apart in (False, True)}
    assert len(ways) == 1


def there_and_back() -> dict[str, Callable[[Transaction, Claim, Account], None]]:
    def leave(tx: Transaction, claim: Claim, account: Account) -> None:
        tx.charge(claim, (account,), (TWO,))
        tx.vacate(claim, (account,), (TWO,))
        tx.clear(claim, (account,), (TWO,))

    def go(tx: Transaction, claim: Claim, account: Account) -> None:
        tx.charge(claim, (account, account), (ONE, ONE))
        tx.release(claim, (account,), (TWO,))

    def live(tx: Transaction, _claim: Claim, account: Account) -> None:
        other = Claim("other", ClaimSpec(priority=5), 3)
        tx.add_claim(other)
        tx.set_bindings(other, (Binding(POLICY, (account,), (ONE,)),))
        tx.set_place(other, "n1")
        tx.set_state(other, 4)
        tx.set_leaving(other, True)
        tx.set_waits_for(other, ("a",))
        tx.set_spec(other, ClaimSpec(priority=6))
        tx.drop_claim(other)

    def reopen(tx: Transaction, _claim: Claim, account: Account) -> None:
        limits = account.limits
        tx.close_account(account)
        tx.set_limits(tx.open_account(account.policy, account.name, account.topic, account.physical), limits)

    def cells(tx: Transaction, _claim: Claim, _account: Account) -> None:
        for value in (1, True, "x", (1, 2), None):
            tx.put(POLICY, "t", "k", value)

    return {"leave": leave, "go": go, "live": live, "reopen": reopen, "cells": cells}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", there_and_back())
def test_there_and_back_is_as_if_nothing_happened(name: str, apart: bool) -> None:
    ledger = Ledger()
    tx = ledger.begin()
    claim = Claim("a", ClaimSpec())
    tx.add_claim(claim)
    account = tx.open_account(POLICY, "p/x", "topic", physical=True)
    tx.set_limits(account, Limits({"cpu": 4}))
    expected = digest_after(
        lambda tx: tx.add_claim(Claim("a", ClaimSpec())),
        lambda tx: tx.set_limits(tx.open_account(POLICY, "p/x", "topic", True), Limits({"cpu": 4})),
    )
    if apart:
        ledger.commit(0, ())
        assert ledger.digest == expected
        ledger.begin()
    there_and_back()[name](tx, claim, account)
    ledger.commit(0, ())
    assert ledger.digest == expected


def variants() -> Iterator[tuple[str, Callable[[Transaction], object]]]:
    """States that differ in one thing from each other, and from nothing at all."""
    claims = {
        "claim": Claim("u", ClaimSpec(), 1, "ns", "n"),
        "uid": Claim("v", ClaimSpec(), 1, "ns", "n"),
        "namespace": Claim("u", ClaimSpec(), 1, "ms", "n"),
        "name": Claim("u", ClaimSpec(), 1, "ns", "m"),
        "boundary": Claim("un", ClaimSpec(), 1, "s", "n"),
        "created": Claim("u", ClaimSpec(), 2, "ns", "n"),
        "no time": Claim("u", ClaimSpec(), 0, "ns", "n"),
    }
    specs = {
        "requests": ClaimSpec(requests=ONE),
        "limits": ClaimSpec(limits=ONE),
        "labels": ClaimSpec(labels={"a": "b"}),
        "annotations": ClaimSpec(annotations={"a": "b"}),
        "priority": ClaimSpec(priority=1),
        "preemptible": ClaimSpec(preemptible=False),
        "preempts": ClaimSpec(preempts=False),
        "placeable": ClaimSpec(placeable=False),
        "owner": ClaimSpec(owner="o"),
        "group": ClaimSpec(group="o"),
        "group size": ClaimSpec(group_size=1),
        "needs": ClaimSpec(needs=NodeNeeds({}, terms=())),
        "details": ClaimSpec(details={"a": 1}),
        "details as text": ClaimSpec(details={"a": "1"}),
    }
    claims |= {name: Claim("u", spec, 1, "ns", "n") for name, spec in specs.items()}
    for name, claim in claims.items():
        yield name, lambda tx, claim=claim: tx.add_claim(claim)  # type: ignore[misc]


def statuses() -> Iterator[tuple[str, Callable[[Transaction, Claim], object]]]:
    account, other = Account(POLICY, "p/x"), Account(POLICY, "p/y")
    yield "state 1", lambda tx, claim: tx.set_state(claim, 1)
    yield "state 2", lambda tx, claim: tx.set_state(claim, 2)
    yield "place", lambda tx, claim: tx.set_place(claim, "n1")
    yield "other place", lambda tx, claim: tx.set_place(claim, "n2")
    yield "leaving", lambda tx, claim: tx.set_leaving(claim, True)
    yield "waits", lambda tx, claim: tx.set_waits_for(claim, ("a", "b"))
    yield "waits for others", lambda tx, claim: tx.set_waits_for(claim, ("b", "a"))
    yield "waits for one", lambda tx, claim: tx.set_waits_for(claim, ("a, b",))
    bindings = {
        "binding": (Binding(POLICY, (account,), (ONE,)),),
        "second": (None, Binding(POLICY, (account,), (ONE,))),
        "both": (Binding(POLICY, (account,), (ONE,)), Binding(POLICY, (account,), (ONE,))),
        "cost": (Binding(POLICY, (account,), (TWO,)),),
        "policy": (Binding("q", (account,), (ONE,)),),
        "account": (Binding(POLICY, (other,), (ONE,)),),
        "order": (Binding(POLICY, (other, account), (ONE, TWO)),),
        "other order": (Binding(POLICY, (account, other), (ONE, TWO)),),
        "data": (Binding(POLICY, (account,), (ONE,), (1,)),),
        "other data": (Binding(POLICY, (account,), (ONE,), (True,)),),
        "a vector as data": (Binding(POLICY, (account,), (ONE,), (ONE,)),),
    }
    for name, made in bindings.items():
        yield name, lambda tx, claim, made=made: tx.set_bindings(claim, made)  # type: ignore[misc]


def test_whatever_differs_in_a_claim_differs_in_the_digest() -> None:
    digests = {name: digest_after(writer) for name, writer in variants()}
    for name, status in statuses():
        claim = Claim("u", ClaimSpec(), 1, "ns", "n")

        def write(tx: Transaction, status: Callable[[Transaction, Claim], object] = status, c: Claim = claim) -> None:
            tx.add_claim(c)
            status(tx, c)

        digests[name] = digest_after(write)
    digests["nothing"] = digest_after(lambda tx: tx)
    assert len(set(digests.values())) == len(digests)


def test_whatever_differs_in_accounts_and_cells_differs_in_the_digest() -> None:
    claim = Claim("u", ClaimSpec())

    def account(
        *charges: tuple[str, int], policy: str = POLICY, topic: str = "", physical: bool = True, limits: object = None
    ) -> Callable[[Transaction], object]:
        def write(tx: Transaction) -> None:
            made = tx.open_account(policy, "p/x", topic, physical)
            if isinstance(limits, Limits):
                tx.set_limits(made, limits)
            for verb, amount in charges:
                getattr(tx, verb)(claim, (made,), (from_amounts({"cpu": amount}),))

        return write

    writers: list[Callable[[Transaction], object]] = [
        lambda tx: tx,
        account(),
        account(policy="q"),
        account(topic="t"),
        account(physical=False),
        account(limits=Limits({"cpu": 1})),
        account(limits=Limits({"cpu": 1}, stock=True)),
        account(limits=Limits({"cpu": 0})),
        account(limits=Limits({}, stock=True)),
        account(("charge", 1)),
        account(("charge", 2)),
        account(("charge", 3)),  # used 3 and busy 3, as against used 0 and busy 4 below
        account(("charge", 4), ("vacate", 4)),
        account(("charge", 4), ("vacate", 1)),
        account(("charge", 1), physical=False),
        lambda tx: tx.put(POLICY, "t", "k", 1),
        lambda tx: tx.put(POLICY, "t", "k", True),
        lambda tx: tx.put(POLICY, "t", "k", "1"),
        lambda tx: tx.put(POLICY, "t", "k", (1,)),
        lambda tx: tx.put(POLICY, "t", "kk", 1),
        lambda tx: tx.put(POLICY, "tk", "k", 1),
    ]
    digests = [digest_after(writer) for writer in writers]
    assert len(set(digests)) == len(digests)


def test_neighbours_do_not_add_up() -> None:
    """n1 + n3 is not n2 + n2, and four claims that change roles pairwise are another state."""

    def usage(*numbers: int) -> int:
        def write(tx: Transaction) -> None:
            accounts = [tx.open_account(POLICY, f"p/n{i}") for i in range(4)]
            for number in numbers:
                tx.charge(Claim("u", ClaimSpec()), (accounts[number],), (ONE,))

        return digest_after(write)

    def states(*running: int) -> int:
        def write(tx: Transaction) -> None:
            for number in range(4):
                claim = Claim(f"p{number}", ClaimSpec())
                tx.add_claim(claim)
                tx.set_state(claim, 4 if number in running else 2)

        return digest_after(write)

    assert usage(1, 3) != usage(2, 2)
    assert usage(0, 3) != usage(1, 2)
    assert states(0, 3) != states(1, 2)


def test_the_order_of_labels_does_not_count() -> None:
    one, other = ClaimSpec(labels={"a": "1", "b": "2"}), ClaimSpec(labels={"b": "2", "a": "1"})
    assert one.mark == other.mark


def test_a_claim_that_is_resized_in_the_transaction_that_adds_it_counts_once() -> None:
    def resized(tx: Transaction) -> None:
        claim = Claim("u", ClaimSpec())
        tx.add_claim(claim)
        tx.set_spec(claim, ClaimSpec(priority=9))

    assert digest_after(resized) == digest_after(lambda tx: tx.add_claim(Claim("u", ClaimSpec(priority=9))))
