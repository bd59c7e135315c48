"""Evictions: what a disruption budget answers is a result, not an error."""

import pytest

from bursar.kube.client.api import DISRUPTION_BUDGETS, PODS, Api, Outcome, Writing
from bursar.kube.client.errors import ServerError, Throttled
from tests.kube.client.conformance import pod
from tests.kube.fakeapi import FakeApi

pytestmark = pytest.mark.anyio


def add_budget(fake: FakeApi, name: str, allowed: int) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    fake.state.create(DISRUPTION_BUDGETS, "ns", body)


async def test_a_budget_with_room_allows(fake: FakeApi, api: Api) -> None:
    fake.state.create(PODS, "ns", pod("p", app="a"))
    add_budget(fake, "b", 1)
    assert (await api.evict("p", "ns")).outcome is Outcome.EVICTED


async def test_a_budget_without_room_blocks_at_once(fake: FakeApi, api: Api) -> None:
    fake.state.create(PODS, "ns", pod("p", app="a"))
    add_budget(fake, "b", 0)
    result = await api.evict("p", "ns")
    assert result.outcome is Outcome.BLOCKED
    assert result.message == "Cannot evict pod as it would violate its budget."
    assert len(fake.seen) == 1


async def test_a_budget_that_says_when_to_ask_again_blocks_at_once_too(fake: FakeApi, api: Api) -> None:
    fake.state.create(PODS, "ns", pod("p", app="a"))
    spec = {"selector": {"matchLabels": {"app": "a"}}}
    fake.state.create(DISRUPTION_BUDGETS, "ns", {"metadata": {"name": "b"}, "spec": spec})
    result = await api.evict("p", "ns", how=Writing(within=30.0))
    assert (result.outcome, result.retry_after) == (Outcome.BLOCKED, 10.0)
    assert len(fake.seen) == 1


async def test_two_budgets_are_ambiguous(fake: FakeApi, api: Api) -> None:
    fake.state.create(PODS, "ns", pod("p", app="a"))
    add_budget(fake, "b", 1)
    add_budget(fake, "c", 1)
    assert (await api.evict("p", "ns")).outcome is Outcome.AMBIGUOUS


async def test_another_pod_of_the_name_is_left_alone(fake: FakeApi, api: Api) -> None:
    """Not among the cases for both servers: the real one tries again for ten seconds before it says so."""
    fake.state.create(PODS, "ns", pod("p"))
    assert (await api.evict("p", "ns", uid="another")).outcome is Outcome.GONE
    assert fake.state.objects


async def test_too_many_requests_is_no_budget(fake: FakeApi, api: Api) -> None:
    fake.state.create(PODS, "ns", pod("p"))
    fake.fail("eviction", code=429, retry_after=1, plain=True)
    assert (await api.evict("p", "ns")).outcome is Outcome.EVICTED
    fake.fail("eviction", code=429, plain=True)
    with pytest.raises(Throttled):
        await api.evict("p", "ns")


async def test_other_trouble_of_the_server_is_an_error(fake: FakeApi, api: Api) -> None:
    fake.fail("eviction", code=500)
    with pytest.raises(ServerError):
        await api.evict("p", "ns")
