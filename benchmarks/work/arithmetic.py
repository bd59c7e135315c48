"""Account arithmetic alone: check, charge and release a claim on a path of four accounts, in six dimensions.

The driver is Python and keeps the live charges in a dictionary; it calls the functions that policies and changes are
made of. ``maps`` is the same cycle with a dictionary of amounts by resource name in each account, which is the shape
that schedulers written in Go use, here in plain Python.
"""

from benchmarks.timing import rate
from benchmarks.work.tree import DIMENSIONS, LEAVES, WIDE, cost_of, parent_numbers
from bursar.ledger.changes import add_costs
from bursar.ledger.state import Account, first_unfit
from bursar.resources import Vector

_LIVE = 100  # so many charges stand while the next are made


def cycles(rounds: int) -> dict[str, float]:
    """Cycles a second with accounts, and with maps, in the same run; so many rounds over the leaves at a time."""
    paths = _account_paths()
    costs = (cost_of(),) * 4
    return {"accounts": rate(lambda: _account_cycles(paths, costs, rounds)), "maps": rate(_map_cycles)}


def _account_paths() -> list[tuple[Account, ...]]:
    known: dict[str, Account] = {}
    paths = []
    for leaf, (upper, lower) in enumerate(parent_numbers(LEAVES)):
        names = (f"leaf-{leaf}", f"lower-{lower}", f"upper-{upper}", "root")
        paths.append(tuple(known.setdefault(name, Account("bench", name)) for name in names))
    for account in known.values():
        account.limits = WIDE
    return paths


def _account_cycles(paths: list[tuple[Account, ...]], costs: tuple[Vector, ...], rounds: int) -> int:
    live: dict[int, tuple[Account, ...]] = {}
    number = 0
    for _ in range(rounds):
        for path in paths:
            if first_unfit(path, costs) < 0:
                add_costs(path, costs, 1, 1)
                live[number] = path
            if number >= _LIVE:
                add_costs(live.pop(number - _LIVE), costs, -1, -1)
            number += 1
    for path in live.values():
        add_costs(path, costs, -1, -1)
    return number


class MapNode:
    """An account with a map of amounts by resource name."""

    def __init__(self, parent: "MapNode | None") -> None:
        self.parent = parent
        self.limits = dict.fromkeys(DIMENSIONS, 10**15)
        self.used: dict[str, int] = {}


def map_fits(leaf: MapNode, cost: dict[str, int]) -> bool:
    node: MapNode | None = leaf
    while node is not None:
        for name, amount in cost.items():
            if name in node.limits and node.used.get(name, 0) + amount > node.limits[name]:
                return False
        node = node.parent
    return True


def map_add(leaf: MapNode, cost: dict[str, int], sign: int) -> None:
    node: MapNode | None = leaf
    while node is not None:
        for name, amount in cost.items():
            node.used[name] = node.used.get(name, 0) + sign * amount
        node = node.parent


def map_leaves() -> list[MapNode]:
    root = MapNode(None)
    uppers: dict[int, MapNode] = {}
    lowers: dict[int, MapNode] = {}
    leaves = []
    for upper, lower in parent_numbers(LEAVES):
        above = uppers.setdefault(upper, MapNode(root))
        leaves.append(MapNode(lowers.setdefault(lower, MapNode(above))))
    return leaves


def _map_cycles() -> int:
    cost = dict(cost_of().pairs())
    live: dict[int, MapNode] = {}
    number = 0
    for leaf in map_leaves():
        if map_fits(leaf, cost):
            map_add(leaf, cost, 1)
            live[number] = leaf
        if number >= _LIVE:
            map_add(live.pop(number - _LIVE), cost, -1)
        number += 1
    return number
