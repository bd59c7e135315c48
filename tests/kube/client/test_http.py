"""The session: errors, retries, time-outs, counters, and the gate before writes."""

import asyncio
import time
from dataclasses import replace

import pytest

from bursar.kube.client.api import CONFIG_MAPS, PODS, Api, PatchKind, Writing
from bursar.kube.client.auth import ClusterConfig, Given, Secret
from bursar.kube.client.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Fenced,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    Throttled,
    Unanswered,
    Unauthorized,
)
from bursar.kube.client.http import Call, Http
from tests.kube.client.conformance import config_map, pod
from tests.kube.fakeapi import FakeApi
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio

READ = "GET .*configmaps"
WRITE = "(POST|PATCH) .*configmaps"


async def make(api: Api, name: str = "a") -> None:
    await api.create(CONFIG_MAPS, config_map(name), "ns")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, BadRequest),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (422, Invalid),
        (429, Throttled),
        (500, ServerError),
        (418, ApiError),
    ],
)
async def test_answers_become_errors(fake: FakeApi, api: Api, code: int, kind: type[ApiError]) -> None:
    fake.fail(WRITE, code=code, reason="Because", message="of this")
    with pytest.raises(kind) as refusal:
        await make(api)
    assert (refusal.value.code, refusal.value.reason, refusal.value.message) == (code, "Because", "of this")
    assert str(refusal.value) == f"create /api/v1/namespaces/ns/configmaps: {code} Because: of this"


async def test_an_answer_in_plain_text_is_shown(fake: FakeApi, api: Api) -> None:
    fake.fail(WRITE, code=503, plain=True, message="<html>\nno upstream")
    with pytest.raises(ServerError, match="503 : <html> no upstream"):
        await make(api)


@pytest.mark.parametrize("how", [{"code": 429, "retry_after": 0}, {"code": 500}, {"code": 503}, {"cut": True}])
async def test_reads_are_tried_again(fake: FakeApi, api: Api, how: dict[str, int]) -> None:
    await make(api)
    fake.fail(READ, times=2, **how)
    assert (await api.get(CONFIG_MAPS, "a", "ns")).meta.name == "a"
    assert api.http.retries[Call("get", "", "configmaps")] >= 1


async def test_reads_give_up_in_the_end(fake: FakeApi, api: Api) -> None:
    fake.fail(READ, code=500, times=100)
    with pytest.raises(ServerError):
        await api.get(CONFIG_MAPS, "a", "ns")
    assert api.http.calls[Call("get", "", "configmaps")] == 4


async def test_the_servers_wish_to_wait_is_heeded(fake: FakeApi, api: Api) -> None:
    await make(api)
    fake.fail(READ, code=429, retry_after=1)
    began = time.monotonic()
    await api.get(CONFIG_MAPS, "a", "ns")
    assert time.monotonic() - began >= 1.0


async def test_a_throttled_write_with_a_time_to_come_back_is_tried_again(fake: FakeApi, api: Api) -> None:
    fake.fail(WRITE, code=429, retry_after=1, plain=True)
    await make(api)
    assert fake.state.objects


async def test_a_throttled_write_without_a_time_is_not(fake: FakeApi, api: Api) -> None:
    fake.fail(WRITE, code=429)
    with pytest.raises(Throttled):
        await make(api)


@pytest.mark.parametrize("how", [{"code": 500}, {"code": 504}, {"cut": True}])
async def test_a_write_of_unknown_outcome_is_never_repeated(fake: FakeApi, api: Api, how: dict[str, int]) -> None:
    fake.fail(WRITE, carried_out=True, **how)
    with pytest.raises((ServerError, Unanswered)) as failure:
        await make(api)
    assert [seen.method for seen in fake.seen] == ["POST"]
    if isinstance(failure.value, Unanswered):
        assert failure.value.sent


async def test_a_write_that_takes_too_long_may_have_happened(fake: FakeApi, api: Api) -> None:
    fake.fail(WRITE, hang=5.0, carried_out=True)
    with pytest.raises(Unanswered, match=r"no answer within 0\.2 s") as failure:
        await api.create(CONFIG_MAPS, config_map("a"), "ns", Writing(within=0.2))
    assert failure.value.sent
    assert len(fake.state.objects) == 1
    assert len(fake.seen) == 1


