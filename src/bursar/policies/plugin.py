"""How a policy joins: its ``Plugin`` holds everything of its dialect, and the registry lists the plugins in force.

A plugin is plain data and functions: kinds, settings, admission, rows for lists, reasons, fields for suggested fixes,
marks of pods and nodes. Nothing above ``bursar.policies`` imports a dialect. The policy itself only sees settings and
claims.

Policies of other distributions join by an entry point of the group ``bursar.policies`` that names their ``Plugin``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module, metadata
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from bursar.ledger.claims import Claim
from bursar.objects.core import Node
from bursar.objects.crds import Section
from bursar.objects.kinds import CORE_KINDS, Kind, KindSet
from bursar.policies.fix_fields import FixFields
from bursar.policies.ownership import AccessRule
from bursar.policies.policy import Policy
from bursar.policies.quota_table import QuotaTable
from bursar.policies.results import Setting

Translate = Callable[[str, Any], list[Setting]]
"""(key of the object, the typed object or None when it was deleted) -> settings for the policy."""


class ObjectView(Protocol):
    """Read access to the objects of a cluster, as plain manifests, for admission."""

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None: ...

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        """All of a kind, or those of a namespace, which costs only as many as there are."""


class Derived(Protocol):
    """What a policy computes from the objects of a view, pods excepted, and uses in admission."""

    def follow(self, kind: str, key: str, now: Mapping[str, Any] | None) -> bool:
        """An object was created, changed or deleted (None). Returns whether this is still valid."""

    def layer(self) -> Derived:
        """The same, to be changed while this one stays as it is."""


D = TypeVar("D", bound=Derived)


class DerivedValues:
    """Values by type, each kept while it is valid."""

    def __init__(self) -> None:
        self._by_type: dict[type, Derived] = {}

    def get(self, made: type[D], make: Callable[[], D]) -> D:
        found = self._by_type.get(made)
        if not isinstance(found, made):
            found = self._by_type[made] = make()
        return found

    def follow(self, kind: str, key: str, now: Mapping[str, Any] | None) -> None:
        for made, one in list(self._by_type.items()):
            if not one.follow(kind, key, now):
                del self._by_type[made]


@runtime_checkable
class Keeping(Protocol):
    """A view that keeps what is derived from it."""

    def derive(self, made: type[D], make: Callable[[ObjectView], D]) -> D: ...


def derived(view: ObjectView, made: type[D], make: Callable[[ObjectView], D]) -> D:
    """The value of that type: kept by the view if it does so, else computed."""
    return view.derive(made, make) if isinstance(view, Keeping) else make(view)


@dataclass(frozen=True, slots=True)
class ObjectEdit:
    """What one apply or delete does to one object: its manifests before and after, None where there is none."""

    kind: str
    key: str
    old: Mapping[str, Any] | None
    new: dict[str, Any] | None

    @property
    def subject(self) -> str:
        """Names the object in errors."""
        return f"{self.kind.partition('.')[0]} {self.key}"


Review = Callable[[ObjectView, Sequence[ObjectEdit]], list[ObjectEdit]]
"""(view before, everything but pods that one apply or delete changes) -> the same, defaults filled in; raises
``ManifestError`` with its subject for what breaks a rule.

It judges the result as a whole, whatever the order of the edits. Pure and idempotent, as ``Admit`` is.
"""

Admit = Callable[[ObjectView, Mapping[str, Any] | None, dict[str, Any]], dict[str, Any]]
"""(view, old manifest or None, new manifest) -> the manifest to store; raises ``objects.errors.ManifestError``.

Pure: fills defaults, and refuses what breaks a rule. Must be idempotent, and sees a dry run like any other call.
"""

Namespaces = Callable[[str, Mapping[str, Any]], Iterable[str]]
"""(key, manifest) -> the namespaces whose pods the object governs, whatever their labels say.

