"""Admission reviews: the policies' own admission functions for quota kinds, the gate for pods.

Reviews are stateless, so a dry run is like any other call. A change that touches neither spec, labels nor annotations
passes, and so does any change of an object that is being deleted: finalizers can always be removed. Of pods only the
metadata is fetched, and only of those that have not ended. JSON patches (RFC 6902) replace lists as a whole.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from bursar.control.admission import Admission, known_kinds
from bursar.kube.admission.predicate import GATE, HAS_GATE, AdmissionOptions, Arm, arms, facts_of
from bursar.kube.client.api import EVERYTHING, METADATA_LIST, NODES, PODS, Api, Select
from bursar.kube.client.http import JSON
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import TypedObject
from bursar.objects.manifests import Document
from bursar.policies.plugin import D, ObjectView, Registry, derived

Operation = dict[str, Any]
T = TypeVar("T")


def patch_between(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[Operation]:
    """The operations that turn one mapping into the other, in order of keys."""
    found: list[Operation] = []
    for key in sorted({*before, *after}):
        where = f"{path}/{pointer(key)}"
        if key not in after:
            found.append({"op": "remove", "path": where})
        elif key not in before:
            found.append({"op": "add", "path": where, "value": after[key]})
        elif isinstance(before[key], dict) and isinstance(after[key], dict):
            found += patch_between(before[key], after[key], where)
        elif before[key] != after[key]:
            found.append({"op": "replace", "path": where, "value": after[key]})
    return found


def pointer(key: str) -> str:
    """One step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


API_VERSION = "admission.k8s.io/v1"


