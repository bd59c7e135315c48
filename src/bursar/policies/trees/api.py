"""The documents of quota trees, ``QuotaTree`` and ``Consumer``, and what they mean as bodies and requests.

They are read leniently where people write the same thing in several ways (``hard: "true"``, ``quota: {cpu: 10}`` or
``"10"``, ``parent: nil``), and validated strictly: unknown fields, negative or fractional numbers, duplicates, cycles
and second roots are a ``ManifestError`` with the path of the field.

The library also takes text, JSON or YAML with one document; an error in the text itself names the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, cast

from msgspec import Meta, field

from bursar.objects.core import Int32, LabelSelector, Manifest, Part, Quantities
from bursar.objects.crds import GROUP, RESOURCE_NAME, VERSION, Rule, WrittenStatus
from bursar.objects.decode import ManifestError, decode, join
from bursar.objects.kinds import Kind, PrinterColumn
from bursar.objects.manifests import load_text
from bursar.objects.validation import check_namespace, is_qualified, selector_from
from bursar.policies.ownership import AccessRule, by_scheduler
from bursar.policies.trees.model import account_name
from bursar.policies.trees.records import LABEL, ConsumerInfo, TreeBody, TreeNodeBody, TreeRequest, problem
from bursar.quantity import QuantityError
from bursar.resources import dimension, from_amounts

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_NO_PARENT = frozenset({"nil", ""})


WholeQuantity = Annotated[
    str | int | float,
    Meta(extra_json_schema={"pattern": r"^\+?[0-9]+(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$"}),
]
_MOST_NODES = 2000
_IS_ROOT = "(!has(self.nodes[name].parent) || self.nodes[name].parent in ['', 'nil'])"


class QuotaNode(Part, frozen=True):
    quota: Annotated[
        dict[str, WholeQuantity],
        Meta(description="What may be used here and below. A resource that is not listed has no limit here."),
    ]
    parent: Annotated[
        str, Meta(description="The node above; the root has none.", extra_json_schema={"maxLength": 253})
    ] = ""
    hard: Annotated[
        bool | str,
        Meta(
            description="Nothing is borrowed from above.",
            extra_json_schema={"enum": [True, False, *sorted(_TRUE), *sorted(_FALSE)]},
        ),
    ] = False
    namespaces: Annotated[
        tuple[Annotated[str, Meta(extra_json_schema={"maxLength": 63})], ...] | None,
        Meta(
            description="The namespaces whose pods may use the node; without it, and without a selector, those that"
            " the node above names. A node below only narrows.",
            extra_json_schema={"maxItems": 1000},
        ),
    ] = None
    namespace_selector: Annotated[
        LabelSelector | None, Meta(description="Selects more such namespaces by their labels.")
    ] = None
    max_priority: Annotated[
        Int32 | None, Meta(description="Pods of higher priority wait; those that preempt nobody count as this.")
    ] = None


class QuotaTreeSpec(Part, frozen=True):
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.nodes) || self.nodes.all(name, name != '' && name != 'nil' && name.size() <= 253)",
            "the name of a node has 1 to 253 characters and is not nil",
            ".nodes",
        ),
        Rule(
            f"!has(self.nodes) || self.nodes.all(name, {_IS_ROOT} || self.nodes[name].parent in self.nodes)",
            "the parent of a node is not a node of the tree",
            ".nodes",
        ),
        Rule(
            f"!has(self.nodes) || self.nodes.size() == 0 || self.nodes.exists_one(name, {_IS_ROOT})",
            "exactly one node is the root: the one without a parent",
            ".nodes",
        ),
    )

    nodes: Annotated[
        dict[str, QuotaNode],
        Meta(description="The tree, by the names of its nodes.", extra_json_schema={"maxProperties": _MOST_NODES}),
    ] = field(default_factory=dict)
    resource_names: Annotated[
        tuple[Annotated[str, Meta(extra_json_schema={"pattern": f"^({RESOURCE_NAME})?$", "maxLength": 317})], ...],
        Meta(description="What the tree counts; cpu, memory and nvidia.com/gpu if nothing is listed."),
    ] = ()


class QuotaTree(Manifest, frozen=True, kw_only=True):
    spec: QuotaTreeSpec


class TreeNodeStatus(Part, frozen=True):
    used: Annotated[Quantities, Meta(description="What is in use here and below.")] = field(default_factory=dict)
    claims: Annotated[int, Meta(description="How many claims count on exactly this node.")] = 0
    borrowing: Annotated[
        tuple[str, ...], Meta(description="Of these, the claims that belong to a node below; at most 20.")
    ] = ()


class QuotaTreeStatus(WrittenStatus, frozen=True):
    nodes: Annotated[dict[str, TreeNodeStatus], Meta(description="What each node uses.")] = field(default_factory=dict)
    warnings: Annotated[tuple[str, ...], Meta(description="What the tree leaves out.")] = ()


class ConsumerTree(Part, frozen=True):
    tree_name: str
    group_id: str = field(name="groupID")
    request: Quantities = field(default_factory=dict)
    priority: int = 0
    type: int = 0
    un_preemptable: bool = False
    id: str = ""  # accepted and not used


class ConsumerSpec(Part, frozen=True):
    id: str
    trees: tuple[ConsumerTree, ...] = ()
    trees_misspelt: tuple[ConsumerTree, ...] = field(name="trees:", default=())  # as the first published example has it


class Consumer(Manifest, frozen=True, kw_only=True):
    spec: ConsumerSpec


def _amounts(quantities: Mapping[str, object], path: str) -> dict[str, int]:
    return {name: _amount(value, name, join(path, name)) for name, value in quantities.items()}


def _amount(value: object, resource: str, path: str) -> int:
    """A quantity whose number is whole: 10, "10", "500m" or 2Gi, but neither 1.5 nor "0.5Gi"."""
    if not is_qualified(resource):
        raise ManifestError("is not the name of a resource", path)
    fractional = (isinstance(value, float) and not value.is_integer()) or (isinstance(value, str) and "." in value)
    if fractional:
        raise ManifestError(f"{value!r:.40} is not a whole number", path)
    try:
        return dimension(resource).parse(int(value) if isinstance(value, float) else value)
    except QuantityError as error:
        raise ManifestError(str(error), path) from None


def _is_hard(value: bool | str, path: str) -> bool:
    if isinstance(value, bool):
        return value
    if value not in _TRUE | _FALSE:
        raise ManifestError(f"{value!r:.40} is neither true nor false", path)
    return value in _TRUE


def node_from(name: str, node: QuotaNode, path: str) -> TreeNodeBody:
    check_node_name(name, path)
    parent = "" if node.parent in _NO_PARENT else node.parent
    quota = _amounts(node.quota, join(path, "quota"))
    return TreeNodeBody(name, parent, _is_hard(node.hard, join(path, "hard")), quota)


def access_of(tree: QuotaTree) -> list[AccessRule]:
    """Who may use the nodes of a tree; a node without children is named by the tree's label."""
    name, nodes, placed = tree.metadata.name, tree.spec.nodes, by_scheduler(tree.metadata.annotations)
    parents = {node.parent for node in nodes.values()}
    found: list[AccessRule] = []
    for key, node in nodes.items():
        path = join("spec.nodes", key)
        for index, namespace in enumerate(node.namespaces or ()):
            check_namespace(namespace, f"{join(path, 'namespaces')}[{index}]")
        given = node.namespace_selector
        found.append(
            AccessRule(
                account_name(name, key),
                f"group {key} of QuotaTree {name}",
                account_name(name, node.parent) if node.parent not in _NO_PARENT else "",
                f"{LABEL}{name}" if key not in parents else "",
                key,
                named=node.namespaces is not None or given is not None,
                namespaces=node.namespaces or (),
                selector=None if given is None else selector_from(given, join(path, "namespaceSelector")),
                max_priority=node.max_priority,
                by_scheduler=placed,
            )
        )
    return found


