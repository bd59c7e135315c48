"""A whole term on a server in memory: what the API server says and shows, in whatever order, ends well."""

import asyncio

import pytest

from bursar.kube.client.api import NAMESPACES, PODS
from bursar.kube.controller import mirror, object_writer, pod_writer, work_queue
from bursar.kube.controller.patches import ADMISSION, HOLD, HoldRecord, written
from tests.kube.controller.stage import ELASTIC, Stage, is_gated, stage

PODS_PATH = r"/api/v1/namespaces/\w+/pods"


pytestmark = pytest.mark.anyio


async def test_who_fits_is_started_and_who_does_not_waits() -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        first, second = cluster.pod("a", "first", 2), cluster.pod("a", "second", 1)
        await cluster.lead()
        await cluster.until(lambda: cluster.started(first))
        await asyncio.sleep(0.2)
        assert cluster.gated(second)
        cluster.schedule()
        cluster.delete(first)
        await cluster.until(lambda: cluster.started(second))


async def test_a_pod_that_was_created_anew_under_its_name_is_not_taken_for_the_old_one() -> None:
    """The real server answers 422 to a patch with the uid of another pod."""
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        await cluster.lead()
        cluster.fake.fail(f"PATCH {PODS_PATH}/p", hang=0.3)
        old = cluster.pod("a", "p", 2)
        await cluster.until(lambda: cluster.patched("p"))
        cluster.fake.mute_watches()
        cluster.delete(old)
        new = cluster.pod("a", "p", 1)
        await asyncio.sleep(0.5)
        assert cluster.gated(new)
        told = [told for told in cluster.told if told.reason == "control.invalid"]
        cluster.fake.cut_watches()
        await cluster.until(lambda: cluster.started(new))
        assert not told, "nothing is wrong with the new pod"


async def test_a_start_whose_answer_is_lost_is_not_made_twice() -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        await cluster.lead()
        cluster.fake.fail(f"PATCH {PODS_PATH}/p", code=500, carried_out=True)
        pod = cluster.pod("a", "p", 2)
        await cluster.until(lambda: cluster.started(pod))
        await asyncio.sleep(1.0)
        written = [change for change in cluster.fake.state.history if change.resource == PODS]
        assert [change.type for change in written] == ["ADDED", "MODIFIED"]
        assert cluster.patched("p") == 1, "the watch said that it was done"


async def test_a_gate_that_somebody_else_removed_ends_no_term() -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        runs, waits = cluster.pod("a", "runs", 2), cluster.pod("a", "waits", 1)
        term = await cluster.lead()
        await cluster.until(lambda: cluster.started(runs))
        cluster.change(waits, lambda pod: pod["spec"].pop("schedulingGates"))
        await asyncio.sleep(1.2)
        cluster.check_running()
        assert term.differences == 0
        cluster.bind(waits, "n")
        await cluster.until(lambda: waits["metadata"]["uid"] in term.mirror.engine.state.claims)
        assert term.mirror.engine.claim(waits["metadata"]["uid"]).place == "n"


async def test_a_start_that_arrives_at_a_pod_that_is_being_deleted_ends_no_term() -> None:
    """Its claim is gone by then; the pod is never bound."""
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        term = await cluster.lead()
        cluster.fake.fail(f"PATCH {PODS_PATH}/p", hang=0.5)
        pod = cluster.pod("a", "p", 2, finalizers=["example.org/stays"])
        await cluster.until(lambda: cluster.patched("p"))
        engine = term.mirror.engine
        engine._begin(0).put("engine", "revoked", pod["metadata"]["uid"], "its quota's sake")
        engine._commit(("tick",))
        cluster.delete(pod)
        await cluster.until(lambda: cluster.started(pod))
        await asyncio.sleep(0.3)
        cluster.check_running()
        assert pod["metadata"]["uid"] not in term.mirror.engine.state.claims