async def test_a_try_that_runs_out_of_time_says_why_there_was_one_before(fake: FakeApi, api: Api) -> None:
    fake.fail(READ, code=503, message="no leader")
    fake.fail(READ, hang=60.0)
    with pytest.raises(Unanswered, match=r"no answer within .* s \(the try before: .*503.*no leader\)"):
        await api.get(CONFIG_MAPS, "a", "ns", within=3.0)


async def test_a_write_that_could_not_be_sent_did_not_happen() -> None:
    nowhere = Http(ClusterConfig("http://127.0.0.1:1"), timeout=0.3)
    async with nowhere:
        with pytest.raises(Unanswered) as failure:
            await make(Api(nowhere))
    assert not failure.value.sent
    assert nowhere.retries[Call("create", "", "configmaps")] >= 1


async def test_waiting_for_a_slot_counts_as_waiting(fake: FakeApi) -> None:
    fake.fail(READ, hang=2.0)
    async with Http(fake.config(), in_flight=1) as http:
        first = asyncio.create_task(Api(http).get(CONFIG_MAPS, "a", "ns", within=0.5))
        await asyncio.sleep(0)
        with pytest.raises(Unanswered):
            await Api(http).get(CONFIG_MAPS, "a", "ns", within=0.1)
        with pytest.raises(Unanswered):
            await first
    assert len(fake.seen) == 1


async def test_what_keeps_the_lease_waits_for_nobody(fake: FakeApi) -> None:
    fake.fail(READ, hang=2.0)
    async with Http(fake.config(), in_flight=1) as http:
        slow = asyncio.create_task(Api(http).get(CONFIG_MAPS, "a", "ns"))
        await asyncio.sleep(0.05)
        how = Writing(gated=False, within=0.5)
        await Api(http).create(CONFIG_MAPS, config_map("b"), "ns", how)
        await Api(http).get(CONFIG_MAPS, "b", "ns", within=0.5, gated=False)
        slow.cancel()


async def test_a_deletion_is_sent_once(fake: FakeApi, api: Api) -> None:
    await make(api)
    fake.fail("DELETE", cut=True, times=2)
    with pytest.raises(Unanswered):
        await api.delete(CONFIG_MAPS, "a", "ns")
    assert [seen.method for seen in fake.seen] == ["POST", "DELETE"]


async def test_calls_are_counted_in_the_words_of_rbac(api: Api) -> None:
    await make(api)
    await api.list(CONFIG_MAPS, "ns")
    await api.patch(CONFIG_MAPS, "a", "ns", PatchKind.MERGE, {"data": {}})
    await api.create(PODS, pod("p"), "ns")
    await api.patch(PODS, "p", "ns", PatchKind.MERGE, {"status": {}}, subresource="status")
    await api.evict("p", "ns")
    await api.evict("p", "ns")
    assert dict(api.http.calls) == {
        Call("create", "", "configmaps"): 1,
        Call("list", "", "configmaps"): 1,
        Call("patch", "", "configmaps"): 1,
        Call("create", "", "pods"): 1,
        Call("patch", "", "pods/status"): 1,
        Call("create", "", "pods/eviction"): 2,
    }
    assert dict(api.http.failures) == {(Call("create", "", "pods/eviction"), 404): 1}


class Rotating:
    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    async def current(self, *, renew: bool = False) -> Secret:
        if renew:
            self.tokens.pop(0)
        return Secret(f"Bearer {self.tokens[0]}")


async def test_refused_credentials_are_fetched_anew_once(fake: FakeApi) -> None:
    fake.require_token("new")
    async with Http(ClusterConfig(fake.url, credentials=Rotating("old", "new"))) as http:
        await make(Api(http))
    assert [seen.authorization for seen in fake.seen] == ["Bearer old", "Bearer new"]


async def test_credentials_that_stay_refused_are_an_error(fake: FakeApi) -> None:
    fake.require_token("right")
    async with Http(ClusterConfig(fake.url, credentials=Given(Secret("Bearer wrong")))) as http:
        with pytest.raises(Unauthorized):
            await make(Api(http))
    assert len(fake.seen) == 2