class ReviewError(ValueError):
    """A body that is no AdmissionReview of this version."""


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    kind: GroupVersionKind = GroupVersionKind()
    namespace: str = ""
    name: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class AdmissionReview(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest


_DECODER = msgspec.json.Decoder(AdmissionReview)


def read_review(body: bytes) -> AdmissionRequest:
    """The request of a review; raises ``ReviewError``."""
    try:
        review = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReviewError(f"is no AdmissionReview: {error}") from None
    if review.kind != "AdmissionReview" or review.api_version != API_VERSION:
        raise ReviewError(f"{review.api_version} {review.kind} is not {API_VERSION} AdmissionReview")
    return review.request


def allowed(uid: str, patch: list[Operation] | None = None) -> bytes:
    """The answer that lets an object pass, changed by the patch if there is one."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return _review(response)


def refused(uid: str, message: str) -> bytes:
    """The answer that refuses an object, in one line for its sender."""
    status = {"code": 422, "reason": "Invalid", "message": message}
    return _review({"uid": uid, "allowed": False, "status": status})


def _review(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


Body = dict[str, Any]


class LiveView(ObjectView, Protocol):
    """The objects of the cluster, as the controller sees them. Kinds go by their names, as everywhere in Bursar."""

    def ready(self) -> bool:
        """Whether everything was listed once; until then nothing can be judged."""

    async def catch_up(self) -> None:
        """Come to know everything that the API server had acknowledged before the call."""


Fetch = Callable[[str], Awaitable[Sequence[Mapping[str, Any]]]]
"""All objects of a kind now, from the API server itself."""

FETCHED = ("Pod", "Node")
"""Kinds that are not followed for the webhook: there are many, and few requests ask for them."""


class NotFetched(Exception):  # noqa: N818 a request, not an error
    """A kind is asked for that was not fetched yet."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class ReviewView:
    """What one request sees: what is followed, and what was fetched for it."""

    def __init__(self, view: ObjectView, fetched: dict[str, Sequence[Mapping[str, Any]]] | None) -> None:
        self._view = view
        self.fetched = fetched  # None: nothing can be fetched

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None:
        return self._view.get(kind, key)

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        if self.fetched is None or kind not in FETCHED:
            return self._view.list(kind, namespace)
        if kind not in self.fetched:
            raise NotFetched(kind)
        return [body for body in self.fetched[kind] if namespace in (None, body["metadata"].get("namespace"))]

    def derive(self, made: type[D], make: Callable[[ObjectView], D]) -> D:
        """What a policy makes of the objects that are followed, which does not depend on those that are fetched."""
        return derived(self._view, made, make)


class QuotaReviewer:
    """Judges quota kinds. Without ``fetch`` the view has pods and nodes itself."""

    def __init__(self, registry: Registry, view: LiveView, fetch: Fetch | None = None) -> None:
        self._kinds = known_kinds(registry)
        self._admission = Admission(registry, self._kinds)
        self._view = view
        self._fetch = fetch

    async def fill(self, request: AdmissionRequest) -> list[Operation]:
        """Returns the changes of the object; raises ``ManifestError``."""
        return await self._surely(request, self._filled)

    async def check(self, request: AdmissionRequest) -> None:
        """Raises ``ManifestError`` when the object must not be stored, or not be deleted."""
        await self._surely(request, self._checked)

    async def _surely(self, request: AdmissionRequest, judge: Callable[[AdmissionRequest, ReviewView], T]) -> T:
        """Judges again after a refresh if it refuses: an object that it needs may have been created a moment ago."""
        view = ReviewView(self._view, None if self._fetch is None else {})
        caught_up = False
        while True:
            try:
                return judge(request, view)
            except NotFetched as missing:
                if self._fetch is None or view.fetched is None:
                    raise
                view.fetched[missing.kind] = await self._fetch(missing.kind)
            except ManifestError:
                if caught_up:
                    raise
                caught_up = True
                await self._view.catch_up()

    def _filled(self, request: AdmissionRequest, view: ReviewView) -> list[Operation]:
        given, old = self._read(request)
        if given is None:
            return []
        return patch_between(given.body, self._admission.admit(view, old, given).body)

    def _checked(self, request: AdmissionRequest, view: ReviewView) -> None:
        if request.operation == "DELETE":
            body = request.old_object or {}
            metadata = body.get("metadata") or {}
            namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
            key = f"{namespace}/{name}" if namespace else name
            kind = self._kinds.find(_kind_name(body))
            self._admission.review_removal(view, [(kind, key, body)])
            self._admission.check_removal(view, kind, key, body)
        else:
            given, old = self._read(request)
            if given is not None:
                self._admission.admit(view, old, given)

    def _read(self, request: AdmissionRequest) -> tuple[TypedObject | None, Body | None]:
        """The object as it is to be judged, None if it need not be, and what it was before."""
        body, old = request.object, request.old_object
        if body is None or (body.get("metadata") or {}).get("deletionTimestamp"):
            return None, old
        if old is not None and _meaning(old) == _meaning(body):
            return None, old
        return self._kinds.read(Document("", 0, body)), old


def _kind_name(body: Body) -> str:
    group = str(body.get("apiVersion", "")).rpartition("/")[0]
    return f"{body.get('kind', '')}.{group}" if group else str(body.get("kind", ""))


def _meaning(body: Body) -> list[object]:
    metadata = body.get("metadata") or {}
    own = {key: value for key, value in body.items() if key not in {"metadata", "status"}}
    return [own, metadata.get("labels") or {}, metadata.get("annotations") or {}]


class PodGate:
    """The gate where the server has no MutatingAdmissionPolicy."""

    def __init__(self, options: AdmissionOptions) -> None:
        self._options = options
        self._arms: Mapping[str, Arm] = {arm.name: arm for arm in arms(options)}
        self._originals = {*options.scheduler_names} - {options.cluster_scheduler}

    def arm(self, name: str) -> Arm | None:
        return self._arms.get(name)

    def patch(self, arm: Arm, pod: Body) -> list[Operation]:
        """What to change about a new pod of one of the arm's namespaces."""
        facts = facts_of(pod)
        spec = pod.get("spec") or {}
        if spec.get("nodeName") or not arm.governs().holds(facts):
            return []
        found: list[Operation] = []
        if not spec.get("schedulingGates"):
            found.append({"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]})
        elif not HAS_GATE.holds(facts):
            found.append({"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}})
        if spec.get("schedulerName") in self._originals:
            found.append({"op": "replace", "path": "/spec/schedulerName", "value": self._options.cluster_scheduler})
        if found and self._options.forget_managed_fields and _not_applied(pod):
            found.append({"op": "remove", "path": "/metadata/managedFields"})
        return found


def _not_applied(pod: Body) -> bool:
    """The pod was made by one write, and that was no server-side apply."""
    managed = (pod.get("metadata") or {}).get("managedFields") or ()
    return [entry.get("operation") for entry in managed] == ["Update"]


class _Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True, omit_defaults=True):
    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}


class _Narrow(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _Status = _Status()


_RESOURCES = {"Pod": PODS, "Node": NODES}
_NOT_ENDED = Select(fields="status.phase!=Succeeded,status.phase!=Failed")
_decode = msgspec.json.Decoder(_Narrow).decode


def fetch_from(api: Api) -> Fetch:
    """Names, labels and amounts; the rest is not even decoded."""

    async def fetch(kind: str) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        select, accept = (_NOT_ENDED, METADATA_LIST) if kind == "Pod" else (EVERYTHING, JSON)
        async for page in api.pages(_RESOURCES[kind], select=select, accept=accept):
            found.extend(msgspec.to_builtins(_decode(raw)) for raw in page.items or ())
        return found

    return fetch
