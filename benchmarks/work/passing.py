"""A controller that decides nothing: it un-gates every gated pod it sees, and pins it to the next node if asked to.

It is the cheapest thing that could stand where Bursar stands: one watch, one JSON patch a pod, with the term that the
fence asks for. What a cluster does with it bounds what any controller that gates can do. It runs as a process of its
own, so that its memory and processor time can be told from those of the load.

``python -m benchmarks.work.passing URL CA TOKEN TERM NAMESPACES [pin]``: of namespaces whose names begin so
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec

from benchmarks.work.kubeapi import PARTIAL, follow, session

GATE = "bursar.dev/quota"
TERM = "bursar.dev/term"
READY = "watching"
PIN = "pin"

_IN_FLIGHT = 32
_BUSY = 429
_JSON_PATCH = {"Content-Type": "application/json-patch+json"}


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""


class _Gate(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    gates: list[_Gate] = msgspec.field(name="schedulingGates", default_factory=list)


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Event(msgspec.Struct):
    type: str
    pod: _Pod = msgspec.field(name="object")


class _Named(msgspec.Struct):
    metadata: _Meta


class _Names(msgspec.Struct):
    items: list[_Named]


async def _node_names(http: aiohttp.ClientSession) -> list[str]:
    async with http.get("/api/v1/nodes", headers={"Accept": PARTIAL.format("List")}) as answer:
        answer.raise_for_status()
        return [item.metadata.name for item in msgspec.json.decode(await answer.read(), type=_Names).items]


def _patches(term: str, nodes: list[str]) -> Iterator[bytes]:
    """The body of the next patch: the gate goes, and the pod is bound to take the next node where there are nodes."""
    ungate: list[object] = [
        {"op": "remove", "path": "/spec/schedulingGates"},
        {"op": "add", "path": "/metadata/annotations", "value": {TERM: term}},
    ]
    if not nodes:
        return itertools.repeat(json.dumps(ungate).encode())
    return (json.dumps([*ungate, _pin(node)]).encode() for node in itertools.cycle(nodes))


def _pin(node: str) -> dict[str, object]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": required}}


async def _patch(http: aiohttp.ClientSession, pods: "asyncio.Queue[_Meta]", patches: Iterator[bytes]) -> None:
    while True:
        pod = await pods.get()
        path, body = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", next(patches)
        while True:
            async with http.patch(path, data=body, headers=_JSON_PATCH) as answer:
                await answer.read()
                if answer.status == _BUSY:
                    await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))
                    continue
                answer.raise_for_status()
                break


def _say_ready() -> None:
    print(READY, flush=True)


async def _watch(http: aiohttp.ClientSession, namespaces: str, pods: "asyncio.Queue[_Meta]") -> None:
    """All pods are seen, as Bursar must; those of some namespaces are let go.

    Not only those without a node: of such a watch the API server keeps ten events, and cuts it off at every burst.
    """
    decoder = msgspec.json.Decoder(_Event)
    seen: set[tuple[str, str]] = set()
    async for lines in follow(http, "/api/v1/pods", "", "application/json", _say_ready):
        for line in lines:
            event = decoder.decode(line)
            meta = event.pod.metadata
            gated = [gate.name for gate in event.pod.spec.gates] == [GATE]
            if gated and meta.namespace.startswith(namespaces) and (meta.namespace, meta.name) not in seen:
                seen.add((meta.namespace, meta.name))
                pods.put_nowait(meta)


async def serve(url: str, ca: str, token: str, term: str, namespaces: str, *wishes: str) -> None:
    """Until it is killed, or a call fails."""
    async with session(url, Path(ca), token) as http:
        pods: asyncio.Queue[_Meta] = asyncio.Queue()
        patches = _patches(term, await _node_names(http) if PIN in wishes else [])
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_IN_FLIGHT):
                tasks.create_task(_patch(http, pods, patches))
            tasks.create_task(_watch(http, namespaces, pods))


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
