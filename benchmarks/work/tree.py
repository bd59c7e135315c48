"""A quota tree of depth 4 in 6 dimensions, as accounts alone and as a policy: the shape all figures share."""

from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.state import Account
from bursar.ledger.transaction import Transaction
from bursar.policies.policy import QuotaPolicy
from bursar.policies.results import Refusal, Setting
from bursar.resources import Limits, Vector, from_amounts

DIMENSIONS = ("cpu", "memory", "nvidia.com/gpu", "ephemeral-storage", "example.com/a", "example.com/b")
WIDE = Limits(dict.fromkeys(DIMENSIONS, 10**15))
LEAVES = 1_000


def cost_of(shape: int = 0) -> Vector:
    """What one claim asks for: every dimension, a little more with each shape."""
    return from_amounts({name: index + 1 + shape for index, name in enumerate(DIMENSIONS)})


def parent_numbers(leaves: int) -> list[tuple[int, int]]:
    """For each leaf its grandparent and parent below the root: ten children each, where there are enough leaves."""
    return [(leaf // 100, leaf // 10) for leaf in range(leaves)]


class TreePolicy(QuotaPolicy):
    """Charges a claim in the leaf of its namespace (a number) and in the three accounts above it.

    It is plain Python on top of the compiled core, as a policy of somebody else's would be; the base class charges.
    """

    def __init__(self, name: str, leaves: int, own_bindings: bool = False) -> None:
        super().__init__(name, kinds=(f"{name}.Tree",))
        self.leaves = leaves
        self.own_bindings = own_bindings  # a binding for each claim, instead of one for all that are alike
        self.paths: list[tuple[Account, ...]] = []
        self.known: dict[tuple[str, ClaimSpec], Binding] = {}

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        opened: dict[str, Account] = {}

        def account(name: str) -> Account:
            if name not in opened:
                opened[name] = tx.open_account(self.name, name)
                tx.set_limits(opened[name], WIDE)
            return opened[name]

        for leaf, (upper, lower) in enumerate(parent_numbers(self.leaves)):
            names = (f"leaf-{leaf}", f"lower-{lower}", f"upper-{upper}", "root")
            self.paths.append(tuple(account(f"{self.name}/{name}") for name in names))
        return []

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        if self.own_bindings:
            return self.new_binding(claim)
        key = (claim.namespace, claim.spec)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.new_binding(claim)
        return found

    def new_binding(self, claim: Claim) -> Binding:
        return Binding(self.name, self.paths[int(claim.namespace)], (claim.spec.requests,) * 4)
