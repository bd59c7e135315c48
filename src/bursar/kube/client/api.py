"""The verbs of the Kubernetes API for any resource, and where each kind lives (group, version, plural, scope).

Objects come back as ``Body`` (see ``models``); a mapping, a struct or JSON can be sent. Every write names the field
manager. An eviction returns a result instead of raising where the answer is about budgets, because callers plan by it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar
from urllib.parse import quote

import msgspec

from bursar.kube.client.errors import ApiError, Conflict, KubeError, Malformed, NotFound, ServerError, Throttled
from bursar.kube.client.http import JSON, Call, Http, Request, Retry, is_budget
from bursar.kube.client.models import ApiResourceList, ListPage, RawObject, level, read_any
from bursar.objects.kinds import Kind


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object as the API server serves it."""

    group: str  # "" for the core group
    version: str
    plural: str
    kind: str
    namespaced: bool

    @staticmethod
    def of(kind: Kind) -> Resource:
        """The resource behind one of Bursar's kinds."""
        return Resource(kind.group, kind.version, kind.plural, kind.kind, kind.namespaced)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of a collection or, with a name, of an object or its subresource."""
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        if namespace and not self.namespaced:
            raise ValueError(f"a {self.kind} belongs to no namespace, but {namespace!r} was given")
        parts = [self.root]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod", True)
NODES = Resource("", "v1", "nodes", "Node", False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
SECRETS = Resource("", "v1", "secrets", "Secret", True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True)
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
JOBS = Resource("batch", "v1", "jobs", "Job", True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True)

API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", False)

_ADMISSION = "admissionregistration.k8s.io"
MUTATING_POLICIES = Resource(_ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False)
MUTATING_WEBHOOKS = Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False)
VALIDATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)


FIELD_MANAGER = "bursar"
PAGE = 500
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Payload = Mapping[str, object] | msgspec.Struct | bytes
JsonPatch = list[dict[str, object]]
Query = tuple[tuple[str, str], ...]
T = TypeVar("T")


class PatchKind(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"  # JSON is YAML


class Outcome(StrEnum):
    """The outcome of an eviction."""

    EVICTED = "evicted"  # the pod is leaving
    GONE = "gone"  # the pod is gone, or another one has its name
    BLOCKED = "blocked"  # 429: its disruption budget does not allow it now
    AMBIGUOUS = "ambiguous"  # 500: more than one budget covers it, which the API refuses always


@dataclass(frozen=True, slots=True)
class Eviction:
    outcome: Outcome
    message: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    items: list[RawObject]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Select:
    """Which objects of a collection: selectors as the API writes them, ``a=b,c!=d``."""

    labels: str = ""
    fields: str = ""

    def query(self) -> Query:
        pairs = (("labelSelector", self.labels), ("fieldSelector", self.fields))
        return tuple(pair for pair in pairs if pair[1])


EVERYTHING = Select()


@dataclass(frozen=True, slots=True)
class Writing:
    """Options of a write."""

    field_manager: str = FIELD_MANAGER
    dry_run: bool = False
    gated: bool = True
    brief: bool = False  # only metadata comes back, and no warnings about fields: less work for the server
    within: float | None = None  # seconds, all tries together
    retry: Retry | None = None

    def query(self) -> Query:
        dry, unchecked = "All" if self.dry_run else "", "Ignore" if self.brief else ""
        asked = (("fieldManager", self.field_manager), ("dryRun", dry), ("fieldValidation", unchecked))
        return tuple(pair for pair in asked if pair[1])


PLAIN = Writing()
_decode_page = msgspec.json.Decoder(ListPage).decode
_decode_resources = msgspec.json.Decoder(ApiResourceList).decode


class Api:
    def __init__(self, http: Http) -> None:
        self.http = http

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        within: float | None = None,
        retry: Retry | None = None,
        gated: bool = True,
    ) -> RawObject:
        request = Request(_call("get", resource), "GET", resource.path(namespace, name), gated=gated)
        return _read(request, await self.http.send(request, within=within, retry=retry), RawObject)

    async def find(self, resource: Resource, name: str, namespace: str = "") -> RawObject | None:
        """The object, or None when there is none."""
        try:
            return await self.get(resource, name, namespace)
        except NotFound:
            return None

    async def pages(
        self,
        resource: Resource,
        namespace: str = "",
        select: Select = EVERYTHING,
        *,
        limit: int = PAGE,
        accept: str = JSON,
    ) -> AsyncIterator[ListPage]:
        """A consistent list, page by page; ``Gone`` when it takes so long that the server forgot its start."""
        path, continue_ = resource.path(namespace), ""
        while True:
            query = select.query()
            if limit:
                query += (("limit", str(limit)),)
            if continue_:
                query += (("continue", continue_),)
            request = Request(_call("list", resource), "GET", path, query, accept=accept)
            page = _read(request, await self.http.send(request), _decode_page)
            yield page
            continue_ = page.metadata.continue_
            if not continue_:
                return

    async def list(self, resource: Resource, namespace: str = "", select: Select = EVERYTHING) -> Listing:
        """All objects at once; for kinds with many objects use a reflector."""
        items: list[RawObject] = []
        version = ""
        async for page in self.pages(resource, namespace, select):
            items.extend(read_any(RawObject, bytes(raw))[0] for raw in page.items or ())
            version = page.metadata.resource_version
        return Listing(items, version)

    async def create(self, resource: Resource, body: Payload, namespace: str = "", how: Writing = PLAIN) -> RawObject:
        path = resource.path(namespace)
        call = _call("create", resource)
        return await self._write(_writing(how, call, "POST", path, how.query(), body), how)

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        kind: PatchKind,
        patch: Payload | JsonPatch,
        *,
        subresource: str = "",
        how: Writing = PLAIN,
    ) -> RawObject:
        """Change an object, or with ``subresource="status"`` its status. A JSON patch is a list of operations."""
        path = resource.path(namespace, name, subresource)
        call = _call("patch", resource, subresource)
        return await self._write(_writing(how, call, "PATCH", path, how.query(), patch, kind.value), how)

    async def apply(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        body: Payload,
        *,
        force: bool = False,
        subresource: str = "",
        how: Writing = PLAIN,
    ) -> RawObject:
        """Server-side apply: create or change, owning exactly the fields given. ``body`` names apiVersion and kind."""
        path = resource.path(namespace, name, subresource)
        query = (*how.query(), ("force", "true" if force else "false"))
        call = _call("patch", resource, subresource)
        return await self._write(_writing(how, call, "PATCH", path, query, body, PatchKind.APPLY.value), how)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        how: Writing = PLAIN,
    ) -> None:
        """Delete an object; with ``uid`` or ``resource_version`` only that very one (``Conflict`` otherwise)."""
        options = delete_options(uid, resource_version, grace, how)
        path = resource.path(namespace, name)
        call = _call("delete", resource)
        await self._send(_writing(how, call, "DELETE", path, (), options), how)

    async def evict(
        self, name: str, namespace: str, *, uid: str = "", grace: int | None = None, how: Writing = PLAIN
    ) -> Eviction:
        """Evict a pod, as its disruption budget allows."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": delete_options(uid, "", grace, how),
        }
        path = PODS.path(namespace, name, "eviction")
        call = _call("create", PODS, "eviction")
        try:
            await self._send(_writing(how, call, "POST", path, how.query(), body), how)
        except ApiError as error:
            return _refused_eviction(error)
        return Eviction(Outcome.EVICTED)

    async def serves(self, resource: Resource) -> bool:
        """Whether the server has this resource in this very version."""
        request = Request(Call("get", "", resource.root), "GET", resource.root)
        try:
            answer = _read(request, await self.http.send(request), _decode_resources)
        except NotFound:
            return False
        return any(entry.name == resource.plural for entry in answer.resources)

    async def lacks(self, resource: Resource) -> bool:
        """Whether the server certainly lacks this resource: a broken route to the server answers 404 too."""
        try:
            return await self.serves(PODS) and not await self.serves(resource)
        except KubeError:
            return False

    async def _write(self, request: Request, how: Writing) -> RawObject:
        return _read(request, await self._send(request, how), RawObject)

    async def _send(self, request: Request, how: Writing) -> bytes:
        return await self.http.send(request, within=how.within, retry=how.retry)


