"""What the client and its callers rest on, as cases that the server in memory and a real one must both pass.

Each case gets an ``Api`` with all rights and a namespace of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest

from bursar.kube.client.api import (
    CONFIG_MAPS,
    LEASES,
    MUTATING_POLICIES,
    NAMESPACES,
    PODS,
    Api,
    PatchKind,
    Resource,
    Select,
    Writing,
)
from bursar.kube.client.errors import AlreadyExists, Conflict, Invalid, NotFound
from bursar.kube.client.models import Meta, RawObject
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.watch import Decode, Following, Typed
from bursar.kube.controller.pod_model import SeenPod, identity, read_pod

Case = Callable[[Api, str], Awaitable[None]]
CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulingGates": [{"name": "bursar.dev/quota"}],
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


class Diary:
    """A handler that writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.last: dict[str, Any] = {}
        self.syncs = 0
        self._news = asyncio.Event()

    def added(self, meta: Meta, item: object) -> None:
        self._write(f"+{meta.name}", item)

    def modified(self, meta: Meta, item: object, before: object) -> None:
        assert not isinstance(before, RawObject) or before.meta.uid == meta.uid
        self._write(f"~{meta.name}", item)

    def deleted(self, meta: Meta, item: object) -> None:
        self._write(f"-{meta.name}", item)

    def undecodable(self, meta: Meta, problem: str) -> None:
        self._write(f"?{meta.name}", None)

    def synced(self) -> None:
        self.syncs += 1
        self._news.set()

    def _write(self, line: str, item: object) -> None:
        self.lines.append(line)
        if item is not None:
            self.last[line[1:]] = item
        self._news.set()

    async def until(self, *lines: str, within: float = 60.0) -> None:
        """Wait until the lines have been written, in this order, with anything in between."""
        async with asyncio.timeout(within):
            while not _contains(self.lines, lines):
                self._news.clear()
                await self._news.wait()


def as_body(meta: Meta, raw: bytes) -> RawObject:
    return RawObject(raw, meta)


def tell(reflector: Reflector[Any], *lines: bytes) -> None:
    """Lines of a watch, as if they had come."""
    for line in lines:
        reflector._take(line)


def _contains(lines: list[str], wanted: tuple[str, ...]) -> bool:
    rest = iter(lines)
    return all(line in rest for line in wanted)


class Followed:
    """A reflector that runs for as long as the block, and its diary."""

    def __init__(self, api: Api, resource: Resource, how: Following, decode: Decode[Any] = as_body) -> None:
        self.diary = Diary()
        self.reflector: Reflector[Any] = Reflector(api, resource, decode, self.diary, how)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.reflector.run())
        async with asyncio.timeout(60.0):
            await self.reflector.wait_synced()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._task


@case
async def creates_and_gets(api: Api, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    found = await api.get(CONFIG_MAPS, "a", namespace)
    assert found.meta == made.meta
    assert found.meta.uid
    assert found.plain()["data"] == {"x": "1"}


@case
async def refuses_to_create_twice(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a"), namespace)
    with pytest.raises(AlreadyExists) as refusal:
        await api.create(CONFIG_MAPS, config_map("a"), namespace)
    assert (refusal.value.code, refusal.value.reason) == (409, "AlreadyExists")


@case
async def generates_names(api: Api, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}, namespace)
    assert made.meta.name.startswith("a-")
    assert len(made.meta.name) > 2


@case
async def says_what_is_not_found(api: Api, namespace: str) -> None:
    with pytest.raises(NotFound) as refusal:
        await api.get(CONFIG_MAPS, "a", namespace)
    assert refusal.value.message == 'configmaps "a" not found'
    assert await api.find(CONFIG_MAPS, "a", namespace) is None


@case
async def answers_not_found_for_unknown_resources(api: Api, namespace: str) -> None:
    unknown = Resource("nobody.example", "v1", "things", "Thing", True)
    assert not await api.serves(unknown)
    with pytest.raises(NotFound):
        await api.list(unknown, namespace)


@case
async def knows_what_it_serves(api: Api, _namespace: str) -> None:
    assert await api.serves(MUTATING_POLICIES)
    assert await api.serves(PODS)
    assert not await api.serves(Resource("", "v1", "things", "Thing", True))


@case
async def lists_in_pages_of_one_version(api: Api, namespace: str) -> None:
    for number in range(5):
        await api.create(CONFIG_MAPS, config_map(f"a{number}"), namespace)
    pages = [page async for page in api.pages(CONFIG_MAPS, namespace, Select(fields="metadata.name!=x"), limit=2)]
    names = [RawObject(bytes(raw)).meta.name for page in pages for raw in page.items or ()]
    assert [name for name in names if name.startswith("a")] == ["a0", "a1", "a2", "a3", "a4"]
    assert len(pages) >= 3
    assert len({page.metadata.resource_version for page in pages}) == 1


@case
async def selects_by_labels_and_fields(api: Api, namespace: str) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        await api.create(PODS, pod(name, color=color), namespace)
    red = await api.list(PODS, namespace, Select(labels="color=red"))
    assert [item.meta.name for item in red.items] == ["a", "c"]
    only = await api.list(PODS, namespace, Select(labels="color=red", fields="metadata.name=c"))
    assert [item.meta.name for item in only.items] == ["c"]


@case
async def merge_patch_removes_by_null(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a", x="1", y="2"), namespace)
    patch = {"data": {"x": None, "z": "3"}}
    changed = await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.MERGE, patch)
    assert changed.plain()["data"] == {"y": "2", "z": "3"}


@case
async def a_brief_answer_has_metadata_only(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    brief = await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.MERGE, {"data": {"x": "2"}}, how=Writing(brief=True))
    now = await api.get(CONFIG_MAPS, "a", namespace)
    assert brief.meta == now.meta
    assert set(brief.plain()) == {"kind", "apiVersion", "metadata"}
    assert brief.plain()["kind"] == "PartialObjectMetadata"


@case
async def a_patch_that_changes_nothing_makes_no_version(api: Api, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    same = await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.MERGE, {"data": {"x": "1"}})
    assert same.meta.resource_version == made.meta.resource_version


@case
async def a_patch_of_an_old_version_conflicts(api: Api, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.MERGE, {"data": {"x": "2"}})
    stale = {"metadata": {"resourceVersion": made.meta.resource_version}, "data": {"x": "3"}}
    with pytest.raises(Conflict):
        await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.MERGE, stale)


