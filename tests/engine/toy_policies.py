"""Two small policies to test the engine with: ``Pots`` (quota: nested pots with limits) and ``Hosts`` (placement).

A claim names its pot by the label ``<policy>: a/b``; it is then charged to ``a`` and ``a/b``. Hosts have some units of
everything; a claim goes to the first by name that has room. Both yield as victims claims of strictly lower priority,
lower priority first, then newest.
"""

from __future__ import annotations

from collections.abc import Iterator

from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.state import Account
from bursar.ledger.transaction import Transaction
from bursar.policies.policy import PlacementPolicy, QuotaPolicy
from bursar.policies.results import Body, Check, Refusal, Setting, refusal_for
from bursar.resources import Limits, Vector, from_amounts


class Room(Body):
    """What a pot or a host offers."""

    def __init__(self, **amounts: int) -> None:
        self.limits = {name.replace("_", "-"): amount for name, amount in amounts.items()}


def spec(
    wants: dict[str, int],
    labels: dict[str, str] | None = None,
    priority: int = 0,
    *,
    owner: str = "",
    group: str = "",
    preemptible: bool = True,
    preempts: bool = True,
) -> ClaimSpec:
    """A claim spec from amounts and labels."""
    return ClaimSpec(
        from_amounts(wants),
        labels=labels,
        priority=priority,
        owner=owner,
        group=group,
        preemptible=preemptible,
        preempts=preempts,
    )


def lower_first(state_claims: dict[str, Claim], claim: Claim, account: Account) -> Iterator[Claim]:
    """Counted claims of lower priority in an account, least important first."""
    found = [
        other
        for other in state_claims.values()
        if other.counts()
        and other.spec.priority < claim.spec.priority
        and any(binding is not None and account in binding.accounts for binding in other.bindings)
    ]
    found.sort(key=lambda other: (other.spec.priority, -other.created, other.uid))
    return iter(found)


class Pots(QuotaPolicy):
    """Nested pots. Settings: kind ``<name>.Pot``, key the path, body a ``Room``."""

    def __init__(self, name: str) -> None:
        super().__init__(name, (f"{name}.Pot",))

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        name = f"{self.name}/{setting.key}"
        account = self.state.accounts.get(name) or tx.open_account(self.name, name)
        tx.set_limits(account, Limits(setting.body.limits if isinstance(setting.body, Room) else {}))
        return []

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        path = claim.spec.labels.get(self.name)
        if path is None:
            return None
        parts = path.split("/")
        names = [f"{self.name}/{'/'.join(parts[:i])}" for i in range(len(parts), 0, -1)]
        if any(name not in self.state.accounts for name in names):
            return Refusal(self.name, f"{self.name}.unknown", f"there is no pot {path}", permanent=True)
        return Binding(self.name, tuple(self.state.accounts[n] for n in names), (claim.spec.requests,) * len(names))

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        return lower_first(self.state.claims, claim, self.state.accounts[refusal.account])


class Hosts(PlacementPolicy):
    """Machines. Settings: kind ``hosts.Host``, key the name, body a ``Room``."""

    def __init__(self) -> None:
        super().__init__("hosts", ("hosts.Host",))

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        name = f"hosts/{setting.key}"
        tx.put("hosts", "hosts", setting.key, True)
        account = self.state.accounts.get(name) or tx.open_account("hosts", name, topic="hosts", physical=True)
        limits = setting.body.limits if isinstance(setting.body, Room) else {}
        tx.set_limits(account, Limits(limits, stock=True))
        return []

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        self.nodes.slot(key)

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        if not place:
            return None
        return Binding("hosts", (self.state.accounts[f"hosts/{place}"],), (claim.spec.requests,))

    def refusal(self, claim: Claim, account: Account, dim: int, cost: Vector) -> Refusal:
        return refusal_for("hosts", "room", account, dim, cost, place=account.name[6:])

    def feasible(self, claim: Claim, mask: bytearray) -> None:
        for slot, name in enumerate(self.nodes.names):
            limits = self.state.accounts[f"hosts/{name}"].limits
            if any(claim.spec.requests.get(dim) > limits.get(dim) for dim in claim.spec.requests.indices()):
                mask[slot] = 0

    def filter(self, claim: Claim, mask: bytearray) -> None:
        for slot, name in enumerate(self.nodes.names):
            if self.explain_node(claim, name) is not None:
                mask[slot] = 0

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        return lower_first(self.state.claims, claim, binding.accounts[0])

    def explain_nodes(self, claim: Claim) -> Check:
        refusals = [self.explain_node(claim, name) for name in self.nodes.names]
        children = tuple(Check.of_refusal(refusal) for refusal in refusals if refusal is not None)
        return Check("hosts", len(children) < len(refusals), "", children)
