"""A small world of claims, accounts and cells for ledger tests, driven by random steps.

A step that cannot be done is refused by the ledger, and ``World.step`` holds it to having changed nothing.
``rebuilt`` makes another ledger of the same state by other ways, to compare digests with.
"""

from typing import Any, NamedTuple, cast

from hypothesis import strategies as st

from bursar.ledger.claims import Binding, Claim, ClaimSpec, ContainerSpec, spec_from_record
from bursar.ledger.replay import frozen
from bursar.ledger.state import Account, Watcher
from bursar.ledger.transaction import Ledger, Transaction
from bursar.quantity import MAX_AMOUNT
from bursar.resources import EMPTY, NO_LIMITS, Limits, Vector, from_amounts
from bursar.selectors import NodeNeeds, Requirement, Toleration

POLICY = "p"
COSTS = [from_amounts({"cpu": 3}), from_amounts({"cpu": 1, "memory": 7}), from_amounts({"pods": -2}), EMPTY]
LIMITS = [NO_LIMITS, Limits({"cpu": 5}), Limits({"cpu": 0, "pods": 9}), Limits({"cpu": 5}, stock=True)]
SPECS = [
    ClaimSpec(),
    ClaimSpec(requests=COSTS[0], priority=-3, labels={"b": "\u00e9\U0001fae8", "a": "1"}, preempts=False),
    ClaimSpec(
        limits=COSTS[1],
        containers=(ContainerSpec("main", COSTS[0], COSTS[1]), ContainerSpec("side", COSTS[0], EMPTY, "sidecar")),
        annotations={"x": "y"},
        preemptible=False,
        owner="job/1",
        group="g",
        group_size=2,
        needs=NodeNeeds({"zone": "a"}, (), (Toleration("", "Exists", "", ""),), (("TCP", "", 80),), "n1"),
        details={"trees": {"request": [1, {"z": 1, "a": None}]}},
        placeable=False,
    ),
    ClaimSpec(labels={"a": Requirement("a", "Exists").show()}),
]
VALUES: list[object] = [None, True, 1, 0, False, "1", "", (1, (True, "x", None)), (), 2**70, "\u00e9"]


class Step(NamedTuple):
    verb: str
    claim: int
    account: int
    pick: int


VERBS = (
    "add",
    "drop",
    "state",
    "place",
    "leaving",
    "waits",
    "spec",
    "bind",
    "charge",
    "open",
    "close",
    "limits",
    "put",
)
STEPS = st.builds(
    Step,
    st.sampled_from([*VERBS, "add", "open", "charge", "charge"]),
    st.integers(0, 2),
    st.integers(0, 3),
    st.integers(0, 10),
)


class Index(Watcher):
    """What a policy would derive: who is counted where, and a mirror of its cells."""

    def __init__(self) -> None:
        self.counted: dict[tuple[str, str, str], int] = {}
        self.cells: dict[tuple[str, str], object] = {}

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        for name, amount in cost.pairs():
            key = (account.name, claim.uid, name)
            self.counted[key] = self.counted.get(key, 0) + sign * amount
            if not self.counted[key]:
                del self.counted[key]

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        assert repr(self.cells.pop((table, key), None)) == repr(old)
        if new is not None:
            self.cells[table, key] = new


def account_name(number: int) -> str:
    return f"{POLICY}/a{number}"


def open_account(tx: Transaction, name: str) -> Account:
    """Everything about an account of this world follows from its number."""
    number = int(name[-1])
    return tx.open_account(POLICY, name, "p/shared" if number % 2 else "", physical=number >= 2)


