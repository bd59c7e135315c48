"""Watches of pods in Protocol Buffers: the frames of a watch, and the fields of ``SeenPod`` by number.

The API server encodes an object once for all watches in the same form. Schedulers and kubelets watch pods in Protocol
Buffers, so a watch in JSON makes it encode each change again. A frame is four bytes of length, then the event type and
the object's envelope. Field numbers are part of the Kubernetes API and are never reused. Tests on a real API server
compare pods from both forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from bursar.kube.client.connections import LONGEST
from bursar.kube.client.errors import Malformed, error_for
from bursar.kube.client.models import Envelope, Meta
from bursar.kube.client.protobuf import (
    AMOUNT,
    BYTES,
    FLAG,
    INLINE,
    MESSAGE,
    NAME,
    NUMBER,
    OBJECT_META,
    QUANTITIES,
    TEXT,
    TEXTS,
    THERE,
    Message,
    MessageField,
    bytes_of,
    is_packed,
    unpacked,
    unpacked_status,
)
from bursar.kube.client.watch import Bookmark, MarkMeta, Typed, WatchEvent, is_change, list_ends

T = TypeVar("T")
_LENGTH = 4
_RAW = Message({1: MessageField("raw", BYTES)})
_MARK = Message({1: MessageField("metadata", MESSAGE, OBJECT_META)})
_EVENT = Message({1: MessageField("type", NAME), 2: MessageField("object", INLINE, _RAW)})


class Frames:
    """Splits a stream; a frame that is not complete waits for the next piece."""

    def __init__(self) -> None:
        self._held = b""
        self._pieces: list[bytes] = []  # after what is held, of a frame that is longer than that
        self._missing = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The frames that this piece completes, without their lengths."""
        if len(piece) < self._missing:
            self._pieces.append(piece)
            self._missing -= len(piece)
            return []
        data = b"".join((self._held, *self._pieces, piece))
        self._pieces = []
        frames: list[bytes] = []
        at = 0
        while (end := self._end(data, at)) <= len(data):
            frames.append(data[at + _LENGTH : end])
            at = end
        self._held, self._missing = data[at:], end - len(data)
        return frames

    @staticmethod
    def _end(data: bytes, at: int) -> int:
        """Where the frame ends that begins there; if its length is not known yet, where that is known."""
        if len(data) < at + _LENGTH:
            return at + _LENGTH
        length = int.from_bytes(data[at : at + _LENGTH], "big")
        if length > LONGEST:
            raise Malformed(f"a frame of more than {LONGEST} bytes")
        return at + _LENGTH + length


class Packed(Typed[T]):
    """Reads objects into a struct, from JSON or, as ``described``, from Protocol Buffers."""

    def __init__(self, struct: type[T], identify: Callable[[T], Meta], described: Message) -> None:
        super().__init__(struct, identify)
        self._struct = struct
        self._described = described

    def __call__(self, meta: Meta, raw: bytes) -> T:
        if not is_packed(raw):
            return super().__call__(meta, raw)
        return msgspec.convert(unpacked(raw, self._described), self._struct)

    def frame(self, frame: bytes, path: str) -> WatchEvent[T] | Bookmark:
        """What a frame of the watch at ``path`` says."""
        try:
            found = _EVENT.read(frame)
            type_, raw = str(found.get("type")), bytes_of(found)
            if is_change(type_):
                return self._change(type_, raw)
            if type_ == "BOOKMARK":
                return _bookmark(raw)
            if type_ != "ERROR":
                raise ValueError(f"{type_!r:.40} is not a type of events")
            status = unpacked_status(raw)
        except (ValueError, msgspec.MsgspecError) as error:
            raise Malformed(f"watch {path}: {error}: {frame[:200]!r}") from None
        raise error_for(f"watch {path}", status.code, status)

    def _change(self, type_: str, raw: bytes) -> WatchEvent[T]:
        try:
            item = msgspec.convert(unpacked(raw, self._described), self._struct)
        except (ValueError, msgspec.ValidationError):  # whoever keeps it finds out what is wrong
            return WatchEvent(type_, msgspec.convert(unpacked(raw, _MARK), Envelope).metadata, None, raw)
        return WatchEvent(type_, self._identify(item), item)


def _bookmark(raw: bytes) -> Bookmark:
    meta = msgspec.convert(unpacked(raw, _MARK).get("metadata", {}), MarkMeta)
    return Bookmark(meta.resource_version, list_ends(meta.annotations))


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

