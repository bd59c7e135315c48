"""Victims, leaving, resizing, the reserve of idle GPUs, nodes that come and go, and what people are told."""

from __future__ import annotations

import pytest

from bursar.policies.crossquota.arguments import PREFIX, Arguments
from bursar.policies.results import Body, Setting, SettingError
from tests.policies.crossquota.world import GPU, World, arguments, body, claim

NODE: dict[str, object] = {"cpu": 16, "memory": "64Gi", GPU: 4}


def world_of(**given: object) -> World:
    world = World(arguments(quota_resources="cpu,memory", **given))
    world.node("g", body(NODE))
    return world


def victims(world: World, uid: str, requests: dict[str, object], priority: int) -> list[str]:
    """Whom the policy names, if each leaves before the next is named."""
    asked = claim(uid, requests, priority=priority)
    refusal = world.policy.explain_node(asked, "g")
    bound = world.policy.bind(asked, "g")
    assert refusal is not None
    found: list[str] = []
    mark = world.tx.savepoint()
    for victim in world.policy.victims(world.tx, asked, bound, refusal):  # type: ignore[arg-type]
        found.append(victim.uid)
        world.leave(victim)
    world.tx.rollback_to(mark)
    return found


class TestVictims:
    def test_least_important_cpu_pods_first_and_no_more_than_needed(self) -> None:
        world = world_of(quota__cpu=4)
        for uid, priority, created in (("old", 1, 1), ("new", 1, 2), ("high", 5, 3), ("low", 0, 4)):
            world.place(claim(uid, {"cpu": 1}, priority=priority, created=created), "g")
        assert victims(world, "c", {"cpu": 1}, 3) == ["low"]
        assert victims(world, "c", {"cpu": 2}, 3) == ["low", "new"]
        assert victims(world, "c", {"cpu": 4}, 3) == ["low", "new", "old"]
        assert victims(world, "c", {"cpu": 4}, 9) == ["low", "new", "old", "high"]

    def test_who_uses_nothing_of_what_is_short_is_spared(self) -> None:
        world = world_of(quota__cpu=1)
        world.place(claim("memory", {"memory": "1Gi"}), "g")
        world.place(claim("cpu", {"cpu": 1}), "g")
        assert victims(world, "c", {"cpu": 1}, 3) == ["cpu"]

    def test_nobody_leaves_for_a_claim_that_the_quota_can_never_take(self) -> None:
        world = world_of(quota__cpu=1)
        world.place(claim("cpu", {"cpu": 1}), "g")
        assert victims(world, "c", {"cpu": 2}, 3) == []

    def test_gpu_pods_are_never_named(self) -> None:
        world = world_of(quota__cpu=1)
        world.place(claim("gpu", {"cpu": 8, GPU: 1}), "g")
        world.place(claim("cpu", {"cpu": 1}), "g")
        assert victims(world, "c", {"cpu": 1}, 3) == ["cpu"]

    def test_occupants_are_those_in_the_way_whatever_their_priority(self) -> None:
        world = world_of(quota__cpu=2)
        for uid in "ab":
            world.place(claim(uid, {"cpu": 1}, priority=9), "g")
        asked = claim("c", {"cpu": 1})
        refusal, bound = world.policy.explain_node(asked, "g"), world.policy.bind(asked, "g")
        found = world.policy.victims_on_node(world.tx, asked, bound, refusal)  # type: ignore[arg-type]
        assert sorted(one.uid for one in found or []) == ["a", "b"]


class TestLeaving:
    def test_who_was_told_to_leave_no_longer_counts_but_is_in_the_way_until_gone(self) -> None:
        world = world_of(quota__cpu=2)
        old, new = claim("old", {"cpu": 2}), claim("new", {"cpu": 2})
        world.place(old, "g")
        world.leave(old)
        assert world.used("g") == {}
        assert world.place(new, "g") is None
        assert not world.policy.ready(new, world.held(new))
        world.left(old)
        assert world.policy.ready(new, world.held(new))

    def test_who_stays_after_all_counts_again(self) -> None:
        world = world_of(quota__cpu=2)
        old = claim("old", {"cpu": 2})
        world.place(old, "g")
        world.leave(old)
        world.stay(old)
        assert world.used("g") == {"cpu": "2"}


