"""Kinds of objects: how a manifest is recognised, typed and named.

A kind is called ``Kind`` for Kubernetes' own and ``Kind.group`` otherwise (``ElasticQuota.n8s.nebuly.ai``), because two
dialects share the name ElasticQuota. Documents are matched by apiVersion and kind; people name kinds as kubectl does
(``Pod``, ``pods``, ``po``). A document of an unknown kind is refused.

Quota kinds are strict: an unknown field is an error, since a misspelt limit would otherwise be no limit. Elsewhere
unknown fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from bursar.objects import core
from bursar.objects.core import ObjectMeta
from bursar.objects.decode import ManifestError, check_choice, decode, join, nearest, require_strict
from bursar.objects.devices import GROUP as DEVICE_GROUP
from bursar.objects.devices import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    check_claim,
    check_class,
    check_slice,
    check_template,
)
from bursar.objects.manifests import Document
from bursar.objects.pods import TAINT_EFFECTS, check_pod, check_priority_class
from bursar.objects.requests import amounts_from
from bursar.objects.validation import check_keys, check_labels, check_name, check_namespace, selector_from


class PrinterColumn(NamedTuple):
    """What a listing prints beside the name."""

    title: str
    path: str  # a JSON path, such as .status.used
    wide: bool = False  # only in the wide form


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of manifest, and the struct that it is read into."""

    group: str  # "" for v1
    version: str
    kind: str
    plural: str
    namespaced: bool
    struct: type[msgspec.Struct]
    strict: bool = False
    short_names: tuple[str, ...] = ()
    qualified: bool = True  # False: called by its bare name although it has a group (PriorityClass)
    bare: bool = False  # documents without an apiVersion are read as this kind too
    name_path: tuple[str, ...] = ("metadata", "name")  # what identifies an object
    any_name: bool = False  # the name may be any text, not only a DNS name
    check: Callable[[Any], object] | None = None  # of the struct; raises errors.ManifestError with the field's path
    columns: tuple[PrinterColumn, ...] = ()  # the age comes last without being listed
    status: type[msgspec.Struct] | None = None  # what Bursar writes there; None: conditions only

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.group}" if self.group and self.qualified else self.kind

    @property
    def has_status(self) -> bool:
        """Whether Bursar says of such objects how they fare; some are only read."""
        return self.status is not None or self.strict

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class TypedObject:
    """An object that passed: its kind, its identity, its manifest and the struct of the fields that matter."""

    kind: Kind
    namespace: str  # "" for cluster-scoped kinds
    name: str
    body: dict[str, Any]  # with its namespace filled in and without fields that are null
    typed: msgspec.Struct

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class KindSet:
    """All kinds in force: Kubernetes' own, ours, and those that the policies bring."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_type: dict[tuple[str, str], Kind] = {}
        self._by_name: dict[str, list[Kind]] = {}
        for kind in kinds:
            self._add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter({kind.name: kind for kind in self._by_type.values()}.values())

    def _add(self, kind: Kind) -> None:
        if kind.strict:
            require_strict(kind.struct)
        for api_version in {kind.api_version, ""} if kind.bare else {kind.api_version}:
            if (api_version, kind.kind) in self._by_type:
                raise ValueError(f"the kind {kind.name} is registered already")
            self._by_type[api_version, kind.kind] = kind
        short = (kind.kind, kind.kind.lower(), kind.plural, *kind.short_names)
        full = [f"{name}.{kind.group}" for name in (kind.kind, kind.plural, *kind.short_names)] if kind.group else []
        for name in {name.lower() for name in (*short, *full)}:
            self._by_name.setdefault(name, []).append(kind)

    def called(self, name: str) -> list[Kind]:
        """The kinds that people call by this name, in small or capital letters."""
        return self._by_name.get(name.lower(), [])

    def find(self, name: str) -> Kind:
        """The kind that people call by this name; ``ManifestError`` when there is none, or more than one."""
        found = self.called(name)
        if len(found) == 1:
            return found[0]
        if found:
            raise ambiguous(name, found)
        close = nearest(name, [called for kind in self for called in (kind.name, kind.kind, kind.plural)])
        hint = f"did you mean {close}?" if close else f"known are {self._listing()}"
        raise ManifestError(f"the kind {name!r:.80} is not known; {hint}")

    def reference(self, text: str) -> tuple[Kind, str]:
        """The kind and key that ``Kind/namespace/name`` or, for a cluster-scoped kind, ``Kind/name`` stands for."""
        name, _, key = text.partition("/")
        kind = self.find(name)
        parts = key.split("/")
        if not all(parts) or (len(parts) != (2 if kind.namespaced else 1) and not kind.any_name):
            form = "namespace/name" if kind.namespaced else "name"
            raise ManifestError(f"{text!r:.120} does not have the form {name}/{form}")
        return kind, key

    def read_all(self, documents: Iterable[Document]) -> list[TypedObject]:
        """Every document read, or an error; the same object twice is an error too."""
        found: list[TypedObject] = []
        places: dict[tuple[str, str], Document] = {}
        for document in documents:
            read = self.read(document)
            first = places.setdefault((read.kind.name, read.key), document)
            if first is not document:
                where = f"document {first.number}" + (f" of {first.source}" if first.source else "")
                error = ManifestError(f"is given twice, first in {where}", subject=f"{read.kind.kind} {read.key}")
                raise document.error(error)
            found.append(read)
        return found

    def read(self, document: Document) -> TypedObject:
        """The document as a typed and checked object."""
        try:
            return self._read(document.body)
        except ManifestError as error:
            raise document.error(error.located(subject=subject_of(document.body))) from None
        except RecursionError:
            raise document.error(ManifestError("is nested too deeply", subject=subject_of(document.body))) from None

    def _read(self, body: dict[str, Any]) -> TypedObject:
        kind = self._kind_of(body)
        name = _text_at(body, kind.name_path)
        namespace, body = _with_namespace(kind, body)
        _check_identity(kind, name)
        typed, body = decode(body, kind.struct)
        _check_marks(typed)
        if kind.check is not None:
            kind.check(typed)
        return TypedObject(kind, namespace, name, body, typed)

    def _kind_of(self, body: dict[str, Any]) -> Kind:
        name = body.get("kind")
        if not isinstance(name, str) or not name:
            raise ManifestError("is required, as text", "kind")
        api_version = body.get("apiVersion")
        found = self._by_type.get(("" if api_version is None else str(api_version), name))
        if found is not None:
            return found
        if not isinstance(api_version, str) or not api_version:
            raise ManifestError("is required, as text", "apiVersion")
        raise self._unknown(api_version, name)

    def _unknown(self, api_version: str, name: str) -> ManifestError:
        same_name = sorted(kind.api_version for kind in self.called(name) if kind.kind == name)
        if same_name:
            problem = f"{name} is a kind of {' and of '.join(same_name)}, not of {api_version!r:.80}"
            return ManifestError(problem, "apiVersion")
        group = api_version.rpartition("/")[0]
        siblings = sorted({kind.kind for kind in self if kind.group == group}) if group else []
        if siblings:
            problem = f"{name!r:.80} is not a kind of {group}, which has {', '.join(siblings)}"
            return ManifestError(problem, "kind")
        close = nearest(name, [kind.kind for kind in self])
        handled = f"is not handled; {f'did you mean {close}?' if close else f'handled are {self._listing()}'}"
        return ManifestError(f"{api_version} {name} {handled}"[:300], "kind")

    def _listing(self) -> str:
        return ", ".join(sorted(kind.name for kind in self))


def ambiguous(name: str, found: Iterable[Kind]) -> ManifestError:
    """The error about a name that several kinds share; it says what to type."""
    candidates = " or ".join(sorted(kind.name for kind in found))
    return ManifestError(f"the kind {name!r} is ambiguous: type {candidates}")


def subject_of(body: dict[str, Any]) -> str:
    """``Kind namespace/name`` as far as a document that is wrong has them."""
    metadata = body.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    parts = [part for part in (known.get("namespace"), known.get("name")) if isinstance(part, str) and part]
    kind = body.get("kind")
    return f"{kind if isinstance(kind, str) else ''} {'/'.join(parts)}".strip()


def _text_at(body: dict[str, Any], path: tuple[str, ...]) -> str:
    """The text that identifies an object; "" when it is missing."""
    value: object = body
    where = ""
    for step in path:
        if not isinstance(value, dict):
            raise ManifestError("expected a mapping", where)
        value = value.get(step)
        where = join(where, step)
        if value is None:
            hint = ", and a generated one is none" if step == "name" and _generates(body) else ""
            raise ManifestError(f"is required{hint}", ".".join(path))
    if not isinstance(value, str) or not value:
        raise ManifestError(f"{value!r:.40} is not a name", where)
    return value


def _generates(body: dict[str, Any]) -> bool:
    metadata = body.get("metadata")
    return isinstance(metadata, dict) and "generateName" in metadata


def _with_namespace(kind: Kind, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    metadata = body.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise ManifestError("expected a mapping", "metadata")
    namespace = metadata.get("namespace")
    if not kind.namespaced:
        if namespace:
            raise ManifestError(f"a {kind.kind} belongs to no namespace", "metadata.namespace")
        return "", body
    if namespace is None or namespace == "":  # 0 and [] are mistakes, not absences
        namespace = DEFAULT_NAMESPACE
    if not isinstance(namespace, str):
        raise ManifestError(f"{namespace!r:.40} is not a namespace", "metadata.namespace")
    check_namespace(namespace, "metadata.namespace")
    return namespace, {**body, "metadata": {**metadata, "namespace": namespace}}


def _check_identity(kind: Kind, name: str) -> None:
    path = ".".join(kind.name_path)
    if not kind.any_name:
        check_name(name, path)
    elif len(name) > 253 or not name.isprintable():
        raise ManifestError(f"{name!r:.60} is not a name: up to 253 printable characters", path)


def _check_marks(typed: msgspec.Struct) -> None:
    metadata = getattr(typed, "metadata", None)
    if isinstance(metadata, ObjectMeta):
        check_labels(metadata.labels, "metadata.labels")
        check_keys(metadata.annotations, "metadata.annotations")


_PERCENT = re.compile(r"[0-9]{1,3}%", re.ASCII)


def int_or_percent(value: int | str, path: str) -> tuple[int, bool]:
    """(number, whether it is a percentage) of a bound of a disruption budget."""
    if isinstance(value, int) and 0 <= value < 2**31:
        return value, False
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) <= 100:
        return int(value[:-1]), True
    raise ManifestError(f"{value!r:.40} is neither a number of pods nor a percentage such as 50%", path)


def check_node(node: core.Node) -> None:
    amounts_from(node.status.allocatable, "status.allocatable")
    amounts_from(node.status.capacity, "status.capacity")
    for index, taint in enumerate(node.spec.taints):
        if not taint.key:
            raise ManifestError("must not be empty", f"spec.taints[{index}].key")
        check_choice(taint.effect, TAINT_EFFECTS, f"spec.taints[{index}].effect")


def check_budget(budget: core.PodDisruptionBudget) -> None:
    spec = budget.spec
    if spec.min_available is not None and spec.max_unavailable is not None:
        raise ManifestError("cannot be given together with minAvailable", "spec.maxUnavailable")
    if spec.min_available is not None:
        int_or_percent(spec.min_available, "spec.minAvailable")
    if spec.max_unavailable is not None:
        int_or_percent(spec.max_unavailable, "spec.maxUnavailable")
    if spec.selector is not None:
        selector_from(spec.selector, "spec.selector")


def _check_namespace(namespace: core.Namespace) -> None:
    check_namespace(namespace.metadata.name, "metadata.name")


POD = Kind("", "v1", "Pod", "pods", True, core.Pod, short_names=("po",), check=check_pod)
NODE = Kind("", "v1", "Node", "nodes", False, core.Node, short_names=("no",), check=check_node)
NAMESPACE = Kind(
    "", "v1", "Namespace", "namespaces", False, core.Namespace, short_names=("ns",), check=_check_namespace
)
PRIORITY_CLASS = Kind(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
    False,
    core.PriorityClass,
    short_names=("pc",),
    qualified=False,
    check=check_priority_class,
)
DISRUPTION_BUDGET = Kind(
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    True,
    core.PodDisruptionBudget,
    short_names=("pdb",),
    qualified=False,
    check=check_budget,
)


def _device_kind(plural: str, namespaced: bool, struct: type[core.Object], check: Callable[[Any], object]) -> Kind:
    """Kinds of dynamic resource allocation are only read."""
    return Kind(DEVICE_GROUP, "v1", struct.__name__, plural, namespaced, struct, qualified=False, check=check)


DEVICE_CLASS = _device_kind("deviceclasses", False, DeviceClass, check_class)
RESOURCE_SLICE = _device_kind("resourceslices", False, ResourceSlice, check_slice)
RESOURCE_CLAIM = _device_kind("resourceclaims", True, ResourceClaim, check_claim)
RESOURCE_CLAIM_TEMPLATE = _device_kind("resourceclaimtemplates", True, ResourceClaimTemplate, check_template)
DEVICE_KINDS = (DEVICE_CLASS, RESOURCE_SLICE, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE)
CORE_KINDS = (POD, *DEVICE_KINDS, NODE, NAMESPACE, PRIORITY_CLASS, DISRUPTION_BUDGET)
