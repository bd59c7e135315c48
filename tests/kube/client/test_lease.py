"""The election: one leader at a time, deadlines on one's own clock, terms that only grow."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator

import pytest

from bursar.kube.client.api import CONFIG_MAPS, LEASES, Api, PatchKind, Writing
from bursar.kube.client.errors import Fenced, Unanswered
from bursar.kube.client.lease import Elector, Timing, steady
from bursar.kube.client.models import Lease
from tests.kube.client.conformance import config_map
from tests.kube.fakeapi import FakeApi
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio

FAST = Timing(duration=1.5, renew_deadline=1.0, retry_period=0.05)


class Clock:
    """Runs like the real one, shifted: what a process sees that was frozen, or whose machine was."""

    def __init__(self) -> None:
        self.shift = 0.0

    def __call__(self) -> float:
        return steady() + self.shift


class Candidate:
    def __init__(self, api: Api, name: str, timing: Timing = FAST) -> None:
        self.clock = Clock()
        self.story: list[str] = []
        self.api = api
        self.elector = Elector(
            api,
            "lock",
            "ns",
            name,
            timing=timing,
            started=lambda term: self.story.append(f"started {term}"),
            stopped=lambda: self.story.append("stopped"),
            clock=self.clock,
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.elector.run())

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def leads(self, within: float = 60.0) -> None:
        await eventually(lambda: self.elector.leading, within)

    async def stopped(self, within: float = 60.0) -> None:
        await eventually(lambda: "stopped" in self.story, within)


@contextlib.asynccontextmanager
async def leading(api: Api, name: str = "a", timing: Timing = FAST) -> AsyncIterator[Candidate]:
    candidate = Candidate(api, name, timing)
    candidate.start()
    await candidate.leads()
    yield candidate
    await candidate.stop()


async def lease(api: Api) -> Lease:
    return (await api.get(LEASES, "lock", "ns")).into(Lease)


async def hold(api: Api, holder: str, term: int = 4, duration: int = 1) -> None:
    """Somebody else has the lease; his clock is years off."""
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration,
        "leaseTransitions": term,
        "renewTime": "2001-01-01T00:00:00.000000Z",
    }
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lock"}, "spec": spec}
    await api.apply(LEASES, "lock", "ns", body, force=True, how=Writing(field_manager=holder, gated=False))


async def test_the_first_leader_makes_the_lease(api: Api) -> None:
    async with leading(api) as first:
        assert first.story == ["started 0"]
        assert first.elector.term == 0
        assert 0 < first.elector.remaining() <= FAST.renew_deadline
        spec = (await lease(api)).spec
        assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("a", 2, 0)


async def test_a_leader_stays_leader(api: Api) -> None:
    async with leading(api) as first:
        await asyncio.sleep(FAST.duration + 0.2)
        assert first.story == ["started 0"]
        assert first.elector.leading


async def test_leaving_gives_the_lease_to_the_next_at_once(api: Api) -> None:
    second = Candidate(api, "b", Timing(30.0, 20.0, 0.05))
    async with leading(api) as first:
        second.start()
        await asyncio.sleep(0.1)
        assert not second.elector.leading
    assert first.story == ["started 0", "stopped"]
    await second.leads(within=1.0)
    assert second.story == ["started 1"]
    await second.stop()


async def test_leaving_during_a_renewal_gives_the_lease_back_too(fake: FakeApi, api: Api) -> None:
    async with leading(api) as first:
        fake.fail("PATCH .*leases", hang=0.5, carried_out=True)
        version = (await lease(api)).metadata.resource_version
        await eventually(lambda: str(fake.state.version) != version)
        await first.stop()
    assert (await lease(api)).spec.holder_identity == ""


async def test_a_dead_leaders_lease_is_free_after_its_duration_whatever_its_clock(api: Api) -> None:
    await hold(api, "dead", duration=1)
    candidate = Candidate(api, "a")
    began = steady()
    candidate.start()
    await candidate.leads()
    assert FAST.duration <= steady() - began < FAST.duration + 1.0
    assert candidate.elector.term == 5
    await candidate.stop()


async def test_a_lease_that_is_renewed_is_never_free(api: Api) -> None:
    await hold(api, "alive")
    candidate = Candidate(api, "a")
    candidate.start()
    for number in range(8):
        await asyncio.sleep(0.25)
        patch = {"spec": {"renewTime": f"1999-01-0{number + 1}T00:00:00.000000Z"}}
        await api.patch(LEASES, "lock", "ns", PatchKind.MERGE, patch)
    assert candidate.story == []
    await candidate.stop()


async def test_of_many_candidates_one_leads_at_a_time(api: Api) -> None:
    candidates = [Candidate(api, name) for name in "abcde"]
    for candidate in candidates:
        candidate.start()
    terms = []
    while candidates:
        await eventually(lambda: any(each.elector.leading for each in candidates))
        leaders = [each for each in candidates if each.elector.leading]
        assert len(leaders) == 1
        terms.append(leaders[0].elector.term)
        await leaders[0].stop()
        candidates.remove(leaders[0])
    assert terms == [0, 1, 2, 3, 4]


async def test_a_leader_cut_off_stops_before_others_may_start(fake: FakeApi, api: Api) -> None:
    async with leading(api) as first:
        fake.fail("PATCH .*leases", cut=True, times=1000)
        fake.fail("GET .*leases", cut=True, times=1000)
        cut_off = steady()
        await first.stopped()
        assert steady() - cut_off <= FAST.renew_deadline + 0.5
        with pytest.raises(Fenced):
            first.elector.remaining()
        fake.faults.clear()


async def test_a_hanging_server_does_not_stretch_the_time(fake: FakeApi, api: Api) -> None:
    async with leading(api) as first:
        fake.fail("PATCH .*leases", hang=3.0, times=1000)
        cut_off = steady()
        await first.stopped()
        assert steady() - cut_off <= FAST.renew_deadline + 0.5
        fake.faults.clear()


async def test_trouble_that_passes_in_time_costs_nothing(fake: FakeApi, api: Api) -> None:
    async with leading(api, timing=Timing(3.0, 2.0, 0.05)) as first:
        fake.fail("PATCH .*leases", code=500, times=3)
        await asyncio.sleep(0.4)
        assert first.story == ["started 0"]


async def test_a_renewal_whose_answer_is_lost_was_one(fake: FakeApi, api: Api) -> None:
    async with leading(api, timing=Timing(3.0, 2.0, 0.4)) as first:
        fake.fail("PATCH .*leases", cut=True, carried_out=True)
        await asyncio.sleep(1.0)  # lost at 0.4, in conflict and made good at 0.8
        assert first.story == ["started 0"]
        assert first.elector.remaining() > 1.4


async def test_taking_the_lease_without_an_answer_starts_nobody_twice(fake: FakeApi, api: Api) -> None:
    fake.fail("POST .*leases", cut=True, carried_out=True)
    async with leading(api) as first:
        assert first.story == ["started 1"]
        assert (await lease(api)).spec.lease_transitions == 1


async def test_a_leader_that_was_overruled_stops(api: Api) -> None:
    async with leading(api) as first:
        await hold(api, "usurper", term=7)
        await first.stopped()
        await first.leads()
        assert first.story == ["started 0", "stopped", "started 8"]


async def test_a_deleted_lease_begins_with_a_new_term(api: Api) -> None:
    async with leading(api) as first:
        await api.delete(LEASES, "lock", "ns")
        await first.stopped()
        await first.leads()
        assert first.elector.term == 1


async def test_who_wakes_up_late_is_fenced_before_it_writes(fake: FakeApi, api: Api) -> None:
    async with leading(api) as first:
        api.http.gate = first.elector.remaining
        await api.create(CONFIG_MAPS, config_map("in-time"), "ns")
        first.clock.shift += 100.0  # frozen, and awake again: nothing of ours has run yet
        assert first.story == ["started 0"]
        with pytest.raises(Fenced, match="the time to write ended 99"):
            await api.create(CONFIG_MAPS, config_map("late"), "ns")
        await first.stopped()
        await first.leads()
        assert first.elector.term == 1
        api.http.gate = None
    assert [seen.path for seen in fake.seen if "configmaps" in seen.path] == ["/api/v1/namespaces/ns/configmaps"]


async def test_who_does_not_lead_may_not_write(api: Api) -> None:
    candidate = Candidate(api, "a")
    with pytest.raises(Fenced, match="a does not hold the lease"):
        candidate.elector.remaining()


async def test_the_lease_is_not_given_back_while_a_write_is_under_way(fake: FakeApi, api: Api) -> None:
    async with leading(api, timing=Timing(3.0, 2.0, 0.1)) as first:
        api.http.gate = first.elector.remaining
        fake.fail("POST .*configmaps", hang=1.0)
        write = asyncio.create_task(api.create(CONFIG_MAPS, config_map("slow"), "ns"))
        await eventually(lambda: any("configmaps" in seen.path for seen in fake.seen))
    assert (await lease(api)).spec.holder_identity == "a"
    with contextlib.suppress(Unanswered):
        await write


async def test_the_lease_is_given_back_after_the_last_write(fake: FakeApi, api: Api) -> None:
    async with leading(api, timing=Timing(3.0, 2.0, 0.5)) as first:
        api.http.gate = first.elector.remaining
        fake.fail("POST .*configmaps", hang=0.2)
        write = asyncio.create_task(api.create(CONFIG_MAPS, config_map("slow"), "ns"))
        await eventually(lambda: any("configmaps" in seen.path for seen in fake.seen))
    assert (await lease(api)).spec.holder_identity == ""
    assert write.done()
    await write


@pytest.mark.parametrize("timing", [(10, 10, 2), (10, 2, 2), (15, 10, 0), (2, 10, 1)])
def test_times_that_make_no_sense_are_refused(timing: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must fall"):
        Timing(*timing)


def test_the_clock_is_one_that_never_stops() -> None:
    assert math.isfinite(steady())
    assert steady() <= steady()