class TestResizing:
    def test_only_what_grows_is_checked(self) -> None:
        world = world_of(quota__cpu=4, quota__memory="4Gi")
        one = claim("one", {"cpu": 2, "memory": "2Gi"})
        world.place(one, "g")
        world.configure(arguments(quota_resources="cpu,memory", quota__cpu=1, quota__memory="4Gi"))
        assert world.resize(one, {"cpu": 2, "memory": "3Gi"}) is None
        assert world.resize(one, {"cpu": "1500m", "memory": "3Gi"}) is None
        refusal = world.resize(one, {"cpu": 2, "memory": "3Gi"})
        assert refusal is not None
        assert refusal.reason == "crossquota.quota.cpu"
        assert world.used("g") == {"cpu": "1500m", "memory": "3Gi"}

    def test_a_claim_that_takes_a_gpu_no_longer_counts(self) -> None:
        world = world_of()
        one = claim("one", {"cpu": 2})
        world.place(one, "g")
        assert world.resize(one, {"cpu": 9, GPU: 1}) is None
        assert world.used("g") == {}


class TestReserve:
    """16 cpu and 4 GPUs, each of which keeps 2 cpu while it is idle."""

    def world(self, **given: object) -> World:
        return world_of(**given, **{"reserve-per-gpu__cpu": 2})

    def test_idle_gpus_keep_their_share(self) -> None:
        world = self.world()
        assert world.place(claim("a", {"cpu": 8}), "g") is None
        refusal = world.policy.explain_node(claim("b", {"cpu": 1}), "g")
        assert refusal is not None
        assert refusal.reason == "crossquota.reserve.cpu"
        assert refusal.sentence() == ("4 idle GPUs of node g keep 8 cpu: of 16 there are 8 in use, 1 more are wanted")
        assert world.open_for(claim("b", {"cpu": 1})) == []
        assert world.open_for(claim("b", {"memory": "1Gi"})) == ["g"]

    def test_a_gpu_pod_is_never_refused_and_frees_what_its_gpus_kept(self) -> None:
        world = self.world()
        world.place(claim("a", {"cpu": 8}), "g")
        gpu = claim("gpu", {"cpu": 3, GPU: 2})
        assert world.place(gpu, "g") is None
        assert world.open_for(claim("b", {"cpu": 1})) == ["g"]  # 11 in use, 2 idle GPUs keep 4
        assert world.open_for(claim("b", {"cpu": 2})) == []
        world.release(gpu)
        assert world.open_for(claim("b", {"cpu": 1})) == []

    def test_exempt_claims_count_but_are_not_refused(self) -> None:
        world = self.world()
        assert world.place(claim("agent", {"cpu": 12}, namespace="kube-system"), "g") is None
        assert world.reason(claim("b", {"cpu": 1}), "g") == "crossquota.reserve.cpu"
        assert world.used("g") == {}

    def test_the_quota_comes_first(self) -> None:
        world = self.world(quota__cpu=1)
        assert world.reason(claim("b", {"cpu": 12}), "g") == "crossquota.quota.cpu"

    def test_victims_are_cpu_pods(self) -> None:
        world = self.world()
        world.place(claim("gpu", {"cpu": 1, GPU: 1}), "g")
        world.place(claim("cpu", {"cpu": 8}), "g")
        assert victims(world, "c", {"cpu": 2}, 3) == ["cpu"]

    def test_growing_is_checked(self) -> None:
        world = self.world()
        one = claim("one", {"cpu": 8})
        world.place(one, "g")
        refusal = world.resize(one, {"cpu": 9})
        assert refusal is not None
        assert refusal.reason == "crossquota.reserve.cpu"
        assert world.resize(one, {"cpu": 7}) is None

    def test_a_gpu_pod_may_grow(self) -> None:
        world = self.world()
        one = claim("one", {"cpu": 8, GPU: 1})
        world.place(one, "g")
        assert world.resize(one, {"cpu": 14, GPU: 1}) is None

    def test_a_resource_without_a_quota_can_be_reserved(self) -> None:
        world = World(arguments(quota_resources="cpu") | {"reserve-per-gpu.memory": "16Gi"})
        world.node("g", body(NODE))
        assert world.reason(claim("b", {"memory": "1Gi"}), "g") == "crossquota.reserve.memory"

    def test_a_node_that_does_not_list_it_keeps_nothing(self) -> None:
        world = World(arguments() | {"reserve-per-gpu.cpu": 2})
        world.node("g", body({GPU: 4}))
        assert world.open_for(claim("b", {"cpu": 1})) == ["g"]