Also called with manifests that are not acceptable; it returns nothing for what it cannot read.
"""

Access = Callable[[str, Any], list[AccessRule]]
"""(key of the object, the typed object) -> who may use its quotas; raises ``ManifestError``."""

CheckRemoval = Callable[[ObjectView, Mapping[str, Any]], None]
"""Raises ``ManifestError`` when the object must not be deleted now."""


RESOURCE: Final = "<resource>"


@dataclass(frozen=True, slots=True)
class Reason:
    """A code; ``<resource>`` at its end stands for the name of any resource."""

    code: str
    means: str
    helps: str

    def covers(self, code: str) -> bool:
        """Whether the code of a refusal or event is this one."""
        if not self.code.endswith(RESOURCE):
            return code == self.code
        start = self.code[: -len(RESOURCE)]
        return code.startswith(start) and len(code) > len(start)


@dataclass(frozen=True, slots=True)
class AnnotatedDemand:
    """Selects pods that request something by annotation: those whose label has the value, and those without the label
    that have one of the annotations.
    """

    label: str
    value: str
    annotations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodMarks:
    """The labels and annotations of pods that a policy reads or writes."""

    quota_labels: tuple[str, ...] = ()  # name the quota of a pod: it is governed in every namespace
    quota_prefixes: tuple[str, ...] = ()  # the same, for labels that begin so
    demands: tuple[AnnotatedDemand, ...] = ()  # select more pods that are governed in every namespace
    fixed_labels: tuple[str, ...] = ()  # stay as they were when the pod was created, as those above do
    fixed_annotations: tuple[str, ...] = ()
    own_labels: tuple[str, ...] = ()  # only Bursar writes these
    own_annotations: tuple[str, ...] = ()
    records: tuple[str, ...] = ()  # of the own annotations: say what a bound pod has
    read_annotations: tuple[str, ...] = ()  # how others begin that it reads; on Kubernetes all further ones are dropped

    @staticmethod
    def joined(marks: Iterable[PodMarks]) -> PodMarks:
        """The marks of several policies as one, in their order."""
        given = list(marks)
        columns = ([getattr(one, column.name) for one in given] for column in fields(PodMarks))
        return PodMarks(*(tuple(dict.fromkeys(mark for part in column for mark in part)) for column in columns))


class PlacementRules:
    """How Kubernetes is held to a policy's decisions about nodes. The defaults hold it to nothing."""

    def pins(self, claim: Claim) -> bool:
        """Whether the pod may only run on the node that was chosen for it."""
        return False

    def keeps_off(self, claim: Claim) -> bool:
        """Whether GPU nodes are closed to the claim, except one to which it is pinned."""
        return False

    def unmarked(self, node: Node) -> bool:
        """Whether the node is a GPU node without the label that keeps pods off."""
        return False


@dataclass(frozen=True, slots=True)
class Plugin:
    """One policy, with everything of its dialect."""

    name: str
    order: int  # which refusal orders the victims when several policies refuse: lower first; also the charge order
    create: Callable[[], Policy]
    kinds: tuple[Kind, ...] = ()
    section: Section | None = None  # Configuration.spec.<name>
    translate: Mapping[str, Translate] = field(default_factory=dict)  # by kind name; Configuration gets the section
    admit: Mapping[str, Admit] = field(default_factory=dict)  # by kind name, "Pod" included
    check_removal: Mapping[str, CheckRemoval] = field(default_factory=dict)
    unpreemptible: Callable[[Mapping[str, str], Mapping[str, str]], bool] | None = None  # (labels, annotations)
    namespaces: Mapping[str, Namespaces] = field(default_factory=dict)  # by kind name: where its objects govern pods
    chosen: Mapping[str, str] = field(default_factory=dict)  # by kind name: the label by which a pod names its object
    writes: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # by kind name: verbs for its outputs; not status
    title: str = ""  # heading of its part in lists of reasons; Markdown
    reasons: tuple[Reason, ...] = ()  # every code that the policy may give, with what helps
    quotas: QuotaTable = field(default_factory=QuotaTable)  # its rows in lists
    fixes: FixFields = field(default_factory=FixFields)  # what suggested fixes may edit
    pods: PodMarks = PodMarks()
    node_annotations: tuple[str, ...] = ()  # how the annotations of nodes begin that it reads; others are dropped
    placement: Callable[[Any], PlacementRules] | None = None  # of its policy
    needs_node: Callable[[Mapping[str, str], Mapping[str, str]], bool] | None = None
    """(labels, annotations) -> whether the pod can only be admitted together with a node."""
    everywhere: Callable[[Any], tuple[str, ...] | None] | None = None
    """(its section of a Configuration as plain data, or None) -> the exempt namespaces, if it governs all others."""
    review: Review | None = None  # is asked, besides ``admit`` and ``check_removal``, when one of these kinds changes:
    reviewed: tuple[str, ...] = ()
    access: Mapping[str, Access] = field(default_factory=dict)  # by kind name: who may use its quotas


