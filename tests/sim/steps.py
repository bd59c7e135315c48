"""A cluster with short calls, for tests."""

from __future__ import annotations

from typing import Any

from bursar.objects.manifests import Document
from bursar.policies.plugin import Registry
from bursar.sim.cluster import Cluster
from bursar.sim.pods import PodView


class TestBed(Cluster):
    """``give`` applies plain manifests, ``take`` deletes by reference, ``see`` looks at a pod."""

    __test__ = False

    def __init__(self, *manifests: dict[str, Any], registry: Registry | None = None) -> None:
        super().__init__(registry)
        self.give(*manifests)

    def give(self, *manifests: dict[str, Any]) -> None:
        self.apply([Document("test.yaml", 1, body, f"[{index}]") for index, body in enumerate(manifests)])

    def take(self, *references: str) -> None:
        self.delete([self.kinds.reference(text) for text in references])

    def see(self, key: str) -> PodView:
        found = self.pod(key)
        assert found is not None, f"there is no pod {key}"
        return found

    def phases(self) -> dict[str, str]:
        return {key: self.see(key).phase for key in self.pods()}

    def whole(self, reference: str) -> dict[str, Any]:
        found = self.find(*self.kinds.reference(reference))
        assert found is not None, f"there is no {reference}"
        return found
