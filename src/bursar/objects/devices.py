"""Dynamic resource allocation (``resource.k8s.io/v1``): claims, their templates, device classes and slices.

Unknown fields are ignored, because the API grows. What decides on charges is checked: numbers, modes, quantities. A
request is ``exactly`` one kind of device, or the ``firstAvailable`` of several. The bounds are those of Kubernetes, so
that an object that the API server would refuse costs nothing here either.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import field

from bursar.objects.core import Lenient, Object
from bursar.objects.decode import ManifestError, check_choice
from bursar.objects.device_selectors import LONGEST
from bursar.quantity import UNIT, QuantityError, parse

GROUP = "resource.k8s.io"
MOST_REQUESTS = 32
MOST_ALTERNATIVES = 8
MOST_SELECTORS = 32
MOST_DEVICES = 128  # of a slice
ALL = "All"
_MODES = ("", "ExactCount", ALL)
_Amount = str | int | float


class CelSelector(Lenient, frozen=True):
    expression: str = ""


class DeviceSelector(Lenient, frozen=True):
    cel: CelSelector = CelSelector()


class CapacityRequests(Lenient, frozen=True):
    requests: dict[str, _Amount] = field(default_factory=dict)


class DeviceAlternative(Lenient, frozen=True):
    """What is asked for: some devices of one class."""

    name: str = ""  # of an alternative
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    capacity: CapacityRequests = CapacityRequests()

    @property
    def number(self) -> int:
        return self.count or 1


class DeviceRequest(Lenient, frozen=True):
    name: str = ""
    exactly: DeviceAlternative | None = None
    first_available: tuple[DeviceAlternative, ...] = ()

    @property
    def alternatives(self) -> tuple[DeviceAlternative, ...]:
        return self.first_available if self.exactly is None else (self.exactly,)


class DeviceRequests(Lenient, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()


class ClaimDevices(Lenient, frozen=True):
    devices: DeviceRequests = DeviceRequests()


class AllocatedDevice(Lenient, frozen=True):
    request: str = ""  # request or request/alternative
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    consumed_capacity: dict[str, _Amount] = field(default_factory=dict)


class AllocatedDevices(Lenient, frozen=True):
    results: tuple[AllocatedDevice, ...] = ()


class ClaimAllocation(Lenient, frozen=True):
    devices: AllocatedDevices = AllocatedDevices()


class ClaimStatus(Lenient, frozen=True):
    allocation: ClaimAllocation | None = None


class ResourceClaim(Object, frozen=True):
    spec: ClaimDevices = ClaimDevices()
    status: ClaimStatus = ClaimStatus()


class ClaimTemplateSpec(Lenient, frozen=True):
    spec: ClaimDevices = ClaimDevices()


class ResourceClaimTemplate(Object, frozen=True):
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


class DeviceClassSpec(Lenient, frozen=True):
    selectors: tuple[DeviceSelector, ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Object, frozen=True):
    spec: DeviceClassSpec = DeviceClassSpec()


class Attribute(Lenient, frozen=True):
    """One of its fields is given."""

    text: str | None = field(name="string", default=None)
    number: int | None = field(name="int", default=None)
    flag: bool | None = field(name="bool", default=None)
    version: str | None = None

    @property
    def value(self) -> str | int | bool | None:
        return next((one for one in (self.text, self.number, self.flag, self.version) if one is not None), None)


class ValidRange(Lenient, frozen=True):
    min: _Amount = 0
    step: _Amount = 0


class RequestPolicy(Lenient, frozen=True):
    """How requests for capacity are rounded up."""

    default: _Amount | None = None
    valid_values: tuple[_Amount, ...] = ()
    valid_range: ValidRange | None = None


class DeviceCapacity(Lenient, frozen=True):
    value: _Amount
    request_policy: RequestPolicy = RequestPolicy()


class Counter(Lenient, frozen=True):
    value: _Amount


class ConsumedCounters(Lenient, frozen=True):
    counters: dict[str, Counter] = field(default_factory=dict)


class Device(Lenient, frozen=True):
    name: str = ""
    attributes: dict[str, Attribute] = field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = field(default_factory=dict)
    consumes_counters: tuple[ConsumedCounters, ...] = ()
    node_name: str = ""
    allow_multiple_allocations: bool = False


class DevicePool(Lenient, frozen=True):
    name: str = ""
    generation: int = 0


class SliceSpec(Lenient, frozen=True):
    driver: str = ""
    pool: DevicePool = DevicePool()
    node_name: str = ""
    devices: tuple[Device, ...] = ()


class ResourceSlice(Object, frozen=True):
    spec: SliceSpec = SliceSpec()


def check_claim(claim: ResourceClaim) -> None:
    _check_requests(claim.spec, "spec")
    allocation = claim.status.allocation
    results = () if allocation is None else allocation.devices.results
    for index, result in enumerate(results):
        for name, value in result.consumed_capacity.items():
            _check_amount(value, f"status.allocation.devices.results[{index}].consumedCapacity.{name}")


def check_template(template: ResourceClaimTemplate) -> None:
    _check_requests(template.spec.spec, "spec.spec")


def check_class(given: DeviceClass) -> None:
    _check_selectors(given.spec.selectors, "spec.selectors")


def check_slice(given: ResourceSlice) -> None:
    if not given.spec.driver:
        raise ManifestError("is required", "spec.driver")
    _check_number(len(given.spec.devices), MOST_DEVICES, "spec.devices")
    for path, value in _slice_amounts(given):
        _check_amount(value, path)


def _slice_amounts(given: ResourceSlice) -> Iterator[tuple[str, object]]:
    for index, device in enumerate(given.spec.devices):
        path = f"spec.devices[{index}]"
        for name, capacity in device.capacity.items():
            where = f"{path}.capacity.{name}"
            yield f"{where}.value", capacity.value
            policy = capacity.request_policy
            for value in (*policy.valid_values, *(() if policy.default is None else (policy.default,))):
                yield f"{where}.requestPolicy", value
            if policy.valid_range is not None:
                yield f"{where}.requestPolicy.validRange.min", policy.valid_range.min
                yield f"{where}.requestPolicy.validRange.step", policy.valid_range.step
        for consumed in device.consumes_counters:
            for name, counter in consumed.counters.items():
                yield f"{path}.consumesCounters.{name}", counter.value


def _check_requests(given: ClaimDevices, path: str) -> None:
    path = f"{path}.devices.requests"
    _check_number(len(given.devices.requests), MOST_REQUESTS, path)
    for index, request in enumerate(given.devices.requests):
        where = f"{path}[{index}]"
        if (request.exactly is None) == (not request.first_available):
            raise ManifestError("needs either exactly or firstAvailable", where)
        if request.exactly is not None:
            _check_alternative(request.exactly, f"{where}.exactly")
        _check_number(len(request.first_available), MOST_ALTERNATIVES, f"{where}.firstAvailable")
        for position, one in enumerate(request.first_available):
            if not one.name:
                raise ManifestError("is required", f"{where}.firstAvailable[{position}].name")
            _check_alternative(one, f"{where}.firstAvailable[{position}]")


def _check_alternative(given: DeviceAlternative, path: str) -> None:
    if not given.device_class_name:
        raise ManifestError("is required", f"{path}.deviceClassName")
    check_choice(given.allocation_mode, _MODES, f"{path}.allocationMode")
    if given.count < 0 or (given.count and given.allocation_mode == ALL):
        raise ManifestError("must be a positive number, and absent with allocationMode All", f"{path}.count")
    _check_selectors(given.selectors, f"{path}.selectors")
    for name, value in given.capacity.requests.items():
        _check_amount(value, f"{path}.capacity.requests.{name}")


def _check_selectors(selectors: tuple[DeviceSelector, ...], path: str) -> None:
    _check_number(len(selectors), MOST_SELECTORS, path)
    for index, selector in enumerate(selectors):
        if len(selector.cel.expression) > LONGEST:
            raise ManifestError(f"is longer than {LONGEST} characters", f"{path}[{index}].cel.expression")


def _check_number(count: int, most: int, path: str) -> None:
    if count > most:
        raise ManifestError(f"has {count} entries, and at most {most} are allowed", path)


def _check_amount(value: object, path: str) -> None:
    try:
        parse(value, UNIT)
    except QuantityError as error:
        raise ManifestError(str(error), path) from None
