"""Watches in Protocol Buffers: frames out of pieces, and what the events in them say."""

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursar.kube.client import pod_protobuf as packed_module
from bursar.kube.client.api import CONFIG_MAPS, PODS, Api
from bursar.kube.client.errors import Gone, Malformed, status_from
from bursar.kube.client.http import JSON
from bursar.kube.client.models import Meta, Wire
from bursar.kube.client.pod_protobuf import POD, Frames, Packed
from bursar.kube.client.protobuf import MESSAGE, NUMBER, OBJECT_META, PACKED, Message, MessageField
from bursar.kube.client.reflector import Reflector, acceptable, reading
from bursar.kube.client.watch import Bookmark, Following, Typed, WatchEvent, as_body
from bursar.kube.controller.pod_model import SeenPod, identity
from tests.kube.client.conformance import Diary, Followed, pod
from tests.kube.fakeapi import FakeApi
from tests.kube.protobuf_writer import enveloped, framed, packed, sized, status


class Thing(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: Meta = Meta()
    size: Annotated[int, msgspec.Meta(le=9)] = 0


DESCRIBED = Message({1: MessageField("metadata", MESSAGE, OBJECT_META), 2: MessageField("size", NUMBER)})
THINGS = Packed(Thing, lambda thing: thing.metadata, DESCRIBED)
STREAM = f"{PACKED};stream=watch"


def thing(version: str, size: int) -> dict[str, Any]:
    meta = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "Thing", "metadata": meta, "size": size}


def event(type_: str, version: str = "7", size: int = 3) -> bytes:
    return framed(type_, enveloped(DESCRIBED, thing(version, size)))


def read(frame: bytes) -> WatchEvent[Thing] | Bookmark:
    return THINGS.frame(frame[4:], "/things")


@given(st.lists(st.binary()), st.data())
def test_cuts_do_not_matter(wanted: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(len(frame).to_bytes(4, "big") + frame for frame in wanted)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=12)))
    split = Frames()
    pieces = zip([0, *cuts], [*cuts, len(whole)], strict=True)
    assert [frame for start, end in pieces for frame in split.feed(whole[start:end])] == wanted


def test_a_frame_beyond_all_measure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_module, "LONGEST", 10)
    split = Frames()
    assert split.feed(b"\0\0\0\x0a" + b"x" * 9) == []
    with pytest.raises(Malformed, match="a frame of more than 10 bytes"):
        split.feed(b"x\0\0\0\x0b")


@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED", "DELETED"])
def test_a_change_is_what_json_says_it_is(type_: str) -> None:
    line = msgspec.json.encode({"type": type_, "object": thing("7", 3)})
    assert read(event(type_)) == Typed(Thing, lambda thing: thing.metadata).line(line)


def test_a_bookmark_says_how_far_and_whether_the_list_is_complete() -> None:
    def bookmark(**meta: object) -> WatchEvent[Thing] | Bookmark:
        return read(framed("BOOKMARK", enveloped(DESCRIBED, {"kind": "Thing", "metadata": meta})))

    assert bookmark(resourceVersion="12") == Bookmark("12", ends_list=False)
    ends = {"k8s.io/initial-events-end": "true"}
    assert bookmark(resourceVersion="12", annotations=ends) == Bookmark("12", ends_list=True)
    assert read(framed("BOOKMARK", enveloped(Message({}), {}))) == Bookmark("", ends_list=False)


def test_an_error_is_raised_as_what_it_stands_for() -> None:
    too_old = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(Gone, match="watch /things: 410 Expired: too old"):
        read(framed("ERROR", status(too_old)))


@pytest.mark.parametrize(
    "frame",
    [
        framed("ERROR", enveloped(DESCRIBED, thing("7", 3))),
        framed("STRANGE", enveloped(DESCRIBED, thing("7", 3))),
        framed("STRANGE", status({"kind": "Status", "code": 410})),
        framed("", status({"kind": "Status", "code": 410})),
        framed("ADDED", b"k8s"),
        framed("ADDED", b'{"metadata": {}}'),
        framed("ADDED", b"k8s\0\x0a\x7f"),
        framed("BOOKMARK", b"k8s\0" + sized(2, sized(1, b"\xff"))),
        framed("ADDED", b"k8s\0" + sized(2, sized(1, b"\xff"))),
        b"\0\0\0\x01\x0a",
        b"\0\0\0\0",
    ],
)
def test_what_is_no_event_is_malformed(frame: bytes) -> None:
    with pytest.raises(Malformed, match="watch /things: "):
        read(frame)


@pytest.mark.anyio
async def test_one_that_cannot_be_used_is_told_by_its_name_and_the_last_good_form_stays(api: Api) -> None:
    diary = Diary()
    reflector: Reflector[Thing] = Reflector(api, CONFIG_MAPS, THINGS, diary)
    split, read = reading(THINGS, STREAM, "/things")
    problems: list[dict[str, str]] = []
    broken = framed(
        "MODIFIED", b"k8s\0" + sized(2, packed(DESCRIBED, {"metadata": thing("4", 3)["metadata"]}) + b"\x12\x01x")
    )
    for frame in split(event("ADDED", "1", 3) + event("MODIFIED", "2", 11) + event("MODIFIED", "3", 4) + broken):
        reflector._take(read(frame))
        problems.append(dict(reflector.store.undecodable))
    assert diary.lines == ["+a", "?a", "~a", "?a"]
    too_large, other_kind = "Expected `int` <= 9 - at `$.size`", "size is of another kind"
    assert problems == [{}, {"ns/a": too_large}, {}, {"ns/a": other_kind}]
    assert reflector._version == "4"


def test_who_can_read_frames_takes_lines_as_well() -> None:
    line = msgspec.json.encode({"type": "ADDED", "object": thing("7", 3)})
    of_lines, of_frames = reading(THINGS, JSON, "/things"), reading(THINGS, STREAM, "/things")
    assert [of_lines[1](one) for one in of_lines[0](line + b"\n")] == [
        of_frames[1](one) for one in of_frames[0](event("ADDED"))
    ]
    raw = msgspec.json.encode(thing("7", 3))
    assert THINGS(Meta(), raw) == THINGS(Meta(), enveloped(DESCRIBED, thing("7", 3)))


def test_only_who_can_read_frames_asks_for_them() -> None:
    assert acceptable(THINGS) == "application/vnd.kubernetes.protobuf,application/json"
    assert acceptable(Typed(Thing, lambda thing: thing.metadata)) == acceptable(as_body) == "application/json"


@pytest.mark.anyio
async def test_a_server_that_packs_nothing_is_followed_in_json(fake: FakeApi, api: Api) -> None:
    fake.packs = False
    fake.state.create(PODS, "ns", pod("a"))
    async with Followed(api, PODS, Following(), Packed(SeenPod, identity, POD)) as followed:
        assert followed.diary.lines == ["+a"]
        fake.state.create(PODS, "ns", pod("b"))
        await followed.diary.until("+b")
        assert followed.reflector.progress.counts["failures"] == 0


def test_a_refusal_may_be_packed_too() -> None:
    causes = [{"reason": "TooLarge", "message": "m", "field": "f"}]
    body = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "later", "status": "Failure"}
    whole = {**body, "details": {"retryAfterSeconds": 3, "name": "n", "kind": "k", "causes": causes}}
    assert status_from(status(whole), 429) == status_from(msgspec.json.encode(whole), 429)
    assert status_from(b"k8s\0\xff", 503).code == 503
    assert status_from(enveloped(DESCRIBED, thing("7", 3)), 503).code == 503
