"""Random histories of quota trees, and random worlds of all policies, on the embedded cluster and on Kubernetes.

Pods, and all that Bursar wrote on objects, are compared after each step. Left out is what differs by design: labels of
pods that exist, and pods that were found running in namespaces that no quota names, which are never victims on
Kubernetes. Pods are not created again either: a member of a gang that has succeeded counts on Kubernetes only.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from bursar.objects.kinds import POD, Kind
from bursar.objects.manifests import Document
from bursar.sim.cluster import Applied, Cluster
from tests.all_policies import cluster_world, play
from tests.all_policies.surroundings import MAKERS
from tests.kube.controller.plain_kubernetes import PlainKubernetes
from tests.kube.controller.test_lockstep import assert_alike
from tests.pool_rebuilds.history import History, drawn

SEEDS = range(4_000_006, 4_000_018)
WORLDS = [seed for seed in range(4_000_000, 4_000_006) if not play.of_engine(seed)]
LEFT_OUT = ("found", "relabel", "recreate", "explain")


class Both(Cluster):
    """An embedded cluster; what it accepts is repeated on Kubernetes, with the defaults of admission."""

    def __init__(self) -> None:
        super().__init__()
        self.kubernetes = PlainKubernetes()

    def apply(self, documents: Iterable[Document]) -> list[Applied]:
        given = list(documents)
        applied = super().apply(given)
        self.kubernetes.apply([self._filled(document) for document in given])
        return applied

    def _filled(self, document: Document) -> Document:
        read = self.kinds.read(document)
        stored = None if read.kind == POD else self.objects.find(read.kind.name, read.key)
        return document if stored is None else Document(document.source, document.number, stored.body)

    def delete(self, references: Iterable[tuple[Kind, str]]) -> list[Applied]:
        given = list(references)
        applied = super().delete(given)
        self.kubernetes.delete(given)
        return applied

    def finish(self, keys: Iterable[str]) -> list[Applied]:
        given = list(keys)
        applied = super().finish(given)
        self.kubernetes.finish(given)
        return applied

    def advance(self, duration: int) -> None:
        super().advance(duration)
        self.kubernetes.advance(duration)


@pytest.mark.parametrize("seed", SEEDS)
def test_histories_of_quota_trees_are_the_same(seed: int) -> None:
    history = History()
    history.cluster = both = Both()
    for move in drawn(seed):
        if move[0] not in LEFT_OUT:
            history.take(move)
            assert_alike(both, both.kubernetes, "\n".join(history.story[-4:]))


@pytest.mark.parametrize("seed", WORLDS)
def test_worlds_of_all_policies_are_the_same(seed: int) -> None:
    world = cluster_world.ClusterWorld(play.dialects_of(seed))
    world.cluster = both = Both()
    for name, number in play.drawn(seed, 80):
        if name in MAKERS:
            world.change(MAKERS[name](Random(number)))
        elif name not in LEFT_OUT:
            cluster_world.STEPS[name][1](world, Random(number))
        assert_alike(both, both.kubernetes, "\n".join(world.story[-4:]))
