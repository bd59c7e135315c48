"""Watch streams of the server in memory: what each connection is still owed, bookmarks, and ways to end badly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from bursar.kube.client.api import Resource
from tests.kube.fakeapi.refusals import Refusal
from tests.kube.fakeapi.state import Change, Object, State

INITIAL_END = {"k8s.io/initial-events-end": "true"}


def chosen_by(labels: str, fields: str) -> Callable[[Object | None], bool]:
    """Selectors, as far as the fake knows them: ``a=b,c!=d`` over labels and over field paths."""
    terms = [_term(text, ("metadata", "labels")) for text in labels.split(",") if text]
    terms += [_term(text, None) for text in fields.split(",") if text]
    return lambda found: found is not None and all(term(found) for term in terms)


def _term(text: str, labels: tuple[str, ...] | None) -> Callable[[Object], bool]:
    wanted = "!=" not in text
    name, _, value = text.replace("==", "=").replace("!=", "=").partition("=")
    path = (*labels, name) if labels else tuple(name.split("."))

    def holds(found: Any) -> bool:  # noqa: ANN401 any JSON
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        return ((found or "") == value) is wanted

    return holds


@dataclass(slots=True, eq=False)
class Watch:
    """One connection."""

    state: State
    resource: Resource
    namespace: str
    chosen: Callable[[Object | None], bool]
    response: web.StreamResponse
    bookmarks: bool
    position: int  # in the history
    ending: bool = False
    owed_bookmark: bool = False
    muted: bool = False

    async def send(self, type_: str, body: Object) -> None:
        await self.response.write(msgspec.json.encode({"type": type_, "object": body}) + b"\n")

    async def initial(self, end_after: int | None, *, cleanly: bool) -> None:
        """A streamed list; ``end_after`` that many objects the connection is reset, or ended ``cleanly``."""
        found = [item for item in self.state.of(self.resource, self.namespace) if self.chosen(item)]
        self.position, version = len(self.state.history), self.state.version
        for item in found[:end_after]:
            await self.send("ADDED", item)
        if end_after is not None:
            self.ending = True
            if not cleanly:
                self.cut()
            return
        await self.bookmark(version, INITIAL_END)

    def cut(self) -> None:
        self.ending = True
        request = self.response._req
        if request is not None and request.transport is not None:
            request.transport.abort()

    async def bookmark(self, version: int, annotations: dict[str, str] | None = None) -> None:
        meta: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        body = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": meta}
        await self.send("BOOKMARK", body)

    async def follow(self, until: float) -> None:
        """Send what happens until the time is over or somebody ends it."""
        loop = asyncio.get_running_loop()
        while not self.ending and loop.time() < until:
            if not self.muted:
                await self._catch_up()
            try:
                async with asyncio.timeout_at(until):
                    await self.state.changed()
            except TimeoutError:
                return

    async def _catch_up(self) -> None:
        while self.position < len(self.state.history):
            change = self.state.history[self.position]
            self.position += 1
            if change.resource == self.resource and self.namespace in {"", change.after["metadata"].get("namespace")}:
                await self._tell(change)
        if self.owed_bookmark and self.bookmarks:
            self.owed_bookmark = False
            await self.bookmark(self.state.version)

    async def _tell(self, change: Change) -> None:
        was, is_now = self.chosen(change.before), self.chosen(change.after) and change.type != "DELETED"
        if is_now:
            await self.send("MODIFIED" if was else "ADDED", change.after)
        elif was:
            await self.send("DELETED", change.after)


def start_position(state: State, version: str) -> int:
    """Where in the history a watch from this version begins."""
    if not version or version == "0":
        return len(state.history)
    if not version.isdigit():
        raise Refusal(500, f'resourceVersion: Invalid value: "{version}"')
    wanted = int(version)
    if wanted < state.compacted:
        raise Refusal(410, f"too old resource version: {wanted} ({state.compacted})")
    return sum(1 for change in state.history if change.version <= wanted)
