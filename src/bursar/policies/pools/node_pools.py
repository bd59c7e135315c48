"""Profiles, nodes, and which node belongs to which profile.

A profile selects the nodes of a tree, or of a part of one, and names the root quota of the tree. The share that it
distributes is a fraction, so that it multiplies exactly; it is applied to the sum and rounded down.

A node belongs to the first profile (by name, then namespace) whose selector matches it, and otherwise to the default
tree. A node has no limit of the resources that it need not list and does not list: cpu, memory and pods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, cast, final

from bursar.objects.decode import ManifestError
from bursar.policies.pools.settings import DEFAULT_TREE, Amounts
from bursar.policies.results import Body
from bursar.quantity import MAX_AMOUNT
from bursar.resources import Vector, dimension
from bursar.selectors import Requirement

_ALWAYS_THERE: Final = ("cpu", "memory", "pods")

Pairs = tuple[tuple[str, str], ...]
ProfileCell = tuple[
    str, str, tuple[tuple[str, str, tuple[str, ...]], ...] | None, tuple[int, int], tuple[str, ...], Pairs, bool, bool
]
"""Root quota, tree, requirements, ratio, resources, labels of the root quota, whether the object names the tree, and
whether the nodes are exclusive, which is left out where they are.
"""
_EXCLUSIVE_AT: Final = 7


@final
@dataclass
class Profile(Body):
    """One ElasticQuotaProfile. It selects no node at all if ``requirements`` is None."""

    namespace: str
    name: str
    quota_name: str
    tree: str
    requirements: tuple[Requirement, ...] | None
    numerator: int = 1
    denominator: int = 1
    resources: tuple[str, ...] = ("cpu", "memory")  # what its root quota manages
    labels: tuple[tuple[str, str], ...] = ()  # of the root quota
    pinned: bool = True  # the object names the tree itself
    exclusive: bool = True  # pods of the default tree are kept off its nodes

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def selects(self, labels: dict[str, str]) -> bool:
        return self.requirements is not None and all(one.matches(labels) for one in self.requirements)

    def open_to(self) -> tuple[str, ...]:
        """The trees whose pods may run on its nodes."""
        return (self.tree,) if self.exclusive else (self.tree, DEFAULT_TREE)

    def scaled(self, amount: int) -> int:
        return amount * self.numerator // self.denominator

    def cell(self) -> tuple[object, ...]:
        rows = None if self.requirements is None else tuple([(r.key, r.operator, r.values) for r in self.requirements])
        ratio = (self.numerator, self.denominator)
        found = (self.quota_name, self.tree, rows, ratio, self.resources, self.labels, self.pinned)
        return found if self.exclusive else (*found, False)


def in_order(profiles: list[Profile]) -> list[Profile]:
    """In the order in which they select nodes."""
    return sorted(profiles, key=lambda profile: (profile.name, profile.namespace))


def profile_of(key: str, cell: object) -> Profile | None:
    """The profile in a cell; None for no cell."""
    if cell is None:
        return None
    row = cast("tuple[object, ...]", cell)
    whole = row if len(row) > _EXCLUSIVE_AT else (*row, True)
    quota_name, tree, rows, ratio, resources, labels, pinned, exclusive = cast("ProfileCell", whole)
    requirements = None if rows is None else tuple([Requirement(*row) for row in rows])
    namespace, _, name = key.partition("/")
    return Profile(namespace, name, quota_name, tree, requirements, *ratio, resources, labels, pinned, exclusive)


@final
@dataclass
class PoolNode(Body):
    """A node: its labels, what it has, and whether pods can be scheduled there now."""

    allocatable: dict[str, int]
    labels: dict[str, str]
    schedulable: bool = True

    def has(self, resource: str) -> int | None:
        """The amount of a resource; None if it has no limit, because a manifest need not list it."""
        found = self.allocatable.get(resource)
        if found is None and resource not in _ALWAYS_THERE:
            return 0
        return found

    def takes(self, wants: list[tuple[str, int]]) -> bool:
        """Whether the empty node has room for that."""
        for resource, amount in wants:
            has = self.has(resource)
            if has is not None and has < amount:
                return False
        return True

    def unlisted(self) -> list[str]:
        """The resources of which it has no limit."""
        return [resource for resource in _ALWAYS_THERE if resource not in self.allocatable]

    def cell(self) -> tuple[object, ...]:
        return (tuple(sorted(self.allocatable.items())), tuple(sorted(self.labels.items())), self.schedulable)


def node_of(cell: object) -> PoolNode | None:
    """The node in a cell; None for no cell."""
    if cell is None:
        return None
    allocatable, labels, schedulable = cast("tuple[Amounts, Pairs, bool]", cell)
    return PoolNode(dict(allocatable), dict(labels), schedulable)


NO_PROFILE: Final = ""  # owns the nodes that no profile selects


@final
@dataclass
class NodeSum:
    """What some nodes have together."""

    amounts: dict[str, int] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)  # the part on unschedulable nodes
    unlisted: dict[str, int] = field(default_factory=dict)  # on how many nodes a resource has no limit
    count: int = 0

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


_FITTING: Final = 4096  # requests of a tree for which it is known whether some node could take them


@final
class NodePools:
    """All nodes by profile, with their sums."""

    def __init__(self) -> None:
        self.nodes: Final[dict[str, PoolNode]] = {}
        self.profiles: Final[dict[str, Profile]] = {}  # by key
        self.order: list[Profile] = []
        self.trees: Final[set[str]] = set()  # those that profiles make up
        self.owners: Final[dict[str, str]] = {}  # node -> key of its profile
        self.matches: Final[dict[str, list[str]]] = {}  # node -> keys of the profiles that select it; the first has it
        self.lost: Final[dict[str, dict[str, str]]] = {}  # by profile: nodes that it selects -> profile that has them
        self.sums: Final[dict[str, NodeSum]] = {NO_PROFILE: NodeSum()}
        self.fitting: Final[dict[str, dict[Vector, bool]]] = {}  # by tree: whether some node could take the requests

    # Changes of cells

    def node_changed(self, name: str, node: PoolNode | None) -> None:
        old = self.nodes.pop(name, None)
        if old is not None:
            owner = self.owners.pop(name)
            for key in self.matches.pop(name)[1:]:
                del self.lost[key][name]
            self.sums[owner].add(old, -1)
            for tree in self._open_to(owner):
                self._lost(tree, old)
        if node is not None:
            self.nodes[name] = node
            for tree in self._open_to(self._assign(name, node)):
                self._won(tree, node)

    def profile_changed(self, key: str, profile: Profile | None) -> None:
        """Assigns every node again."""
        self.profiles.pop(key, None)
        if profile is not None:
            self.profiles[key] = profile
        self.order = in_order(list(self.profiles.values()))
        self.trees.clear()
        self.trees.update([profile.tree for profile in self.order])
        self.lost.clear()
        self.sums.clear()
        self.sums[NO_PROFILE] = NodeSum()
        for other in self.profiles:
            self.sums[other] = NodeSum()
        for name, node in self.nodes.items():
            self._assign(name, node)
        for tree, known in self.fitting.items():
            for requests in known:
                known[requests] = self._could_take(tree, requests)
        self._forget_trees()

    def _forget_trees(self) -> None:
        """Drops the answers for trees without profiles: none of their requests fits a node."""
        for tree in [tree for tree in self.fitting if not self.has_profile(tree)]:
            del self.fitting[tree]

    def _assign(self, name: str, node: PoolNode) -> str:
        matches = [profile.key for profile in self.order if profile.selects(node.labels)]
        owner = matches[0] if matches else NO_PROFILE
        self.matches[name] = matches
        for key in matches[1:]:
            self.lost.setdefault(key, {})[name] = owner
        self.owners[name] = owner
        self.sums[owner].add(node, 1)
        return owner

    # Questions

    def has_profile(self, tree: str) -> bool:
        """Whether there is such a tree; the default tree needs no profile."""
        return tree == DEFAULT_TREE or tree in self.trees

    def tree_of(self, owner: str) -> str:
        return "" if owner == NO_PROFILE else self.profiles[owner].tree

    def is_in(self, node: str, tree: str) -> bool:
        """Whether there is such a node, and it belongs to the tree."""
        owner = self.owners.get(node)
        return owner is not None and self.tree_of(owner) == tree

    def _open_to(self, owner: str) -> tuple[str, ...]:
        return (DEFAULT_TREE,) if owner == NO_PROFILE else self.profiles[owner].open_to()

    def profiles_of(self, tree: str) -> list[Profile]:
        return [profile for profile in self.order if profile.tree == tree]

    def profiles_of_root(self, quota_name: str) -> list[Profile]:
        """The profiles that share a root quota, in the order in which they select nodes."""
        return [profile for profile in self.order if profile.quota_name == quota_name]

    def check_root(self, profile: Profile) -> None:
        """Raises ``ManifestError`` if the root quota is that of a profile of another tree or namespace."""
        for other in self.profiles_of_root(profile.quota_name):
            if other.key != profile.key and (other.tree, other.namespace) != (profile.tree, profile.namespace):
                problem = f"{profile.quota_name} is the root quota of profile {other.key}, of another tree or namespace"
                raise ManifestError(problem, "spec.quotaName")

    def total(self, profile: Profile) -> dict[str, int]:
        """What the profile distributes, without what has no limit."""
        return _scaled(self.sums[profile.key].amounts, self.sums[profile.key].unlisted, profile)

    def idle(self, profile: Profile) -> dict[str, int]:
        """The part of it on unschedulable nodes."""
        return _scaled(self.sums[profile.key].idle, {}, profile)

    def tree_total(self, tree: str) -> dict[int, int]:
        """What a tree has, by dimension; the largest amount where it has no limit."""
        found: dict[str, int] = {}
        unlisted: dict[str, int] = {}
        if tree == "":
            found.update(self.sums[NO_PROFILE].amounts)
            unlisted.update(self.sums[NO_PROFILE].unlisted)
        for profile in self.profiles_of(tree):
            for resource, amount in self.total(profile).items():
                found[resource] = found.get(resource, 0) + amount
            unlisted.update(self.sums[profile.key].unlisted)
        for resource in unlisted:
            found[resource] = MAX_AMOUNT
        return {dimension(resource).index: amount for resource, amount in found.items()}

    # Requests that fit an empty node

    def could_take(self, tree: str, requests: Vector) -> bool:
        """Whether some empty node of the tree has room for the requests. Later changes of nodes update the answer."""
        known = self.fitting.setdefault(tree, {})
        found = known.get(requests)
        if found is None:
            if len(known) >= _FITTING:
                known.clear()
            found = self._could_take(tree, requests)
            known[requests] = found
        return found

    def _could_take(self, tree: str, requests: Vector) -> bool:
        wants = requests.pairs()
        for name, node in self.nodes.items():
            if tree in self._open_to(self.owners[name]) and node.takes(wants):
                return True
        return False

    def _lost(self, tree: str, node: PoolNode) -> None:
        known = self.fitting.get(tree, {})
        for requests, could in known.items():
            if could and node.takes(requests.pairs()):
                known[requests] = self._could_take(tree, requests)

    def _won(self, tree: str, node: PoolNode) -> None:
        known = self.fitting.get(tree, {})
        for requests, could in known.items():
            if not could and node.takes(requests.pairs()):
                known[requests] = True


def _scaled(amounts: dict[str, int], unlisted: dict[str, int], profile: Profile) -> dict[str, int]:
    return {name: profile.scaled(amounts[name]) for name in sorted(amounts) if name not in unlisted}
