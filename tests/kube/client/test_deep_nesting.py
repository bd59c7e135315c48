"""Objects that are nested too deeply to be read: nothing ends because of one."""

from collections.abc import Callable

import msgspec
import pytest

from bursar.kube.client.api import CONFIG_MAPS, Api
from bursar.kube.client.http import Request
from bursar.kube.client.models import DEEPEST, TOO_DEEP, Meta, RawObject, level
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.watch import Following
from tests.kube.client.conformance import Diary, as_body, tell

pytestmark = pytest.mark.anyio


def nested(levels: int, inside: bytes = b"1") -> bytes:
    pairs = levels // 2
    return b'[{"a":' * pairs + inside + b"}]" * pairs


def thing(levels: int) -> bytes:
    metadata = b'{"name":"a","namespace":"ns","uid":"1","resourceVersion":"7"}'
    return b'{"metadata":%s,"spec":{"any":%s,"kept":"}]{[\\""}}' % (metadata, nested(levels))


def depth(value: object) -> int:
    found = 0
    while isinstance(value, dict | list):
        value, found = (next(iter(value.values())) if isinstance(value, dict) else value[0]), found + 1
    return found


@pytest.mark.parametrize("levels", [0, 10, DEEPEST])
def test_what_is_no_deeper_stays_as_it_is(levels: int) -> None:
    assert level(nested(levels)) == nested(levels)


@pytest.mark.parametrize("inside", [b"1", b'"}}]]"', b'"\\\\"', b'[[],{"b":[]}]'])
@pytest.mark.parametrize("levels", [DEEPEST + 2, 9_000])
def test_what_is_deeper_becomes_a_text(levels: int, inside: bytes) -> None:
    levelled = level(b'{"before":[1],"deep":%s,"after":{}}' % nested(levels, inside))
    found = msgspec.json.decode(levelled)
    assert (found["before"], found["after"]) == ([1], {})
    assert depth(found["deep"]) == DEEPEST - 1
    assert levelled.count(TOO_DEEP) == 1


class Curious(Diary):
    """Reads everything, from deeper in the stack than the client does."""

    def added(self, meta: Meta, item: object) -> None:
        assert isinstance(item, RawObject)
        self._later(50, item.plain)
        super().added(meta, item)

    def _later(self, calls: int, do: Callable[[], object]) -> object:
        return do() if calls == 0 else self._later(calls - 1, do)


@pytest.mark.parametrize("levels", [10, *range(800, 1100, 10), 9_000])
async def test_an_object_of_any_depth_is_told_and_can_be_read(api: Api, levels: int) -> None:
    diary = Curious()
    reflector = Reflector(api, CONFIG_MAPS, as_body, diary, Following())
    tell(reflector, b'{"type":"ADDED","object":%s}' % thing(levels))
    assert diary.lines == ["+a"]
    assert diary.last["a"].plain()["spec"]["kept"] == '}]{["'


@pytest.mark.parametrize("levels", [10, *range(800, 1100, 10), 9_000])
async def test_so_is_one_in_a_page(api: Api, levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(_request: Request, **_how: object) -> bytes:
        return b'{"metadata":{"resourceVersion":"7"},"items":[%s]}' % thing(levels)

    monkeypatch.setattr(api.http, "send", send)
    diary = Curious()
    await Reflector(api, CONFIG_MAPS, as_body, diary, Following(stream_lists=False))._list_pages()
    assert diary.lines == ["+a"]
    assert [body.key for body in (await api.list(CONFIG_MAPS)).items] == ["ns/a"]


@pytest.mark.parametrize("levels", [10, 980, 9_000])
async def test_an_answer_of_any_depth_can_be_read(api: Api, levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(_request: Request, **_how: object) -> bytes:
        return thing(levels)

    monkeypatch.setattr(api.http, "send", send)
    assert (await api.get(CONFIG_MAPS, "a", "ns")).key == "ns/a"
