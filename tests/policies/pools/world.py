"""An engine with the pools policy, and short ways to put quotas, nodes and pods into it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.ledger.claims import RUNNING, Claim, ClaimSpec
from bursar.policies.nodes.policy import KIND as NODES_NODE
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.pools.configure import NODE, OPTION, PROFILE, QUOTA
from bursar.policies.pools.derived_state import OWN
from bursar.policies.pools.node_pools import PoolNode, Profile
from bursar.policies.pools.policy import PoolsPolicy
from bursar.policies.pools.quota_node import Branch
from bursar.policies.pools.settings import PREFIX, QUOTA_OF_POD, ROOT, PoolOptions, PoolQuotaBody, QuotaObject
from bursar.policies.results import Output, Setting
from bursar.resources import Limits, dimension_at, from_amounts
from bursar.selectors import Requirement

Amounts = dict[str, int]
BIG: Amounts = {"cpu": 10**12, "memory": 10**15, "nvidia.com/gpu": 10**6}


class World:
    """Nodes are in the pools policy only, unless ``placing``."""

    def __init__(self, total: Amounts | None = None, placing: bool = False) -> None:
        self.placing = placing
        self.policy = PoolsPolicy()
        self.engine = Engine(self._policies(self.policy))
        self.now = 0
        self.count = 0
        if total is not None:
            self.node("n1", total)

    def _policies(self, policy: PoolsPolicy) -> list[PoolsPolicy | NodesPolicy]:
        return [policy, NodesPolicy()] if self.placing else [policy]

    # Settings

    def set(self, kind: str, key: str, body: object) -> None:
        self.engine.configure([Setting(kind, key, body)], self.now)  # type: ignore[arg-type]

    def node(self, name: str, has: Amounts, labels: dict[str, str] | None = None, schedulable: bool = True) -> None:
        settings = [Setting(NODE, name, PoolNode(has, labels or {}, schedulable))]
        if self.placing:
            settings.append(Setting(NODES_NODE, name, NodeBody(Limits(has), labels or {}, (), not schedulable)))
        self.engine.configure(settings, self.now)

    def remove_node(self, name: str) -> None:
        self.set(NODE, name, None)
        if self.placing:
            self.set(NODES_NODE, name, None)

    def quota(  # noqa: PLR0913 - the fields of a quota
        self,
        name: str,
        maximum: Amounts,
        minimum: Amounts | None = None,
        parent: str = ROOT,
        *,
        tree: str = "",
        is_parent: bool = False,
        lends: bool = True,
        weight: Amounts | None = None,
        namespace: str = "quotas",
        namespaces: tuple[str, ...] = (),
    ) -> None:
        body = PoolQuotaBody(
            name, namespace, parent, tree, is_parent, lends, maximum, minimum or {}, weight or {}, namespaces
        )
        self.set(QUOTA, f"{namespace}/{name}", QuotaObject(body))

    def remove(self, name: str, namespace: str = "quotas") -> None:
        self.set(QUOTA, f"{namespace}/{name}", None)

    def profile(self, name: str, match: dict[str, str], *, tree: str = "", root: str = "", **more: object) -> None:
        requirements = tuple(Requirement(key, "In", (value,)) for key, value in sorted(match.items()))
        labels = ((PREFIX + "is-parent", "true"),)
        given: dict[str, object] = {"labels": labels} | more
        body = Profile("ns", name, root or f"{name}-root", tree or f"tree-{name}", requirements, **given)  # type: ignore[arg-type]
        self.set(PROFILE, f"ns/{name}", body)

    def options(self, **given: object) -> None:
        """Revocation is switched on, unless it says otherwise."""
        self.set(OPTION, "default", PoolOptions(**({"revoke": True} | given)))  # type: ignore[arg-type]

    # Claims

    def claim(
        self, requests: Amounts, quota: str = "", *, priority: int = 0, namespace: str = "ns", firm: bool = False
    ) -> Claim:
        self.count += 1
        self.now += 1
        labels = {QUOTA_OF_POD: quota} if quota else {}
        spec = ClaimSpec(from_amounts(requests), labels=labels, priority=priority, preemptible=not firm)
        return Claim(f"c{self.count}", spec, self.now, namespace, f"p{self.count}")

    def submit(self, requests: Amounts, quota: str = "", **more: object) -> Claim:
        claim = self.claim(requests, quota, **more)  # type: ignore[arg-type]
        self.engine.submit(claim, self.now)
        return claim

    def decide(self, requests: Amounts, quota: str = "", **more: object) -> Decision:
        return self.engine.decide(self.claim(requests, quota, **more), self.now)  # type: ignore[arg-type]

    def start(self, requests: Amounts, quota: str = "", **more: object) -> Claim:
        """A claim that must be admitted, and runs."""
        claim = self.claim(requests, quota, **more)  # type: ignore[arg-type]
        decision = self.engine.decide(claim, self.now)
        assert decision.admitted, decision.sentence()
        self.engine.observe(claim.uid, RUNNING, self.now)
        return claim

    # Answers

    def branch(self, name: str, tree: str = "") -> Branch:
        forest = self.policy.derived.forest
        return forest.tree(tree).root if name == ROOT else forest.branch(tree, name)

    def runtime(self, name: str, tree: str = "") -> Amounts:
        branch = self.branch(name, tree)
        assert self.policy.derived.forest.refresh(branch)
        return self._shown(branch.runtime)

    def request(self, name: str, tree: str = "") -> Amounts:
        return self._shown(self.branch(name, tree).request)

    def used(self, name: str, tree: str = "") -> Amounts:
        return dict(self.engine.state.accounts[self.branch(name, tree).key].used.vector().pairs())

    def own(self, name: str, tree: str = "") -> Amounts:
        return dict(self.engine.state.accounts[self.branch(name, tree).key + OWN].used.vector().pairs())

    def total(self, tree: str = "") -> Amounts:
        return {dimension_at(dim).name: n for dim, n in self.policy.derived.node_pools.tree_total(tree).items()}

    def _shown(self, amounts: Iterable[int]) -> Amounts:
        return named_amounts(self.policy, amounts)

    def outputs(self) -> list[Output]:
        return self.engine.outputs(self.now)

    def written(self, outputs: Iterable[Output], kind: str, key: str, part: str) -> dict[str, object] | None:
        """The last output of that part about the object."""
        found: dict[str, object] | None = None
        for output in outputs:
            if (output.kind, output.key, output.part) == (kind, key, part):
                found = output.value
        return found

    # Proof

    def replayed(self) -> World:
        """Another world that repeats the journal of this one; states and digests are equal."""
        other = World(placing=self.placing)
        other.engine.replay(self.engine.journal.take())
        assert other.engine.digest == self.engine.digest
        assert other.engine.state.plain() == self.engine.state.plain()
        return other

    def derived(self) -> dict[str, object]:
        return derived_of(self.policy)


def derived_of(policy: PoolsPolicy) -> dict[str, object]:
    """Everything that follows from the ledger, computed to the end."""
    forest = policy.derived.forest
    found: dict[str, object] = {}
    for key in sorted(forest.branches):
        branch = forest.branches[key]
        if branch.quota is None:
            assert not branch.askers
            assert not branch.members.claims
            continue
        tied = branch.built_in or forest.refresh(branch)
        numbers: list[Iterable[int]] = [branch.own_request, branch.own_used]
        if tied:  # what hangs on no root depends on nothing but itself
            numbers += [branch.request, branch.child_request, branch.lim, branch.allocated, branch.guaranteed]
            numbers += [branch.non_preemptible_request, branch.non_preemptible_used, branch.runtime]
        shown = [named_amounts(policy, amounts) for amounts in numbers]
        people = [sorted(branch.askers), sorted(branch.members.claims)]
        order = [claim.uid for claim in branch.members.least_important_first()]
        found[key] = [tied, shown, people, order]
    found["nodes"] = dict(sorted(policy.derived.node_pools.owners.items()))
    resolver = policy.derived.resolver
    found["default"] = {n: sorted(claims) for n, claims in sorted(resolver.by_namespace.items())}
    found["strays"] = sorted(resolver.strays)
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def named_amounts(policy: PoolsPolicy, amounts: Iterable[int]) -> Amounts:
    dims = policy.derived.forest.dims
    return {dimension_at(dims[slot]).name: amount for slot, amount in enumerate(amounts) if amount}
