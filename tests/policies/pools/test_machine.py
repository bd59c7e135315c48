"""Random histories of quotas, nodes, profiles and claims, with what-if and replay, against the reference model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bursar.engine.what_if import Configure, Submit
from bursar.ledger.claims import PENDING
from bursar.policies.pools import configure
from bursar.policies.pools.settings import DEFAULT, ENDLESS, ROOT, PoolQuotaBody, QuotaObject
from bursar.policies.results import Setting
from tests.policies.pools.reference_model import INNER, RESOURCES, ReferenceClaim, ReferenceModel, ReferenceQuota
from tests.policies.pools.world import Amounts, World

NAMES = ("a", "b", "c", "d")
NODES = ("n1", "n2", "n3")
PARENTS = (ROOT, *NAMES)
names = st.sampled_from(NAMES)
small = st.integers(0, 12)


def amounts(cpu: int, memory: int) -> Amounts:
    return {"cpu": cpu, "memory": memory}


pairs = st.builds(amounts, small, small)
larger = st.builds(amounts, st.integers(4, 30), st.integers(4, 30))


class PoolsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.reference = ReferenceModel()
        self.quota("a", ROOT, amounts(20, 20), amounts(5, 5), 0, True, True, "", False)
        for name in ("n1", "n2"):
            self.node(name, "x", amounts(10, 10))

    # Settings

    @rule(
        name=names,
        parent=st.sampled_from(PARENTS),
        maximum=larger,
        minimum=pairs,
        weight=st.integers(0, 3),
        is_parent=st.booleans(),
        lends=st.booleans(),
        tree=st.sampled_from(("", "", "t")),
        lists=st.booleans(),
    )
    def quota(  # noqa: PLR0913, PLR0917 - the fields of a quota
        self,
        name: str,
        parent: str,
        maximum: Amounts,
        minimum: Amounts,
        weight: int,
        is_parent: bool,
        lends: bool,
        tree: str,
        lists: bool,
    ) -> None:
        minimum = {key: min(minimum[key], maximum[key]) for key in minimum}
        if weight == 3:
            maximum, minimum = {"cpu": maximum["cpu"]}, {"cpu": minimum["cpu"]}
        weights = {} if weight in (0, 3) else dict.fromkeys(maximum, weight - 1)
        namespaces = (f"of-{name}", "shared") if lists else ()
        self.world.quota(
            name,
            maximum,
            minimum,
            parent,
            tree=tree,
            is_parent=is_parent,
            lends=lends,
            weight=weights,
            namespaces=namespaces,
        )
        self.reference.quotas[name] = ReferenceQuota(
            parent, maximum, minimum, weights, is_parent, lends, tree, namespaces
        )
        self.reference.settle_trees()

    @rule(name=names, minimum=pairs)
    def change_min(self, name: str, minimum: Amounts) -> None:
        known = self.reference.quotas.get(name)
        if known is not None:
            weight = 3 if "memory" not in known.maximum else 0
            whole = {"memory": 4} | known.maximum
            args = (known.is_parent, known.lends, known.tree, bool(known.namespaces))
            self.quota(name, known.parent, whole, minimum, weight, *args)

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.world.remove(name)
        self.reference.quotas.pop(name, None)

    @rule(name=st.sampled_from(NODES), pool=st.sampled_from("xy"), has=larger)
    def node(self, name: str, pool: str, has: Amounts) -> None:
        self.world.node(name, has, {"pool": pool})
        self.reference.nodes[name] = (pool, has)

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        self.world.remove_node(name)
        self.reference.nodes.pop(name, None)

    @rule(there=st.booleans())
    def profile(self, there: bool) -> None:
        """Pool y is the tree t, with a root quota of its own."""
        if there:
            self.world.profile("y", {"pool": "y"}, tree="t", root="root-y")
            self.reference.pools["y"] = "t"
            endless = {"cpu": ENDLESS * 1000, "memory": ENDLESS}
            self.reference.quotas["root-y"] = ReferenceQuota(ROOT, endless, {}, {}, True, True, "t", is_root=True)
        else:
            self.world.set(configure.PROFILE, "ns/y", None)
            self.reference.pools.pop("y", None)
            self.reference.quotas.pop("root-y", None)

    @rule(guarantee=st.booleans())
    def options(self, guarantee: bool) -> None:
        self.world.options(guarantee=guarantee)
        self.reference.guarantee = guarantee

    # Claims

    @rule(
        wants=pairs,
        label=st.sampled_from(("", *NAMES)),
        namespace=st.sampled_from(("of-a", "shared")),
        firm=st.booleans(),
    )
    def submit(self, wants: Amounts, label: str, namespace: str, firm: bool) -> None:
        claim = self.world.submit(wants, label, namespace=namespace, firm=firm)
        self.reference.claims[claim.uid] = ReferenceClaim(namespace, label, wants, firm)

    @precondition(lambda self: self.reference.claims)
    @rule(number=st.integers(0, 99))
    def decide(self, number: int) -> None:
        waiting = [uid for uid, claim in self.reference.claims.items() if not claim.placed]
        if waiting:
            uid = waiting[number % len(waiting)]
            expected = self.reference.admits(self.reference.claims[uid])
            decision = self.world.engine.decide(self.world.engine.claim(uid), self.world.now)
            assert decision.admitted == expected, decision
            self.reference.claims[uid].placed = expected

    @precondition(lambda self: self.reference.claims)
    @rule(number=st.integers(0, 99))
    def release(self, number: int) -> None:
        uid = sorted(self.reference.claims)[number % len(self.reference.claims)]
        self.world.engine.release(uid, self.world.now)
        del self.reference.claims[uid]

    @rule(name=names, parent=st.sampled_from(PARENTS), maximum=larger, wants=pairs)
    def try_only(self, name: str, parent: str, maximum: Amounts, wants: Amounts) -> None:
        """A what-if leaves no trace, in the ledger or in what is derived from it."""
        before = (self.world.engine.state.plain(), self.world.engine.digest, self.world.derived())
        quota = PoolQuotaBody(name, "quotas", parent, "", True, True, maximum, {})
        change = Configure([Setting(configure.QUOTA, f"quotas/{name}", QuotaObject(quota))])
        gone = Configure([Setting(configure.QUOTA, "quotas/a", None), Setting(configure.NODE, "n1", None)])
        claim = self.world.claim(wants, name)
        self.world.engine.what_if([change, Submit(claim), gone], self.world.now, pending=True)
        assert before == (self.world.engine.state.plain(), self.world.engine.digest, self.world.derived())

    # Laws

    @invariant()
    def quotas_agree(self) -> None:
        forest = self.world.policy.derived.forest
        runtimes = {(t, r): self.reference.runtimes(t, r) for t in ("", "t") for r in RESOURCES}
        for name, quota in self.reference.quotas.items():
            branch = self.world.branch(name, quota.tree)
            tied = self.reference.path(name) is not None
            assert forest.refresh(branch if branch.inner is None else branch.inner) == tied
            for resource in quota.maximum:
                slot = forest.slot(resource)
                assert branch.own_request[slot] == self.reference.own(name, resource)
                if tied:
                    assert branch.lim[slot] == self.reference.lim(name, resource)
                    assert self.world.used(name, quota.tree).get(resource, 0) == self.reference.used(name, resource)
                    found = runtimes[quota.tree, resource]
                    assert branch.runtime[slot] == found[name]
                    if branch.inner is not None:
                        assert branch.inner.runtime[slot] == found[INNER + name]

    @invariant()
    def siblings_fit_their_parent_and_needs_are_granted(self) -> None:
        forest = self.world.policy.derived.forest
        for tree in forest.trees.values():
            forest.refresh_all(tree.id)
            for parent in [tree.root, *[b for b in forest.branches.values() if b.tree_id == tree.id and b.quota]]:
                if parent.top() is not tree.root:
                    continue
                for slot in range(len(forest.dims)):
                    runtimes = [child.runtime[slot] for child in parent.children]
                    assert sum(runtimes) <= parent.runtime[slot]
                    needs = [min(c.lim[slot], c.base(slot)) if c.lends else c.base(slot) for c in parent.children]
                    if sum(needs) <= parent.runtime[slot]:
                        assert all(has >= need for has, need in zip(runtimes, needs, strict=True))

    def teardown(self) -> None:
        copy = self.world.replayed()
        assert copy.derived() == self.world.derived()
        assert self.rebuilt() == self.runtimes(self.world)

    def runtimes(self, world: World) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, quota in self.reference.quotas.items():
            branch = world.branch(name, quota.tree)
            if world.policy.derived.forest.refresh(branch):
                found[name] = world._shown(branch.runtime)
        return found

    def rebuilt(self) -> dict[str, object]:
        """The order in which things came does not matter: all of it again, the other way round."""
        world = World()
        world.options(guarantee=self.reference.guarantee)
        state = self.world.engine.state
        for uid in sorted(state.claims, reverse=True):
            claim = state.claims[uid]
            copy = world.claim(dict(claim.spec.requests.pairs()), namespace=claim.namespace)
            copy.spec = claim.spec
            world.engine.submit(copy)
            if claim.state != PENDING:
                world.engine.admit(copy)
        for name in sorted(self.reference.quotas, reverse=True):
            quota = self.world.policy.derived.resolver.quotas[name]
            if name != "root-y":
                world.set(configure.QUOTA, f"quotas/{name}", QuotaObject(quota))
        if "y" in self.reference.pools:
            world.profile("y", {"pool": "y"}, tree="t", root="root-y")
        for name in sorted(self.reference.nodes, reverse=True):
            pool, has = self.reference.nodes[name]
            world.node(name, has, {"pool": pool})
        assert DEFAULT in world.policy.derived.resolver.quotas or not self.reference.quotas
        return self.runtimes(world)


PoolsMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30)
TestPoolsMachine = PoolsMachine.TestCase
