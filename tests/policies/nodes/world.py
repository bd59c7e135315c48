"""A ledger with the nodes policy alone, and short ways to put nodes and claims into it."""

from __future__ import annotations

from bursar.ledger.claims import PENDING, RESERVED, Binding, Claim, ClaimSpec
from bursar.ledger.ledger import Ledger
from bursar.limits import parse_limits
from bursar.policies.checks import Refusal
from bursar.policies.node_index import NodeIndex
from bursar.policies.nodes.facts import NodeBody
from bursar.policies.nodes.policy import KIND, NodesPolicy
from bursar.policies.settings import Setting
from bursar.selectors import NO_NEEDS, NodeNeeds, Taint, Toleration
from bursar.vectors import parse_vector


def body(
    allocatable: dict[str, object] | None = None,
    labels: dict[str, str] | None = None,
    taints: tuple[str, ...] = (),
    unschedulable: bool = False,
) -> NodeBody:
    return NodeBody(parse_limits(allocatable or {}), labels, tuple(taint(text) for text in taints), unschedulable)


def taint(text: str) -> Taint:
    """``key=value:effect`` or ``key:effect``."""
    mark, _, effect = text.rpartition(":")
    key, _, value = mark.partition("=")
    return Taint(key, value, effect)


def tolerating(*keys: str) -> NodeNeeds:
    return NodeNeeds({}, tolerations=tuple(Toleration(key, "Exists", "", "") for key in keys))


def porting(*ports: tuple[str, str, int]) -> NodeNeeds:
    return NodeNeeds({}, host_ports=ports)


def claim(
    uid: str,
    requests: dict[str, object] | None = None,
    needs: NodeNeeds = NO_NEEDS,
    priority: int = 0,
    created: int = 0,
    namespace: str = "",
) -> Claim:
    spec = ClaimSpec(parse_vector(requests or {}), priority=priority, needs=needs)
    return Claim(uid, spec, created, namespace)


class World:
    """One transaction stays open; ``commit`` closes it and opens the next."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.policy = NodesPolicy()
        self.nodes = NodeIndex()
        self.ledger.watch("nodes", self.policy)
        self.policy.attach(self.ledger.state, self.nodes)
        self.tx = self.ledger.begin()

    def node(self, name: str, what: NodeBody | None) -> None:
        self.policy.configure(self.tx, Setting(KIND, name, what))

    def submit(self, *claims: Claim) -> None:
        for one in claims:
            if one.uid not in self.ledger.state.claims:
                self.tx.add_claim(one)

    def bind(self, one: Claim, node: str) -> Binding:
        bound = self.policy.bind(one, node)
        assert isinstance(bound, Binding)
        return bound

    def place(self, one: Claim, node: str, forced: bool = False) -> Refusal | None:
        """Submit and charge the claim there, or say why not."""
        self.submit(one)
        bound = self.policy.bind(one, node)
        if bound is None or isinstance(bound, Refusal):
            return bound
        refusal = self.policy.charge(self.tx, one, bound, forced)
        if refusal is None:
            self.tx.set_bindings(one, (bound,))
            self.tx.set_place(one, node)
            self.tx.set_state(one, RESERVED)
        return refusal

    def held(self, one: Claim) -> Binding:
        binding = one.bindings[0]
        assert binding is not None
        return binding

    def release(self, one: Claim) -> None:
        self.policy.release(self.tx, one, self.held(one))
        self._let_go(one)

    def leave(self, one: Claim) -> None:
        self.policy.leave(self.tx, one, self.held(one))
        self.tx.set_leaving(one, True)

    def stay(self, one: Claim) -> None:
        self.policy.stay(self.tx, one, self.held(one))
        self.tx.set_leaving(one, False)

    def left(self, one: Claim) -> None:
        self.policy.left(self.tx, one, self.held(one))
        self._let_go(one)

    def _let_go(self, one: Claim) -> None:
        self.tx.set_bindings(one, ())
        self.tx.set_place(one, "")
        self.tx.set_leaving(one, False)
        self.tx.set_state(one, PENDING)

    def commit(self) -> None:
        self.policy.settle(self.tx)
        self.ledger.commit(0, ("test",))
        self.tx = self.ledger.begin()

    def abort(self) -> None:
        self.ledger.abort()
        self.tx = self.ledger.begin()

    def replayed(self) -> World:
        """Another world that repeats what this one has committed and not yet handed out."""
        other = World()
        other.ledger.abort()
        for _ in other.ledger.replay(self.ledger.journal.take()):
            pass
        other.tx = other.ledger.begin()
        return other

    # Questions

    def open_for(self, one: Claim) -> list[str]:
        return self._names(one, "filter")

    def possible_for(self, one: Claim) -> list[str]:
        return self._names(one, "could")

    def _names(self, one: Claim, question: str) -> list[str]:
        mask = bytearray(b"\x01" * (len(self.nodes) + 3))  # longer than the arrays of the policy
        getattr(self.policy, question)(one, mask)
        return sorted(self.nodes.names[slot] for slot in range(len(mask)) if mask[slot])

    def scores_for(self, one: Claim) -> dict[str, int]:
        mask = bytearray(b"\x01" * len(self.nodes))
        self.policy.filter(one, mask)
        scores = self.policy.points(one, mask)
        return {name: scores[slot] for name, slot in self.nodes.slots.items() if mask[slot]}

    def reason(self, one: Claim, node: str) -> str:
        refusal = self.policy.refuse(one, node)
        return "" if refusal is None else refusal.reason

    def indexed(self) -> dict[str, object]:
        """Everything that the policy has derived, by name, without what is empty."""
        index = self.policy.index
        free: dict[str, object] = {}
        for name, slot in self.nodes.slots.items():
            rows = {
                dim: (int(column.free[slot]), int(column.caps[slot]))
                for dim, column in enumerate(index.columns.by_dimension)
                if column is not None and (column.free[slot] or column.caps[slot])
            }
            residents = sorted(index.residents[slot].claims)
            ports = dict(sorted(index.residents[slot].ports.items()))
            order = [one.uid for one in index.residents[slot].least_important_first()]
            facts = index.masks.facts[slot]
            if rows or residents or facts is not None:
                free[name] = (rows, residents, ports, order, facts is not None and facts.name)
        marked = [sorted(self.nodes.names[slot] for slot in slots) for slots in (index.porters, index.soft)]
        derived = [sorted(index.removed), marked, sorted((at, sorted(h)) for at, h in index.leaving_ports.items())]
        return {"nodes": free, "derived": repr(derived)}
