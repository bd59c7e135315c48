"""What pods cost by their claims of devices (dynamic resource allocation).

The book keeps claims, templates, classes and slices, and turns the claims of a pod into amounts of its ``ClaimSpec``:
an upper bound before the scheduler has allocated devices, what was allocated afterwards. Extended resources that a
DeviceClass stands for are charged in the same way, and are no amounts of a node any more.

``spec.details["devices"]`` has ``claims`` (name in the pod, ResourceClaim, template), ``extended`` (amounts that
classes stand for), ``pays`` (claims by name that are charged to this pod and not to another one that shares them),
``waits`` (code and sentence of why the pod cannot be charged yet) and ``unknown`` (a GPU model without known tflops).
So the ledger alone says what each pod is charged for. A pod that counts keeps its charge while what it is for cannot be
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from bursar.control.admission import CONFIGURATION, ObjectChange
from bursar.control.device_sharing import FREE, PAYS, ClaimSharing, DeviceUsers, parts_of, pod_requests
from bursar.control.gangs import forked
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.core import ObjectMeta
from bursar.objects.device_bounds import (
    NO_CLASS,
    NO_DEVICES,
    OK,
    OUT_OF_RANGE,
    Amounts,
    DeviceBound,
    DeviceInventory,
    add,
    most_of,
)
from bursar.objects.device_mapping import DevicesSection, MappingTable
from bursar.objects.devices import (
    AllocatedDevice,
    ClaimDevices,
    DeviceAlternative,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from bursar.objects.kinds import (
    DEVICE_CLASS,
    DEVICE_KINDS,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
)
from bursar.objects.pods import DEVICE_DETAILS, SpecCache
from bursar.quantity import MAX_AMOUNT
from bursar.resources import from_amounts

NO_CLAIM = "devices.claim"
TOO_MANY = "devices.too-many"
MOST_CLAIMS = 32  # of one pod
CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"
_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"  # annotation of a claim that was made from a template
_KINDS = frozenset(kind.name for kind in DEVICE_KINDS)
Details = dict[str, Any]


@dataclass(slots=True)
class PodCharge:
    """What a pod is charged for its claims."""

    amounts: Amounts
    pays: list[str]
    waits: tuple[str, str] = OK
    unknown: str = ""

    def take(self, bound: DeviceBound) -> None:
        add(self.amounts, bound.amounts)
        self.waits = self.waits if self.waits != OK else bound.waits
        self.unknown = self.unknown or bound.unknown

    def wait(self, code: str, sentence: str) -> None:
        self.take(DeviceBound({}, (code, sentence)))


class Respec(NamedTuple):
    """A claim that is charged otherwise now. ``grew``: a claim of it was created again and asks for more."""

    claim: Claim
    spec: ClaimSpec
    grew: bool


class DeviceBook:
    def __init__(self, claims: Mapping[str, Claim], sharing: ClaimSharing) -> None:
        """``claims``: those of the ledger, by uid."""
        self._claims = claims
        self._specs = SpecCache()
        self.sharing = sharing
        self._inventory = DeviceInventory(MappingTable())
        self._classes: dict[str, DeviceClass] = {}
        self._extended: dict[str, str] = {}  # name of a resource -> the class that stands for it
        self._objects: dict[tuple[str, str], ResourceClaim | ResourceClaimTemplate] = {}
        self._generated: dict[tuple[str, str], dict[str, str]] = {}  # (pod, name in the pod) -> claim -> uid of the pod
        self._bounds: dict[tuple[str, str], tuple[int, object, DeviceBound]] = {}
        self._version = 0  # of inventory, classes and mappings
        self._users = DeviceUsers()

    def fork(self, sharing: ClaimSharing) -> DeviceBook:
        """A copy to go on with."""
        return forked(
            self,
            sharing=sharing,
            _inventory=self._inventory.fork(),
            _classes=dict(self._classes),
            _extended=dict(self._extended),
            _objects=dict(self._objects),
            _generated={key: dict(names) for key, names in self._generated.items()},
            _bounds=dict(self._bounds),
            _users=self._users.fork(),
        )

    # Objects

    def take(self, changes: Iterable[ObjectChange]) -> Iterable[str]:
        """Objects were changed or deleted. Returns the uids of claims that may be charged otherwise (``respecs``)."""
        touched: set[str] = set()
        everything: Iterable[str] = ()
        for change in changes:
            if change.kind.kind == CONFIGURATION:
                section = None if change.object is None else getattr(change.typed.spec, DEVICE_DETAILS, None)
                self._inventory.remap(MappingTable(cast("DevicesSection | None", section)))
            elif change.kind.name == RESOURCE_SLICE.name:
                self._inventory.take(change.key, change.typed)
            elif change.kind.name == DEVICE_CLASS.name:
                self._take_class(change.key, change.typed)
                everything = list(self._claims)  # a resource of any pod may be one of this class now
            elif change.kind.name in _KINDS:
                touched |= self._take_claim(change.kind.name, change.key, change.typed)
                continue
            else:
                continue
            self._version += 1
            everything = everything or self._users.all()
        return everything or touched

    def _take_class(self, name: str, given: DeviceClass | None) -> None:
        self._classes.pop(name, None)
        if given is not None:
            self._classes[name] = given
        named = ((one.spec.extended_resource_name, key) for key, one in sorted(self._classes.items()))
        self._extended = {}
        for resource, key in named:
            if resource:
                self._extended.setdefault(resource, key)

    def _take_claim(self, kind: str, key: str, given: ResourceClaim | ResourceClaimTemplate | None) -> set[str]:
        before = self._objects.pop((kind, key), None)
        touched = {(kind, key)}
        if before is not None:
            for place, _ in _made_for(key, before.metadata):
                touched.add((POD.name, place[0]))
                self._generated[place].pop(key, None)
                if not self._generated[place]:
                    del self._generated[place]
        if given is not None:
            self._objects[kind, key] = given
            for place, uid in _made_for(key, given.metadata):
                touched.add((POD.name, place[0]))
                self._generated.setdefault(place, {})[key] = uid
        self._bounds.pop((kind, key), None)
        return self._users.of(touched)

    # Claims of the ledger

    def enter(self, claim: Claim) -> None:
        """The claim is in the ledger now."""
        if DEVICE_DETAILS in claim.spec.details:
            self._users.enter(claim)
            self.sharing.enter(claim)

    def leave(self, uid: str) -> None:
        self._users.leave(uid)
        self.sharing.leave(uid)

    def respecs(self, touched: Iterable[str], changes: Iterable[ObjectChange]) -> list[Respec]:
        """Those of the claims that are charged otherwise since these changes, in the order of their keys."""
        named = [
            change for change in changes if change.kind.name in {RESOURCE_CLAIM.name, RESOURCE_CLAIM_TEMPLATE.name}
        ]
        anew = {(change.kind.name, change.key) for change in named if not _is_allocated(change.typed)}
        users = [self._claims[uid] for uid in touched if uid in self._claims]
        found: list[Respec] = []
        for claim in sorted(users, key=lambda one: (one.key, one.uid)):
            spec = self.equipped(claim, claim.spec)
            if spec is not claim.spec:
                grew = bool(anew) and claim.counts() and _grows(claim.spec, spec) and self._uses(claim, anew)
                found.append(Respec(claim, spec, grew))
        return found

    def _uses(self, claim: Claim, objects: set[tuple[str, str]]) -> bool:
        parts = parts_of(claim.spec).get("claims", [])
        return any(self._source(claim, *part) in objects for part in parts)

    # The charge of one claim

    def equipped(self, claim: Claim, given: ClaimSpec) -> ClaimSpec:
        """The spec with what it costs by its claims of devices; the same object if nothing is different.

        ``claim`` is the one in the ledger, or a new one.
        """
        before = parts_of(given)
        requests = dict(pod_requests(given).pairs())
        extended = {name: amount for name, amount in requests.items() if self._class_of(name)}
        if not before and not extended:
            return given
        parts = before.get("claims", [])
        charge = self._charge(claim, parts, extended)
        if charge.waits != OK and claim.counts():
            return given if given is claim.spec else charged_alike(given, claim.spec)
        details = _details(parts, extended, charge)
        if details == before and charge.amounts == dict(given.devices.pairs()):
            return given
        key = ("devices", given.mark, repr(sorted(details.items())), tuple(sorted(charge.amounts.items())))
        return self._specs.get(key, lambda: _with(given, requests, details, charge.amounts))

    def _class_of(self, resource: str) -> str:
        if resource.startswith(CLASS_RESOURCE):
            return resource[len(CLASS_RESOURCE) :]
        return self._extended.get(resource, "")

    def _charge(self, claim: Claim, parts: list[list[str]], extended: Amounts) -> PodCharge:
        charge = PodCharge({}, [])
        if len(parts) > MOST_CLAIMS:
            charge.wait(TOO_MANY, f"the pod has {len(parts)} claims of devices, and at most {MOST_CLAIMS} are read")
            return charge
        for part in parts:
            self._add_part(charge, claim, part)
        for resource, number in sorted(extended.items()):
            asked = DeviceAlternative(device_class_name=self._class_of(resource), count=number)
            charge.take(self._alternative(asked))
        if any(amount > MAX_AMOUNT for amount in charge.amounts.values()):
            charge.amounts = {}
            charge.wait(OUT_OF_RANGE, "its claims of devices together are out of range")
        return charge

    def _add_part(self, charge: PodCharge, claim: Claim, part: list[str]) -> None:
        source = self._source(claim, *part)
        given = self._objects.get(source)
        if given is None:
            charge.wait(NO_CLAIM, f"{source[0]} {source[1]} does not exist")
            return
        if part[1]:
            verdict = self.sharing.verdict(claim, part[1])
            if verdict == FREE:
                return
            if verdict != PAYS:
                charge.wait(*verdict)
                return
            charge.pays.append(part[1])
        charge.take(self._bound(source, given))

    def _source(self, claim: Claim, name: str, named: str, template: str) -> tuple[str, str]:
        """(kind, key) of the object that says what is claimed."""
        if named:
            return RESOURCE_CLAIM.name, f"{claim.namespace}/{named}"
        made = self._generated.get((claim.key, name), {})
        own = sorted(key for key, uid in made.items() if uid in {"", claim.uid})
        if own:
            return RESOURCE_CLAIM.name, own[0]
        return RESOURCE_CLAIM_TEMPLATE.name, f"{claim.namespace}/{template}"

    def _bound(self, source: tuple[str, str], given: ResourceClaim | ResourceClaimTemplate) -> DeviceBound:
        known = self._bounds.get(source)
        if known is not None and known[0] == self._version and known[1] is given:
            return known[2]
        found = self._claim(given) if isinstance(given, ResourceClaim) else self._requests(given.spec.spec)
        self._bounds[source] = self._version, given, found
        return found

    def _claim(self, given: ResourceClaim) -> DeviceBound:
        if given.status.allocation is None:
            return self._requests(given.spec)
        asked = {}
        for request in given.spec.devices.requests:
            for one in request.alternatives:
                asked[f"{request.name}/{one.name}" if request.first_available else request.name] = one
        charge = PodCharge({}, [])
        for result in given.status.allocation.devices.results:
            charge.take(self._result(result, asked.get(result.request, DeviceAlternative())))
        return DeviceBound(charge.amounts, charge.waits, charge.unknown)

    def _result(self, result: AllocatedDevice, asked: DeviceAlternative) -> DeviceBound:
        of_class = self._classes.get(asked.device_class_name)
        selectors = [] if of_class is None else [one.cel.expression for one in of_class.spec.selectors]
        one = DeviceAlternative(
            device_class_name=asked.device_class_name, selectors=asked.selectors, capacity=asked.capacity
        )
        return self._inventory.allocated(result, asked.device_class_name, lambda: self._inventory.bound(one, selectors))

    def _requests(self, given: ClaimDevices) -> DeviceBound:
        charge = PodCharge({}, [])
        for request in given.devices.requests:
            charge.take(self._request(request))
        return DeviceBound(charge.amounts, charge.waits, charge.unknown)

    def _request(self, given: DeviceRequest) -> DeviceBound:
        """The most of each dimension over the alternatives that can be had."""
        bounds = [self._alternative(one) for one in given.alternatives]
        usable = [bound for bound in bounds if bound.waits[0] != NO_DEVICES] or bounds[:1]
        amounts: Amounts = {}
        for bound in usable:
            amounts = most_of(amounts, bound.amounts)
        waits = next((bound.waits for bound in usable if bound.waits != OK), OK)
        return DeviceBound(amounts, waits, max((bound.unknown for bound in usable), default=""))

    def _alternative(self, asked: DeviceAlternative) -> DeviceBound:
        of_class = self._classes.get(asked.device_class_name)
        if of_class is None:
            return DeviceBound({}, (NO_CLASS, f"DeviceClass {asked.device_class_name} does not exist"))
        return self._inventory.bound(asked, [one.cel.expression for one in of_class.spec.selectors])


def charged_alike(given: ClaimSpec, other: ClaimSpec) -> ClaimSpec:
    """The spec of a pod that was edited, charged for the claims of devices that the pod had before."""
    details = parts_of(other)
    if not details:
        return given
    return _with(given, dict(given.requests.pairs()), details, dict(other.devices.pairs()))


def _made_for(key: str, meta: ObjectMeta) -> list[tuple[tuple[str, str], str]]:
    """((pod, name in the pod), uid of the pod) for which a claim was made from a template."""
    name = meta.annotations.get(_CLAIM_NAME, "")
    namespace = key.partition("/")[0]
    return [
        ((f"{namespace}/{owner.name}", name), owner.uid)
        for owner in meta.owner_references
        if name and owner.controller and owner.kind == POD.kind
    ]


def _is_allocated(given: object) -> bool:
    return isinstance(given, ResourceClaim) and given.status.allocation is not None


def _grows(before: ClaimSpec, after: ClaimSpec) -> bool:
    return any(amount > before.devices.amount(name) for name, amount in after.devices.pairs())


def _details(parts: list[list[str]], extended: Amounts, charge: PodCharge) -> Details:
    whole: Details = {
        "claims": parts,
        "extended": extended,
        "pays": charge.pays,
        "waits": list(charge.waits) if charge.waits != OK else [],
        "unknown": charge.unknown,
    }
    return {name: value for name, value in whole.items() if value}


def _with(given: ClaimSpec, requests: Amounts, details: Details, amounts: Amounts) -> ClaimSpec:
    taken = details.get("extended", {})
    others = {name: value for name, value in given.details.items() if name != DEVICE_DETAILS}
    return ClaimSpec(
        from_amounts({name: amount for name, amount in requests.items() if name not in taken})
        if taken
        else (given.requests if len(requests) == len(given.requests) else from_amounts(requests)),
        given.limits,
        given.containers,
        given.labels,
        given.annotations,
        given.priority,
        given.preemptible,
        given.preempts,
        given.owner,
        given.group,
        given.group_size,
        given.needs,
        {**others, DEVICE_DETAILS: details} if details else others,
        given.placeable,
        from_amounts(amounts),
    )
