"""An event when a change of nodes or profiles takes nodes from a tree on which its pods run."""

from __future__ import annotations

from bursar.engine.what_if import Configure
from bursar.policies.pools.configure import PROFILE
from bursar.policies.results import Setting
from tests.policies.pools.tree_builder import cm
from tests.policies.pools.world import World


class TestNodesThatLeave:
    """Quotas are warned when a change of nodes or profiles takes nodes from their tree that their pods run on."""

    def lost(self, world: World) -> list[tuple[str, str]]:
        outputs = [output for output in world.outputs() if output.part == "event"]
        values = [(output.key, output.value or {}) for output in outputs]
        return [(key, str(value["message"])) for key, value in values if value["reason"] == "NodesLost"]

    def pool(self) -> World:
        world = World(placing=True)
        world.node("n1", cm(10, 10), {"pool": "a"})
        world.node("n2", cm(10, 10), {"pool": "a"})
        world.profile("a", {"pool": "a"})
        world.quota("q", cm(20, 20), parent="a-root", tree="tree-a")
        world.quota("idle", cm(20, 20), parent="a-root", tree="tree-a")
        for _ in range(2):
            world.start(cm(10, 1), "q")
        assert self.lost(world) == []
        return world

    def test_a_label_that_is_gone(self) -> None:
        world = self.pool()
        world.node("n1", cm(10, 10))
        sentence = "its pods run on nodes that left its tree: n1. They count until they end"
        assert self.lost(world) == [("quotas/q", sentence)]
        world.node("n1", cm(9, 10))
        assert self.lost(world) == []
        world.node("n1", cm(10, 10), {"pool": "a"})
        assert self.lost(world) == []

    def test_a_selector_with_a_typo(self) -> None:
        world = self.pool()
        world.profile("a", {"pool": "aa"})
        assert [(key, "n1, n2" in message) for key, message in self.lost(world)] == [("quotas/q", True)]

    def test_a_first_profile(self) -> None:
        world = World(cm(10, 10), placing=True)
        world.quota("q", cm(10, 10))
        world.start(cm(5, 5), "q")
        world.profile("a", {})
        assert [key for key, _ in self.lost(world)] == ["quotas/q"]

    def test_what_is_only_tried_warns_nobody(self) -> None:
        world = self.pool()
        change = Setting(PROFILE, "ns/a", None)
        world.engine.what_if([Configure([change])], world.now)
        assert self.lost(world) == []
