"""The client on a real API server that is restarted or freezes, with real budgets, events and leases."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bursar.kube.client.api import CONFIG_MAPS, DISRUPTION_BUDGETS, EVENTS, LEASES, PODS, Api, Outcome, PatchKind
from bursar.kube.client.auth import in_cluster
from bursar.kube.client.errors import Gone, KubeError, Unauthorized
from bursar.kube.client.events import Recorder, Regarding
from bursar.kube.client.http import Http, Retry
from bursar.kube.client.kubeconfig import load
from bursar.kube.client.lease import Elector, Timing
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.watch import Following, Typed
from bursar.kube.controller.pod_model import SeenPod, identity
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.identities import ALICE
from tests.cluster.controlplane.objects import pod
from tests.kube.client.conformance import Followed, config_map
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio


async def test_a_service_account_reaches_the_server(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(plane.token())
    (tmp_path / "ca.crt").write_text(plane.ca_path.read_text())
    address = urlsplit(plane.url)
    environment = {"KUBERNETES_SERVICE_HOST": str(address.hostname), "KUBERNETES_SERVICE_PORT": str(address.port)}
    async with Http(in_cluster(environment, tmp_path)) as http:
        assert await Api(http).serves(PODS)
        (tmp_path / "token").write_text("revoked")
        http.config.credentials._read_at = -1e9  # type: ignore[attr-defined]  # a minute later
        with pytest.raises(Unauthorized):
            await Api(http).list(CONFIG_MAPS, "default")


async def test_a_restart_of_the_server_loses_nothing(plane: ControlPlane, api: Api, namespace: str) -> None:
    for name in ("stays", "goes", "again"):
        await api.create(CONFIG_MAPS, config_map(name, x="1"), namespace)
    how = Following(namespace=namespace, pause=0.1, longest_pause=1.0)
    async with Followed(api, CONFIG_MAPS, how) as followed:
        await asyncio.to_thread(plane.restart_component, "kube-apiserver")
        await api.delete(CONFIG_MAPS, "goes", namespace)
        await api.delete(CONFIG_MAPS, "again", namespace)
        await api.create(CONFIG_MAPS, config_map("again", x="2"), namespace)
        await api.patch(CONFIG_MAPS, "stays", namespace, PatchKind.MERGE, {"data": {"x": "2"}})
        await followed.diary.until("-again", "+again")
        await followed.diary.until("~stays")
        told = [line for line in followed.diary.lines if "kube-root" not in line]
        assert sorted(told) == ["+again", "+again", "+goes", "+stays", "-again", "-goes", "~stays"]


async def test_a_version_that_the_server_has_forgotten_is_no_obstacle(
    plane: ControlPlane, api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that starts anew has forgotten what was before: it answers 410, and all is listed again."""
    await api.create(CONFIG_MAPS, config_map("stays"), namespace)
    await asyncio.to_thread(plane.restart_component, "kube-apiserver")
    followed = Followed(api, CONFIG_MAPS, Following(namespace=namespace, pause=0.1, longest_pause=1.0))
    pods = Followed(api, PODS, Following(namespace=namespace), Typed(SeenPod, identity))
    pods.reflector._version = "1"
    with pytest.raises(Gone, match="too old resource version"):
        await pods.reflector._connect()
    failures = _failures_of(followed.reflector, monkeypatch)
    followed.reflector._version = "1"  # as if it had heard nothing for very long
    async with followed:
        assert Gone in failures
        await api.create(CONFIG_MAPS, config_map("comes"), namespace)
        await followed.diary.until("+comes")
        assert [line for line in followed.diary.lines if "kube-root" not in line] == ["+stays", "+comes"]
        assert followed.reflector.progress.counts["lists"] == 1


def _failures_of(reflector: Reflector[Any], monkeypatch: pytest.MonkeyPatch) -> list[type[KubeError]]:
    """What a reflector is told, as it comes."""
    told: list[type[KubeError]] = []
    handle = reflector._failed

    async def note(error: KubeError) -> None:
        told.append(type(error))
        await handle(error)

    monkeypatch.setattr(reflector, "_failed", note)
    return told


FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"


@pytest.fixture
def one_seat(plane: ControlPlane) -> Iterator[None]:
    """The server's own fair queuing carries out one call of Alice at a time, and answers 429 to all others."""
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    level = {"metadata": {"name": "one-seat"}, "spec": {"type": "Limited", "limited": limited}}
    plane.api().create(f"{FLOW}/prioritylevelconfigurations", level)
    anything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    rules = [{"subjects": [{"kind": "User", "user": {"name": ALICE}}], "resourceRules": [anything]}]
    spec = {"priorityLevelConfiguration": {"name": "one-seat"}, "matchingPrecedence": 2, "rules": rules}
    plane.api().create(f"{FLOW}/flowschemas", {"metadata": {"name": "one-seat"}, "spec": spec})
    yield
    plane.kubectl("delete", "flowschema,prioritylevelconfiguration", "one-seat")


@pytest.mark.usefixtures("one_seat")
async def test_who_is_told_to_come_back_later_does(plane: ControlPlane, namespace: str) -> None:
    """429: nothing was done, so that writes are sent again, too; each is carried out once."""
    async with Http(load(str(plane.kubeconfig_of(ALICE))), timeout=60.0, retry=Retry(attempts=60)) as http:
        alice = Api(http)
        names: list[str] = []
        async with asyncio.timeout(60.0):
            while not http.retries:  # until the server has heard of it
                more = [f"m{len(names) + number}" for number in range(4)]
                names += more
                await asyncio.gather(*(alice.create(CONFIG_MAPS, config_map(name), namespace) for name in more))
        assert {code for _, code in http.failures} == {429}
        found = {item.meta.name for item in (await alice.list(CONFIG_MAPS, namespace)).items}
        assert found - {"kube-root-ca.crt"} == set(names)


