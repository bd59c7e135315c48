"""Results depend on what there is, and not on the order in which it was found."""

from __future__ import annotations

from typing import cast

from bursar.policies.pools.settings import DEFAULT, PROFILE_OBJECT, QUOTA_OBJECT
from bursar.policies.results import Output
from tests.policies.pools.world import World


def found_running(world: World, requests: dict[str, int], quota: str, node: str = "n1") -> None:
    """A restart or a new leader finds the pod on a node."""
    claim = world.submit(requests, quota)
    world.engine.place(claim.uid, node, world.now, forced=True)


def status_of(outputs: list[Output], key: str) -> tuple[str, str] | None:
    """The reason and the message of the last status."""
    for output in reversed(outputs):
        if (output.kind, output.key, output.part) == (QUOTA_OBJECT, key, "status") and output.value is not None:
            ready = cast("list[dict[str, str]]", output.value["conditions"])[0]
            return ready["reason"], ready.get("message", "")
    return None


def test_a_pod_above_max_counts_alike_whether_it_was_there_before_or_is_found() -> None:
    lowered, found = World({"cpu": 10}), World({"cpu": 10})
    for world in (lowered, found):
        world.quota("q", {"cpu": 8})
    lowered.start({"cpu": 4}, "q")
    for world in (lowered, found):
        world.quota("q", {"cpu": 3})
    found_running(found, {"cpu": 4}, "q")
    for world in (lowered, found):
        assert (world.request("q"), world.runtime("q"), world.used("q")) == ({"cpu": 4}, {"cpu": 3}, {"cpu": 4})


def test_a_pod_whose_node_left_the_tree_counts_when_it_is_found() -> None:
    world = World({"cpu": 2})
    world.quota("q", {"cpu": 8})
    found_running(world, {"cpu": 4}, "q", "gone")
    assert (world.request("q"), world.runtime("q"), world.used("q")) == ({"cpu": 4}, {"cpu": 2}, {"cpu": 4})


def test_a_place_that_is_given_up_counts_as_a_request_would() -> None:
    """Its request was counted while it had a place, although it could not be admitted any more."""
    world = World({"cpu": 10}, placing=True)
    world.quota("q", {"cpu": 8})
    claim = world.claim({"cpu": 4}, "q")
    assert world.engine.decide(claim, world.now).admitted
    world.quota("q", {"cpu": 3})
    assert world.request("q") == {"cpu": 4}
    world.engine.give_up(claim.uid, world.now)
    assert world.request("q") == {}
    assert claim.place == ""


def test_an_admitted_pod_counts_where_runtime_is_off() -> None:
    world = World({"cpu": 2})
    world.quota("q", {"cpu": 8})
    world.submit({"cpu": 4}, "q")
    assert world.request("q") == {}
    world.options(runtime=False)
    assert world.request("q") == {"cpu": 4}
    world.options(runtime=True)
    assert world.request("q") == {}


def test_the_default_quota_has_no_guarantee() -> None:
    """Neither when usage is guaranteed before pods use it, nor after."""
    before, after = World({"cpu": 10}), World({"cpu": 10})
    before.options(guarantee=True)
    for world in (before, after):
        world.quota("q", {"cpu": 8})
    before.start({"cpu": 4})
    claim = after.start({"cpu": 4})
    after.options(guarantee=True)
    assert before.branch(DEFAULT).allocated == after.branch(DEFAULT).allocated == [0]
    after.engine.release(claim.uid, after.now)
    assert after.branch(DEFAULT).allocated == [0]


def test_without_quotas_and_profiles_pods_belong_to_no_quota_again() -> None:
    world = World({"cpu": 10})
    claim = world.submit({"cpu": 1})
    world.quota("q", {"cpu": 8})
    world.profile("x", {"pool": "x"})
    assert claim.binding_of("pools") is not None
    world.remove("q")
    assert claim.binding_of("pools") is not None
    world.set("pools.Profile", "ns/x", None)
    assert claim.binding_of("pools") is None
    assert not world.policy.derived.resolver.quotas
    assert not [name for name in world.engine.state.accounts if name.startswith("pools/")]
    world.replayed()


def test_a_quota_that_is_cut_off_says_so_and_has_no_runtime() -> None:
    world = World({"cpu": 10})
    world.quota("org", {"cpu": 8}, is_parent=True)
    world.quota("team", {"cpu": 8}, parent="org", is_parent=True)
    world.quota("leaf", {"cpu": 8}, {"cpu": 2}, parent="team", lends=False)
    world.outputs()
    world.remove("org")
    outputs = world.outputs()
    assert status_of(outputs, "quotas/team") == ("Loose", "there is no quota org")
    assert status_of(outputs, "quotas/leaf") == ("Loose", "team: there is no quota org")
    assert list(world.branch("leaf").runtime) == [0]
    world.quota("org", {"cpu": 8}, tree="t")
    childless = "org may have no children: its label is-parent is not 'true'"
    assert status_of(world.outputs(), "quotas/team") == ("Loose", childless)
    world.quota("org", {"cpu": 8}, is_parent=True)
    outputs = world.outputs()
    assert (status_of(outputs, "quotas/leaf"), world.runtime("leaf")) == (("WithinRuntime", ""), {"cpu": 2})


def test_a_child_hangs_on_a_parent_without_a_tree_in_any_order() -> None:
    first, last = World({"cpu": 10}), World({"cpu": 10})
    first.quota("team", {"cpu": 8}, parent="gone", is_parent=True)
    for world in (first, last):
        world.quota("leaf", {"cpu": 8}, parent="team")
    last.quota("team", {"cpu": 8}, parent="gone", is_parent=True)
    for world in (first, last):
        assert status_of(world.outputs(), "quotas/leaf") == ("Loose", "team: there is no quota gone")
    world.quota("self", {"cpu": 8}, parent="self", is_parent=True)  # ends


def test_profiles_show_the_nodes_that_another_profile_gives_back() -> None:
    world = World()
    world.profile("a", {"pool": "x"})
    world.profile("b", {"pool": "x"})
    world.node("n1", {"cpu": 4, "memory": 1, "pods": 1}, {"pool": "x"})
    world.outputs()
    world.set("pools.Profile", "ns/a", None)
    written = world.written(world.outputs(), PROFILE_OBJECT, "ns/b", "status")
    assert written == {"nodes": 1, "total": {"cpu": "4m", "memory": "1", "pods": "1"}, "treeId": "tree-b"}


def test_what_fits_the_needs_of_a_quota_also_fits_resources_that_only_its_parent_manages() -> None:
    """The quick answer is asked of all that any quota of the path manages."""
    world = World({"cpu": 10, "memory": 10})
    world.quota("org", {"cpu": 10, "memory": 10}, {"cpu": 10}, is_parent=True)
    world.quota("team", {"cpu": 10}, {"cpu": 10}, parent="org")
    assert world.decide({"cpu": 1}, "team").admitted
    assert world.decide({"cpu": 1, "memory": 1}, "team").reason == "pools.runtime.memory"
