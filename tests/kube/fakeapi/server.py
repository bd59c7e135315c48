"""The HTTP side of the server in memory: paths, verbs, content types, and the faults that were ordered."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import ssl
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
from aiohttp import web

from bursar.kube.client import api
from bursar.kube.client.api import DISRUPTION_BUDGETS, PODS, Resource
from bursar.kube.client.auth import ClusterConfig, Given, Secret
from bursar.kube.client.http import JSON
from tests.kube.fakeapi import patches
from tests.kube.fakeapi.faults import Fault
from tests.kube.fakeapi.refusals import Refusal
from tests.kube.fakeapi.state import Object, State
from tests.kube.fakeapi.watches import Watch, chosen_by, start_position

KNOWN = [value for value in vars(api).values() if isinstance(value, Resource)]


class Place(NamedTuple):
    resource: Resource
    namespace: str
    name: str
    subresource: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def authorization(self) -> str:
        return dict(self.headers).get("Authorization", "")


class FakeApi:
    """Use as an async context manager; ``config()`` tells clients how to reach it, ``state`` is what it holds."""

    def __init__(self, *extra: Resource, stream_lists: bool = True, tls: ssl.SSLContext | None = None) -> None:
        self.state = State()
        self.token = ""  # anybody is let in
        self.stream_lists = stream_lists
        self.gone_as_status = False
        self.cut_lists: list[int] = []  # for each of the next streamed lists: after how many objects it is cut
        self.cut_cleanly = False  # with a proper end, as a proxy does that is shut down
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.watches: set[Watch] = set()
        self._resources = [*KNOWN, *extra]
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        await self._listen(0)
        return self

    async def _listen(self, port: int) -> None:
        assert self._runner is not None
        site = web.TCPSite(self._runner, "127.0.0.1", port, reuse_address=True, ssl_context=self._tls)
        await site.start()
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()

    def config(self) -> ClusterConfig:
        secret = Secret(f"Bearer {self.token}") if self.token else Secret()
        return ClusterConfig(self.url, credentials=Given(secret), source="fake")

    # What tests order.

    def require_token(self, token: str) -> None:
        self.token = token

    def serve(self, resource: Resource) -> None:
        self._resources.append(resource)

    def withdraw(self, resource: Resource) -> None:
        self._resources.remove(resource)

    def fail(self, pattern: str, **how: Any) -> Fault:  # noqa: ANN401 fields of Fault
        fault = Fault(pattern, **how)
        self.faults.append(fault)
        return fault

    def compact(self) -> None:
        """Forget the history: a watch from before now is too old, and so is every list under way."""
        self.state.version += 1
        self.state.compacted = self.state.version
        self._pages.clear()

    def end_watches(self) -> None:
        for watch in self.watches:
            watch.ending = True
        self.state.wake()

    def cut_watches(self) -> None:
        """As if a cable was cut: connections are reset, in the middle of whatever they carry."""
        for watch in self.watches:
            watch.cut()
        self.state.wake()

    def mute_watches(self) -> None:
        for watch in self.watches:
            watch.muted = True

    def send_bookmarks(self) -> None:
        for watch in self.watches:
            watch.owed_bookmark = True
        self.state.wake()

    def send_garbage(self, type_: str, body: Object) -> list[asyncio.Task[None]]:
        """Send an event that no object stands behind on every watch."""
        return [asyncio.ensure_future(watch.send(type_, body)) for watch in self.watches]

    # What clients ask.

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        seen = Seen(request.method, request.path, dict(request.query), list(request.headers.items()), body)
        self.seen.append(seen)
        line = f"{request.method} {request.path_qs}"
        fault = next((fault for fault in self.faults if fault.matches(line)), None)
        try:
            if fault is not None and not fault.carried_out:
                await self._strike(fault, request)
            if self.token and seen.authorization != f"Bearer {self.token}":
                raise Refusal(401, "Unauthorized")
            answer = await self._answer(request, body)
            if fault is not None and fault.carried_out:
                await self._strike(fault, request)
            return answer
        except Refusal as refusal:
            plain = fault is not None and fault.plain
            return self._refused(refusal, plain=plain)

    @staticmethod
    async def _strike(fault: Fault, request: web.Request) -> None:
        await fault.strike()
        if fault.cut and request.transport is not None:
            request.transport.abort()
            raise Refusal(500, "the connection was cut")

    @staticmethod
    def _refused(refusal: Refusal, *, plain: bool) -> web.Response:
        headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
        if plain:
            return web.Response(status=refusal.code, text=refusal.message, headers=headers)
        return web.json_response(refusal.status(), status=refusal.code, headers=headers)

    async def _answer(self, request: web.Request, body: bytes) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
        place = self._place(request.path)
        if place is None:
            return self._discovery(request.path)
        if request.method == "GET":
            return await self._read(request, place)
        content = json.loads(body) if body else {}
        if request.method == "POST":
            return self._post(request, place, content)
        if request.method == "PATCH":
            return web.json_response(_asked_for(request, self._patch(request, place, content)))
        if request.method == "DELETE":
            conditions = content.get("preconditions", {})
            uid, version = conditions.get("uid", ""), conditions.get("resourceVersion", "")
            gone = self.state.delete(*place[:3], uid=uid, version=version, keep=_kept(request, content))
            return web.json_response(gone)
        raise Refusal(405, request.method)

    def _place(self, path: str) -> Place | None:
        """The resource, namespace, name and subresource of a path; None for the roots of groups."""
        for resource in self._resources:
            if not path.startswith(resource.root + "/"):
                continue
            parts = path[len(resource.root) + 1 :].split("/")
            namespace = ""
            if parts[0] == "namespaces" and len(parts) > 2 and resource.namespaced:
                namespace, parts = parts[1], parts[2:]
            of_namespace = len(parts) > 2 and parts[0] == "namespaces" and parts[2] != "status"
            if parts[0] == resource.plural and not of_namespace:
                return Place(resource, namespace, *[*parts[1:], "", ""][:2])
        if path.count("/") > 3 or not path.startswith(("/api/", "/apis/")):
            raise Refusal(404, "the server could not find the requested resource")
        return None

    def _discovery(self, path: str) -> web.Response:
        found = [resource for resource in self._resources if resource.root == path]
        if not found:
            raise Refusal(404, "the server could not find the requested resource")
        entries = [
            {"name": resource.plural, "kind": resource.kind, "namespaced": resource.namespaced} for resource in found
        ]
        return web.json_response({"kind": "APIResourceList", "resources": entries})

    async def _read(self, request: web.Request, place: Place) -> web.StreamResponse:
        if place.name:
            return web.json_response(self.state.get(place.resource, place.namespace, place.name))
        if request.query.get("watch") in {"true", "1"}:
            return await self._watch(request, place)
        return self._list(request, place)

    def _list(self, request: web.Request, place: Place) -> web.Response:
        token = request.query.get("continue", "")
        if token:
            if token not in self._pages:
                raise Refusal(410, "The provided continue parameter is too old")
            version, found = self._pages.pop(token)
        else:
            chosen = chosen_by(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
            version = self.state.version
            found = [item for item in self.state.of(place.resource, place.namespace) if chosen(item)]
        limit = int(request.query.get("limit", "0")) or len(found) or 1
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if len(found) > limit:
            token = base64.b64encode(f"{version}.{len(self._pages)}.{len(self.seen)}".encode()).decode()
            self._pages[token] = (version, found[limit:])
            meta |= {"continue": token, "remainingItemCount": len(found) - limit}
        resource = place.resource
        body = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": meta,
            "items": found[:limit],
        }
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def _watch(self, request: web.Request, place: Place) -> web.StreamResponse:
        query = request.query
        initial = query.get("sendInitialEvents") == "true"
        if initial and (not self.stream_lists or query.get("resourceVersionMatch") != "NotOlderThan"):
            raise Refusal(422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")
        late: Refusal | None = None
        try:
            position = start_position(self.state, query.get("resourceVersion", ""))
        except Refusal as refusal:
            if self.gone_as_status:
                raise
            late, position = refusal, 0
        response = web.StreamResponse(headers={"Content-Type": JSON})
        chosen = chosen_by(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        bookmarks = query.get("allowWatchBookmarks") == "true"
        watch = Watch(self.state, place.resource, place.namespace, chosen, response, bookmarks, position)
        self.watches.add(watch)
        try:
            await response.prepare(request)
            if late is not None:
                await watch.send("ERROR", late.status())
                return response
            if initial:
                await watch.initial(self.cut_lists.pop() if self.cut_lists else None, cleanly=self.cut_cleanly)
            limit = float(query.get("timeoutSeconds", "1800"))
            await watch.follow(asyncio.get_running_loop().time() + limit)
        except ConnectionError:
            pass  # the client went, or the test cut it
        finally:
            self.watches.discard(watch)
        return response

    def _post(self, request: web.Request, place: Place, content: Object) -> web.Response:
        if place.subresource == "eviction":
            self._evict(place, content, keep=_kept(request, content.get("deleteOptions", {})))
            return web.json_response({"kind": "Status", "status": "Success", "code": 201}, status=201)
        if not _kept(request):
            return web.json_response(content, status=201)
        return web.json_response(self.state.create(place.resource, place.namespace, content), status=201)

    def _patch(self, request: web.Request, place: Place, content: Any) -> Object:  # noqa: ANN401 any JSON
        status = place.subresource == "status"
        if request.content_type == "application/apply-patch+yaml":
            return self._apply(request, place, content, status=status)
        found = self.state.get(*place[:3])
        if request.content_type == "application/merge-patch+json":
            wanted = patches.merge(found, content)
        elif request.content_type == "application/strategic-merge-patch+json":
            wanted = patches.strategic(found, content)
        elif request.content_type == "application/json-patch+json":
            wanted = patches.json_patch(found, content)
        else:
            raise Refusal(415, f"the fake has no {request.content_type}")
        return self.state.replace(*place[:3], wanted, status=status, keep=_kept(request))

    def _apply(self, request: web.Request, place: Place, content: Object, *, status: bool) -> Object:
        manager = request.query.get("fieldManager", "")
        if not manager:
            raise Refusal(422, "fieldManager: Required value: is required for apply patch")
        key = (place.resource, place.namespace, place.name)
        keep = _kept(request)
        owners = self.state.owners.setdefault(key, {})
        if not keep:
            owners = copy.deepcopy(owners)
        found = self.state.objects.get(key)
        force = request.query.get("force") == "true"
        if found is None:
            body = {"metadata": {"name": place.name}}
            wanted = patches.apply(body, content, owners, manager, force=force)
            return self.state.create(place.resource, place.namespace, wanted) if keep else wanted
        wanted = patches.apply(found, content, owners, manager, force=force)
        wanted["metadata"]["managedFields"] = [{"manager": name} for name, paths in owners.items() if paths]
        return self.state.replace(*key, wanted, status=status, keep=keep)

    def _evict(self, place: Place, content: Object, *, keep: bool) -> None:
        pod = self.state.get(PODS, place.namespace, place.name)
        labels = pod["metadata"].get("labels", {})
        budgets = [
            budget
            for budget in self.state.of(DISRUPTION_BUDGETS, place.namespace)
            if budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
        ]
        if len(budgets) > 1:
            raise Refusal(500, "This pod has more than one PodDisruptionBudget, which the eviction does not support.")
        if budgets and budgets[0].get("status", {}).get("disruptionsAllowed", 0) < 1:
            cause = {"reason": "DisruptionBudget", "message": f"The budget {budgets[0]['metadata']['name']} needs pods"}
            wait = 0 if budgets[0].get("status") else 10  # as for one that has not been counted yet
            raise Refusal(429, "Cannot evict pod as it would violate its budget.", causes=[cause], retry_after=wait)
        uid = content.get("deleteOptions", {}).get("preconditions", {}).get("uid", "")
        self.state.delete(PODS, place.namespace, place.name, uid=uid, keep=keep)


def _asked_for(request: web.Request, found: Object) -> Object:
    """The whole object, or its metadata only."""
    if ";as=PartialObjectMetadata" not in request.headers["Accept"]:
        return found
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": found["metadata"]}


def _kept(request: web.Request, options: Object | None = None) -> bool:
    """Whether a write is to be kept, or only tried."""
    return not request.query.get("dryRun") and not (options or {}).get("dryRun")
