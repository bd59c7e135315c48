"""The tree cache: edits of a tree that take effect together, at the next update.

The cache holds a whole document, at first the tree's present one. It also maps the nodes of the present tree to their
new names, so that chains of renames and swaps carry each consumer to the right node.
"""

from __future__ import annotations

from dataclasses import replace
from threading import RLock
from typing import Final, cast, final

from bursar.objects.validation import is_qualified
from bursar.policies.trees.api import Plain, check_node_name, node_from_plain, parse, tree_from
from bursar.policies.trees.records import DEFAULT_RESOURCES, TreeBody, TreeNodeBody
from bursar.policies.trees.responses import QuotaError


@final
class TreeCache:
    """The document of one tree, to be edited. ``QuotaManager.update_tree`` puts it in force.

    Each edit takes the manager's lock, and does all it says or raises and changes nothing.
    """

    def __init__(self, name: str, body: TreeBody, lock: RLock) -> None:
        self.name: Final = name
        self._lock: Final = lock
        self._resources: set[str] = set(body.resources)
        self._nodes: dict[str, TreeNodeBody] = dict(body.nodes)
        self._renamed: dict[str, str] = {}  # name in the present tree -> name in the cache

    def __repr__(self) -> str:
        return f"TreeCache({self.name}, resources {self.get_resource_names()}, nodes {self.get_node_names()})"

    # Reading

    def get_resource_names(self) -> list[str]:
        """The resources that the tree will count, sorted."""
        with self._lock:
            return sorted(self._resources)

    def get_node_names(self) -> list[str]:
        """The names of all nodes, sorted."""
        with self._lock:
            return sorted(self._nodes)

    def get_node(self, name: str) -> TreeNodeBody:
        """One node; its quota is in the ledger's units."""
        with self._lock:
            return self._node(name)

    def get_renamed_node(self, name: str) -> str:
        """The name in the cache of a node of the present tree."""
        with self._lock:
            return self._renamed.get(name, name)

    def body(self) -> TreeBody:
        """The document as it is now."""
        with self._lock:
            return TreeBody(tuple(self._resources), dict(self._nodes))

    def renames(self) -> dict[str, str]:
        """The new names of the present tree's nodes that were renamed."""
        with self._lock:
            return dict(self._renamed)

    # Resources

    def add_resource_name(self, name: str) -> None:
        """Let the tree count a resource too."""
        self.add_resource_names([name])

    def add_resource_names(self, names: list[str]) -> None:
        """Let the tree count these resources too, or none of them if a name is wrong."""
        for name in names:
            if not is_qualified(name):
                raise QuotaError(f"{name!r:.60} is not the name of a resource")
        with self._lock:
            self._resources.update(names)

    def delete_resource_name(self, name: str) -> None:
        """Let the tree count a resource no longer."""
        with self._lock:
            if name not in self._resources:
                raise QuotaError(f"the tree {self.name} does not count {name}")
            self._resources.discard(name)

    def set_default_resource_names(self) -> None:
        """Let the tree count cpu, memory and nvidia.com/gpu too."""
        self.add_resource_names(list(DEFAULT_RESOURCES))

    # Nodes

    def add_node_spec(self, name: str, spec: Plain) -> None:
        """Add a node, or replace the whole of it; a parent may come later."""
        self.add_node_specs({name: spec})

    def add_node_specs(self, specs: dict[str, Plain]) -> None:
        """Add or replace nodes: all of them, or none if one is wrong."""
        self._put([node_from_plain(name, spec) for name, spec in specs.items()])

    def _put(self, nodes: list[TreeNodeBody]) -> None:
        with self._lock:
            for node in nodes:
                self._nodes[node.name] = node
                self._renamed.pop(node.name, None)

    def add_node_specs_from_string(self, text: str) -> None:
        """As ``add_node_specs``, from a JSON or YAML mapping of names to nodes."""
        self.add_node_specs(cast("dict[str, Plain]", parse(text)))

    def rename_node(self, old: str, new: str) -> None:
        """Rename a node, also for its consumers and its children."""
        check_node_name(new, "name")
        with self._lock:
            node = self._node(old)
            if new in self._nodes:
                raise QuotaError(f"the tree {self.name} has a node {new} already")
            del self._nodes[old]
            self._nodes[new] = replace(node, name=new)
            for child in list(self._nodes.values()):
                if child.parent == old:
                    self._nodes[child.name] = replace(child, parent=new)
            origins = [before for before, now in self._renamed.items() if now == old]
            self._renamed[origins[-1] if origins else old] = new

    def delete_node(self, name: str) -> None:
        """Remove a node; its children dangle until they get another parent."""
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
            self._put(list(body.nodes.values()))

    def from_string(self, text: str) -> None:
        """As ``from_struct``, from a JSON or YAML document."""
        self.from_struct(parse(text))

    def clear(self) -> None:
        """Empty the document."""
        with self._lock:
            self._resources.clear()
            self._nodes.clear()
            self._renamed.clear()

    def refreshed(self, body: TreeBody) -> None:
        """Note that the document is in force now; later renames start from it."""
        self._resources = set(body.resources)
        self._renamed = {}

    def _node(self, name: str) -> TreeNodeBody:
        found = self._nodes.get(name)
        if found is None:
            raise QuotaError(f"the cache of the tree {self.name} has no node {name}")
        return found
