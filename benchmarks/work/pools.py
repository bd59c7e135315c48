"""Runtime quota of a large tree: all of it, one change, one quota more, and the admission check.

The tree has four levels: one organisation, one division, departments, and teams below those; the parents of teams and
of departments have a hundred children each. Every team asks for more than its min, and the whole for more than there
is, so that every level is shared out in rounds.
"""

from benchmarks.timing import rate
from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.transaction import Ledger, Transaction
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.pools.configure import NODE, QUOTA
from bursar.policies.pools.node_pools import PoolNode
from bursar.policies.pools.policy import PoolsPolicy, check
from bursar.policies.pools.quota_node import Branch
from bursar.policies.pools.settings import QUOTA_OF_POD, ROOT, PoolQuotaBody, QuotaObject
from bursar.policies.results import Setting
from bursar.resources import dimension, from_amounts

_GI = 2**30
_CHILDREN = 100


class Field:
    """A ledger with the policy and a tree; one transaction stays open."""

    def __init__(self, quotas: int) -> None:
        self.ledger = Ledger()
        self.policy = PoolsPolicy()
        self.ledger.watch("pools", self.policy)
        self.policy.attach(self.ledger.state, NodeIndex())
        self.tx: Transaction = self.ledger.begin()
        self.forest = self.policy.derived.forest
        self.teams: list[str] = []
        cores = quotas * 3
        self.set(NODE, "node", PoolNode({"cpu": cores * 1000, "memory": cores * 4 * _GI}, {}))
        self._plant(quotas)
        self.forest.refresh_all("")

    def _plant(self, quotas: int) -> None:
        self.quota("org", ROOT, True, quotas * 4)
        self.quota("division", "org", True, quotas * 4)
        departments = -(-(quotas - 2) // (_CHILDREN + 1))
        for number in range(departments):
            self.quota(f"d{number:03}", "division", True, _CHILDREN * 4)
            for team in range(_CHILDREN):
                name = f"d{number:03}-t{team:03}"
                self.quota(name, f"d{number:03}", False, 2 + team % 3)
                self.teams.append(name)
                self.claim(name, 1 + (number * 7 + team * 3) % 11)

    def set(self, kind: str, key: str, body: QuotaObject | PoolNode) -> None:
        self.policy.configure(self.tx, Setting(kind, key, body))

    def quota(self, name: str, parent: str, is_parent: bool, least: int) -> None:
        maximum = {"cpu": least * 10_000, "memory": least * 40 * _GI}
        minimum = {"cpu": least * 500, "memory": least * 2 * _GI}
        quota = PoolQuotaBody(name, "quotas", parent, "", is_parent, True, maximum, minimum)
        self.set(QUOTA, f"quotas/{name}", QuotaObject(quota))

    def claim(self, team: str, cores: int) -> Claim:
        requests = from_amounts({"cpu": cores * 1000, "memory": cores * 4 * _GI})
        claim = Claim(
            f"{team}-{len(self.ledger.state.claims)}", ClaimSpec(requests, labels={QUOTA_OF_POD: team}), 0, "ns"
        )
        self.tx.add_claim(claim)
        binding = self.policy.bind(claim, "")
        self.tx.set_bindings(claim, (binding,))  # type: ignore[arg-type]
        self.policy.demand(self.tx, claim, binding, True)  # type: ignore[arg-type]
        return claim

    def branch(self, name: str) -> Branch:
        return self.forest.branch("", name)

    def shake(self, turn: int) -> None:
        """Another total, so that every quota has another runtime."""
        cores = len(self.teams) * 3 + turn % 2 * len(self.teams)
        total = {dimension("cpu").index: cores * 1000, dimension("memory").index: cores * 4 * _GI}
        self.forest.set_total("", total)


def figures(quotas: int, repeats: int) -> dict[str, float]:
    """Seconds for each, and checks a second."""
    field = Field(quotas)
    fitting = _fitting(field)
    return {
        "quotas": len(field.forest.branches) - 2,
        "all": 1 / rate(lambda: _all(field, repeats)),
        "change": 1 / rate(lambda: _change(field, repeats * 20)),
        "add": 1 / rate(lambda: _add(field, repeats * 5)),
        "checks": rate(lambda: _check(field, fitting, repeats * 500)),
    }


def _all(field: Field, repeats: int) -> int:
    for turn in range(repeats):
        field.shake(turn)
        field.forest.refresh_all("")
    return repeats


def _change(field: Field, repeats: int) -> int:
    """One claim more or less of a quota that has what it requests, so that its siblings get less or more."""
    count = 0
    mark = field.tx.savepoint()
    teams = [name for name in field.teams if int(field.branch(name).runtime[0]) == int(field.branch(name).lim[0])][:3]
    claims = [field.claim(name, 1) for name in teams]
    for turn in range(repeats):
        claim = claims[turn % 3]
        binding = claim.bindings[0]
        branch = field.branch(teams[turn % 3])
        for wanted in (False, True):
            field.policy.demand(field.tx, claim, binding, wanted)  # type: ignore[arg-type]
            field.forest.refresh(branch)
            count += 1
    field.tx.rollback_to(mark)
    return count


def _add(field: Field, repeats: int) -> int:
    """One quota more, and its runtime; undone again, so that the tree stays what it is."""
    mark = field.tx.savepoint()
    for turn in range(repeats):
        field.quota(f"new-{turn}", f"d{turn % 7:03}", False, 2)
        field.forest.refresh(field.branch(f"new-{turn}"))
    field.tx.rollback_to(mark)
    field.forest.refresh_all("")
    return repeats


def _fitting(field: Field) -> list[Binding]:
    """What claims that fit now are bound to."""
    field.forest.refresh_all("")
    bound = [claim.bindings[0] for claim in field.ledger.state.claims.values()]
    return [binding for binding in bound if binding is not None and check(field.policy.derived, binding, None) is None]


def _check(field: Field, bindings: list[Binding], repeats: int) -> int:
    """May this claim come in? Asked of the whole path, while nothing changes."""
    derived = field.policy.derived
    for turn in range(repeats):
        check(derived, bindings[turn % len(bindings)], None)
    return repeats
