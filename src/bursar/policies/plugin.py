"""How a policy joins: a plugin names its kinds, its part of the Configuration, and the translation into settings.

Everything a policy brings lives in its own folder; the registry below is the only list. A plugin is plain data and
functions, and it is the side of a policy that knows manifests; the policy itself only ever sees settings and claims.

Reasons: the short, stable codes that people meet, with what they mean and what helps.

Each policy declares its own in ``reasons.py`` of its folder; docs/reasons.md is made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar, final, runtime_checkable

from bursar.objects.crds import Section
from bursar.objects.kinds import Kind
from bursar.policies.policy import Policy
from bursar.policies.results import Setting

Translate = Callable[[str, Any], list[Setting]]
"""(key of the object, the typed object or None when it was deleted) -> settings for the policy."""


class ObjectView(Protocol):
    """Read access to the objects of a cluster, as plain manifests, for admission."""

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None: ...

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        """All of a kind, or those of a namespace, which costs only as many as there are."""


class Derived(Protocol):
    """What a policy makes of the objects of a view other than pods, to judge others by."""

    def follow(self, kind: str, known: bool, now: Mapping[str, Any] | None) -> bool:
        """An object came (was not known), changed or went (None); whether this is right, be it by being put right."""


@runtime_checkable
class Keeping(Protocol):
    """A view that keeps what was made of it, by type, for as long as that is right."""

    derived: dict[type, Derived]


D = TypeVar("D", bound=Derived)


def derived(view: ObjectView, made: type[D], make: Callable[[], D]) -> D:
    """Such a thing, made once for as long as it is right if the view keeps any."""
    if not isinstance(view, Keeping):
        return make()
    found = view.derived.get(made)
    if not isinstance(found, made):
        found = view.derived[made] = make()
    return found


Admit = Callable[[ObjectView, Mapping[str, Any] | None, dict[str, Any]], dict[str, Any]]
"""(view, old manifest or None, new manifest) -> the manifest to store; raises ``objects.errors.ManifestError``.

Pure: fills defaults, and refuses what breaks a rule. Must be idempotent, and sees a dry run like any other call.
"""

Namespaces = Callable[[str, Mapping[str, Any]], Iterable[str]]
"""(key, manifest) -> the namespaces whose pods the object governs, whatever their labels say.

Also asked of manifests that are not acceptable: what cannot be read names nobody.
"""

CheckRemoval = Callable[[ObjectView, Mapping[str, Any]], None]
"""Raises ``ManifestError`` when the object must not be deleted now."""


RESOURCE: Final = "<resource>"


@final
class Reason:
    """A code; ``<resource>`` at its end stands for the name of any resource."""

    def __init__(self, code: str, means: str, helps: str) -> None:
        self.code: Final = code
        self.means: Final = means
        self.helps: Final = helps

    def covers(self, code: str) -> bool:
        """Whether a code that somebody met is this one."""
        if not self.code.endswith(RESOURCE):
            return code == self.code
        start = self.code[: -len(RESOURCE)]
        return code.startswith(start) and len(code) > len(start)


@dataclass(frozen=True, slots=True)
class Plugin:
    """One policy, as the rest of Bursar sees it."""

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
    title: str = ""  # heading of its part in lists of reasons; Markdown
    reasons: tuple[Reason, ...] = ()  # every code that the policy may give, with what helps


class Registry:
    """The plugins in force, in their order."""

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self._plugins: dict[str, Plugin] = {}
        for plugin in plugins:
            self.add(plugin)

    def add(self, plugin: Plugin) -> None:
        if plugin.name in self._plugins:
            raise ValueError(f"policy {plugin.name} is registered already")
        self._plugins[plugin.name] = plugin

    def __iter__(self) -> Iterator[Plugin]:
        return iter(sorted(self._plugins.values(), key=lambda plugin: (plugin.order, plugin.name)))

    def policies(self) -> list[Policy]:
        """A fresh policy of each plugin, in order."""
        return [plugin.create() for plugin in self]


# Where the policies live; each module has a ``PLUGIN``. Orders: trees 10, pools 20, elastic 30, limits 40,
# nodes 50, crossquota 60, gpus 70.
BUILT_IN = (
    "bursar.policies.trees.plugin",
    "bursar.policies.pools.plugin",
    "bursar.policies.elastic.plugin",
    "bursar.policies.namespace.plugin",
    "bursar.policies.nodes.plugin",
    "bursar.policies.crossquota.plugin",
    "bursar.policies.gpus.plugin",
)


def default_registry() -> Registry:
    """All policies that ship with Bursar."""
    return Registry(import_module(module).PLUGIN for module in BUILT_IN)
