"""What devices are charged as: ``Configuration.spec.devices`` maps classes and drivers to dimensions.

A mapping names a DeviceClass, a driver, attributes, or several of them; of those that fit a device the first counts,
and the built-in ones come last. Each charge takes one dimension from one source: a number for each device (``count``),
a capacity (``capacity``, of which a request may consume a part), a counter that the device consumes (``counter``), or
the tflops of the GPU model that an attribute names (``model``). ``{attribute}`` in a resource stands for the value of
that attribute: ``nvidia.com/mig-{profile}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import field

from bursar.objects.core import Part
from bursar.objects.decode import ManifestError, check_choice, join
from bursar.objects.validation import is_qualified

WAIT = "wait"
IGNORE = "ignore"
_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]{0,31})\}")


class DeviceCharge(Part, frozen=True):
    """One dimension, and the source of its amount."""

    resource: str
    count: int | None = None
    capacity: str = ""
    counter: str = ""
    model: str = ""


class DeviceMapping(Part, frozen=True):
    device_class: str = ""
    driver: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    charge: tuple[DeviceCharge, ...] = ()  # none: devices that are not charged


class DevicesSection(Part, frozen=True):
    """``Configuration.spec.devices``."""

    unmapped: str = WAIT
    mappings: tuple[DeviceMapping, ...] = ()


_GPU = (
    DeviceCharge("nvidia.com/gpu", count=1),
    DeviceCharge("vram", capacity="memory"),
    DeviceCharge("tflops", model="productName"),
)
_MIG = (
    DeviceCharge("nvidia.com/mig-{profile}", count=1),
    DeviceCharge("vram", capacity="memory"),
    DeviceCharge("tflops", model="productName"),
)
BUILT_IN = (
    DeviceMapping(driver="gpu.nvidia.com", attributes={"type": "mig"}, charge=_MIG),
    DeviceMapping(device_class="mig.nvidia.com", charge=_MIG),
    DeviceMapping(driver="gpu.nvidia.com", charge=_GPU),
    DeviceMapping(device_class="gpu.nvidia.com", charge=_GPU),
)


class MappingTable:
    """The mappings in force, in their order."""

    def __init__(self, section: DevicesSection | None = None) -> None:
        given = DevicesSection() if section is None else section
        self.waits = given.unmapped != IGNORE
        self._mappings = (*given.mappings, *BUILT_IN)
        names = {name for one in self._mappings for name in one.attributes}
        for charge in (charge for one in self._mappings for charge in one.charge):
            names |= {charge.model} - {""} | set(_PLACEHOLDER.findall(charge.resource))
        self.attributes = tuple(sorted(names))  # of a driver's own domain, by which devices are told apart

    def charges(
        self, device_class: str, driver: str, attributes: Mapping[str, object]
    ) -> tuple[DeviceCharge, ...] | None:
        """What a device is charged as, ``attributes`` being those of the driver's own domain; None: not mapped."""
        for one in self._mappings:
            if (
                one.device_class in {"", device_class}
                and one.driver in {"", driver}
                and all(attributes.get(name) == value for name, value in one.attributes.items())
            ):
                return one.charge
        return None


def check_devices(section: DevicesSection) -> None:
    """Raises ``ManifestError`` with the path in the Configuration."""
    path = "spec.devices"
    check_choice(section.unmapped, (WAIT, IGNORE), f"{path}.unmapped")
    for index, mapping in enumerate(section.mappings):
        where = f"{path}.mappings[{index}]"
        if not (mapping.device_class or mapping.driver or mapping.attributes):
            raise ManifestError("names no deviceClass, driver or attributes", where)
        for position, charge in enumerate(mapping.charge):
            _check_charge(charge, f"{where}.charge[{position}]")


def _check_charge(charge: DeviceCharge, path: str) -> None:
    if not is_qualified(_PLACEHOLDER.sub("x", charge.resource)):
        raise ManifestError(f"{charge.resource!r:.80} is not the name of a resource", join(path, "resource"))
    sources = [charge.count is not None, charge.capacity != "", charge.counter != "", charge.model != ""]
    if sum(sources) != 1:
        raise ManifestError("needs exactly one source: count, capacity, counter or model", path)
    if charge.count is not None and not 0 <= charge.count <= 1_000_000:
        raise ManifestError(f"{charge.count} is not a number from 0 to 1000000", join(path, "count"))


class ChargedResource(NamedTuple):
    """The resource of a charge on one device, and the attributes that it lacks."""

    name: str
    missing: str


def resource_of(charge: DeviceCharge, attributes: Mapping[str, object]) -> ChargedResource:
    """The resource with the values of the attributes that it names."""
    missing = ""

    def value(found: re.Match[str]) -> str:
        nonlocal missing
        given = attributes.get(found[1])
        if not isinstance(given, str) or not given:
            missing = found[1]
            return ""
        return given

    name = _PLACEHOLDER.sub(value, charge.resource) if "{" in charge.resource else charge.resource
    return ChargedResource(name, missing or ("" if is_qualified(name) else "usable attributes"))
