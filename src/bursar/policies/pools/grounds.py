"""Which node belongs to which profile, and what each profile and tree has: derived from cells, kept incrementally.

A node belongs to the first profile (by name, then namespace) whose selector matches it, and otherwise to the default
tree. Sums follow each node event; the ratio of a profile is applied to the sum, exactly, rounded down. What nodes need
not list and do not list (cpu, memory, pods) they have without limit, and so has their tree.
"""

from __future__ import annotations

from typing import Final, final

from bursar.dimensions import dimension
from bursar.policies.pools.profiles import PoolNode, Profile
from bursar.quantity import MAX_AMOUNT
from bursar.vectors import Vector

NOBODY: Final = ""  # owns the nodes that no profile selects


@final
class Sum:
    """What some nodes have together."""

    __slots__ = ("amounts", "count", "idle", "unlisted")

    def __init__(self) -> None:
        self.amounts: Final[dict[str, int]] = {}
        self.idle: Final[dict[str, int]] = {}  # the part on nodes that take no pods now
        self.unlisted: Final[dict[str, int]] = {}  # on how many nodes a resource has no limit
        self.count: int = 0

    def add(self, node: PoolNode, sign: int) -> None:
        self.count += sign
        for resource, amount in node.allocatable.items():
            _shift(self.amounts, resource, amount * sign)
            if not node.schedulable:
                _shift(self.idle, resource, amount * sign)
        for resource in node.unlisted():
            _shift(self.unlisted, resource, sign)


def _shift(sums: dict[str, int], key: str, amount: int) -> None:
    now = sums.get(key, 0) + amount
    if now:
        sums[key] = now
    else:
        sums.pop(key, None)


@final
class Grounds:
    """All nodes, shared out among the profiles."""

    __slots__ = ("differing", "fitting", "nodes", "order", "owners", "profiles", "sums")

    def __init__(self) -> None:
        self.nodes: Final[dict[str, PoolNode]] = {}
        self.profiles: Final[dict[str, Profile]] = {}  # by key
        self.order: list[Profile] = []
        self.owners: Final[dict[str, str]] = {}  # node -> key of its profile
        self.sums: Final[dict[str, Sum]] = {NOBODY: Sum()}
        self.fitting: Final[dict[str, dict[Vector, bool]]] = {}  # by tree: requests that some node could take
        self.differing: Final[set[str]] = set()  # trees in which an answer changed, since somebody last cleared it

    # What follows from the cells

    def node_changed(self, name: str, node: PoolNode | None) -> None:
        old = self.nodes.pop(name, None)
        if old is not None:
            owner = self.owners.pop(name)
            self.sums[owner].add(old, -1)
            self._lost(self.tree_of(owner), old)
        if node is not None:
            self.nodes[name] = node
            self._won(self.tree_of(self._give(name, node)), node)

    def profile_changed(self, key: str, profile: Profile | None) -> None:
        """Every node is shared out anew."""
        self.profiles.pop(key, None)
        if profile is not None:
            self.profiles[key] = profile
        self.order = sorted(self.profiles.values(), key=_order)
        self.sums.clear()
        self.sums[NOBODY] = Sum()
        for other in self.profiles:
            self.sums[other] = Sum()
        for name, node in self.nodes.items():
            self._give(name, node)
        for tree, known in self.fitting.items():
            for requests in known:
                self._answer(tree, requests, self._could_take(tree, requests))

    def _give(self, name: str, node: PoolNode) -> str:
        owner = NOBODY
        for profile in self.order:
            if profile.selects(node.labels):
                owner = profile.key
                break
        self.owners[name] = owner
        self.sums[owner].add(node, 1)
        return owner

    # Questions

    def tree_of(self, owner: str) -> str:
        return "" if owner == NOBODY else self.profiles[owner].tree

    def profiles_of(self, tree: str) -> list[Profile]:
        return [profile for profile in self.order if profile.tree == tree]

    def total(self, profile: Profile) -> dict[str, int]:
        """What the profile hands out, without what has no limit."""
        return _scaled(self.sums[profile.key].amounts, self.sums[profile.key].unlisted, profile)

    def idle(self, profile: Profile) -> dict[str, int]:
        """The part of it that cannot be scheduled on now."""
        return _scaled(self.sums[profile.key].idle, {}, profile)

    def tree_total(self, tree: str) -> dict[int, int]:
        """What a tree has, by dimension; without limit is the largest amount there is."""
        found: dict[str, int] = {}
        unlisted: dict[str, int] = {}
        if tree == "":
            found.update(self.sums[NOBODY].amounts)
            unlisted.update(self.sums[NOBODY].unlisted)
        for profile in self.profiles_of(tree):
            for resource, amount in self.total(profile).items():
                found[resource] = found.get(resource, 0) + amount
            unlisted.update(self.sums[profile.key].unlisted)
        for resource in unlisted:
            found[resource] = MAX_AMOUNT
        return {dimension(resource).index: amount for resource, amount in found.items()}

    # Who could run at all

    def could_take(self, tree: str, requests: Vector) -> bool:
        """Whether some node of the tree, empty, has room for the requests. Answers are kept true, not asked anew."""
        known = self.fitting.setdefault(tree, {})
        found = known.get(requests)
        if found is None:
            found = self._could_take(tree, requests)
            known[requests] = found
        return found

    def _could_take(self, tree: str, requests: Vector) -> bool:
        wants = requests.pairs()
        for name, node in self.nodes.items():
            if self.tree_of(self.owners[name]) == tree and node.takes(wants):
                return True
        return False

    def _lost(self, tree: str, node: PoolNode) -> None:
        for requests, could in self.fitting.get(tree, {}).items():
            if could and node.takes(requests.pairs()):
                self._answer(tree, requests, self._could_take(tree, requests))

    def _won(self, tree: str, node: PoolNode) -> None:
        for requests, could in self.fitting.get(tree, {}).items():
            if not could and node.takes(requests.pairs()):
                self._answer(tree, requests, True)

    def _answer(self, tree: str, requests: Vector, could: bool) -> None:
        if self.fitting[tree][requests] != could:
            self.fitting[tree][requests] = could
            self.differing.add(tree)


def _order(profile: Profile) -> tuple[str, str]:
    return (profile.name, profile.namespace)


def _scaled(amounts: dict[str, int], unlisted: dict[str, int], profile: Profile) -> dict[str, int]:
    return {name: profile.scaled(amounts[name]) for name in sorted(amounts) if name not in unlisted}
