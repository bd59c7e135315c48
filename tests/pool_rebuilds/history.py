"""An embedded cluster of quota trees that is changed step by step, as users and outages would.

A step takes a random generator of its own, so that a list of (step, number) can be played again, and shortened. Each
step takes a second, so that the ages of pods differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.sim.cluster import Cluster
from bursar.sim.pods import ENDED, RUNNING
from tests.builders import Manifest
from tests.pool_rebuilds import objects

MOST_PODS = 14
_REMOVABLE = ("ElasticQuota", "ElasticQuotaProfile", "Node", "PodDisruptionBudget")

Move = tuple[str, int]
"""A step by name, and the number that seeds it."""


class History:
    """``story`` has a line for each call; ``counts`` says what happened."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()

    def take(self, move: Move) -> None:
        name, number = move
        self.cluster.advance(1_000)
        STEPS[name][1](self, Random(number))
        self.counts[name] += 1

    # Calls

    def apply(self, *manifests: Manifest) -> None:
        self.story.append(f"apply {[*manifests]}")
        try:
            self.cluster.apply([Document("history", number, body) for number, body in enumerate(manifests, 1)])
        except ManifestError as error:
            self._refused(error)

    def delete(self, *references: str) -> None:
        self.story.append(f"delete {references}")
        try:
            self.cluster.delete([self.cluster.kinds.reference(reference) for reference in references])
        except ManifestError as error:
            self._refused(error)

    def _refused(self, error: ManifestError) -> None:
        self.counts["refused"] += 1
        self.story.append(f"  refused: {error}")

    def pods(self, *phases: str) -> list[str]:
        found = [(key, self.cluster.doing(key)) for key in self.cluster.pods()]
        return [key for key, pod in found if pod is not None and (not phases or pod.phase in phases)]

    def body(self, key: str) -> Manifest:
        stored = self.cluster.objects.find("Pod", key)
        assert stored is not None
        return dict(stored.body)

    def quotas(self, *, parents: bool = False) -> list[str]:
        """The names of all quotas, or of those that may have children."""
        stored = self.cluster.objects.all("ElasticQuota.scheduling.sigs.k8s.io")
        labels = {one.name: one.body["metadata"].get("labels") or {} for one in stored}
        return [name for name in labels if not parents or labels[name].get(f"{objects.PREFIX}is-parent") == "true"]

    # Steps

    def node(self, rng: Random) -> None:
        self.apply(objects.random_node(rng))

    def profile(self, rng: Random) -> None:
        self.apply(objects.random_profile(rng))

    def quota(self, rng: Random) -> None:
        self.apply(objects.random_quota(rng, self.quotas(parents=True)))

    def options(self, rng: Random) -> None:
        self.apply(objects.random_options(rng) if rng.random() < 0.8 else objects.random_budget(rng))

    def remove(self, rng: Random) -> None:
        """An object of the surroundings is deleted."""
        store = self.cluster.objects
        kinds = [kind for kind in sorted(store.kinds()) if kind.partition(".")[0] in _REMOVABLE]
        found = [f"{kind}/{stored.key}" for kind in kinds for stored in store.all(kind)]
        if found:
            self.delete(rng.choice(found))

    def pod(self, rng: Random) -> None:
        self._make_room(rng)
        self.apply(objects.random_pod(rng, self._free_name(), self.quotas()))

    def gang(self, rng: Random) -> None:
        self._make_room(rng)
        self.apply(*objects.random_gang(rng, self._free_name(), self.quotas()))

    def found(self, rng: Random) -> None:
        """A pod appears that runs on a node already, whatever quotas say."""
        self._make_room(rng)
        nodes = self.cluster.objects.all("Node")
        if nodes:
            body = objects.random_pod(rng, self._free_name(), self.quotas())
            self.apply(body | {"spec": body["spec"] | {"nodeName": rng.choice(nodes).name}})

    def _free_name(self) -> str:
        taken = {key.partition("/")[2].partition("-")[0] for key in self.cluster.pods()}
        return next(f"p{number}" for number in range(1000) if f"p{number}" not in taken)

    def _make_room(self, rng: Random) -> None:
        """Pods that have ended go, and if there are too many, some others."""
        for key in self.pods(*ENDED):
            self.delete(f"Pod/{key}")
        while len(self.cluster.pods()) >= MOST_PODS:
            self.delete(f"Pod/{rng.choice(self.cluster.pods())}")
            self.cluster.advance(5_000)

    def end(self, rng: Random) -> None:
        """A pod is deleted, or succeeds."""
        keys = self.cluster.pods()
        running = [key for key in self.pods(RUNNING) if "bursar.dev/group" not in self.body(key)["metadata"]["labels"]]
        if running and rng.random() < 0.4:
            key = rng.choice(running)
            self.story.append(f"finish {key}")
            self.cluster.finish([key])
        elif keys:
            self.delete(f"Pod/{rng.choice(keys)}")

    def resize(self, rng: Random) -> None:
        self._change(rng, objects.resized)

    def relabel(self, rng: Random) -> None:
        self._change(rng, objects.relabelled)

    def _change(self, rng: Random, changed: Callable[[Random, Manifest, list[str]], Manifest]) -> None:
        keys = self.pods("Pending", RUNNING)
        if keys:
            self.apply(changed(rng, self.body(rng.choice(keys)), self.quotas()))

    def wait(self, rng: Random) -> None:
        duration = rng.choice((1_000, 10_000, 60_000, 120_000))
        self.story.append(f"advance {duration}")
        self.cluster.advance(duration)


Step = Callable[[History, Random], None]

STEPS: dict[str, tuple[int, Step]] = {
    "node": (12, History.node),
    "profile": (6, History.profile),
    "quota": (16, History.quota),
    "options": (5, History.options),
    "remove": (7, History.remove),
    "pod": (26, History.pod),
    "gang": (4, History.gang),
    "found": (4, History.found),
    "end": (9, History.end),
    "resize": (3, History.resize),
    "relabel": (3, History.relabel),
    "wait": (5, History.wait),
}
_BEGIN = ("node", "node", "node", "profile", "profile", "quota", "quota", "quota", "quota", "options")


def drawn(seed: int) -> list[Move]:
    """The steps of a history: its first objects, then what happens there."""
    rng = Random(seed)
    begin = rng.sample(_BEGIN, k=rng.randrange(4, len(_BEGIN) + 1))
    weights = [weight for weight, _ in STEPS.values()]
    steps = [*begin, *rng.choices(list(STEPS), weights, k=rng.randrange(10, 40))]
    return [(step, rng.randrange(2**32)) for step in steps]
