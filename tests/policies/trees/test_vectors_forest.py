"""Forests: vectors 6.3 and 6.10, all or nothing, victims that leave every tree."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from bursar.policies.trees import QuotaError
from tests.policies.trees.world import World, forest_consumer, state, wish

CONTEXT = "Root10(Org-A4(Context-1 1,Context-2 1),Org-B6!(Context-3 2,Context-4 2!),Org-C4(Context-5 4))"
SERVICE = "Root[16,12](Srvc-X[3,4]!,Srvc-Y[4,4],Srvc-Z[5,4])"
SERVICE_RESOURCES = ("cpu", "disk")
JOBS = {
    "job-1": (0, "Context-4", 2, "Srvc-X", [2, 1]),
    "job-2": (0, "Context-2", 3, "Srvc-Y", [1, 1]),
    "job-3": (0, "Context-3", 4, "Srvc-Z", [4, 2]),
    "job-4": (1, "Context-2", 4, "Srvc-X", [3, 4]),
    "job-5": (1, "Context-4", 4, "Srvc-Z", [2, 8]),
}
THREE = (
    "Context-4 2{job-1} Org-A3{job-2} Org-B6{job-3} Root9",
    "Root[7,4] Srvc-X[2,1]{job-1} Srvc-Y[1,1]{job-2} Srvc-Z[4,2]{job-3}",
)
FOUR = ("Org-A4{job-4} Org-B4{job-3} Root8", "Root[7,6] Srvc-X[3,4]{job-4} Srvc-Z[4,2]{job-3}")


def context_tree(world: World) -> None:
    nodes = {
        "Root": ("nil", 10, False),
        "Org-A": ("Root", 4, False),
        "Org-B": ("Root", 6, True),
        "Org-C": ("Root", 4, False),
        "Context-1": ("Org-A", 1, False),
        "Context-2": ("Org-A", 1, False),
        "Context-3": ("Org-B", 2, False),
        "Context-4": ("Org-B", 2, True),
        "Context-5": ("Org-C", 4, False),
    }
    world.resources["ContextTree"] = ("cpu",)
    world.manager.add_tree_from_struct(
        {
            "kind": "QuotaTree",
            "metadata": {"name": "ContextTree"},
            "spec": {
                "resourceNames": ["cpu"],
                "nodes": {
                    name: {"parent": parent, "hard": hard, "quota": {"cpu": quota}}
                    for name, (parent, quota, hard) in nodes.items()
                },
            },
        }
    )


def two_trees() -> World:
    world = World()
    context_tree(world)
    world.add("ServiceTree", SERVICE, SERVICE_RESOURCES)
    world.forest("F", "ServiceTree", "ContextTree")
    for job, (priority, context, cpu, service, request) in JOBS.items():
        rows = (
            wish("ContextTree", context, cpu, priority, resources=("cpu",)),
            wish("ServiceTree", service, request, priority, resources=SERVICE_RESOURCES),
        )
        world.manager.add_consumer(forest_consumer(job, *rows))
    return world


def states(world: World) -> tuple[str, str]:
    context = state(world.manager, "ContextTree").replace("Context-42", "Context-4 2")
    return context, state(world.manager, "ServiceTree")


def test_6_3_the_forest_example() -> None:
    world = two_trees()
    manager = world.manager
    assert manager.allocate_forest("F", "job-1").allocated
    assert states(world) == ("Context-4 2{job-1} Org-B2 Root2", "Root[2,1] Srvc-X[2,1]{job-1}")
    assert manager.allocate_forest("F", "job-2").allocated
    expected = "Context-4 2{job-1} Org-A3{job-2} Org-B2 Root5"
    assert states(world) == (expected, "Root[3,2] Srvc-X[2,1]{job-1} Srvc-Y[1,1]{job-2}")
    assert manager.allocate_forest("F", "job-3").allocated
    assert states(world) == THREE
    response = manager.allocate_forest("F", "job-4")
    assert response.allocated
    assert sorted(response.preempted) == ["job-1", "job-2"]
    assert states(world) == FOUR
    refused = manager.allocate_forest("F", "job-5")
    assert (refused.allocated, refused.preempted) == (False, ())
    assert "ContextTree" in refused.message
    assert states(world) == FOUR
    assert manager.deallocate_forest("F", "job-3")
    assert manager.deallocate_forest("F", "job-4")
    assert states(world) == ("", "")


def test_6_3_undo_of_a_try_that_preempts_in_both_trees() -> None:
    world = two_trees()
    for job in ("job-1", "job-2", "job-3"):
        world.manager.allocate_forest("F", job)
    before = world.manager.plain()
    tried = world.manager.try_allocate_forest("F", "job-4")
    assert sorted(tried.preempted) == ["job-1", "job-2"]
    assert states(world) == FOUR
    assert tried.token is not None
    world.manager.undo_allocate_forest(tried.token)
    assert world.manager.plain() == before
    assert states(world) == THREE
    world.manager.allocate_forest("F", "job-4")
    assert states(world) == FOUR


def release_forest() -> World:
    world = World()
    world.add("T", "root[10,256]!(gold[2,64]!,silver[6,64],bronze[2,128])", ("cpu", "memory"))
    world.forest("F", "T")
    return world


def test_6_10_release() -> None:
    world = release_forest()
    groups = {"1": "gold", "2": "gold", "3": "bronze", "4": "silver"}
    for name, group in groups.items():
        request = {"cpu": 1, "memory": 4, "gpu": 0}
        world.manager.add_consumer(forest_consumer(name, wish("T", group, request)))
        response = world.manager.allocate_forest("F", name)
        assert (response.allocated, response.message) == (True, "")
    assert world.state() == "bronze[1,4]{3} gold[2,8]{1 2} root[4,16] silver[1,4]{4}"
    for name in groups:
        assert world.manager.deallocate_forest("F", name)
        world.manager.remove_consumer(name)
    assert world.state() == ""


def in_threads(*works: Callable[[], None]) -> None:
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result()


def test_6_10_release_with_four_threads() -> None:
    world = release_forest()

    def work(name: str, group: str) -> None:
        world.manager.add_consumer(forest_consumer(name, wish("T", group, {"cpu": 1, "memory": 4, "gpu": 0})))
        assert world.manager.allocate_forest("F", name).allocated
        assert world.manager.deallocate_forest("F", name)
        world.manager.remove_consumer(name)

    in_threads(*[partial(work, str(n), group) for n, group in enumerate(("gold", "gold", "bronze", "silver"))])
    assert world.state() == ""


def test_6_10_the_loser_of_a_race_is_served_later() -> None:
    world = World()
    world.add("T", "root[10,256]!(gold[10,256]!)", ("cpu", "memory"))
    world.forest("F", "T")

    def work(name: str) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            row = wish("T", "gold", [10, 4], resources=("cpu", "memory"))
            world.manager.add_consumer(forest_consumer(name, row))
            response = world.manager.allocate_forest("F", name)
            if response.allocated:
                time.sleep(0.01)
                assert world.manager.deallocate_forest("F", name)
            world.manager.remove_consumer(name)
            if response.allocated:
                return
            time.sleep(0.01)
        raise AssertionError(f"{name} was never served")

    in_threads(partial(work, "a"), partial(work, "b"))
    assert world.state() == ""


def j_tree() -> World:
    world = World()
    world.add("test-tree", "A[12,256](B[4,64],C[4,64])", ("cpu", "memory"))
    for name, group in (("J-1", "B"), ("J-2", "C"), ("J-3", "C")):
        assert world.allocate(name, group, [4, 32], tree_name="test-tree").allocated
    assert world.state("test-tree") == "A[12,96]{J-3} B[4,32]{J-1} C[4,32]{J-2}"
    return world


def test_6_10_refused_try() -> None:
    world = j_tree()
    world.know("J-4", "C", [2, 16], tree_name="test-tree")
    base = world.manager.plain()
    tried = world.manager.try_allocate("test-tree", "J-4")
    assert not tried.allocated
    assert tried.token is not None
    world.manager.undo_allocate(tried.token)
    assert world.manager.plain() == base


def test_6_10_try_that_pushes_and_preempts() -> None:
    world = j_tree()
    world.know("J-5", "C", [4, 32], 1, tree_name="test-tree")
    base = world.manager.plain()
    tried = world.manager.try_allocate("test-tree", "J-5")
    assert tried.preempted == ("J-3",)
    assert world.state("test-tree") == "A[12,96]{J-2} B[4,32]{J-1} C[4,32]{J-5}"
    assert tried.token is not None
    world.manager.undo_allocate(tried.token)
    assert world.manager.plain() == base


def test_6_10_a_consumer_of_another_tree() -> None:
    world = j_tree()
    world.manager.add_consumer(forest_consumer("J-6", wish("other-tree", "C", 1)))
    base = world.manager.plain()
    with pytest.raises(QuotaError, match="does not name the tree"):
        world.manager.try_allocate("test-tree", "J-6")
    assert world.manager.plain() == base


def f_trees() -> World:
    world = World()
    world.add("test-tree", "A[12,256](B[4,64],C[4,64])", ("cpu", "memory"))
    world.add("service-tree", "root12(X5,Y5(Z6))")
    world.forest("F", "test-tree", "service-tree")
    for name in ("F-1", "F-5"):
        rows = (wish("test-tree", "B", [4, 32], resources=("cpu", "memory")), wish("service-tree", "X", 3))
        world.manager.add_consumer(forest_consumer(name, *rows))
    assert world.manager.allocate_forest("F", "F-1").allocated
    return world


def test_6_10_forest_try_and_undo() -> None:
    world = f_trees()
    base = world.manager.plain()
    tried = world.manager.try_allocate_forest("F", "F-5")
    assert world.state("test-tree") == "A[8,64]{F-5} B[4,32]{F-1}"
    assert world.state("service-tree") == "X3{F-1} root6{F-5}"
    assert tried.token is not None
    world.manager.undo_allocate_forest(tried.token)
    assert world.manager.plain() == base


def test_6_10_unknown_group_in_a_forest() -> None:
    world = f_trees()
    rows = (wish("test-tree", "F", [4, 32], resources=("cpu", "memory")), wish("unknown-tree", "X", 3))
    world.manager.add_consumer(forest_consumer("F-6", *rows))
    base = world.manager.plain()
    with pytest.raises(QuotaError, match="no group F"):
        world.manager.try_allocate_forest("F", "F-6")
    assert world.manager.plain() == base


def test_6_10_parallel_tries_never_see_each_other() -> None:
    world = World(T="R10(gold10)")
    for name in ("a", "b"):
        world.know(name, "gold", 4)
    for name in ("a", "b"):
        with world.manager.atomic():
            tried = world.manager.try_allocate("T", name)
            assert tried.allocated
            assert world.state() == f"R4 gold4{{{name}}}"
            assert tried.token is not None
            world.manager.undo_allocate(tried.token)
    assert world.state() == ""