async def test_a_pod_that_is_refused_for_long_leaves_its_place_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Webhooks of others refuse what they like: it must not keep the quota of those that they let pass."""
    monkeypatch.setattr(pod_writer, "REFUSAL_PATIENCE", 500)
    monkeypatch.setattr(pod_writer, "BACK_OFF_FOR", 1_500)
    monkeypatch.setattr(work_queue, "_REFUSED_PAUSE", 0.1)
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        term = await cluster.lead()
        cluster.fake.fail(f"PATCH {PODS_PATH}/first", code=403, times=10_000)
        first, second = cluster.pod("a", "first", 2), cluster.pod("a", "second", 2)
        await cluster.until(lambda: cluster.patched("first"))
        assert cluster.gated(second)
        await cluster.until(lambda: cluster.started(second))
        cluster.fake.faults.clear()
        cluster.delete(second)
        await cluster.until(lambda: cluster.started(first))
        cluster.check_running()
        assert term.differences == 0
        assert len(term.writer._backoff) == 0


async def test_nobody_is_written_to_for_nothing_when_a_term_begins() -> None:
    """Pods that were let go, and are not bound yet, were written by the predecessor."""
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        pod = cluster.pod("a", "p", 2)
        await cluster.lead()
        await cluster.until(lambda: cluster.started(pod))
        await asyncio.sleep(0.5)
        await cluster.depose()
        before = cluster.patched("p")
        await cluster.lead()
        await asyncio.sleep(0.5)
        assert cluster.patched("p") == before


async def test_a_hold_that_was_being_written_does_not_outlive_the_start() -> None:
    async with stage() as cluster:
        cluster.node("n", 4)
        for name in ("a", "b"):
            cluster.namespace(name)
            cluster.quota(name, 4, 2)
        lent = [cluster.pod("a", f"p{i}") for i in range(4)]
        term = await cluster.lead()
        await cluster.until(lambda: all(cluster.started(pod) for pod in lent))
        cluster.schedule()
        await cluster.until(lambda: all(claim.state >= 4 for claim in term.mirror.engine.state.claims.values()))
        cluster.fake.fail(f"PATCH {PODS_PATH}/owner", hang=0.5)
        owner = cluster.pod("b", "owner", 1)
        await cluster.until(lambda: cluster.patched("owner"))
        for pod in lent:  # they leave on their own, while the hold is on its way
            cluster.delete(pod)
        await cluster.until(lambda: cluster.started(owner))
        await asyncio.sleep(0.7)
        found = cluster.find("b", "owner")
        assert found is not None
        assert HOLD not in found["metadata"]["annotations"]
        assert ADMISSION in found["metadata"]["annotations"]


async def test_a_hold_that_a_predecessor_wrote_late_is_taken_away() -> None:
    """Nothing but its deadline keeps a former leader from writing one; whoever leads next would take it up."""
    async with stage() as cluster:
        cluster.node("n", 4)
        cluster.namespace("a")
        cluster.quota("a", 2)
        runs, waits = cluster.pod("a", "runs", 2), cluster.pod("a", "waits", 2)
        await cluster.lead()
        await cluster.until(lambda: cluster.started(runs))
        cluster.schedule()
        late = written(HoldRecord("n", ((runs["metadata"]["uid"], ""),)))
        cluster.change(waits, lambda pod: pod["metadata"].update(annotations={HOLD: late}))
        await cluster.until(lambda: HOLD not in _annotations(cluster, "waits"))
        cluster.check_running()


def _annotations(cluster: Stage, name: str) -> dict[str, str]:
    found = cluster.find("a", name)
    assert found is not None
    annotations: dict[str, str] = found["metadata"].get("annotations") or {}
    return annotations


async def test_what_happens_while_a_ledger_is_built_counts_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get their turn meanwhile: it may take longer than the lease lasts."""
    monkeypatch.setattr(mirror, "SLICE", 1)
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 8)
        pods = [cluster.pod("a", f"p{number:02}", gated=False) for number in range(60)]
        for pod in pods:
            cluster.bind(pod, "n")
        leading = asyncio.create_task(cluster.lead())
        while cluster.term is None or not cluster.term.mirror.pods.by_uid:  # noqa: ASYNC110 what is waited for sets no event
            await asyncio.sleep(0)
        term = cluster.term
        assert not term.ready
        for pod in pods:
            cluster.delete(pod)
        late = cluster.pod("a", "late", 8)
        await leading
        await cluster.until(lambda: cluster.started(late))
        assert term.mirror.pods.by_uid.keys() == {late["metadata"]["uid"]}


