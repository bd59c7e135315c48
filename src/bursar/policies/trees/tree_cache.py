"""The tree cache: edits of a tree that take effect at the next refresh, all together.

The cache holds a whole document, starting from the tree's present one, and remembers which node of the present tree
goes by which name now, so that chains of renames and swaps carry everybody to the right node. Edits take the lock of
the manager; what cannot be accepted is refused at once and changes nothing.
"""

from __future__ import annotations

from threading import RLock
from typing import Final, cast, final

from bursar.objects.validation import is_qualified
from bursar.policies.trees.api import Plain, check_node_name, node_from_plain, parse, tree_from
from bursar.policies.trees.records import DEFAULT_RESOURCES, TreeBody, TreeNodeBody
from bursar.policies.trees.responses import QuotaError


@final
class TreeCache:
    """The document of one tree, to be edited."""

    def __init__(self, name: str, body: TreeBody, lock: RLock) -> None:
        self.name: Final = name
        self._lock: Final = lock
        self._resources: set[str] = set(body.resources)
        self._nodes: dict[str, TreeNodeBody] = dict(body.nodes)
        self._renamed: dict[str, str] = {}  # name in the present tree -> name in the cache

    # Reading

    def get_resource_names(self) -> list[str]:
        with self._lock:
            return sorted(self._resources)

    def get_node_names(self) -> list[str]:
        with self._lock:
            return sorted(self._nodes)

    def get_node(self, name: str) -> TreeNodeBody:
        with self._lock:
            return self._node(name)

    def get_renamed_node(self, name: str) -> str:
        """What a node of the present tree is called in the cache."""
        with self._lock:
            return self._renamed.get(name, name)

    def body(self) -> TreeBody:
        """The document as it is now."""
        with self._lock:
            return TreeBody(tuple(self._resources), dict(self._nodes))

    def renames(self) -> dict[str, str]:
        with self._lock:
            return dict(self._renamed)

    # Resources

    def add_resource_name(self, name: str) -> None:
        if not is_qualified(name):
            raise QuotaError(f"{name!r:.60} is not the name of a resource")
        with self._lock:
            self._resources.add(name)

    def add_resource_names(self, names: list[str]) -> None:
        for name in names:
            if not is_qualified(name):
                raise QuotaError(f"{name!r:.60} is not the name of a resource")
        with self._lock:
            self._resources.update(names)

    def delete_resource_name(self, name: str) -> None:
        with self._lock:
            if name not in self._resources:
                raise QuotaError(f"the tree {self.name} does not count {name}")
            self._resources.discard(name)

    def set_default_resource_names(self) -> None:
        """Count the three usual resources too."""
        self.add_resource_names(list(DEFAULT_RESOURCES))

    # Nodes

    def add_node_spec(self, name: str, spec: Plain) -> None:
        """Add a node, or replace the whole of it; a parent may come later."""
        self.add_node_specs({name: spec})

    def add_node_specs(self, specs: dict[str, Plain]) -> None:
        """Add or replace nodes: all of them, or none if one is wrong."""
        nodes = [node_from_plain(name, spec) for name, spec in specs.items()]
        with self._lock:
            for node in nodes:
                self._nodes[node.name] = node
                self._renamed.pop(node.name, None)

    def add_node_specs_from_string(self, text: str) -> None:
        self.add_node_specs(cast("dict[str, Plain]", parse(text)))

    def rename_node(self, old: str, new: str) -> None:
        """The node, its consumers and its children's parent go by another name."""
        check_node_name(new, "name")
        with self._lock:
            node = self._node(old)
            if new in self._nodes:
                raise QuotaError(f"the tree {self.name} has a node {new} already")
            del self._nodes[old]
            self._nodes[new] = TreeNodeBody(new, node.parent, node.hard, node.quota)
            for child in list(self._nodes.values()):
                if child.parent == old:
                    self._nodes[child.name] = TreeNodeBody(child.name, new, child.hard, child.quota)
            self._record(old, new)

    def _record(self, old: str, new: str) -> None:
        origin = old
        for before, now in self._renamed.items():
            if now == old:
                origin = before
        self._renamed[origin] = new

    def delete_node(self, name: str) -> None:
        """Take a node out; its children dangle until they get another parent."""
        with self._lock:
            self._node(name)
            del self._nodes[name]

    # Whole documents

    def from_struct(self, tree: Plain) -> None:
        """Add a document's resources and nodes on top of what is there."""
        name, body = tree_from(tree)
        if name != self.name:
            raise QuotaError(f"this is the cache of the tree {self.name}; a tree cannot be renamed to {name}")
        with self._lock:
            self._resources.update(body.resources)
            for node in body.nodes.values():
                self._nodes[node.name] = node
                self._renamed.pop(node.name, None)

    def from_string(self, text: str) -> None:
        self.from_struct(parse(text))

    def clear(self) -> None:
        """Empty the document."""
        with self._lock:
            self._resources.clear()
            self._nodes.clear()
            self._renamed.clear()

    def refreshed(self, body: TreeBody) -> None:
        """The document is in force now; renames start anew from it."""
        self._resources = set(body.resources)
        self._renamed = {}

    def _node(self, name: str) -> TreeNodeBody:
        found = self._nodes.get(name)
        if found is None:
            raise QuotaError(f"the cache of the tree {self.name} has no node {name}")
        return found