class TestNodesComeAndGo:
    def test_a_node_that_becomes_a_gpu_node_counts_who_is_there(self) -> None:
        world = World(arguments(quota__cpu=4))
        world.node("n", body({"cpu": 16}))
        world.place(claim("a", {"cpu": 3}), "n")
        world.place(claim("gpu", {"cpu": 3, GPU: 1}), "n")
        world.node("n", body({"cpu": 16, GPU: 4}))
        assert world.used("n") == {"cpu": "3"}
        assert world.reason(claim("b", {"cpu": 2}), "n") == "crossquota.quota.cpu"

    def test_usage_stays_true_while_it_is_no_gpu_node(self) -> None:
        world = World(arguments(quota__cpu=4))
        world.node("n", body({"cpu": 16, GPU: 4}))
        old = claim("old", {"cpu": 3})
        world.place(old, "n")
        world.node("n", body({"cpu": 16, GPU: 0}))
        assert world.place(claim("new", {"cpu": 5}), "n") is None
        world.release(old)
        world.node("n", body({"cpu": 16, GPU: 4}))
        assert world.used("n") == {"cpu": "5"}
        assert world.open_for(claim("b", {"cpu": "1m"})) == []

    def test_other_arguments_count_anew(self) -> None:
        world = world_of(quota__cpu=4)
        world.place(claim("a", {"cpu": 1, "memory": "1Gi"}, labels={"team": "x"}), "g")
        world.place(claim("b", {"cpu": 1, "memory": "1Gi"}), "g")
        world.configure(arguments(label_selector={"matchLabels": {"team": "x"}}))
        assert world.used("g") == {"cpu": "1"}
        world.configure(arguments(quota_resources="memory"))
        assert world.used("g") == {"memory": "2Gi"}
        world.configure(None)
        assert world.used("g") == {}
        world.configure(arguments(quota_resources="memory"))
        assert world.used("g") == {"memory": "2Gi"}

    def test_a_reserve_that_comes_later_counts_everybody(self) -> None:
        world = world_of()
        world.place(claim("a", {"cpu": 6}), "g")
        world.place(claim("gpu", {"cpu": 1, GPU: 3}), "g")
        world.configure(arguments() | {"reserve-per-gpu.cpu": 2})
        found = world.ledger.state.accounts[PREFIX + "g/reserve"].used.vector().show()
        assert found == {"cpu": "7", "gpus": "3"}

    def test_a_deleted_node_keeps_its_account_until_the_last_claim_is_gone(self) -> None:
        world = world_of(**{"reserve-per-gpu__cpu": 1})
        one = claim("one", {"cpu": 2})
        world.place(one, "g")
        world.node("g", None)
        world.leave(one)
        world.commit()
        assert PREFIX + "g" in world.ledger.state.accounts
        world.left(one)
        world.commit()
        assert not world.ledger.state.accounts
        world.node("g", body(NODE))
        assert world.place(claim("two", {"cpu": 2}), "g") is None

    def test_bodies_of_another_kind_are_refused(self) -> None:
        world = World()
        for kind, what in (("crossquota.Node", "is no node"), ("crossquota.Arguments", "are no arguments")):
            wrong = body({}) if kind.endswith("Arguments") else _no_node()
            with pytest.raises(SettingError, match=what):
                world.policy.configure(world.tx, Setting(kind, "x", wrong))


def _no_node() -> Body:
    return Arguments()