class Registry:
    """The plugins in force, in their order."""

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self._plugins: dict[str, Plugin] = {}
        for plugin in plugins:
            self.add(plugin)

    def add(self, plugin: Plugin) -> None:
        if plugin.name in self._plugins:
            raise ValueError(f"policy {plugin.name} is registered already")
        plugins = sorted((*self._plugins.values(), plugin), key=lambda one: (one.order, one.name))
        KindSet([*CORE_KINDS, *(kind for one in plugins for kind in one.kinds)])  # refuses kinds that clash
        self._plugins = {one.name: one for one in plugins}

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._plugins.values())

    def __contains__(self, name: str) -> bool:
        return name in self._plugins

    def policies(self) -> list[Policy]:
        """A fresh policy of each plugin, in order."""
        return [plugin.create() for plugin in self]

    def paired(self, policies: Iterable[Policy]) -> list[tuple[Plugin, Policy]]:
        """Each policy of an engine with its plugin."""
        return [(self._plugins[policy.name], policy) for policy in policies if policy.name in self._plugins]


# The modules of the built-in policies; each has a ``PLUGIN``. Orders: trees 10, pools 20, elastic 30, limits 40,
# nodes 50, crossquota 60, gpus 70, devices 80, access 90. Stores keep what claims cost by position: append.
BUILT_IN = (
    "bursar.policies.trees.plugin",
    "bursar.policies.pools.plugin",
    "bursar.policies.elastic.plugin",
    "bursar.policies.namespace.plugin",
    "bursar.policies.nodes.plugin",
    "bursar.policies.crossquota.plugin",
    "bursar.policies.gpus.plugin",
    "bursar.policies.devices.plugin",
    "bursar.policies.access.plugin",
)
ENTRY_POINTS: Final = "bursar.policies"
RESERVED: Final = frozenset({"engine", "control", "local"})  # give reasons and have sections of their own


class PolicyLoadError(ImportError):
    """An installed policy that cannot be used; names the distribution and the entry point."""


def default_registry() -> Registry:
    """The policies that ship with Bursar, and those of other installed distributions."""
    return Registry(_installed())


@cache
def _installed() -> tuple[Plugin, ...]:
    registry = Registry(import_module(module).PLUGIN for module in BUILT_IN)
    for point in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)):
        try:
            registry.add(_loaded(point))
        except Exception as error:
            distribution = "an unknown distribution" if point.dist is None else point.dist.name
            where = f"policy {point.name} ({point.value}) of {distribution}"
            raise PolicyLoadError(f"{where} cannot be used: {str(error) or type(error).__name__}") from error
    return tuple(registry)


def _loaded(point: metadata.EntryPoint) -> Plugin:
    plugin = point.load()
    if not isinstance(plugin, Plugin):
        raise TypeError(f"it is {type(plugin).__name__}, not a Plugin")
    if not isinstance(plugin.order, int):
        raise TypeError("its order is not a number")
    if plugin.name in RESERVED:
        raise ValueError(f"the name {plugin.name} is reserved")
    name = plugin.create().name
    if name != plugin.name:
        raise ValueError(f"its policy calls itself {name}, not {plugin.name}")
    return plugin


@cache
def installed_marks() -> PodMarks:
    """The marks of all installed policies: of which pods admission takes care, and what only Bursar writes."""
    return PodMarks.joined(plugin.pods for plugin in _installed())
