"""What the load and the pass-through controller share: a session with the API server, and watches that go on."""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import aiohttp
import msgspec

PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"


class _Meta(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")


class _Object(msgspec.Struct):
    metadata: _Meta


class _Event(msgspec.Struct):
    type: str
    object: _Object


_decoder = msgspec.json.Decoder(_Event)


def session(url: str, ca: Path, token: str) -> aiohttp.ClientSession:
    """As one user, without a limit on connections or time: whoever calls limits what is in flight."""
    return aiohttp.ClientSession(
        url,
        headers={"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(ca)), limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
    )


async def follow(
    http: aiohttp.ClientSession, path: str, selector: str, accept: str, opened: Callable[[], None]
) -> AsyncIterator[list[bytes]]:
    """The events of a watch for ever, as many lines at once as have arrived; ``opened`` is called for each connection.
    ``selector``: of fields, or "" for all objects.

    A busy API server cuts off watchers that lag behind. The watch then goes on from the last event, or, when that is
    too old, begins anew, with everything there is as ADDED again.
    """
    version = ""
    while True:
        params: Mapping[str, str] = {"watch": "1", "fieldSelector": selector, "resourceVersion": version}
        async with http.get(path, params=params, headers={"Accept": accept}) as answer:
            answer.raise_for_status()
            opened()
            async for lines in _whole_lines(answer):
                last = _decoder.decode(lines[-1])
                version = "" if last.type == "ERROR" else last.object.metadata.version
                yield lines if version else lines[:-1]


async def _whole_lines(response: aiohttp.ClientResponse) -> AsyncIterator[list[bytes]]:
    rest = b""
    async for piece in response.content.iter_any():
        *complete, rest = (rest + piece).split(b"\n")
        if complete:
            yield complete