_RESOURCES = Message({1: MessageField("limits", QUANTITIES), 2: MessageField("requests", QUANTITIES)})
_PORT = Message(
    {
        2: MessageField("hostPort", NUMBER),
        3: MessageField("containerPort", NUMBER),
        4: MessageField("protocol", TEXT),
        5: MessageField("hostIP", TEXT),
    }
)
_CONTAINER = Message(
    {
        1: MessageField("name", TEXT),
        6: MessageField("ports", MESSAGE, _PORT, many=True),
        8: MessageField("resources", MESSAGE, _RESOURCES),
        24: MessageField("restartPolicy", TEXT),
    }
)
_VOLUME_SOURCES = (  # in the order of their numbers, from 1
    "hostPath",
    "emptyDir",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "downwardAPI",
    "fc",
    "azureFile",
    "configMap",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "projected",
    "storageos",
    "csi",
    "ephemeral",
    "image",
)
_VOLUME_SOURCE = Message(
    {number: MessageField(name, THERE) for number, name in enumerate(_VOLUME_SOURCES, 1)},
    others=True,  # whatever comes later may decide over the node
)
_VOLUME = Message({1: MessageField("name", TEXT), 2: MessageField("source", INLINE, _VOLUME_SOURCE)})
_REQUIREMENT = Message(
    {1: MessageField("key", NAME), 2: MessageField("operator", NAME), 3: MessageField("values", NAME, many=True)}
)
_NODE_TERM = Message(
    {
        1: MessageField("matchExpressions", MESSAGE, _REQUIREMENT, many=True),
        2: MessageField("matchFields", MESSAGE, _REQUIREMENT, many=True),
    }
)
_NODE_SELECTOR = Message({1: MessageField("nodeSelectorTerms", MESSAGE, _NODE_TERM, many=True)})
_NODE_AFFINITY = Message({1: MessageField(_REQUIRED, MESSAGE, _NODE_SELECTOR)})
_POD_AFFINITY = Message({1: MessageField(_REQUIRED, THERE, many=True)})
_AFFINITY = Message(
    {
        1: MessageField("nodeAffinity", MESSAGE, _NODE_AFFINITY),
        2: MessageField("podAffinity", MESSAGE, _POD_AFFINITY),
        3: MessageField("podAntiAffinity", MESSAGE, _POD_AFFINITY),
    }
)
_TOLERATION = Message(
    {
        1: MessageField("key", TEXT),
        2: MessageField("operator", TEXT),
        3: MessageField("value", TEXT),
        4: MessageField("effect", TEXT),
    }
)
_SPREAD = Message({3: MessageField("whenUnsatisfiable", NAME)})
_GATE = Message({1: MessageField("name", NAME)})
_SPEC = Message(
    {
        1: MessageField("volumes", MESSAGE, _VOLUME, many=True),
        2: MessageField("containers", MESSAGE, _CONTAINER, many=True),
        4: MessageField("terminationGracePeriodSeconds", AMOUNT),
        7: MessageField("nodeSelector", TEXTS),
        10: MessageField("nodeName", TEXT),
        11: MessageField("hostNetwork", FLAG),
        18: MessageField("affinity", MESSAGE, _AFFINITY),
        19: MessageField("schedulerName", TEXT),
        20: MessageField("initContainers", MESSAGE, _CONTAINER, many=True),
        22: MessageField("tolerations", MESSAGE, _TOLERATION, many=True),
        24: MessageField("priorityClassName", TEXT),
        25: MessageField("priority", AMOUNT),
        31: MessageField("preemptionPolicy", TEXT),
        32: MessageField("overhead", QUANTITIES),
        33: MessageField("topologySpreadConstraints", MESSAGE, _SPREAD, many=True),
        38: MessageField("schedulingGates", MESSAGE, _GATE, many=True),
        39: MessageField("resourceClaims", THERE, many=True),
        40: MessageField("resources", MESSAGE, _RESOURCES),
    }
)
_CONDITION = Message({1: MessageField("type", NAME), 2: MessageField("status", NAME), 5: MessageField("reason", TEXT)})
_STATUS = Message({1: MessageField("phase", TEXT), 2: MessageField("conditions", MESSAGE, _CONDITION, many=True)})

POD = Message(
    {
        1: MessageField("metadata", MESSAGE, OBJECT_META),
        2: MessageField("spec", MESSAGE, _SPEC),
        3: MessageField("status", MESSAGE, _STATUS),
    }
)
