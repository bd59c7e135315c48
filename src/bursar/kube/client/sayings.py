"""What events say, and which of them the server still has.

The server forgets an event after a while (an hour, unless somebody set it otherwise); then nobody can read it any more.
The newest event about an object is the one with the highest version: clocks of different writers are not compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from bursar.kube.client.api import Api, Select
from bursar.kube.client.errors import Malformed
from bursar.kube.client.models import Meta, Wire
from bursar.kube.client.resources import EVENTS

NOTE_BYTES = 1024
REASON_LENGTH = 128

Known = Callable[[str, str], bool]
"""Whether the object of that kind and uid is of interest."""


class Said(NamedTuple):
    """What an event says."""

    reason: str
    message: str


def said(reason: str, message: str) -> Said:
    """The same as an event says it, which is not longer than the API takes."""
    return Said(reason[:REASON_LENGTH], _shortened(message))


async def last_said(api: Api, controller: str, known: Known) -> dict[str, Said]:
    """By uid of the objects that are known: the newest event about each that the controller reported."""
    found: dict[str, Said] = {}
    versions: dict[str, int] = {}
    async for page in api.pages(EVENTS, select=Select(fields=f"reportingController={controller}")):
        for raw in page.items or ():
            event, version = _read(raw)
            about = event.regarding
            if version > versions.get(about.uid, -1) and known(about.kind, about.uid):
                versions[about.uid] = version
                found[about.uid] = Said(event.reason, event.note)
    return found


class _About(Wire, frozen=True):
    kind: str = ""
    uid: str = ""


class _Event(Wire, frozen=True):
    """An event, as far as it is read."""

    metadata: Meta = Meta()
    regarding: _About = _About()
    reason: str = ""
    note: str = ""


_decode = msgspec.json.Decoder(_Event).decode


def _read(raw: msgspec.Raw) -> tuple[_Event, int]:
    """An event and its version: a number that grows with each write of any event."""
    try:
        event = _decode(raw)
        return event, int(event.metadata.resource_version)
    except ValueError as error:  # no JSON of that form, or no number
        raise Malformed(f"event: {error}") from None


def _shortened(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= NOTE_BYTES:
        return message
    return encoded[: NOTE_BYTES - 3].decode(errors="ignore") + "…"
