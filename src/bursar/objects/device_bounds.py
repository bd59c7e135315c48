"""What requests for devices cost at most, and what allocated devices cost.

``DeviceInventory`` holds the devices of all ResourceSlices. A request is charged the upper bound over the devices that
its class and selectors may match: the most of each dimension, times the number of devices; with allocationMode All the
most that one node has. Of alternatives the most in each dimension counts. Administrators' access costs nothing.

A bound is computed once for each *shape* (class, selectors, mode, capacity) and kept by slice, so that a change of one
slice reads that slice again and no other. Devices that differ in nothing that is read are judged once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from sys import intern
from typing import NamedTuple

from bursar.objects.device_mapping import DeviceCharge, MappingTable, resource_of
from bursar.objects.device_selectors import QualifiedName, SelectorTerm, Value, matches, terms_of
from bursar.objects.devices import ALL, AllocatedDevice, Device, DeviceAlternative, DeviceCapacity, ResourceSlice
from bursar.objects.gpu_models import model_capacity
from bursar.quantity import MILLI, QuantityError, parse
from bursar.resources import Dimension, dimension

Amounts = dict[str, int]
_SHAPES_KEPT = 512

UNMAPPED = "devices.unmapped"
NO_DEVICES = "devices.none"
NO_CLASS = "devices.class"
NO_ATTRIBUTE = "devices.attribute"
OUT_OF_RANGE = "devices.out-of-range"
OK = ("", "")


class DeviceBound(NamedTuple):
    """Amounts by dimension, or why there are none: (code, sentence). ``unknown``: a model without known tflops."""

    amounts: Amounts
    waits: tuple[str, str] = OK
    unknown: str = ""


class DeviceFacts:
    """One device, with names of attributes and capacities qualified by their domain."""

    def __init__(self, device: Device, driver: str, node: str) -> None:
        self.driver = driver
        self.name = device.name
        self.node = device.node_name or node
        self.shared = device.allow_multiple_allocations
        self.capacity = {_qualified(name, driver): one for name, one in device.capacity.items()}
        self.attributes: dict[QualifiedName, Value] = {}
        for name, attribute in device.attributes.items():
            value = attribute.value
            if value is not None:
                self.attributes[_qualified(name, driver)] = value
        self.own = {name: value for (domain, name), value in self.attributes.items() if domain == driver}
        self.contents = intern(repr((driver, self.shared, sorted(device.capacity.items()), device.consumes_counters)))
        self.counters: dict[str, list[object]] = {}
        for consumed in device.consumes_counters:
            for name, counter in consumed.counters.items():
                self.counters.setdefault(name, []).append(counter.value)

    @cached_property
    def exact_capacity(self) -> dict[QualifiedName, int]:
        """Capacities in thousandths, for selectors; one beyond what can be counted so matches nothing."""
        found: dict[QualifiedName, int] = {}
        for name, one in self.capacity.items():
            try:
                found[name] = parse(one.value, MILLI)
            except QuantityError:
                continue
        return found

    def matches(self, terms: tuple[SelectorTerm, ...]) -> bool:
        return matches(terms, self.driver, self.attributes, self.exact_capacity)


def _qualified(name: str, driver: str) -> QualifiedName:
    domain, slash, last = name.rpartition("/")
    return (domain, last) if slash else (driver, name)


class PublishedSlice:
    """One slice as it is used."""

    def __init__(self, given: ResourceSlice) -> None:
        spec = given.spec
        self.driver = spec.driver
        self.pool = spec.pool.name
        self.generation = spec.pool.generation
        self.devices = [DeviceFacts(device, spec.driver, spec.node_name) for device in spec.devices]
        self.by_name = {device.name: device for device in self.devices}


class RequestShape(NamedTuple):
    """What decides on the bound of a request, apart from the number of devices."""

    device_class: str
    expressions: tuple[str, ...]  # of the class and the request
    every: bool  # allocationMode All
    capacity: tuple[tuple[str, str], ...]


class _SliceBound:
    """What one slice adds to the bound of a shape."""

    __slots__ = ("by_node", "most", "of", "problem", "unknown")

    def __init__(self, of: PublishedSlice) -> None:
        self.of = of
        self.most: Amounts | None = None  # None: no device matches
        self.by_node: dict[str, Amounts] = {}  # for allocationMode All
        self.problem = OK
        self.unknown = ""


class DeviceInventory:
    """The devices that drivers publish. Of a pool only the newest generation counts."""

    def __init__(self, mappings: MappingTable) -> None:
        self.mappings = mappings
        self._slices: dict[str, PublishedSlice] = {}
        self._pools: dict[tuple[str, str], dict[str, PublishedSlice]] = {}  # by driver and pool: slices by name
        self._kept: OrderedDict[RequestShape, dict[str, _SliceBound]] = OrderedDict()

    def fork(self) -> DeviceInventory:
        """A copy to go on with."""
        found = DeviceInventory(self.mappings)
        found._slices = dict(self._slices)
        found._pools = {pool: dict(slices) for pool, slices in self._pools.items()}
        return found

    def remap(self, mappings: MappingTable) -> None:
        self.mappings = mappings
        self._kept.clear()

    def take(self, name: str, given: ResourceSlice | None) -> None:
        """A slice was added, changed or (None) deleted."""
        known = self._slices.pop(name, None)
        if known is not None:
            pool = self._pools[known.driver, known.pool]
            del pool[name]
            if not pool:
                del self._pools[known.driver, known.pool]
        if given is not None:
            one = self._slices[name] = PublishedSlice(given)
            self._pools.setdefault((one.driver, one.pool), {})[name] = one

    def _current(self) -> Iterator[tuple[str, PublishedSlice]]:
        for slices in self._pools.values():
            newest = max(one.generation for one in slices.values())
            yield from ((name, one) for name, one in slices.items() if one.generation == newest)

    def device(self, driver: str, pool: str, name: str) -> DeviceFacts | None:
        slices = self._pools.get((driver, pool), {}).values()
        newest = max((one.generation for one in slices), default=0)
        found = (one.by_name.get(name) for one in slices if one.generation == newest)
        return next((device for device in found if device is not None), None)

    # Requests

    def bound(self, asked: DeviceAlternative, of_class: Iterable[str]) -> DeviceBound:
        """The bound of one kind of devices; ``of_class``: the selectors of its DeviceClass."""
        if asked.admin_access:
            return DeviceBound({})
        every = asked.allocation_mode == ALL
        capacity = tuple(sorted((name, str(value)) for name, value in asked.capacity.requests.items()))
        expressions = (*of_class, *(selector.cel.expression for selector in asked.selectors))
        found = self._of_shape(RequestShape(asked.device_class_name, expressions, every, capacity))
        if every or found.waits != OK or asked.number == 1:
            return found
        return found._replace(amounts={name: amount * asked.number for name, amount in found.amounts.items()})

    def _of_shape(self, shape: RequestShape) -> DeviceBound:
        judge = _Judge(self, shape)
        known = self._kept.setdefault(shape, {})
        self._kept.move_to_end(shape)
        if len(self._kept) > _SHAPES_KEPT:
            self._kept.popitem(last=False)
        most: Amounts | None = None
        by_node: dict[str, Amounts] = {}
        problem, unknown = OK, ""
        fresh: dict[str, _SliceBound] = {}
        for name, one in self._current():
            found = known.get(name)
            if found is None or found.of is not one:
                found = judge.slice(one)
            fresh[name] = found
            problem, unknown = max(problem, found.problem), max(unknown, found.unknown)
            if found.most is not None:
                most = most_of(most or {}, found.most)
            for node, amounts in found.by_node.items():
                add(by_node.setdefault(node, {}), amounts)
        self._kept[shape] = fresh
        if problem != OK:
            return DeviceBound({}, problem)
        if most is None:
            return DeviceBound({}, (NO_DEVICES, f"no ResourceSlice has a device for DeviceClass {shape.device_class}"))
        return DeviceBound(_on_one_node(by_node) if shape.every else most, OK, unknown)

    # Devices

    def cost(
        self, device: DeviceFacts, device_class: str, wanted: Mapping[str, object], consumed: Mapping[str, object]
    ) -> DeviceBound:
        """What one device costs; ``wanted`` of its capacity, or ``consumed`` once it is allocated."""
        charges = self.mappings.charges(device_class, device.driver, device.own)
        if charges is None:
            if not self.mappings.waits:
                return DeviceBound({})
            problem = f"DeviceClass {device_class} of driver {device.driver} is not mapped: name it in spec.devices"
            return DeviceBound({}, (UNMAPPED, f"{problem}.mappings of the Configuration"))
        try:
            return _cost(device, charges, wanted, consumed)
        except QuantityError as error:
            return DeviceBound({}, (OUT_OF_RANGE, f"a device of driver {device.driver}: {error}"))

    def allocated(self, result: AllocatedDevice, device_class: str, bound: Callable[[], DeviceBound]) -> DeviceBound:
        """What an allocated device costs; ``bound`` of its request where the device is not published any more."""
        if result.admin_access:
            return DeviceBound({})
        device = self.device(result.driver, result.pool, result.device)
        return bound() if device is None else self.cost(device, device_class, {}, result.consumed_capacity)


class _Judge:
    """Judges the devices of slices for one shape. Those that differ in nothing that is read are judged once."""

    def __init__(self, inventory: DeviceInventory, shape: RequestShape) -> None:
        self._inventory = inventory
        self._shape = shape
        self._terms = tuple(term for expression in shape.expressions for term in terms_of(expression))
        self._names = tuple({term.name for term in self._terms if term.field == "attributes"})
        self._wanted = dict(shape.capacity)
        self._judged: dict[tuple[object, ...], DeviceBound | None] = {}

    def slice(self, one: PublishedSlice) -> _SliceBound:
        found = _SliceBound(one)
        for device in one.devices:
            bound = self._device(device)
            if bound is None:
                continue
            found.problem, found.unknown = max(found.problem, bound.waits), max(found.unknown, bound.unknown)
            found.most = most_of(found.most or {}, bound.amounts)
            if self._shape.every:
                add(found.by_node.setdefault(device.node, {}), bound.amounts)
        return found

    def _device(self, device: DeviceFacts) -> DeviceBound | None:
        """None: it does not match."""
        values = [device.attributes.get(name) for name in self._names]
        values += [device.own.get(name) for name in self._inventory.mappings.attributes]
        key = (device.contents, *((type(value), value) for value in values))
        if key not in self._judged:
            fits = device.matches(self._terms)
            cost = self._inventory.cost(device, self._shape.device_class, self._wanted, {}) if fits else None
            self._judged[key] = cost
        return self._judged[key]


def _cost(
    device: DeviceFacts, charges: Iterable[DeviceCharge], wanted: Mapping[str, object], consumed: Mapping[str, object]
) -> DeviceBound:
    asked = {_qualified(name, device.driver): value for name, value in wanted.items()}
    taken = {_qualified(name, device.driver): value for name, value in consumed.items()}
    amounts: Amounts = {}
    unknown = ""
    for charge in charges:
        resource = resource_of(charge, device.own)
        if resource.missing:
            problem = f"a device of driver {device.driver} lacks {resource.missing}, by which it is charged"
            return DeviceBound({}, (NO_ATTRIBUTE, problem))
        if charge.model:
            amount = _tflops(device, charge.model)
            unknown = unknown if amount else str(device.own.get(charge.model, "without a name"))
        else:
            amount = _amount(device, charge, resource.name, asked, taken)
        if amount:
            amounts[resource.name] = amounts.get(resource.name, 0) + amount
    return DeviceBound(amounts, OK, unknown)


def _amount(
    device: DeviceFacts,
    charge: DeviceCharge,
    resource: str,
    asked: Mapping[QualifiedName, object],
    taken: Mapping[QualifiedName, object],
) -> int:
    of = dimension(resource)
    if charge.count is not None:
        return charge.count * of.resolution
    if charge.counter:
        return sum(of.parse(value) for value in device.counters.get(charge.counter, ()))
    name = _qualified(charge.capacity, device.driver)
    if name in taken:
        return of.parse(taken[name])
    capacity = device.capacity.get(name)
    if capacity is None:
        return 0
    return _consumed(capacity, asked.get(name), of) if device.shared else of.parse(capacity.value)


def _consumed(capacity: DeviceCapacity, wanted: object, of: Dimension) -> int:
    """What a request takes of a capacity that several claims share, rounded as its policy says."""
    read = of.parse
    policy = capacity.request_policy
    asked = policy.default if wanted is None else wanted
    if asked is None:
        return read(capacity.value)
    amount = read(asked)
    if policy.valid_values:
        enough = [value for value in map(read, policy.valid_values) if value >= amount]
        return min(enough, default=amount)
    if policy.valid_range is not None:
        least, step = read(policy.valid_range.min), read(policy.valid_range.step)
        over = max(0, amount - least)
        return least + (-(-over // step) * step if step else over)
    return amount


def _tflops(device: DeviceFacts, attribute: str) -> int:
    """Thousandths of tflops: those of the GPU, or the part of a MIG device, whose profile says how many slices it has.

    A GPU has seven slices (an A30 four); ``1g.10gb`` takes one. 0 where the model is not known.
    """
    model = device.own.get(attribute)
    whole = model_capacity(model).tflops if isinstance(model, str) else 0
    profile = device.own.get("profile")
    if device.own.get("type") != "mig" or not isinstance(profile, str):
        return whole
    slices = profile.partition(".")[2] if "c." in profile else profile
    number = slices.partition("g")[0]
    if not (number.isascii() and number.isdigit()):
        return whole
    return min(whole, -(-whole * int(number) // (4 if "A30" in str(model).upper() else 7)))


def most_of(left: Amounts, right: Amounts) -> Amounts:
    """The larger amount of each dimension."""
    found = dict(left)
    for name, amount in right.items():
        found[name] = max(found.get(name, 0), amount)
    return found


def add(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _on_one_node(by_node: dict[str, Amounts]) -> Amounts:
    """The most that one node has, with the devices that every node may use."""
    anywhere = by_node.pop("", {})
    found: Amounts = {}
    for amounts in by_node.values():
        found = most_of(found, amounts)
    total = dict(anywhere)
    add(total, found)
    return total
