"""The reflector on bad days: cut, silent and refused watches, forgotten versions, lists that fail half-way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from bursar.kube.client.api import CONFIG_MAPS, Api, Resource
from bursar.kube.client.errors import Gone
from bursar.kube.client.http import Request
from bursar.kube.client.models import Meta, RawObject, Wire
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.watch import Following, Handler, Typed
from tests.kube.client.conformance import Diary, Followed, as_body, config_map, tell
from tests.kube.fakeapi import FakeApi
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio

QUICK = Following(pause=0.01, longest_pause=0.1)
PAGED = Following(pause=0.01, longest_pause=0.1, stream_lists=False, page=3)
WATCH = "GET .*watch=true"


def put(fake: FakeApi, name: str, **data: str) -> None:
    fake.state.create(CONFIG_MAPS, "ns", config_map(name, **data))


def drop(fake: FakeApi, name: str) -> None:
    fake.state.delete(CONFIG_MAPS, "ns", name)


@contextlib.asynccontextmanager
async def followed(api: Api, how: Following = QUICK) -> AsyncIterator[tuple[Diary, Reflector[RawObject]]]:
    async with Followed(api, CONFIG_MAPS, how) as running:
        yield running.diary, running.reflector


@pytest.mark.parametrize("how", [QUICK, PAGED], ids=["streamed", "paged"])
async def test_deletions_missed_in_a_gap_are_found(fake: FakeApi, api: Api, how: Following) -> None:
    for name in "abcdefg":
        put(fake, name, x=name)
    async with followed(api, how) as (diary, reflector):
        drop(fake, "c")  # told to the watch
        await diary.until("-c")
        fake.mute_watches()
        drop(fake, "e")
        put(fake, "h")
        drop(fake, "a")
        put(fake, "a", x="new")  # another one under the same name
        fake.compact()
        fake.cut_watches()
        await diary.until("+h")
        await eventually(lambda: reflector.progress.counts["lists"] == 2)
        assert sorted(diary.lines[8:]) == ["+a", "+h", "-a", "-e"]
        assert diary.lines.index("-a") < len(diary.lines) - 1 - diary.lines[::-1].index("+a")
        assert diary.last["e"].plain()["data"] == {"x": "e"}
        assert diary.syncs == 2


@pytest.mark.parametrize("as_status", [True, False], ids=["status", "event"])
async def test_gone_in_either_form_means_a_new_list(fake: FakeApi, api: Api, as_status: bool) -> None:
    fake.gone_as_status = as_status
    put(fake, "a")
    async with followed(api) as (diary, reflector):
        fake.mute_watches()
        put(fake, "b")
        fake.compact()
        fake.end_watches()
        await diary.until("+b")
        await eventually(lambda: reflector.progress.counts["lists"] == 2)
        assert diary.lines == ["+a", "+b"]


async def test_a_cut_watch_goes_on_where_it_was(fake: FakeApi, api: Api) -> None:
    put(fake, "a")
    async with followed(api) as (diary, reflector):
        for name in "bcd":
            fake.cut_watches()
            put(fake, name)
            await diary.until(f"+{name}")
        assert diary.lines == ["+a", "+b", "+c", "+d"]
        assert reflector.progress.counts["lists"] == 1


async def test_an_ended_watch_goes_on_from_the_last_bookmark(fake: FakeApi, api: Api) -> None:
    put(fake, "a")
    async with followed(api) as (diary, reflector):
        fake.state.version += 50  # things happen elsewhere
        fake.send_bookmarks()
        await eventually(lambda: reflector.progress.counts["bookmarks"] == 2)
        fake.state.compacted = fake.state.version - 10
        fake.end_watches()
        put(fake, "b")
        await diary.until("+b")
        assert reflector.progress.counts["lists"] == 1


async def test_silence_means_a_new_connection(fake: FakeApi, api: Api) -> None:
    how = Following(pause=0.01, silence=0.1)
    async with followed(api, how) as (diary, reflector):
        fake.mute_watches()
        put(fake, "a")
        await diary.until("+a")
        assert reflector.progress.counts["silences"] >= 1
        assert reflector.progress.counts["lists"] == 1


async def test_bookmarks_are_no_silence(fake: FakeApi, api: Api) -> None:
    async with followed(api, Following(silence=1.0)) as (_, reflector):
        for _ in range(12):
            await asyncio.sleep(0.1)
            fake.send_bookmarks()
        assert reflector.progress.counts["silences"] == 0


async def test_a_server_without_streamed_lists_is_read_in_pages(fake: FakeApi, api: Api) -> None:
    fake.stream_lists = False
    for name in "abcdefg":
        put(fake, name)
    async with followed(api, Following(page=3)) as (diary, _):
        put(fake, "h")
        await diary.until("+h")
        assert diary.lines == [f"+{name}" for name in "abcdefgh"]
        assert [seen.query.get("limit") for seen in fake.seen].count("3") == 3


async def test_a_list_whose_pages_are_forgotten_is_read_in_one(fake: FakeApi, api: Api) -> None:
    for name in "abcdefg":
        put(fake, name)
    fake.fail("continue=", code=410, times=100)
    async with followed(api, PAGED) as (diary, _):
        assert diary.lines == [f"+{name}" for name in "abcdefg"]


@pytest.mark.parametrize("how", [QUICK, PAGED], ids=["streamed", "paged"])
@pytest.mark.parametrize("fault", [{"code": 500}, {"code": 429, "retry_after": 1}, {"cut": True}, {"code": 403}])
async def test_a_first_list_that_fails_is_tried_again(
    fake: FakeApi, api: Api, how: Following, fault: dict[str, int]
) -> None:
    put(fake, "a")
    fake.fail("GET", times=2, **fault)
    async with followed(api, how) as (diary, reflector):
        assert diary.lines == ["+a"]
        assert reflector.progress.problem == ""


async def test_a_streamed_list_that_is_cut_half_way_sweeps_nothing(fake: FakeApi, api: Api) -> None:
    for name in "abc":
        put(fake, name)
    async with followed(api) as (diary, reflector):
        fake.cut_lists = [2, 0, 1]
        refreshed = asyncio.create_task(reflector.refresh())
        await eventually(lambda: reflector.progress.counts["failures"] == 3)
        assert len(reflector.store) == 3
        await refreshed
        assert diary.lines == ["+a", "+b", "+c"]


async def test_a_list_that_ends_before_its_end_is_a_failure(fake: FakeApi, api: Api) -> None:
    for name in "abc":
        put(fake, name)
    fake.cut_lists, fake.cut_cleanly = [2, 1], True
    async with followed(api) as (diary, reflector):
        assert diary.lines == ["+a", "+b", "+c"]
        assert reflector.progress.counts["failures"] == 2


async def test_refresh_is_not_content_with_a_list_that_began_before(fake: FakeApi, api: Api) -> None:
    for name in "abcd":
        put(fake, name)
    fake.fail("continue=", hang=0.3)
    reflector = Reflector(api, CONFIG_MAPS, as_body, Diary(), PAGED)
    task = asyncio.create_task(reflector.run())
    await eventually(lambda: fake.seen)
    await reflector.refresh()
    assert reflector.progress.counts["lists"] == 2
    task.cancel()


async def test_refresh_interrupts_a_quiet_watch_and_a_pause(fake: FakeApi, api: Api) -> None:
    async with followed(api, Following(pause=60.0, longest_pause=60.0)) as (_, reflector):
        await reflector.refresh()
        fake.cut_watches()
        await eventually(lambda: reflector.progress.counts["failures"] == 1)
        async with asyncio.timeout(5.0):
            await reflector.refresh()


async def test_a_version_inside_a_list_is_no_place_to_go_on_from(api: Api) -> None:
    reflector = Reflector(api, CONFIG_MAPS, as_body, Diary(), QUICK)
    reflector._begin_list()
    for type_ in ("ADDED", "BOOKMARK"):
        event = {"type": type_, "object": {"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}}}
        tell(reflector, msgspec.json.encode(event))
    assert reflector._version is None
    assert not reflector.synced


async def test_a_big_piece_of_a_watch_leaves_the_loop_free(api: Api) -> None:
    """Everything at once, as after a pause of the network."""
    body = {"metadata": {"name": "a", "uid": "u"}}
    lines = b"".join(
        msgspec.json.encode(
            {"type": "MODIFIED", "object": {"metadata": body["metadata"] | {"resourceVersion": str(n)}}}
        )
        + b"\n"
        for n in range(1000)
    )

    class Pieces:
        pieces = [lines, b""]  # noqa: RUF012 of one test

        async def piece(self) -> bytes:
            return self.pieces.pop(0)

    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    reflector = Reflector(api, CONFIG_MAPS, as_body, Diary(), QUICK)
    counting = asyncio.create_task(count_turns())
    async with asyncio.timeout(5.0) as patience:
        await reflector._read(Pieces(), patience)  # type: ignore[arg-type]  # all that is used of a stream
    counting.cancel()
    assert turns >= 9


async def test_events_come_together_unless_there_are_many_or_a_list_is_under_way(api: Api) -> None:
    def line(name: str, padding: int = 0) -> bytes:
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "5"}
        return msgspec.json.encode({"type": "ADDED", "object": {"metadata": metadata, "x": "x" * padding}}) + b"\n"

    done: list[str] = []

    class Pieces:
        pieces = [line("a"), line("b", 100_000), line("c")]  # noqa: RUF012 of one test

        async def piece(self) -> bytes:
            done.append("look")
            return self.pieces.pop(0) if self.pieces else b""

        async def rest(self, seconds: float) -> None:
            done.append(f"rest {seconds}")

    reflector = Reflector(api, CONFIG_MAPS, as_body, Diary(), Following(rest=0.5))
    async with asyncio.timeout(5.0) as patience:
        await reflector._read(Pieces(), patience)  # type: ignore[arg-type]  # all that is used of a stream
        assert done == ["look", "rest 0.5", "look", "look", "rest 0.5", "look"]
        done.clear()
        reflector._begin_list()
        Pieces.pieces = [line("d"), line("e")]
        await reflector._read(Pieces(), patience)  # type: ignore[arg-type]
    assert done == ["look", "look", "look"]


async def test_a_stream_is_silent_after_the_last_piece_not_before(api: Api) -> None:
    loop, silence = asyncio.get_running_loop(), 0.16
    last = 0.0

    class Pieces:
        left = 20

        async def piece(self) -> bytes:
            nonlocal last
            self.left -= 1
            await asyncio.sleep(0.02 if self.left > 0 else 10.0)
            last = loop.time()
            return b"\n"

        async def rest(self, _seconds: float) -> None:
            return

    reflector = Reflector(api, CONFIG_MAPS, as_body, Diary(), Following(silence=silence))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(silence) as patience:
            await reflector._read(Pieces(), patience)  # type: ignore[arg-type]  # all that is used of a stream
    assert loop.time() - last >= silence


async def test_other_errors_on_the_stream_do_not_lose_the_place(fake: FakeApi, api: Api) -> None:
    async with followed(api) as (diary, reflector):
        fake.send_garbage("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "oh"})
        await eventually(lambda: reflector.progress.problem.endswith("500 InternalError: oh"))
        put(fake, "a")
        await diary.until("+a")
        assert reflector.progress.counts["lists"] == 1
        assert reflector.progress.problem == ""


async def test_a_watch_that_never_gets_on_is_listed_anew(fake: FakeApi, api: Api) -> None:
    async with followed(api) as (diary, reflector):
        fake.fail("resourceVersion=", code=500, times=3)
        fake.end_watches()
        await eventually(lambda: reflector.progress.counts["lists"] == 2)
        put(fake, "a")
        await diary.until("+a")


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b'{"type": "NEWS", "object": {}}\n',
        b'{"type": "ADDED", "object": []}\n',
        b'{"type": "ADDED", "object": {"metadata": {"name": "\xff"}}}\n',
    ],
)
async def test_a_line_that_is_no_event_ends_the_connection_only(fake: FakeApi, api: Api, line: bytes) -> None:
    async with followed(api) as (diary, reflector):
        for watch in fake.watches:
            await watch.response.write(line)
        await eventually(lambda: reflector.progress.counts["failures"] == 1)
        put(fake, "a")
        await diary.until("+a")


async def test_an_object_that_does_not_decode_is_reported_by_key(fake: FakeApi, api: Api) -> None:
    def picky(meta: Meta, raw: bytes) -> RawObject:
        if b"poison" in raw:
            raise ValueError("data.x: poison")
        return as_body(meta, raw)

    diary = Diary()
    reflector = Reflector(api, CONFIG_MAPS, picky, diary, QUICK)
    task = asyncio.create_task(reflector.run())
    put(fake, "a", x="poison")
    put(fake, "b")
    await diary.until("?a", "+b")
    assert reflector.store.undecodable == {"ns/a": "data.x: poison"}
    drop(fake, "a")
    await eventually(lambda: not reflector.store.undecodable)
    task.cancel()


class Typical(Wire, frozen=True):
    metadata: Meta = Meta()
    data: dict[str, int] = msgspec.field(default_factory=dict)


class TypedDiary(Handler[Typical]):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def added(self, meta: Meta, item: Typical) -> None:
        self.lines.append(f"+{meta.key} {item.data}")

    def modified(self, meta: Meta, item: Typical, before: Typical) -> None:
        self.lines.append(f"~{meta.key} {before.data} {item.data}")

    def deleted(self, meta: Meta, item: Typical) -> None:
        self.lines.append(f"-{meta.key} {item.data}")

    def undecodable(self, meta: Meta, problem: str) -> None:
        self.lines.append(f"?{meta.key} {problem}")

    def synced(self) -> None:
        self.lines.append("synced")


async def test_lines_that_are_read_in_one_go_say_the_same(api: Api) -> None:
    def line(type_: str, version: int, x: object) -> bytes:
        metadata = {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": str(version)}
        return msgspec.json.encode({"type": type_, "object": {"metadata": metadata, "data": {"x": x}}})

    diary = TypedDiary()
    reflector = Reflector(api, CONFIG_MAPS, Typed(Typical, lambda item: item.metadata), diary, QUICK)
    tell(
        reflector,
        line("ADDED", 1, 1),
        line("MODIFIED", 2, 2),
        line("MODIFIED", 2, 2),
        line("MODIFIED", 3, "poison"),
        b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "4"}}}',
        line("MODIFIED", 5, 5),
        line("DELETED", 6, 6),
    )
    problem = "?ns/a Expected `int`, got `str` - at `$.data[...]`"
    assert diary.lines == [
        "+ns/a {'x': 1}",
        "~ns/a {'x': 1} {'x': 2}",
        problem,
        "~ns/a {'x': 2} {'x': 5}",
        "-ns/a {'x': 6}",
    ]
    assert (reflector._version, reflector.store.undecodable) == ("6", {})
    assert reflector.progress.counts == {"events": 6, "bookmarks": 1}
    with pytest.raises(Gone):
        tell(reflector, b'{"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410}}')


async def test_an_error_of_the_handler_ends_it(fake: FakeApi, api: Api) -> None:
    class Broken(Diary):
        def added(self, meta: Meta, item: object) -> None:
            raise ValueError("a bug")

    put(fake, "a")
    with pytest.raises(ValueError, match="a bug"):
        await Reflector(api, CONFIG_MAPS, as_body, Broken(), QUICK).run()


async def test_an_optional_resource_may_come_and_go(fake: FakeApi, api: Api) -> None:
    things = Resource("example.org", "v1", "things", "Thing", True)
    how = Following(optional=True, pause=0.01, longest_pause=0.05)
    async with Followed(api, things, how) as running:
        assert len(running.reflector.store) == 0
        fake.serve(things)
        fake.state.create(things, "ns", {"metadata": {"name": "t"}})
        await running.diary.until("+t")
        fake.withdraw(things)
        fake.end_watches()
        await running.diary.until("-t")


async def test_nobody_believes_that_a_kind_is_gone_when_everything_is(fake: FakeApi, api: Api) -> None:
    """A proxy that knows of no server answers 404, too: what was known stays in force."""
    things = Resource("example.org", "v1", "things", "Thing", True)
    fake.serve(things)
    fake.state.create(things, "ns", {"metadata": {"name": "t"}})
    how = Following(optional=True, pause=0.01, longest_pause=0.05)
    async with Followed(api, things, how) as running:
        fault = fake.fail("GET", code=404, plain=True, message="404 page not found", times=10_000)
        fake.end_watches()
        await eventually(lambda: "404" in running.reflector.progress.problem)
        await asyncio.sleep(0.3)
        assert running.diary.lines == ["+t"]
        fault.times = 0
        fake.state.create(things, "ns", {"metadata": {"name": "u"}})
        await running.diary.until("+u")
        assert running.diary.lines == ["+t", "+u"]


async def test_an_answer_that_is_no_list_is_not_an_empty_one(
    fake: FakeApi, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(fake, "a")
    async with followed(api, PAGED) as (diary, reflector):
        send = api.http.send

        async def empty(_request: Request, **_how: object) -> bytes:
            return b"{}"

        monkeypatch.setattr(api.http, "send", empty)
        fake.compact()
        fake.cut_watches()
        await eventually(lambda: "no list" in reflector.progress.problem)
        monkeypatch.setattr(api.http, "send", send)
        put(fake, "b")
        await diary.until("+b")
        assert diary.lines == ["+a", "+b"]


async def test_a_required_resource_that_is_absent_is_waited_for(fake: FakeApi, api: Api) -> None:
    things = Resource("example.org", "v1", "things", "Thing", True)
    reflector = Reflector(api, things, as_body, Diary(), QUICK)
    task = asyncio.create_task(reflector.run())
    await eventually(lambda: "404" in reflector.progress.problem)
    assert not reflector.synced
    fake.serve(things)
    await reflector.wait_synced()
    task.cancel()


async def test_failures_do_not_become_a_storm(fake: FakeApi, api: Api) -> None:
    fake.fail("GET", code=500, times=10_000)
    reflector = Reflector(api, CONFIG_MAPS, as_body, Diary(), Following(pause=0.1, longest_pause=1.0))
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(1.0)
    task.cancel()
    assert 1 <= len(fake.seen) <= 8


async def test_those_refused_together_come_back_apart(fake: FakeApi, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()

    async def note(_: Reflector[RawObject], seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            enough.set()
        await asyncio.sleep(0)

    monkeypatch.setattr(Reflector, "_rest", note)
    fake.fail("GET", code=429, retry_after=1, times=10_000)
    reflectors = [Reflector(api, CONFIG_MAPS, as_body, Diary(), Following(pause=0.01)) for _ in range(8)]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    await asyncio.wait_for(enough.wait(), 5)
    for task in tasks:
        task.cancel()
    assert all(1.0 <= pause <= 1.5 for pause in pauses[:8])
    assert len(set(pauses[:8])) > 1


@pytest.mark.parametrize("how", [Following(), Following(stream_lists=False)], ids=["streamed", "paged"])
async def test_a_long_list_leaves_the_loop_free(fake: FakeApi, api: Api, how: Following) -> None:
    template = msgspec.json.encode(config_map("x", **{f"k{n}": "v" * 40 for n in range(40)}))
    for number in range(2000):
        body = msgspec.json.decode(template)
        body["metadata"]["name"] = f"a{number}"
        fake.state.create(CONFIG_MAPS, "ns", body)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    async with followed(api, how) as (diary, _):
        assert len(diary.lines) == 2000
        assert turns >= 2000 // 100
    counting.cancel()
