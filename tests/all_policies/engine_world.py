"""The engine by itself, with all policies: the calls that the control loop seldom makes, in any order.

Claims are read from the same manifests as in the cluster, and settings translated from them, without admission. There
is no loop: a claim starts, leaves and waits as the steps say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from bursar.control.admission import ObjectChange, known_kinds, settings_of
from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.engine.what_if import Configure, Submit
from bursar.ledger.claims import BOUND, HELD, PENDING, RESERVED, RUNNING, TERMINATING, Claim
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.objects.pods import Priorities, claim_from_pod
from bursar.policies.plugin import default_registry
from bursar.policies.results import SettingError
from tests.all_policies import workloads
from tests.all_policies.ledger_sums import check_sums
from tests.all_policies.limits import Usage, check_limits, limited_usage
from tests.all_policies.spec_sums import check_specs
from tests.all_policies.surroundings import DIALECTS, NODES, random_node
from tests.all_policies.violation import require
from tests.builders import Manifest, read_pod

MOST_CLAIMS = 24
REGISTRY = default_registry()
KINDS = known_kinds(REGISTRY)
_ELASTIC = "ElasticQuota.n8s.nebuly.ai"
_MARKS = tuple(plugin.unpreemptible for plugin in REGISTRY if plugin.unpreemptible is not None)


class EngineWorld:
    """``story`` has a line for each call; ``counts`` what happened."""

    def __init__(self, dialects: frozenset[str]) -> None:
        self.engine = Engine(REGISTRY.policies())
        self.dialects = dialects
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()
        self.before: Usage = {}
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.last: tuple[str, str, Manifest | None] | None = None  # the last object that changed: what it was
        self.now = 0
        self.number = 0

    def bodies(self, kind: str) -> list[Mapping[str, Any]]:
        return [body for (known, _), body in self.objects.items() if known == kind]

    # Settings

    def change(self, body: Manifest) -> None:
        given = KINDS.read(Document("world", 0, body))
        self._set(given.kind.name, given.key, body)

    def _set(self, kind: str, key: str, body: Manifest | None) -> None:
        """Create, change or delete; a refusal must have changed nothing."""
        self.story.append(f"set {kind} {key}: {body}")
        digest = self.engine.digest
        given = None if body is None else KINDS.read(Document("world", 0, body))
        try:
            settings = settings_of(REGISTRY, [ObjectChange(KINDS.find(kind), key, given)])
            self.engine.configure(settings, self.now)
        except (ManifestError, SettingError) as error:
            self.counts["settings refused"] += 1
            self.story.append(f"  refused: {error}")
            require(self.engine.digest == digest, "refused changes", f"{kind} {key}: {error}")
            return
        self.last = (kind, key, self.objects.get((kind, key)))
        self.counts["settings changed"] += 1
        if body is None:
            self.objects.pop((kind, key), None)
        else:
            self.objects[kind, key] = body
            for namespace in body["spec"].get("namespaces", ()) if "spec" in body else ():
                # A composite that takes over: the cluster deletes the quotas that it replaces.
                self.objects.pop((_ELASTIC, f"{namespace}/quota"), None)

    def configure(self, rng: Random) -> None:
        names = sorted(self.dialects)
        if names:
            self.change(rng.choice(DIALECTS[rng.choice(names)])[0](rng))

    def change_node(self, rng: Random) -> None:
        self.change(random_node(rng))

    def remove(self, rng: Random) -> None:
        if self.objects:
            kind, key = rng.choice(sorted(self.objects))
            self._set(kind, key, None)

    def undo(self, _rng: Random) -> None:
        if self.last is not None:
            kind, key, body = self.last
            if body is not None or (kind, key) in self.objects:
                self.counts["undone"] += 1
                self._set(kind, key, body)

    # Claims

    def _claims(self, *states: int) -> list[Claim]:
        found = self.engine.state.claims.values()
        return sorted((claim for claim in found if not states or claim.state in states), key=_by_uid)

    def _new(self, rng: Random, body: Manifest | None = None) -> Claim:
        while len(self.engine.state.claims) >= MOST_CLAIMS:
            self.engine.release(rng.choice(self._claims()).uid, self.now)
        self.number += 1
        self.now += 1
        body = workloads.random_pod(rng, f"p{self.number}", self.dialects) if body is None else body
        self.story.append(f"{self.now}: claim u{self.number} {body}")
        named = body | {"metadata": body["metadata"] | {"uid": f"u{self.number}"}}
        return claim_from_pod(read_pod(named), self.now, Priorities(), _MARKS)

    def decide(self, rng: Random) -> None:
        claim = self._new(rng)
        self.engine.submit(claim, self.now)
        self._decided(claim)

    def decide_again(self, rng: Random) -> None:
        pending = [claim for claim in self._claims(PENDING) if not claim.spec.group]
        if pending:
            self._decided(rng.choice(pending))

    def _decided(self, claim: Claim) -> None:
        digest = self.engine.digest
        self._note(self.engine.decide(claim, self.now), digest)

    def _note(self, decision: Decision, digest: int) -> None:
        """A refused decision changed nothing."""
        self.counts["admitted" if decision.admitted else "refused"] += 1
        self.counts["victims"] += len(decision.victims)
        self.story.append(f"  {decision} {decision.victims}")
        require(decision.admitted or self.engine.digest == digest, "refused changes", decision)

    def admit(self, rng: Random) -> None:
        """Quota first, the place in a call of its own."""
        claim = self._new(rng)
        self.engine.submit(claim, self.now)
        digest = self.engine.digest
        decision = self.engine.admit(claim, self.now)
        self._note(decision, digest)
        if decision.admitted and not claim.waits_for and rng.random() < 0.8:
            digest = self.engine.digest
            self._note(self.engine.place(claim.uid, "", self.now), digest)

    def found(self, rng: Random) -> None:
        """A claim runs on some node already, or turns out to run on another one."""
        known = [claim for claim in self._claims() if claim.counts()]
        if known and rng.random() < 0.4:
            uid = rng.choice(known).uid
        else:
            claim = self._new(rng)
            self.engine.submit(claim, self.now)
            uid = claim.uid
        node = rng.choice(NODES)
        if f"nodes/{node}" in self.engine.state.accounts:
            self.story.append(f"  found {uid} on {node}")
            self.engine.place(uid, node, self.now, forced=True)

    def group(self, rng: Random) -> None:
        bodies = workloads.random_gang(rng, f"g{self.number}", self.dialects)
        claims = [self._new(rng, body) for body in bodies]
        for claim in claims:
            self.engine.submit(claim, self.now)
        digest = self.engine.digest
        self.counts["gangs"] += 1
        decisions = self.engine.decide_group(claims, self.now)
        require(len({decision.admitted for decision in decisions}) == 1, "gang", decisions)
        members = {claim.uid for claim in claims}
        for decision in decisions:
            self._note(decision, digest)
            require(not members & set(decision.victims), "gang", f"a member displaces another one: {decision}")

    def adjust(self, rng: Random) -> None:
        """A claim grows or shrinks: decided, or forced."""
        claims = self._claims()
        if claims:
            claim = rng.choice(claims)
            wanted = workloads.random_pod(rng, claim.name, self.dialects)
            cpu = wanted["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            forced = rng.random() < 0.3
            spec = workloads.with_cpu(claim.spec, cpu * 1000)
            digest = self.engine.digest
            self.story.append(f"adjust {claim.uid} to {cpu} cpu, {forced=}")
            decision = self.engine.adjust(claim.uid, spec, self.now, forced)
            self.counts["forced growth" if forced else "adjusted"] += 1
            require(not decision.refusals or self.engine.digest == digest, "refused changes", decision)
            if forced or claim.state == PENDING:
                self.before = limited_usage(self.engine.state)

    def release(self, rng: Random) -> None:
        claims = self._claims()
        leaving = [claim for claim in claims if claim.leaving]
        if claims:
            uid = rng.choice(leaving if leaving and rng.random() < 0.6 else claims).uid
            self.story.append(f"release {uid}")
            self.engine.release(uid, self.now)

    def observe(self, rng: Random) -> None:
        """A claim goes on in its life."""
        movable = [claim for claim in self._claims(RESERVED, BOUND, RUNNING) if claim.place]
        if movable:
            claim = rng.choice(movable)
            state = TERMINATING if claim.leaving and rng.random() < 0.5 else min(claim.state + 1, RUNNING)
            self.engine.observe(claim.uid, state, self.now)
            self.story.append(f"observe {claim.uid} {state}")

    def give_up(self, rng: Random) -> None:
        unstarted = [claim for claim in self._claims(HELD, RESERVED) if not claim.leaving]
        if unstarted:
            uid = rng.choice(unstarted).uid
            self.counts["given up"] += 1
            self.story.append(f"give up {uid}")
            self.engine.give_up(uid, self.now)

    def spare(self, rng: Random) -> None:
        claims = self._claims()
        if claims:
            self.engine.spare(rng.choice(claims).uid, rng.random() < 0.5, self.now)

    def tick(self, rng: Random) -> None:
        self.now += rng.choice((1_000, 10_000, 60_000))
        revoked = self.engine.tick(self.now)
        self.counts["revoked"] += len(revoked)
        self.story.append(f"tick {self.now}: {revoked}")

    # Asking

    def what_if(self, rng: Random) -> None:
        """A dry run changes nothing, and says what the decision then is."""
        claim = self._new(rng)
        digest, version = self.engine.digest, self.engine.version
        nodes = settings_of(REGISTRY, [_node_change(random_node(rng))])
        self.engine.what_if([Configure(nodes), Submit(claim)], self.now, pending=True)
        told = self.engine.what_if([Submit(claim)], self.now).of(claim.uid)
        require((self.engine.digest, self.engine.version) == (digest, version), "what-if changes", claim)
        self.counts["what-ifs"] += 1
        decision = self.engine.decide(claim, self.now)
        self.counts["admitted" if decision.admitted else "refused"] += 1
        same = told is not None and _summary(told) == _summary(decision)
        require(same, "what-if of the engine", f"told {told}, true {decision}")

    def ask(self, rng: Random) -> None:
        """Explanations and outputs change nothing."""
        digest, version = self.engine.digest, self.engine.version
        for claim in rng.sample(self._claims(), min(3, len(self.engine.state.claims))):
            self.engine.explain(claim.uid).lines()
            self.counts["explained"] += 1
        self.engine.outputs(self.now)
        self.engine.next_due(self.now)
        require((self.engine.digest, self.engine.version) == (digest, version), "explain changes", "")

    # Judging

    def after(self, step: str) -> None:
        state = self.engine.state
        check_sums(state)
        check_specs(state, self)
        if step in UNFORCED:
            check_limits(state, self.before)
        self.before = limited_usage(state)


def _by_uid(claim: Claim) -> str:
    return claim.uid


def _node_change(body: Manifest) -> ObjectChange:
    given = KINDS.read(Document("world", 0, body))
    return ObjectChange(given.kind, given.key, given)


def _summary(decision: Decision) -> tuple[int, str, tuple[str, ...]]:
    return decision.outcome, decision.place, tuple(decision.victims)


Step = Callable[[EngineWorld, Random], None]
STEPS: dict[str, tuple[int, Step]] = {
    "decide": (24, EngineWorld.decide),
    "decide again": (12, EngineWorld.decide_again),
    "admit": (4, EngineWorld.admit),
    "found": (4, EngineWorld.found),
    "group": (4, EngineWorld.group),
    "adjust": (6, EngineWorld.adjust),
    "release": (14, EngineWorld.release),
    "observe": (16, EngineWorld.observe),
    "give up": (3, EngineWorld.give_up),
    "spare": (2, EngineWorld.spare),
    "tick": (4, EngineWorld.tick),
    "configure": (7, EngineWorld.configure),
    "change node": (3, EngineWorld.change_node),
    "remove": (2, EngineWorld.remove),
    "undo": (3, EngineWorld.undo),
    "what-if": (6, EngineWorld.what_if),
    "ask": (4, EngineWorld.ask),
}
UNFORCED = frozenset({"decide", "decide again", "admit", "group", "release", "observe", "tick", "what-if", "ask"})