def check_node_name(name: str, path: str) -> None:
    if not name or not name.isprintable() or len(name) > 253 or name == "nil":
        raise ManifestError(f"{name!r:.60} is not the name of a node: up to 253 printable characters, not nil", path)


def check_tree_name(name: str, path: str) -> None:
    if not name or not name.isprintable() or len(name) > 253 or "/" in name:
        raise ManifestError(f"{name!r:.60} is not the name of a tree: up to 253 printable characters without /", path)


def body_from(tree: QuotaTree) -> TreeBody:
    """The document as a body, which need not be one tree."""
    check_tree_name(tree.metadata.name, "metadata.name")
    for index, resource in enumerate(tree.spec.resource_names):
        if resource and not is_qualified(resource):
            raise ManifestError(f"{resource!r:.60} is not the name of a resource", f"spec.resourceNames[{index}]")
    nodes = {name: node_from(name, node, join("spec.nodes", name)) for name, node in tree.spec.nodes.items()}
    return TreeBody(tuple(name for name in tree.spec.resource_names if name), nodes)


def check_tree(tree: QuotaTree) -> None:
    """Raise an error for a manifest that is not one tree."""
    name, what = problem(body_from(tree))
    access_of(tree)
    if what:
        raise ManifestError(what, join("spec.nodes", name))