async def test_what_was_seen_of_a_pod_is_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table of the term grows with the pods that were there once."""
    monkeypatch.setattr(work_queue, "_FIRST_PAUSE", 0.01)
    async with stage() as cluster:
        cluster.node("n", 4)
        for name in ("a", "b"):
            cluster.namespace(name)
            cluster.quota(name, 4, 2)
        term = await cluster.lead()
        for _ in range(3):
            for number in range(4):
                cluster.pod("a", f"p{number}")
            await cluster.until(lambda: not any(map(is_gated, cluster.pods())))
            cluster.schedule()
            owner = cluster.pod("b", "owner", 1)
            await cluster.until(lambda: not any(map(is_gated, cluster.pods())))
            term.evictor.take_back(owner["metadata"]["uid"])
            for pod in cluster.pods():
                cluster.delete(pod)
            await cluster.until(lambda: not term.mirror.pods.by_uid)
        await asyncio.sleep(0.3)
        assert _kept_by_uid(term.writer) == {}
        assert _kept_by_uid(term.evictor) == {}
        assert _kept_by_uid(term.mirror.pods) == {}


def _kept_by_uid(owner: object) -> dict[str, object]:
    """Tables that are not empty."""
    tables = {name: value for name, value in vars(owner).items() if isinstance(value, dict | set)}
    return {name: value for name, value in tables.items() if value}


async def test_trouble_with_a_namespace_ends_no_term() -> None:
    async with stage() as cluster:
        cluster.namespace("a")
        cluster.fake.fail("GET /api/v1/namespaces/a", code=500, times=5)
        cluster.quota("a", 2)
        await cluster.lead()
        await cluster.until(lambda: _label(cluster) == "enforced")


async def test_a_label_on_its_way_when_the_last_quota_goes_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_writer, "LINGER", 0.1)
    async with stage() as cluster:
        cluster.namespace("a")
        await cluster.lead()
        cluster.fake.fail("PATCH /api/v1/namespaces/a", hang=0.4)
        cluster.quota("a", 2)
        await cluster.until(lambda: _applied(cluster) == 1)
        cluster.fake.state.delete(ELASTIC, "a", "quota")
        await cluster.until(lambda: _applied(cluster) == 2)
        await cluster.until(lambda: _label(cluster) is None)


async def test_a_quota_that_is_replaced_leaves_its_namespace_governed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_writer, "LINGER", 0.5)
    async with stage() as cluster:
        cluster.namespace("a")
        cluster.quota("a", 2)
        await cluster.lead()
        await cluster.until(lambda: _label(cluster) == "enforced")
        for _ in range(2):
            cluster.fake.state.delete(ELASTIC, "a", "quota")
            await asyncio.sleep(0.3)
            cluster.quota("a", 3)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.6)
        assert (_applied(cluster), _label(cluster)) == (1, "enforced")


async def test_a_new_term_labels_no_namespace_that_has_its_label() -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a", {"bursar.dev/quota": "enforced"})
        cluster.quota("a", 2)
        cluster.pod("a", "p")
        await cluster.lead()
        await cluster.until(lambda: cluster.patched("p"))
        await asyncio.sleep(0.3)
        assert _applied(cluster) == 0


async def test_a_label_that_a_predecessor_left_goes_and_an_administrators_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_writer, "LINGER", 0.1)
    async with stage() as cluster:
        cluster.namespace("a", {"bursar.dev/quota": "enforced"})
        await cluster.lead()
        await asyncio.sleep(0.3)
        assert _label(cluster) == "enforced"
        await cluster.depose()
        left = cluster.fake.state.get(NAMESPACES, "", "a")
        marked = {**left, "metadata": {**left["metadata"], "managedFields": [{"manager": "bursar-namespaces"}]}}
        cluster.fake.state.replace(NAMESPACES, "", "a", marked, status=False)
        path = ("metadata", "labels", "bursar.dev/quota")
        cluster.fake.state.owners[NAMESPACES, "", "a"] = {"bursar-namespaces": {path}}
        await cluster.lead()
        await cluster.until(lambda: _label(cluster) is None)


def _applied(cluster: Stage) -> int:
    return sum(seen.method == "PATCH" and seen.path.endswith("/namespaces/a") for seen in cluster.fake.seen)


def _label(cluster: Stage) -> str | None:
    labels: dict[str, str] = cluster.fake.state.get(NAMESPACES, "", "a")["metadata"].get("labels", {})
    return labels.get("bursar.dev/quota")
