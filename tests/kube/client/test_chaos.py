"""Everything at once: objects come and go while watches are cut, ended, muted, forgotten and refused.

Whatever happened, in the end the handler knows exactly what there is, and was never told anything impossible.
"""

import asyncio
import random

import pytest

from bursar.kube.client.api import CONFIG_MAPS, Api
from bursar.kube.client.models import Meta, RawObject
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.watch import Following
from tests.kube.client.conformance import as_body, config_map
from tests.kube.fakeapi import FakeApi
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio


class Mirror:
    """Rebuilds the collection from what it is told."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, str]] = {}  # uid and version by key

    def added(self, meta: Meta, item: RawObject) -> None:
        assert meta.key not in self.known
        self.known[meta.key] = (meta.uid, meta.resource_version)

    def modified(self, meta: Meta, item: RawObject, before: RawObject) -> None:
        uid, version = self.known[meta.key]
        assert (uid, version) == (meta.uid, before.meta.resource_version)
        assert int(meta.resource_version) > int(version)
        self.known[meta.key] = (meta.uid, meta.resource_version)

    def deleted(self, meta: Meta, item: RawObject) -> None:
        assert self.known.pop(meta.key)[0] == meta.uid == item.meta.uid

    def undecodable(self, meta: Meta, problem: str) -> None:
        raise AssertionError(problem)

    def synced(self) -> None:
        pass


def change(fake: FakeApi, dice: random.Random) -> None:
    name = f"a{dice.randrange(20)}"
    key = (CONFIG_MAPS, "ns", name)
    if key not in fake.state.objects:
        fake.state.create(CONFIG_MAPS, "ns", config_map(name))
    elif dice.random() < 0.4:
        fake.state.delete(*key)
    else:
        found = fake.state.objects[key]
        fake.state.replace(*key, {**found, "data": {"x": str(dice.random())}}, status=False)


def disturb(fake: FakeApi, dice: random.Random) -> None:
    what = dice.randrange(9)
    if what == 0:
        fake.cut_watches()
    elif what == 1:
        fake.end_watches()
    elif what == 2:
        fake.mute_watches()
    elif what == 3:
        fake.compact()
    elif what == 4:
        fake.fail("GET", code=dice.choice([410, 429, 500, 503]), times=dice.randrange(1, 4))
    elif what == 5:
        fake.fail("GET", cut=True)
    elif what == 6:
        fake.cut_lists = [dice.randrange(5)]
        fake.cut_cleanly = dice.random() < 0.5
    elif what == 7:
        fake.gone_as_status = not fake.gone_as_status
    else:
        fake.send_bookmarks()


def truth(fake: FakeApi) -> dict[str, tuple[str, str]]:
    return {
        f"ns/{found['metadata']['name']}": (found["metadata"]["uid"], found["metadata"]["resourceVersion"])
        for found in fake.state.of(CONFIG_MAPS)
    }


@pytest.mark.parametrize("stream_lists", [True, False], ids=["streamed", "paged"])
@pytest.mark.parametrize("seed", range(4))
async def test_the_mirror_is_true_in_the_end(fake: FakeApi, api: Api, seed: int, stream_lists: bool) -> None:
    dice = random.Random(seed)
    mirror = Mirror()
    how = Following(stream_lists=stream_lists, page=7, silence=0.1, pause=0.005, longest_pause=0.05)
    reflector = Reflector(api, CONFIG_MAPS, as_body, mirror, how)
    task = asyncio.create_task(reflector.run())
    for _ in range(400):
        change(fake, dice)
        if dice.random() < 0.1:
            disturb(fake, dice)
        if dice.random() < 0.5:
            await asyncio.sleep(dice.random() * 0.005)
    fake.faults.clear()
    await eventually(lambda: task.done() or mirror.known == truth(fake))
    assert not task.done(), task.exception()
    assert {item.key for item in reflector.store.items()} == truth(fake).keys()
    assert reflector.progress.counts["lists"] > 1
    task.cancel()
