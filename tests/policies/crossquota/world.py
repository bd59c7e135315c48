"""The crossquota policy alone over a ledger, and short ways to put nodes and claims into it."""

from __future__ import annotations

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.crossquota.arguments import ARGUMENTS_KIND, CURRENT, NAME, NODE_KIND, PREFIX, read_arguments
from bursar.policies.crossquota.node_quota import CrossQuotaNodeBody
from bursar.policies.crossquota.policy import CrossQuotaPolicy
from bursar.policies.results import Refusal, Setting
from bursar.resources import parse_vector
from tests.amounts import parse_limits
from tests.policies.placement_machine import PlacementWorld

GPU = "nvidia.com/gpu"
GPU_NAMES = r"nvidia\.com/gpu,amd\.com/gpu"
GI = 2**30


def arguments(gpu_names: object = GPU_NAMES, **more: object) -> dict[str, object]:
    """``quota__cpu`` stands for the key ``quota.cpu``, ``quota_resources`` for ``quota-resources``."""
    found: dict[str, object] = {"gpu-resource-names": gpu_names}
    for key, value in more.items():
        name = key.replace("__", ".") if "__" in key else key
        found[name.replace("_", "-")] = value
    return found


def body(allocatable: dict[str, object], annotations: dict[str, str] | None = None) -> CrossQuotaNodeBody:
    marks = {f"volcano.sh/crossquota-{key}": value for key, value in (annotations or {}).items()}
    return CrossQuotaNodeBody(dict(parse_limits(allocatable).listed), marks)


def claim(
    uid: str,
    requests: dict[str, object] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    priority: int = 0,
    created: int = 0,
    namespace: str = "team",
    owner: str = "",
) -> Claim:
    spec = ClaimSpec(
        parse_vector(requests or {}), labels=labels, annotations=annotations, priority=priority, owner=owner
    )
    return Claim(uid, spec, created, namespace)


class World(PlacementWorld):
    """The crossquota policy and its questions."""

    policy: CrossQuotaPolicy

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(NAME, CrossQuotaPolicy())
        if given is not None:
            self.configure(given)

    def configure(self, given: dict[str, object] | None) -> None:
        read = None if given is None else read_arguments(given)
        self._rebind(self.policy.configure(self.tx, Setting(ARGUMENTS_KIND, CURRENT, read)))

    def node(self, name: str, what: CrossQuotaNodeBody | None) -> None:
        self._rebind(self.policy.configure(self.tx, Setting(NODE_KIND, name, what)))

    def _rebind(self, uids: list[str]) -> None:
        """As the engine does it: by force, and those who leave follow in the physical sums only."""
        for uid in uids:
            one = self.ledger.state.claims[uid]
            old = one.bindings[0]
            new = self.policy.bind(one, one.place)
            assert not isinstance(new, Refusal)
            if old is new:
                continue
            if one.leaving:
                if old is not None:
                    self.policy.finish_eviction(self.tx, one, old)
                if new is not None:
                    self.policy.charge(self.tx, one, new, True)
                    self.policy.begin_eviction(self.tx, one, new)
            elif old is not None and new is not None:
                self.policy.recharge(self.tx, one, old, new, True)
            elif old is not None:
                self.policy.release(self.tx, one, old)
            elif new is not None:
                self.policy.charge(self.tx, one, new, True)
            self.tx.set_bindings(one, (new,))

    def resize(self, one: Claim, requests: dict[str, object]) -> Refusal | None:
        """The claim asks for something else where it is; refused, it stays as it was."""
        old, before = one.bindings[0], one.spec
        spec = ClaimSpec(parse_vector(requests), labels=before.labels, priority=before.priority)
        mark = self.tx.savepoint()
        self.tx.set_spec(one, spec)
        new = self.policy.bind(one, one.place)
        assert not isinstance(new, Refusal)
        refusal: Refusal | None = None
        if old is not None and new is not None:
            refusal = self.policy.recharge(self.tx, one, old, new, False)
        elif old is not None:
            self.policy.release(self.tx, one, old)
        elif new is not None:
            refusal = self.policy.charge(self.tx, one, new, False)
        if refusal is not None:
            self.tx.rollback_to(mark)
        else:
            self.tx.set_bindings(one, (new,))
        return refusal

    def leave(self, one: Claim) -> None:
        super().leave(one)
        self._list_leaving(one.place)

    def stay(self, one: Claim) -> None:
        super().stay(one)
        self._list_leaving(one.place)

    def _let_go(self, one: Claim) -> None:
        place = one.place
        super()._let_go(one)
        self._list_leaving(place)

    def _list_leaving(self, place: str) -> None:
        """The engine keeps this table."""
        claims = self.ledger.state.claims.values()
        leaving = tuple(sorted(one.uid for one in claims if one.leaving and one.place == place))
        self.tx.put("engine", "leaving", place, leaving or None)

    def replayed(self) -> World:
        other = World()
        other.repeat(self)
        return other

    # Questions

    def used(self, node: str) -> dict[str, str]:
        return self.ledger.state.accounts[PREFIX + node].used.vector().show()

    def quota(self, node: str) -> dict[str, int]:
        facts = self.policy.index.node(node)
        return {} if facts is None else {quota.resource: quota.cap for quota in facts.quotas}

    def sources(self, node: str) -> dict[str, str]:
        facts = self.policy.index.node(node)
        return {} if facts is None else {quota.resource: quota.source for quota in facts.quotas}

    def open_for(self, one: Claim, question: str = "filter") -> list[str]:
        mask = bytearray(b"\x01" * len(self.nodes))
        getattr(self.policy, question)(one, mask)
        return sorted(self.nodes.names[slot] for slot in range(len(mask)) if mask[slot])

    def score(self, one: Claim, node: str) -> int:
        mask = bytearray(len(self.nodes))
        mask[self.nodes.slots[node]] = 1
        points = self.policy.score(one, mask)
        return 0 if points is None else int(points[self.nodes.slots[node]])

    def rank(self, one: Claim, node: str) -> int:
        mask = bytearray(b"\x01" * len(self.nodes))
        ranks = [0] * len(mask)
        self.policy.rank(one, mask, ranks)
        return ranks[self.nodes.slots[node]]

    def limited(self, one: Claim) -> bool:
        return self.policy.index.scope.limited(one)

    def indexed(self) -> dict[str, object]:
        index = self.policy.index
        columns = index.columns
        rows: dict[str, object] = {}
        for name, slot in self.nodes.slots.items():
            facts = index.facts[slot] if slot < len(index.facts) else None
            if facts is None and PREFIX + name not in self.ledger.state.accounts:
                continue
            arrays = [
                (int(column.caps[slot]), int(column.free[slot]))
                for column in [*columns.quotas, *columns.reserves, columns.gpus]
            ]
            quotas = [] if facts is None else [(q.resource, q.cap, q.source) for q in facts.quotas]
            rows[name] = (arrays, quotas, int(columns.gpu_nodes[slot]))
        residents = {name: sorted(found.claims) for name, found in index.residents.items()}
        return {"nodes": rows, "residents": residents, "removed": sorted(index.removed)}
