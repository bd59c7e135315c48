"""ResourceClaims that several pods share: each is charged once.

The *payer* of a claim is its oldest pod among those that count. When it ends, the next one is charged, whatever its
quota has left. A pending pod is decided with the whole charge while no pod pays, and without it afterwards; of a gang
only the oldest member is. Pods that share a claim under different quotas wait, because one of them would use what is
charged to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from bursar.control.gangs import forked
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.kinds import POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from bursar.objects.pods import DEVICE_DETAILS
from bursar.resources import Vector, from_amounts

SHARED = "devices.shared"
PAYS = ("", "pays")
FREE = ("", "free")
Verdict = tuple[str, str]
"""``PAYS``, ``FREE``, or (code, sentence) of why the pod waits."""


def parts_of(spec: ClaimSpec) -> dict[str, Any]:
    """``details["devices"]``; see ``device_book``."""
    return cast("dict[str, Any]", spec.details.get(DEVICE_DETAILS, {}))


def pod_requests(spec: ClaimSpec) -> Vector:
    """The requests of the pod's containers, with the extended resources that classes of devices stand for."""
    extended = parts_of(spec).get("extended")
    return spec.requests.plus(from_amounts(extended)) if extended else spec.requests


def _named(claim: Claim) -> list[str]:
    """The ResourceClaims that the pod names, with its namespace."""
    found = [named for _, named, _ in parts_of(claim.spec).get("claims", []) if named]
    return [f"{claim.namespace}/{named}" for named in found]


def _age(claim: Claim) -> tuple[int, str, str]:
    return claim.created, claim.key, claim.uid


ObjectName = tuple[str, str]
"""(kind, key)."""


class DeviceUsers:
    """The claims of the ledger that have claims of devices, by the objects that say what they cost."""

    def __init__(self) -> None:
        self._objects: dict[str, list[ObjectName]] = {}  # by uid
        self._users: dict[ObjectName, dict[str, None]] = {}  # uids

    def fork(self) -> DeviceUsers:
        """A copy to go on with."""
        return forked(self, _objects=dict(self._objects), _users={key: dict(uids) for key, uids in self._users.items()})

    def enter(self, claim: Claim) -> None:
        if claim.uid in self._objects:
            return
        space = claim.namespace
        found = [(POD.name, claim.key)]  # whose name is on claims that are made for it
        for _, named, template in parts_of(claim.spec).get("claims", []):
            of_template = (RESOURCE_CLAIM_TEMPLATE.name, f"{space}/{template}")
            found.append((RESOURCE_CLAIM.name, f"{space}/{named}") if named else of_template)
        self._objects[claim.uid] = found
        for name in found:
            self._users.setdefault(name, {})[claim.uid] = None

    def leave(self, uid: str) -> None:
        for name in self._objects.pop(uid, []):
            users = self._users.get(name, {})
            users.pop(uid, None)
            if not users:
                self._users.pop(name, None)

    def all(self) -> list[str]:
        return list(self._objects)

    def of(self, names: Iterable[ObjectName]) -> set[str]:
        """The uids of claims that one of these objects is about."""
        return {uid for name in names for uid in self._users.get(name, ())}


class ClaimSharing:
    def __init__(self, claims: Mapping[str, Claim], quotas_of: Callable[[Claim], tuple[str, ...]]) -> None:
        """``claims``: those of the ledger, by uid; ``quotas_of``: the accounts that govern one."""
        self._claims = claims
        self._quotas_of = quotas_of
        self._users: dict[str, dict[str, None]] = {}  # by ResourceClaim: uids
        self._payers: dict[str, str] = {}  # by ResourceClaim: uid
        self._named: dict[str, list[str]] = {}  # by uid: ResourceClaims

    def fork(self) -> ClaimSharing:
        """A copy to go on with."""
        users = {key: dict(uids) for key, uids in self._users.items()}
        return forked(self, _users=users, _payers=dict(self._payers), _named=dict(self._named))

    def enter(self, claim: Claim) -> None:
        named = _named(claim)
        if self._named.get(claim.uid, named) != named:
            self.leave(claim.uid)
        self._named[claim.uid] = named
        for key in self._named[claim.uid]:
            self._users.setdefault(key, {})[claim.uid] = None
            if claim.counts() and key.partition("/")[2] in parts_of(claim.spec).get("pays", []):
                self._payers.setdefault(key, claim.uid)

    def leave(self, uid: str) -> None:
        for key in self._named.pop(uid, []):
            users = self._users[key]
            users.pop(uid, None)
            if not users:
                del self._users[key]
                self._payers.pop(key, None)

    def clashing(self, claim: Claim) -> list[Claim]:
        """The pods that share with the claim, if they are not under the same quotas."""
        found: dict[str, Claim] = {}
        for key in self._named.get(claim.uid, []):
            others = self._others(key, claim.uid)
            if others and self._quotas_of(others[0]) != self._quotas_of(claim):
                found.update((other.uid, other) for other in others)
        return sorted(found.values(), key=_age)

    def moved(self, claims: Iterable[Claim]) -> list[Claim]:
        """These claims were placed, given up or left. Returns those that share with them and may pay otherwise now."""
        keys = sorted({key for claim in claims for key in _named(claim)})
        found: dict[str, Claim] = {}
        for key in keys:
            before = self._payers.get(key)
            if before is not None and (payer := self._claims.get(before)) is not None and payer.counts():
                continue
            counted = [claim for claim in self._others(key, "") if claim.counts()]
            if counted:
                self._payers[key] = min(counted, key=_age).uid
            else:
                self._payers.pop(key, None)
            found.update((claim.uid, claim) for claim in self._others(key, ""))
        return sorted(found.values(), key=_age)

    def _others(self, key: str, uid: str) -> list[Claim]:
        users = self._users.get(key, {})
        return [self._claims[other] for other in users if other != uid and other in self._claims]

    def verdict(self, claim: Claim, named: str) -> Verdict:
        """Whether the claim pays for this ResourceClaim."""
        key = f"{claim.namespace}/{named}"
        others = self._others(key, claim.uid)
        if not others:
            return PAYS
        payer = self._payers.get(key)
        if claim.counts():
            return PAYS if payer in {None, claim.uid} else FREE
        quotas = self._quotas_of(claim)
        for other in sorted(others, key=_age):
            if self._quotas_of(other) != quotas:
                return SHARED, f"ResourceClaim {key} is used by {other.key} too, which is under other quotas"
        if payer is not None and payer != claim.uid:
            return FREE
        group = claim.spec.group
        mates = [other for other in others if group and other.spec.group == group and not other.counts()]
        return FREE if any(_age(mate) < _age(claim) for mate in mates) else PAYS