@case
async def a_patch_of_another_uid_is_invalid(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    other = {"metadata": {"uid": "6f1c1a3e-0000-4000-8000-000000000000"}, "data": {"x": "3"}}
    with pytest.raises(Invalid):
        await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.MERGE, other)


@case
async def json_patch_tests_before_it_changes(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    good: list[dict[str, object]] = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/data/x", "value": "2"},
        {"op": "add", "path": "/metadata/annotations", "value": {"bursar.dev/term": "7"}},
    ]
    changed = await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.JSON, good)
    assert changed.plain()["data"] == {"x": "2"}
    with pytest.raises(Invalid):
        await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.JSON, good)


@case
async def a_pods_gate_goes_by_json_patch(api: Api, namespace: str) -> None:
    made = await api.create(PODS, pod("p"), namespace)
    patch: list[dict[str, object]] = [
        {"op": "test", "path": "/metadata/uid", "value": made.meta.uid},
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": "bursar.dev/quota"},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    changed = await api.patch(PODS, "p", namespace, PatchKind.JSON, patch)
    assert not changed.plain()["spec"].get("schedulingGates")


@case
async def status_is_written_apart(api: Api, namespace: str) -> None:
    await api.create(PODS, pod("p"), namespace)
    both = {"metadata": {"labels": {"a": "b"}}, "status": {"message": "hello"}}
    plain = await api.patch(PODS, "p", namespace, PatchKind.MERGE, both)
    assert plain.plain()["metadata"]["labels"] == {"a": "b"}
    assert "message" not in plain.plain().get("status", {})
    status = await api.patch(
        PODS, "p", namespace, PatchKind.MERGE, {"status": {"message": "hello"}}, subresource="status"
    )
    assert status.plain()["status"]["message"] == "hello"


@case
async def apply_creates_owns_and_gives_up_fields(api: Api, namespace: str) -> None:
    await api.apply(CONFIG_MAPS, "a", namespace, config_map("a", x="1", y="1"))
    changed = await api.apply(CONFIG_MAPS, "a", namespace, config_map("a", x="2"))
    assert changed.plain()["data"] == {"x": "2"}


@case
async def apply_conflicts_unless_forced(api: Api, namespace: str) -> None:
    other = Writing(field_manager="other")
    await api.apply(CONFIG_MAPS, "a", namespace, config_map("a", x="1"), how=other)
    with pytest.raises(Conflict) as refusal:
        await api.apply(CONFIG_MAPS, "a", namespace, config_map("a", x="2"))
    assert [(cause.reason, cause.field) for cause in refusal.value.causes] == [("FieldManagerConflict", ".data.x")]
    forced = await api.apply(CONFIG_MAPS, "a", namespace, config_map("a", x="2"), force=True)
    assert forced.plain()["data"] == {"x": "2"}


@case
async def deletes_only_the_one_that_is_meant(api: Api, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a"), namespace)
    with pytest.raises(Conflict):
        await api.delete(CONFIG_MAPS, "a", namespace, uid="6f1c1a3e-0000-4000-8000-000000000000")
    with pytest.raises(Conflict):
        await api.delete(CONFIG_MAPS, "a", namespace, resource_version="1")
    await api.delete(CONFIG_MAPS, "a", namespace, uid=made.meta.uid, resource_version=made.meta.resource_version)
    with pytest.raises(NotFound):
        await api.delete(CONFIG_MAPS, "a", namespace)


@case
async def a_finalizer_keeps_what_is_deleted(api: Api, namespace: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["bursar.dev/test"]
    await api.create(CONFIG_MAPS, body, namespace)
    await api.delete(CONFIG_MAPS, "a", namespace)
    assert (await api.get(CONFIG_MAPS, "a", namespace)).meta.deletion_timestamp
    await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.MERGE, {"metadata": {"finalizers": None}})
    assert await api.find(CONFIG_MAPS, "a", namespace) is None


@case
async def evicts_a_pod_without_budget(api: Api, namespace: str) -> None:
    made = await api.create(PODS, pod("p"), namespace)
    assert (await api.evict("p", namespace, uid=made.meta.uid, grace=0)).outcome == "evicted"
    assert (await api.evict("p", namespace, uid=made.meta.uid)).outcome == "gone"


@case
async def a_dry_run_leaves_no_trace(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a"), namespace, Writing(dry_run=True))
    assert await api.find(CONFIG_MAPS, "a", namespace) is None


@case
async def a_lease_keeps_what_is_written(api: Api, namespace: str) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 3, "leaseTransitions": 2}
    await api.create(LEASES, {"metadata": {"name": "l"}, "spec": spec}, namespace)
    changed = await api.patch(LEASES, "l", namespace, PatchKind.MERGE, {"spec": {"holderIdentity": ""}})
    assert changed.plain()["spec"]["leaseTransitions"] == 2
    assert not changed.plain()["spec"].get("holderIdentity")


@case
async def a_write_may_carry_its_deadline(api: Api, namespace: str) -> None:
    api.http.gate = lambda: 4.25
    await api.create(CONFIG_MAPS, config_map("a"), namespace)
    await api.patch(CONFIG_MAPS, "a", namespace, PatchKind.MERGE, {"data": {"x": "1"}})
    await api.apply(CONFIG_MAPS, "a", namespace, config_map("a", y="1"))
    await api.delete(CONFIG_MAPS, "a", namespace)
    api.http.gate = None


@case
async def follows_what_there_is_and_what_comes(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("old"), namespace)
    async with Followed(api, CONFIG_MAPS, Following(namespace=namespace)) as followed:
        assert followed.reflector.store.get(f"{namespace}/old") is not None
        await api.create(CONFIG_MAPS, config_map("new", x="1"), namespace)
        await api.patch(CONFIG_MAPS, "new", namespace, PatchKind.MERGE, {"data": {"x": "2"}})
        await api.delete(CONFIG_MAPS, "new", namespace)
        await followed.diary.until("+old", "+new", "~new", "-new")
        assert followed.diary.last["new"].plain()["data"] == {"x": "2"}


@case
async def follows_in_pages_too(api: Api, namespace: str) -> None:
    for number in range(5):
        await api.create(CONFIG_MAPS, config_map(f"a{number}"), namespace)
    how = Following(namespace=namespace, stream_lists=False, page=2)
    async with Followed(api, CONFIG_MAPS, how) as followed:
        await api.delete(CONFIG_MAPS, "a3", namespace)
        await followed.diary.until("+a0", "+a1", "+a2", "+a3", "+a4", "-a3")


@case
async def what_leaves_a_selection_is_deleted(api: Api, namespace: str) -> None:
    how = Following(namespace=namespace, select=Select(labels="color=red"))
    async with Followed(api, PODS, how) as followed:
        await api.create(PODS, pod("a", color="blue"), namespace)
        for color in ("red", "blue"):
            patch = {"metadata": {"labels": {"color": color}}}
            await api.patch(PODS, "a", namespace, PatchKind.MERGE, patch)
        await followed.diary.until("+a", "-a")


@case
async def refreshes_on_demand(api: Api, namespace: str) -> None:
    async with Followed(api, CONFIG_MAPS, Following(namespace=namespace)) as followed:
        await api.create(CONFIG_MAPS, config_map("a"), namespace)
        async with asyncio.timeout(60.0):
            await followed.reflector.refresh()
        assert followed.reflector.store.get(f"{namespace}/a") is not None
        assert followed.diary.syncs == 2
        assert followed.diary.lines.count("+a") == 1


@case
async def follows_cluster_scoped_objects(api: Api, namespace: str) -> None:
    async with Followed(api, NAMESPACES, Following(select=Select(fields=f"metadata.name={namespace}"))) as followed:
        patch = {"metadata": {"labels": {"bursar.dev/quota": "enforced"}}}
        await api.apply(NAMESPACES, namespace, "", {"apiVersion": "v1", "kind": "Namespace", **patch}, force=True)
        await followed.diary.until(f"~{namespace}" if followed.diary.lines else f"+{namespace}")


@case
async def pods_are_watched_as_structs(api: Api, namespace: str) -> None:
    await api.create(PODS, pod("a", team="x"), namespace)
    async with Followed(api, PODS, Following(namespace=namespace), Typed(SeenPod, identity)) as followed:
        diary = followed.diary
        await api.patch(PODS, "a", namespace, PatchKind.MERGE, {"metadata": {"annotations": {"note": "ü"}}})
        await diary.until("+a", "~a")
        known = await api.get(PODS, "a", namespace)
        assert diary.last["a"] == read_pod(known.raw)
        assert diary.last["a"].metadata.annotations == {"note": "ü"}
        await api.delete(PODS, "a", namespace, grace=0)
        await diary.until("-a")
        assert diary.last["a"].metadata.uid == known.meta.uid
        assert followed.reflector.progress.counts["failures"] == 0
