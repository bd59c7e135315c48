"""A throw-away policy that only a registry knows of: a purse for each namespace.

It brings all that a policy can bring: a kind (``Purse``, one a namespace), a section of the Configuration (``exempt``
namespaces; ``takeBack``: what is over the purse is taken back), the translation of both, admission and a check of
removals, refusals with victims, statuses, an event and an object of its own (a ConfigMap's stand-in: ``Receipt``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import field

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import Account
from bursar.ledger.transaction import Transaction
from bursar.objects.core import Manifest, Part, Quantities
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.requests import limits_from
from bursar.policies.plugin import ObjectView, Plugin, Registry, default_registry
from bursar.policies.policy import QuotaPolicy
from bursar.policies.results import Body, Output, Refusal, Revocation, Setting
from bursar.resources import Limits, Vector

NAME = "purse"
PURSE = "Purse.test.dev"
RECEIPT = "Receipt.test.dev"


class PurseSpec(Part, frozen=True):
    max: Quantities


class Purse(Manifest, frozen=True, kw_only=True):
    spec: PurseSpec


class Receipt(Manifest, frozen=True):
    used: Quantities = field(default_factory=dict)


class PurseSection(Part, frozen=True):
    exempt: tuple[str, ...] = ()
    take_back: bool = False


class PurseBody(Body):
    def __init__(self, limits: Limits) -> None:
        self.limits = limits


class OptionsBody(Body):
    def __init__(self, section: PurseSection) -> None:
        self.section = section


class PursePolicy(QuotaPolicy):
    def __init__(self) -> None:
        super().__init__(NAME, kinds=("purse.Purse", "purse.Options"))
        self.dirty: set[str] = set()

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        body = setting.body
        if setting.kind == "purse.Options":
            section = body.section if isinstance(body, OptionsBody) else PurseSection()
            tx.put(NAME, "purse.options", "all", (section.exempt, section.take_back))
            return sorted(self.state.claims)
        namespace, _, name = setting.key.partition("/")
        account = self.state.accounts.get(f"{NAME}/{namespace}") or tx.open_account(NAME, f"{NAME}/{namespace}")
        tx.set_limits(account, body.limits if isinstance(body, PurseBody) else Limits({}))
        tx.put(NAME, "purse.names", namespace, name if isinstance(body, PurseBody) else None)
        self.dirty.add(namespace)
        return sorted(uid for uid, claim in self.state.claims.items() if claim.namespace == namespace)

    def _options(self) -> tuple[tuple[str, ...], bool]:
        found = self.state.cell("purse.options", "all")
        return cast("tuple[tuple[str, ...], bool]", found) if found is not None else ((), False)

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        self.dirty.add(claim.namespace)

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        account = self.state.accounts.get(f"{NAME}/{claim.namespace}")
        if account is None or claim.namespace in self._options()[0]:
            return None
        return Binding(NAME, (account,), (claim.spec.requests,))

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        lower = [c for c in self._counted(claim.namespace) if c.spec.priority < claim.spec.priority]
        return iter(sorted(lower, key=lambda c: (c.spec.priority, -c.created, c.uid)))

    def _counted(self, namespace: str) -> list[Claim]:
        return [c for c in self.state.claims.values() if c.namespace == namespace and c.counts()]

    def revocations(self, now: int) -> list[Revocation]:
        if not self._options()[1]:
            return []
        for namespace in sorted(self.state.cells("purse.names")):
            account = self.state.accounts[f"{NAME}/{namespace}"]
            over = any(account.used.amount(name) > limit for name, limit in account.limits.listed.items())
            going = any(self.state.cell("revoked", c.uid) is not None for c in self._counted(namespace))
            if over and not going:
                last = max(self._counted(namespace), key=lambda c: (c.created, c.key))
                return [Revocation(last.uid, "purse.overdrawn", f"{namespace} spends more than it has")]
        return []

    def outputs(self, now: int) -> list[Output]:
        found: list[Output] = []
        for namespace in sorted(self.dirty):
            name = self.state.cell("purse.names", namespace)
            if name is not None:
                used = self.state.accounts[f"{NAME}/{namespace}"].used.vector().show()
                found.append(Output(PURSE, f"{namespace}/{name}", "status", {"used": used}))
                found.append(Output(RECEIPT, f"{namespace}/{name}", "object", _receipt(namespace, str(name), used)))
            label = {"test.dev/purse": name}
            found.extend(Output("Pod", claim.key, "labels", label) for claim in self._counted(namespace))
        self.dirty.clear()
        return found


def _receipt(namespace: str, name: str, used: dict[str, str]) -> dict[str, object]:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "test.dev/v1", "kind": "Receipt", "metadata": metadata, "used": used}


def purse_settings(key: str, purse: Purse | None) -> list[Setting]:
    body = None if purse is None else PurseBody(limits_from(purse.spec.max, "spec.max"))
    return [Setting("purse.Purse", key, body)]


def options_settings(key: str, section: PurseSection | None) -> list[Setting]:
    return [Setting("purse.Options", key, OptionsBody(section or PurseSection()))]


def admit_purse(view: ObjectView, _: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    for other in view.list(PURSE):
        meta = other["metadata"]
        if meta["namespace"] == new["metadata"]["namespace"] and meta["name"] != new["metadata"]["name"]:
            raise ManifestError(f"the namespace has the purse {meta['name']} already", "metadata.namespace")
    limits = {"pods": 10, **new["spec"]["max"]}  # a default, so that admission is seen to fill something in
    return {**new, "spec": {**new["spec"], "max": limits}}


def check_purse_removal(_: ObjectView, old: Mapping[str, Any]) -> None:
    if (old.get("status") or {}).get("used"):
        raise ManifestError("something is still paid from it", "status.used")


PLUGIN = Plugin(
    NAME,
    45,
    PursePolicy,
    (
        Kind("test.dev", "v1", "Purse", "purses", True, Purse, strict=True),
        Kind("test.dev", "v1", "Receipt", "receipts", True, Receipt, strict=True),
    ),
    PurseSection,
    {PURSE: purse_settings, "Configuration": options_settings},
    {PURSE: admit_purse},
    {PURSE: check_purse_removal},
    lambda labels, _: labels.get("test.dev/paid") == "in-advance",
)


def registry() -> Registry:
    """The built-in policies and this one."""
    found = Registry(default_registry())
    found.add(PLUGIN)
    return found