class Clock:
    """Seconds that pass when the test says so, however slow the machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def _calls(api: Api, verb: str, count: int) -> None:
    """Until so many more calls about leases have begun: all but the last of them are over, and began after this."""

    def made() -> int:
        return sum(times for call, times in api.http.calls.items() if (call.verb, call.resource) == (verb, "leases"))

    before = made()
    await eventually(lambda: made() >= before + count)


@pytest.mark.parametrize("year", [1999, 2099])
async def test_a_leader_whose_clock_is_years_off_is_followed_by_the_next(api: Api, namespace: str, year: int) -> None:
    """What the lease says of the time is not read: it is free when it has not changed for as long as it lasts."""
    spec = {
        "holderIdentity": "elsewhere",
        "leaseDurationSeconds": 3,
        "leaseTransitions": 4,
        "renewTime": f"{year}-01-01T00:00:00.000000Z",
    }
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lock"}, "spec": spec}
    await api.create(LEASES, body, namespace)
    terms: list[int] = []
    clock = Clock()
    timing = Timing(3.0, 2.0, 0.2)
    next_one = Elector(
        api, "lock", namespace, "here", timing=timing, started=terms.append, stopped=terms.clear, clock=clock
    )
    running = asyncio.create_task(next_one.run())
    await _calls(api, "get", 2)
    for second in range(10):  # he is alive, and his clock stands at the wrong year
        clock.now += 2.9
        patch = {"spec": {"renewTime": f"{year}-01-01T00:00:{second + 1:02}.000000Z"}}
        await api.patch(LEASES, "lock", namespace, PatchKind.MERGE, patch)
        await _calls(api, "get", 2)
    clock.now += 2.9
    await _calls(api, "get", 2)
    assert not next_one.leading
    clock.now += 0.2
    await eventually(lambda: next_one.leading)
    assert terms == [5]
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_frozen_server_is_noticed(plane: ControlPlane, api: Api, namespace: str) -> None:
    how = Following(namespace=namespace, silence=1.5, pause=0.1, longest_pause=0.5)
    async with Followed(api, CONFIG_MAPS, how) as followed:
        server = plane.component("kube-apiserver")
        counts = followed.reflector.progress.counts
        server.freeze()
        try:
            await eventually(lambda: counts["silences"] and counts["failures"])
        finally:
            server.thaw()
        await api.create(CONFIG_MAPS, config_map("a"), namespace)
        await followed.diary.until("+a")


def budget(name: str) -> dict[str, object]:
    selector = {"matchLabels": {"app": "a"}}
    spec = {"minAvailable": 1, "selector": selector}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


async def observed(api: Api, name: str, namespace: str) -> None:
    """Wait until the disruption controller has counted the pod."""
    async with asyncio.timeout(60.0):
        while True:
            status = (await api.get(DISRUPTION_BUDGETS, name, namespace)).plain().get("status", {})
            if status.get("currentHealthy") == 1 and status.get("observedGeneration"):
                return
            await asyncio.sleep(0.1)


@pytest.mark.usefixtures("nodes")
async def test_budgets_block_and_two_are_ambiguous(api: Api, namespace: str) -> None:
    body = pod("p", {"cpu": "1"})
    body["metadata"]["labels"] = {"app": "a"}
    made = await api.create(PODS, body, namespace)
    await api.create(DISRUPTION_BUDGETS, budget("b"), namespace)
    await observed(api, "b", namespace)
    blocked = await api.evict("p", namespace, uid=made.meta.uid)
    assert blocked.outcome is Outcome.BLOCKED
    assert "disruption budget" in blocked.message
    await api.create(DISRUPTION_BUDGETS, budget("c"), namespace)
    await observed(api, "c", namespace)
    assert (await api.evict("p", namespace, uid=made.meta.uid)).outcome is Outcome.AMBIGUOUS
    for name in "bc":
        await api.delete(DISRUPTION_BUDGETS, name, namespace)
    assert (await api.evict("p", namespace, uid=made.meta.uid)).outcome is Outcome.EVICTED


async def test_events_are_accepted_and_described(plane: ControlPlane, api: Api, namespace: str) -> None:
    made = await api.create(PODS, pod("p", gates=["bursar.dev/quota"]), namespace)
    recorder = Recorder(api, "bursar.dev/controller", "bursar-0")
    for _ in range(3):
        recorder.record(Regarding(PODS, "p", namespace, made.meta.uid), "Normal", "Waits", "3 GPUs short", "Decide")
        await recorder.flush()
    assert (recorder.written, dict(recorder.dropped)) == (1, {})
    events = [item.plain() for item in (await api.list(EVENTS, namespace)).items if item.plain()["reason"] == "Waits"]
    assert [event["series"]["count"] for event in events] == [3]
    described = await asyncio.to_thread(plane.kubectl, "describe", "pod", "p", f"-n{namespace}")
    assert "3 GPUs short" in described
    assert "bursar.dev/controller" in described


async def test_the_lease_passes_from_one_to_the_next(plane: ControlPlane, namespace: str) -> None:
    clock = Clock()
    story: list[str] = []

    def candidate(api: Api, name: str) -> Elector:
        return Elector(
            api,
            "lock",
            namespace,
            name,
            timing=Timing(30.0, 20.0, 0.2),
            started=lambda term: story.append(f"{name} started {term}"),
            stopped=lambda: story.append(f"{name} stopped"),
            clock=clock,
        )

    config = load(str(plane.kubeconfig))
    async with Http(config) as http, Http(config) as other:
        first, second = candidate(Api(http), "a"), candidate(Api(other), "b")
        leading = asyncio.create_task(first.run())
        await eventually(lambda: first.leading)
        waiting = asyncio.create_task(second.run())
        for _ in range(3):  # together longer than the lease: it is renewed
            await _calls(Api(http), "patch", 2)
            await _calls(Api(other), "get", 2)
            clock.now += 15.0
        leading.cancel()
        await eventually(lambda: second.leading)
        waiting.cancel()
        for task in (leading, waiting):
            with contextlib.suppress(asyncio.CancelledError):
                await task
    assert story == ["a started 0", "a stopped", "b started 1", "b stopped"]
