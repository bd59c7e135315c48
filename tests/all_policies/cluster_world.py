"""One embedded cluster with all policies and its loop, changed step by step as users would, and judged after each step.

A step takes a random generator of its own, so that a list of (step, number) can be played again, and shortened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from bursar.ledger.claims import PENDING
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.server.what_if import what_if
from bursar.sim.cluster import Cluster
from bursar.sim.pods import ENDED, EVICTED, RUNNING
from tests.all_policies import workloads
from tests.all_policies.ledger_sums import check_sums
from tests.all_policies.limits import Usage, check_limits, limited_usage
from tests.all_policies.spec_sums import check_specs
from tests.all_policies.surroundings import DIALECTS, random_node
from tests.all_policies.violation import require
from tests.at_rest import admissible, is_at_rest
from tests.builders import Manifest
from tests.sim.tape import Tape

MOST_PODS = 24
_SURROUNDINGS = ("elastic", "namespace", "trees", "pools", "budgets", "configuration")
_KINDS = frozenset(
    {
        "ElasticQuota",
        "CompositeElasticQuota",
        "GPUResourceQuota",
        "QuotaTree",
        "ElasticQuotaProfile",
        "PodDisruptionBudget",
        "GPU",
    }
)


Step = Callable[["ClusterWorld", Random], None]


class ClusterWorld:
    """``story`` has a line for each step; ``counts`` what happened."""

    def __init__(self, dialects: frozenset[str]) -> None:
        self.cluster = Cluster()
        self.tape = Tape()
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()
        self.before: Usage = {}
        self.last: tuple[str, Mapping[str, Any] | None] | None = None  # the last change of an object: what it was
        self.dialects = dialects

    # Calls

    def bodies(self, kind: str) -> list[Mapping[str, Any]]:
        return [stored.body for stored in self.cluster.objects.all(kind)]

    def give(self, *manifests: Manifest) -> bool:
        """Apply; a refusal must have changed nothing."""
        digest = self.cluster.engine.digest
        self.story.append(f"apply {[*manifests]}")
        try:
            self.cluster.apply(documents(*manifests))
        except ManifestError as error:
            self.counts["manifests refused"] += 1
            self.story.append(f"  refused: {error}")
            require(self.cluster.engine.digest == digest, "refused changes", f"{manifests}: {error}")
            return False
        return True

    def take(self, reference: str) -> bool:
        self.story.append(f"delete {reference}")
        digest = self.cluster.engine.digest
        try:
            self.cluster.delete([self.cluster.kinds.reference(reference)])
        except ManifestError as error:
            self.counts["manifests refused"] += 1
            self.story.append(f"  refused: {error}")
            require(self.cluster.engine.digest == digest, "refused changes", f"{reference}: {error}")
            return False
        return True

    def pods(self, *phases: str) -> list[str]:
        found = [(key, self.cluster.doing(key)) for key in self.cluster.pods()]
        return [key for key, pod in found if pod is not None and (not phases or pod.phase in phases)]

    def body(self, key: str) -> Manifest:
        stored = self.cluster.objects.find("Pod", key)
        assert stored is not None
        return dict(stored.body)

    # Steps

    def create(self, rng: Random) -> None:
        self._make_room(rng)
        body = workloads.random_pod(rng, self._free_name(), self.dialects)
        if rng.random() < 0.25:
            self.try_first([body])
        else:
            self.give(body)

    def gang(self, rng: Random) -> None:
        self._make_room(rng)
        members = workloads.random_gang(rng, self._free_name(), self.dialects)
        self.counts["gangs"] += 1
        if rng.random() < 0.3:
            self.try_first(members)
        else:
            self.give(*members)

    def _free_name(self) -> str:
        taken = {key.partition("/")[2].partition("-")[0] for key in self.cluster.pods()}
        return next(f"p{number}" for number in range(1000) if f"p{number}" not in taken)

    def _make_room(self, rng: Random) -> None:
        """Pods that have ended go, and if there are too many, some others."""
        for key in self.pods(*ENDED)[:-4]:
            self.take(f"Pod/{key}")
        while len(self.cluster.pods()) >= MOST_PODS:
            self.take(f"Pod/{rng.choice(self.cluster.pods())}")
            if any(pod is not None and pod.deleted for pod in map(self.cluster.doing, self.cluster.pods())):
                self.cluster.advance(30_000)

    def found(self, rng: Random) -> None:
        """A pod appears that runs on a node already."""
        self._make_room(rng)
        self.give(workloads.placed(rng, workloads.random_pod(rng, self._free_name(), self.dialects)))

    def recreate(self, rng: Random) -> None:
        """An evicted pod is created again under its name, or one in its place by its controller."""
        evicted = self.pods(EVICTED)
        if evicted:
            body = self.body(rng.choice(evicted))
            body["spec"] = {key: value for key, value in body["spec"].items() if key != "nodeName"}
            if rng.random() < 0.5:
                body = body | {"metadata": body["metadata"] | {"name": self._free_name()}}
            self.counts["created again"] += 1
            self.give(body)

    def delete(self, rng: Random) -> None:
        keys = self.cluster.pods()
        if keys:
            self.take(f"Pod/{rng.choice(keys)}")

    def finish(self, rng: Random) -> None:
        keys = self.pods(RUNNING)
        if keys:
            key = rng.choice(keys)
            self.story.append(f"finish {key}")
            self.cluster.finish([key])

    def resize(self, rng: Random) -> None:
        keys = self.pods("Pending", RUNNING)
        if keys:
            self.counts["resized"] += self.give(workloads.resized(rng, self.body(rng.choice(keys))))

    def relabel(self, rng: Random) -> None:
        keys = self.pods("Pending", RUNNING)
        if keys:
            self.counts["relabelled"] += self.give(
                workloads.relabelled(rng, self.body(rng.choice(keys)), self.dialects)
            )

    def configure(self, rng: Random) -> None:
        """A quota, budget or the configuration is created or changed."""
        names = [name for name in _SURROUNDINGS if name in self.dialects]
        if names:
            maker, _ = rng.choice(DIALECTS[rng.choice(names)])
            self.change(maker(rng))

    def change_node(self, rng: Random) -> None:
        self.change(random_node(rng))

    def change(self, body: Manifest) -> None:
        kind = self.cluster.kinds.read(Document("", 0, body))
        known = self.cluster.objects.find(kind.kind.name, kind.key)
        if self.give(body):
            self.counts["settings changed"] += 1
            self.last = (f"{kind.kind.name}/{kind.key}", None if known is None else known.body)

    def remove(self, rng: Random) -> None:
        """A node or any object of the surroundings is deleted."""
        objects = self.cluster.objects
        found = [
            (f"{kind}/{stored.key}", stored.body)
            for kind in sorted(objects.kinds())
            if kind.partition(".")[0] in _KINDS or (kind == "Node" and rng.random() < 0.3)
            for stored in objects.all(kind)
        ]
        if found:
            reference, body = rng.choice(sorted(found, key=lambda item: item[0]))
            if self.take(reference):
                self.counts["settings removed"] += 1
                self.last = (reference, body)

    def undo(self, _rng: Random) -> None:
        """The last change of the surroundings is taken back."""
        if self.last is not None:
            reference, body = self.last
            self.last = None
            self.counts["undone"] += self.take(reference) if body is None else self.give(dict(body))

    def advance(self, rng: Random) -> None:
        duration = rng.choice((1_000, 5_000, 20_000, 60_000))
        self.story.append(f"advance {duration}")
        self.cluster.advance(duration)

    def explain(self, rng: Random) -> None:
        """Explaining changes nothing."""
        keys = self.cluster.pods()
        if keys:
            key = rng.choice(keys)
            digest, version = self.cluster.engine.digest, self.cluster.engine.version
            check = self.cluster.explain(key)
            if check is not None:
                check.lines()
                self.counts["explained"] += 1
            unchanged = (self.cluster.engine.digest, self.cluster.engine.version) == (digest, version)
            require(unchanged, "explain changes", key)

    def try_first(self, bodies: list[Manifest]) -> None:
        """A what-if of new pods changes nothing and says what then happens."""
        cluster = self.cluster
        digest, version = cluster.engine.digest, cluster.engine.version
        cluster.take_news()
        try:
            told = what_if(cluster, documents(*bodies))
        except ManifestError:
            told = None
        unchanged = (cluster.engine.digest, cluster.engine.version) == (digest, version)
        require(unchanged, "what-if changes", bodies)
        done = self.give(*bodies)
        require(done is (told is not None), "what-if accepts", bodies)
        if told is None:
            return
        self.counts["what-ifs"] += 1
        rows = {row.pod: (row.verdict in {"now", "after-evictions"}, row.node) for row in told.pods}
        truth = {key: self._place(key) for key in rows}
        require(rows == truth, "what-if", f"told {rows}, true {truth}")
        happened: dict[str, set[str]] = {"evicted": set(), "started": set(), "held": set()}
        for happening in cluster.take_news()[0]:
            self.counts[happening.what] += 1
            happened.setdefault(happening.what, set()).add(happening.pod)
        require(set(told.evicted) == happened["evicted"], "what-if: evicted", f"told {told.evicted}, true {happened}")
        others = happened["started"] - set(rows)
        require(set(told.starts) <= others, "what-if: starts", f"told {told.starts}, true {happened}")

    def _place(self, key: str) -> tuple[bool, str]:
        claim = self.cluster.controller.claim(key)
        if claim is None or claim.state == PENDING:
            return False, ""
        return not claim.leaving, claim.place

    # Judging

    def after(self, step: str) -> None:
        """What must be true after every step."""
        cluster = self.cluster
        self._count()
        state = cluster.engine.state
        check_sums(state)
        check_specs(state, self)
        for claim in state.claims.values():
            require(bool(claim.place) or not claim.counts(), "place", f"{claim.key} counts and has no node")
        if step in UNFORCED:
            check_limits(state, self.before)
        self.before = limited_usage(state)
        if is_at_rest(cluster):
            self.counts["at rest"] += 1
            digest = cluster.engine.digest
            found = admissible(cluster)
            require(not found, "at rest", found)
            require(cluster.engine.digest == digest, "asking changes", "the trials of waiting claims")

    def _count(self) -> None:
        for happening in self.cluster.take_news()[0]:
            self.counts[happening.what] += 1


def documents(*bodies: Manifest) -> list[Document]:
    return [Document("world", number, body) for number, body in enumerate(bodies, 1)]


STEPS: dict[str, tuple[int, Step]] = {
    "create": (30, ClusterWorld.create),
    "gang": (4, ClusterWorld.gang),
    "found": (3, ClusterWorld.found),
    "recreate": (8, ClusterWorld.recreate),
    "delete": (9, ClusterWorld.delete),
    "finish": (8, ClusterWorld.finish),
    "resize": (4, ClusterWorld.resize),
    "relabel": (3, ClusterWorld.relabel),
    "configure": (8, ClusterWorld.configure),
    "change_node": (4, ClusterWorld.change_node),
    "remove": (3, ClusterWorld.remove),
    "undo": (3, ClusterWorld.undo),
    "advance": (9, ClusterWorld.advance),
    "explain": (4, ClusterWorld.explain),
}
# After the others an account may be above its limit: a limit was lowered, or something was found to be so.
UNFORCED = frozenset({"create", "gang", "recreate", "delete", "finish", "advance", "explain"})