def consumer_from(consumer: Consumer) -> ConsumerInfo:
    spec = consumer.spec
    if not spec.id or not spec.id.isprintable():
        raise ManifestError(f"{spec.id!r:.40} is not an id", "spec.id")
    if spec.trees and spec.trees_misspelt:
        raise ManifestError("is given beside trees", "spec.trees:")
    named = spec.trees or spec.trees_misspelt
    key = "trees" if spec.trees else "trees:"
    if not named:
        raise ManifestError("a consumer must name a tree", "spec.trees")
    rows = [_request(tree, f"spec.{key}[{index}]") for index, tree in enumerate(named)]
    for index, row in enumerate(rows):
        if row.tree in {other.tree for other in rows[:index]}:
            raise ManifestError(f"the tree {row.tree} is named twice", f"spec.{key}[{index}].treeName")
    warnings = () if spec.trees else ("spec.trees: is spelt with a colon inside its quotes",)
    return ConsumerInfo(spec.id, tuple(rows), warnings)


def _request(tree: ConsumerTree, path: str) -> TreeRequest:
    check_tree_name(tree.tree_name, join(path, "treeName"))
    if not tree.group_id:
        raise ManifestError("must not be empty", join(path, "groupID"))
    cost = from_amounts(_amounts(tree.request, join(path, "request")))
    for name, number in (("priority", tree.priority), ("type", tree.type)):
        if abs(number) >= 2**31:
            raise ManifestError(f"{number} is out of range", join(path, name))
    return TreeRequest(tree.tree_name, tree.group_id, cost, tree.priority, tree.type, tree.un_preemptable)


QUOTA_TREE = Kind(
    GROUP,
    VERSION,
    "QuotaTree",
    "quotatrees",
    False,
    QuotaTree,
    strict=True,
    short_names=("qt",),
    bare=True,
    any_name=True,
    check=check_tree,
    columns=(
        PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        PrinterColumn("Exceeded", '.status.conditions[?(@.type=="Exceeded")].status'),
        PrinterColumn("Resources", ".spec.resourceNames", wide=True),
        PrinterColumn("Warnings", ".status.warnings", wide=True),
    ),
    status=QuotaTreeStatus,
)


Plain = dict[str, object]


def parse(text: str) -> Plain:
    """The one document of a text."""
    found = load_text(text)
    if len(found) != 1:
        raise ManifestError(f"expected one document, found {len(found)}")
    return cast("Plain", found[0].body)


def tree_from(plain: Plain) -> tuple[str, TreeBody]:
    """(name, body) of a QuotaTree."""
    _check_kind(plain, "QuotaTree")
    typed, _ = decode(plain, QuotaTree)
    name = typed.metadata.name
    try:
        return name, body_from(typed)
    except ManifestError as error:
        raise error.located(subject=f"QuotaTree {name}") from None


def consumer_from_plain(plain: Plain) -> ConsumerInfo:
    """The consumer of the plain data of a ``Consumer``; raises ``ManifestError`` if that is not valid."""
    _check_kind(plain, "Consumer")
    typed, _ = decode(plain, Consumer)
    try:
        return consumer_from(typed)
    except ManifestError as error:
        raise error.located(subject=f"Consumer {typed.spec.id}") from None


def node_from_plain(name: str, plain: Plain) -> TreeNodeBody:
    """One node of a tree, as in ``spec.nodes``."""
    try:
        typed, _ = decode(plain, QuotaNode)
        return node_from(name, typed, "")
    except ManifestError as error:
        raise error.inside(join("nodes", name)) from None


def read_consumer(text: str) -> ConsumerInfo:
    """The consumer of a JSON or YAML document of kind ``Consumer``; raises ``ManifestError`` if it is not valid."""
    return consumer_from_plain(parse(text))


def _check_kind(plain: Plain, wanted: str) -> None:
    if plain.get("kind") != wanted:
        raise ManifestError(f"{plain.get('kind')!r:.40} is not {wanted}", "kind")
    if not isinstance(plain.get("metadata", {}), dict):
        raise ManifestError("expected a mapping", "metadata")