class World:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self.index = Index()
        self.ledger.watch(POLICY, self.index)

    def snapshot(self) -> tuple[str, str, str]:
        """As text, because True == 1; with the order of nothing but what has one."""
        state = self.ledger.state.plain()
        opened = sorted(name for name, account in self.ledger.state.accounts.items() if account.opened)
        return repr((state, opened)), repr(sorted(self.index.counted.items())), repr(sorted(self.index.cells.items()))

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        before = self.snapshot()
        position = self.ledger.tx.savepoint()
        try:
            self._do(step)
        except (ValueError, OverflowError):
            assert self.snapshot() == before
            assert self.ledger.tx.savepoint() == position

    def _do(self, step: Step) -> None:
        tx, state = self.ledger.tx, self.ledger.state
        claim = state.claims.get(f"c{step.claim}")
        account = state.accounts.get(account_name(step.account))
        if step.verb == "put":
            tx.put(POLICY, f"t{step.claim}", f"k{step.account}", VALUES[step.pick])
        elif step.verb == "add":
            spec = SPECS[step.pick % len(SPECS)]
            tx.add_claim(Claim(f"c{step.claim}", spec, step.account, f"ns{step.account % 2}", "n"))
        elif step.verb == "open":
            open_account(tx, account_name(step.account))
        elif account is not None and step.verb == "close":
            tx.close_account(account)
        elif account is not None and step.verb == "limits":
            tx.set_limits(account, LIMITS[step.pick % len(LIMITS)])
        elif claim is not None:
            self._do_claim(tx, claim, step)

    def _do_claim(self, tx: Transaction, claim: Claim, step: Step) -> None:
        pick = step.pick
        if step.verb == "drop":
            tx.drop_claim(claim)
        elif step.verb == "state":
            tx.set_state(claim, pick % 7)
        elif step.verb == "place":
            tx.set_place(claim, f"n{pick}" if pick else "")
        elif step.verb == "leaving":
            tx.set_leaving(claim, pick % 2 == 1)
        elif step.verb == "waits":
            tx.set_waits_for(claim, tuple(f"c{i}" for i in range(pick % 3)))
        elif step.verb == "spec":
            tx.set_spec(claim, SPECS[pick % len(SPECS)])
        elif step.verb == "bind":
            tx.set_bindings(claim, self._bindings(step))
        elif step.verb == "charge":
            accounts, costs = self._charges(step)
            verbs = (tx.charge, tx.release, tx.vacate, tx.restore, tx.clear, tx.charge)
            verbs[pick % len(verbs)](claim, accounts, costs)

    def _charges(self, step: Step) -> tuple[tuple[Account, ...], tuple[Vector, ...]]:
        open_accounts = [self.ledger.state.accounts[name] for name in sorted(self.ledger.state.accounts)]
        accounts = tuple(open_accounts[step.account :] + open_accounts[:1])
        costs = [COSTS[(step.pick + i) % len(COSTS)] for i in range(len(accounts))]
        if step.pick == 10 and accounts:  # the last one overflows after the others were counted
            costs[-1] = from_amounts({"cpu": MAX_AMOUNT})
        return accounts, tuple(costs)

    def _bindings(self, step: Step) -> tuple[Binding | None, ...]:
        accounts, costs = self._charges(step)
        binding = Binding(POLICY, accounts, costs, ("data", (step.pick, COSTS[0])) if step.pick % 2 else ())
        return ((), (binding, None), (None, binding), (binding, binding))[step.pick % 4]


def rebuilt(plain: dict[str, Any]) -> Ledger:
    """Another ledger of that state: accounts before claims, everything set once, sums in one charge."""
    ledger = Ledger()
    tx = ledger.begin()
    for table, cells in reversed(plain["tables"].items()):
        for key, value in reversed(cells.items()):
            tx.put(POLICY, table, key, value)
    stranger = Claim("stranger", ClaimSpec())
    for record in reversed(plain["accounts"]):
        account = open_account(tx, record["account"][1])
        used, busy = (from_amounts(dict(record[sum_name])) for sum_name in ("used", "busy"))
        if account.physical:
            tx.charge(stranger, (account,), (busy,))
            tx.vacate(stranger, (account,), (busy,))
        tx.restore(stranger, (account,), (used,))
        tx.set_limits(account, Limits(*record["limits"]))
    for record in reversed(plain["claims"]):
        _rebuild_claim(tx, record)
    ledger.commit(0, ())
    return ledger


def _rebuild_claim(tx: Transaction, record: dict[str, Any]) -> None:
    uid, namespace, name, created, spec = record["claim"]
    claim = Claim(uid, spec_from_record(spec), created, namespace, name)
    tx.add_claim(claim)
    tx.set_waits_for(claim, tuple(record["waitsFor"]))
    tx.set_leaving(claim, record["leaving"])
    tx.set_place(claim, record["place"])
    tx.set_state(claim, record["state"])
    tx.set_bindings(claim, tuple(_binding(b) for b in record["bindings"]))


def _binding(record: list[Any] | None) -> Binding | None:
    if record is None:
        return None
    policy, names, costs, data = record
    apart = Ledger().tx  # a binding may name accounts that were closed since
    accounts = {name: open_account(apart, name) for name in dict.fromkeys(names)}
    each = costs * len(names) if len(costs) == 1 else costs  # one cost stands for all accounts
    return Binding(
        policy,
        tuple(accounts[name] for name in names),
        tuple(from_amounts(cost) for cost in each),
        cast("tuple[object, ...]", frozen(data)),
    )


def plain_of(ledger: Ledger) -> dict[str, Any]:
    return cast("dict[str, Any]", ledger.state.plain())