def delete_options(uid: str, resource_version: str, grace: int | None, how: Writing) -> dict[str, object]:
    preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions:
        options["preconditions"] = preconditions
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if how.dry_run:
        options["dryRun"] = ["All"]
    return options


def _refused_eviction(error: ApiError) -> Eviction:
    if isinstance(error, NotFound | Conflict):
        return Eviction(Outcome.GONE, error.message)
    if isinstance(error, Throttled) and is_budget(error):
        return Eviction(Outcome.BLOCKED, error.message, error.retry_after)
    if isinstance(error, ServerError) and "more than one PodDisruptionBudget" in error.message:
        return Eviction(Outcome.AMBIGUOUS, error.message)
    raise error


def _call(verb: str, resource: Resource, subresource: str = "") -> Call:
    name = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return Call(verb, resource.group, name)


def _writing(
    how: Writing, call: Call, method: str, path: str, query: Query, body: object, content_type: str = JSON
) -> Request:
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Request(call, method, path, query, encoded, content_type, METADATA if how.brief else JSON, how.gated)


def _read(request: Request, answer: bytes, read: Callable[[bytes], T]) -> T:
    try:
        return read(answer)
    except RecursionError:
        return _read(request, level(answer), read)
    except msgspec.DecodeError as error:
        raise Malformed(f"{request}: {error}") from None