class TestTold:
    def told(self, world: World) -> list[tuple[str, str]]:
        found = []
        for output in world.policy.outputs(0):
            value = output.value or {}
            found.append((output.key, str(value.get("reason") or dict(value))))
        return found

    def test_a_bad_annotation_is_told_once(self) -> None:
        world = World(arguments(quota_resources="cpu,memory"))
        world.node("g", body(NODE, {"cpu": "abc", "percentage-memory": "150"}))
        outputs = world.policy.outputs(0)
        messages = [str((o.value or {})["message"]) for o in outputs if o.part == "event"]
        assert messages == [
            (
                "annotation volcano.sh/crossquota-cpu: 'abc' is not a quantity: it does not start with a number; "
                "the quota comes from the next level instead"
            ),
            (
                "annotation volcano.sh/crossquota-percentage-memory: '150' is not above 0 and up to 100; "
                "the quota comes from the next level instead"
            ),
        ]
        assert world.policy.status.bad_annotations == 2
        world.place(claim("c", {"cpu": 1}), "g")
        assert self.told(world) == []
        world.node("g", body(NODE, {"cpu": "x"}))
        assert self.told(world) == [("g", "crossquota.annotation")]
        assert world.policy.status.bad_annotations == 3

    def test_more_use_than_quota_is_told_on_the_edge(self) -> None:
        world = world_of()
        world.place(claim("a", {"cpu": 4}), "g")
        world.policy.outputs(0)
        world.configure(arguments(quota__cpu=2))
        assert self.told(world) == [("g", "crossquota.exceeded")]
        late = claim("b", {"cpu": 1})
        world.place(late, "g", forced=True)
        assert self.told(world) == []
        world.configure(arguments(quota__cpu=9))
        assert self.told(world) == []
        world.configure(arguments(quota__cpu=3))
        assert self.told(world) == [("g", "crossquota.exceeded")]

    def test_gpu_nodes_are_labelled(self) -> None:
        world = world_of()
        assert self.told(world) == [("g", "{'bursar.dev/gpu-node': 'true'}")]
        world.node("g", body({"cpu": 1}))
        assert self.told(world) == []  # it was never seen with the label
        world.node("g", None)
        assert self.told(world) == []


def test_explanations_show_quota_use_and_source() -> None:
    world = world_of(quota__cpu=4)
    world.node("h", body(NODE, {"cpu": "1"}))
    one = claim("one", {"cpu": 3})
    world.place(one, "g")
    found = world.policy.explain_nodes(claim("c", {"cpu": 2}))
    assert found is not None
    lines = found.lines()
    assert lines[0] == (
        "FAIL crossquota: 0 of 2 GPU nodes have quota for it, 0 nodes have no GPU and no quota [crossquota.quota.cpu]"
    )
    assert "cpu 2 wanted, 3 of 4 in use (argument quota.cpu)" in lines[1]
    assert "memory 0 wanted, 0 of 64Gi in use (allocatable)" in lines[1]
    assert "cpu 2 wanted, 0 of 1 in use (annotation volcano.sh/crossquota-cpu)" in lines[3]
    shown = world.policy.explain(one, world.held(one)).lines()
    assert "cpu 3 of 4 in use (argument quota.cpu)" in shown[1]


@pytest.mark.parametrize(
    ("requests", "namespace", "note"),
    [
        ({GPU: 1}, "team", "not limited: it asks for a GPU"),
        ({"cpu": 1}, "kube-system", "not limited: namespace kube-system is exempt"),
    ],
)
def test_who_is_not_limited_is_told_why(requests: dict[str, object], namespace: str, note: str) -> None:
    found = world_of().policy.explain_nodes(claim("c", requests, namespace=namespace))
    assert found is not None
    assert (found.passed, found.note) == (True, note)


def test_without_arguments_nothing_is_limited_and_nothing_said() -> None:
    world = World()
    world.node("g", body(NODE))
    pod = claim("c", {"cpu": 99})
    assert world.place(pod, "g") is None
    assert (world.policy.explain_nodes(pod), world.score(pod, "g"), world.policy.outputs(0)) == (None, 0, [])