async def test_impersonation_goes_with_every_call(fake: FakeApi) -> None:
    config = replace(fake.config(), headers={"Impersonate-User": "alice", "Impersonate-Group": ("a", "b")})
    async with Http(config) as http:
        await make(Api(http))
        await Api(http).find(PODS, "p", "ns")
    assert len(fake.seen) == 2
    wanted = [("Impersonate-User", "alice"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")]
    for seen in fake.seen:
        assert [header for header in seen.headers if header[0].startswith("Impersonate")] == wanted


class Gate:
    """Says each of these in turn, the last one for ever; None: fenced."""

    def __init__(self, *answers: float | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if answer is None:
            raise Fenced("too late")
        return answer


async def test_a_closed_gate_sends_nothing(fake: FakeApi, api: Api) -> None:
    api.http.gate = Gate(None)
    for write in (
        make(api),
        api.patch(CONFIG_MAPS, "a", "ns", PatchKind.MERGE, {}),
        api.apply(CONFIG_MAPS, "a", "ns", config_map("a")),
        api.delete(CONFIG_MAPS, "a", "ns"),
        api.evict("p", "ns"),
    ):
        with pytest.raises(Fenced):
            await write
    assert fake.seen == []


async def test_a_gate_that_closes_before_the_body_is_sent_leaves_no_effect(fake: FakeApi, api: Api) -> None:
    api.http.gate = Gate(5.0, None)
    with pytest.raises(Fenced):
        await make(api)
    api.http.gate = None
    await api.list(CONFIG_MAPS, "ns")  # the session lives on
    assert not fake.state.objects
    assert [seen.method for seen in fake.seen] == ["GET"]


async def test_reads_pass_a_closed_gate(api: Api) -> None:
    api.http.gate = Gate(None)
    await api.list(CONFIG_MAPS, "ns")


async def test_only_the_lease_itself_may_pass_by(api: Api) -> None:
    api.http.gate = Gate(None)
    await api.create(CONFIG_MAPS, config_map("a"), "ns", Writing(gated=False))


async def test_a_write_takes_no_longer_than_the_lease(fake: FakeApi, api: Api) -> None:
    api.http.gate = Gate(0.2)
    fake.fail(WRITE, hang=5.0)
    began = time.monotonic()
    with pytest.raises(Unanswered):
        await make(api)
    assert time.monotonic() - began < 3.0
    assert fake.seen[0].query["timeout"] == "0.200s"


async def test_a_write_that_waited_has_no_more_time_than_is_left_by_then(fake: FakeApi, api: Api) -> None:
    """The server must not carry it out when somebody else may lead."""
    api.http.gate = Gate(5.0, 0.3)
    await make(api)
    assert fake.seen[0].query["timeout"] == "0.300s"


async def test_the_gate_is_asked_again_before_a_second_try(fake: FakeApi, api: Api) -> None:
    api.http.gate = Gate(5.0, 5.0, None)
    fake.fail(WRITE, code=429, retry_after=1)
    with pytest.raises(Fenced):
        await make(api)
    assert len(fake.seen) == 1


async def test_drain_waits_for_writes_under_way(fake: FakeApi, api: Api) -> None:
    api.http.gate = Gate(5.0)
    assert await api.http.drain(0.0)
    fake.fail(WRITE, hang=1.0)
    write = asyncio.create_task(make(api))
    await eventually(lambda: fake.seen)
    assert not await api.http.drain(0.05)
    assert await api.http.drain(3.0)
    await write


@pytest.mark.parametrize(
    ("how", "asked"),
    [
        (Writing(), {"fieldManager": "bursar"}),
        (Writing(dry_run=True), {"fieldManager": "bursar", "dryRun": "All"}),
        (Writing(brief=True), {"fieldManager": "bursar", "fieldValidation": "Ignore"}),
    ],
    ids=["plain", "dry run", "brief"],
)
async def test_how_a_write_is_to_be_made_is_part_of_what_is_asked(
    fake: FakeApi, api: Api, how: Writing, asked: dict[str, str]
) -> None:
    fake.state.create(CONFIG_MAPS, "a", {"metadata": {"name": "x"}})
    await api.patch(CONFIG_MAPS, "x", "a", PatchKind.MERGE, {"data": {}}, how=how)
    assert fake.seen[-1].query == asked
