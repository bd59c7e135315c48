"""What requests for devices cost at most, and what allocated devices cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bursar.objects import device_bounds
from bursar.objects.decode import ManifestError
from bursar.objects.device_bounds import DeviceBound, DeviceInventory
from bursar.objects.device_mapping import DeviceCharge, DeviceMapping, DevicesSection, MappingTable, check_devices
from bursar.objects.devices import AllocatedDevice, DeviceAlternative, ResourceSlice
from tests.control.devices_world import DRIVER, GPU, device, gpus, resource_slice

GI = 2**30


def inventory(*slices: dict[str, Any], section: DevicesSection | None = None) -> DeviceInventory:
    found = DeviceInventory(MappingTable(section))
    for one in slices:
        found.take(one["metadata"]["name"], msgspec.convert(one, ResourceSlice))
    return found


def bound(found: DeviceInventory, *expressions: str, of: str = DRIVER, **fields: object) -> DeviceBound:
    asked = msgspec.convert({"deviceClassName": of, **fields}, DeviceAlternative)
    return found.bound(asked, expressions)


def mig(name: str, profile: str, memory: str) -> dict[str, Any]:
    return device(name, memory, type="mig", profile=profile, productName="NVIDIA H100 80GB HBM3")


def test_the_most_of_each_dimension_times_the_number() -> None:
    found = inventory(gpus("a", 2, "80Gi"), gpus("b", 2, "141Gi", productName="NVIDIA A100-SXM4-80GB"))
    assert bound(found, count=3).amounts == {GPU: 3, "vram": 3 * 141 * GI, "tflops": 3 * 989_000}


def test_selectors_leave_devices_out() -> None:
    found = inventory(gpus("a", 2, "80Gi"), gpus("b", 2, "141Gi"))
    smaller = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('100Gi')) < 0"
    assert bound(found, smaller).amounts["vram"] == 80 * GI
    assert bound(found, "device.driver == 'x'").waits[0] == "devices.none"


def test_all_is_the_most_that_one_node_has() -> None:
    found = inventory(gpus("a", 2), gpus("b", 5), gpus("c", 1, "400Gi"))
    assert bound(found, allocationMode="All").amounts == {GPU: 5, "vram": 400 * GI, "tflops": 5 * 989_000}


def test_all_counts_devices_that_every_node_may_use() -> None:
    shared = resource_slice("", device("fabric"), name="fabric")
    assert bound(inventory(gpus("a", 2), shared), allocationMode="All").amounts[GPU] == 3


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = resource_slice("a", device("gpu-0", "400Gi"), name="old")
    found = inventory(old, resource_slice("a", device("gpu-0", "80Gi"), generation=2, name="new"))
    assert bound(found).amounts["vram"] == 80 * GI
    found.take("new", None)
    assert bound(found).amounts["vram"] == 400 * GI


def test_a_mig_device_is_charged_by_its_profile() -> None:
    found = inventory(resource_slice("a", mig("m", "3g.40gb", "40Gi")))
    expected = {"nvidia.com/mig-3g.40gb": 1, "vram": 40 * GI, "tflops": -(-989_000 * 3 // 7)}
    assert bound(found, of="mig.nvidia.com").amounts == expected


def test_a_mig_device_without_a_profile_is_not_guessed() -> None:
    found = inventory(resource_slice("a", device("m", type="mig")))
    assert bound(found, of="mig.nvidia.com").waits[0] == "devices.attribute"


def consumable(policy: dict[str, Any], memory: str = "80Gi") -> DeviceInventory:
    one = device("gpu-0", memory) | {"allowMultipleAllocations": True}
    one["capacity"]["memory"]["requestPolicy"] = policy
    return inventory(resource_slice("a", one))


@pytest.mark.parametrize(
    ("policy", "wanted", "expected"),
    [
        ({}, None, 80),
        ({}, "10Gi", 10),
        ({"default": "5Gi"}, None, 5),
        ({"default": "5Gi", "validValues": ["5Gi", "20Gi", "40Gi"]}, "6Gi", 20),
        ({"default": "5Gi", "validRange": {"min": "4Gi", "step": "4Gi"}}, "9Gi", 12),
        ({"default": "5Gi", "validRange": {"min": "4Gi"}}, "1Gi", 4),
        ({"default": "5Gi", "validRange": {"min": "4Gi"}}, "9Gi", 9),
    ],
)
def test_consumable_capacity_is_rounded_as_its_policy_says(
    policy: dict[str, Any], wanted: str | None, expected: int
) -> None:
    asked = {"requests": {"memory": wanted} if wanted else {}}
    assert bound(consumable(policy), capacity=asked).amounts["vram"] == expected * GI


def test_counters_are_a_source() -> None:
    slices = device("m") | {"consumesCounters": [{"counterSet": "gpu-0", "counters": {"slices": {"value": "3"}}}]}
    charge = (DeviceCharge("example.com/slices", counter="slices"),)
    section = DevicesSection(mappings=(DeviceMapping(driver=DRIVER, charge=charge),))
    found = inventory(resource_slice("a", slices), section=section)
    assert bound(found, count=2).amounts == {"example.com/slices": 6}


def test_a_model_without_known_tflops_is_named() -> None:
    found = bound(inventory(gpus("a", 1, productName="Foo 1000")))
    assert (found.amounts, found.unknown) == ({GPU: 1, "vram": 80 * GI}, "Foo 1000")


def test_a_change_of_one_slice_reads_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    found = inventory(*(gpus(f"n{i}", 1) for i in range(10)))
    bound(found)
    read: list[str] = []
    monkeypatch.setattr(device_bounds._Judge, "slice", _reading(read))
    found.take("n3-gpu.nvidia.com", msgspec.convert(gpus("n3", 2), ResourceSlice))
    bound(found)
    assert read == ["n3"]


def _reading(read: list[str]) -> Callable[..., Any]:
    of_slice = device_bounds._Judge.slice

    def reading(judge: Any, one: Any) -> Any:  # noqa: ANN401
        read.append(one.pool)
        return of_slice(judge, one)

    return reading


def test_an_allocated_device_costs_what_it_is() -> None:
    found = inventory(gpus("a", 2, "80Gi"), gpus("b", 2, "141Gi"))
    result = AllocatedDevice("gpu", DRIVER, "a", "gpu-1")
    assert found.allocated(result, DRIVER, lambda: DeviceBound({})).amounts["vram"] == 80 * GI
    gone = AllocatedDevice("gpu", DRIVER, "a", "gpu-9")
    assert found.allocated(gone, DRIVER, lambda: DeviceBound({"vram": 7})).amounts == {"vram": 7}


def test_consumed_capacity_is_what_is_charged() -> None:
    result = AllocatedDevice("gpu", DRIVER, "a", "gpu-0", consumed_capacity={"memory": "12Gi"})
    assert consumable({}).allocated(result, DRIVER, lambda: DeviceBound({})).amounts["vram"] == 12 * GI


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"unmapped": "maybe"}, "spec.devices.unmapped"),
        ({"mappings": [{"charge": []}]}, "spec.devices.mappings[0]"),
        ({"mappings": [{"driver": "d", "charge": [{"resource": "vram"}]}]}, "spec.devices.mappings[0].charge[0]"),
        (
            {"mappings": [{"driver": "d", "charge": [{"resource": "a b", "count": 1}]}]},
            "spec.devices.mappings[0].charge[0].resource",
        ),
        (
            {"mappings": [{"driver": "d", "charge": [{"resource": "a", "count": -1}]}]},
            "spec.devices.mappings[0].charge[0].count",
        ),
    ],
)
def test_a_wrong_mapping_is_named(section: dict[str, Any], path: str) -> None:
    with pytest.raises(ManifestError) as caught:
        check_devices(msgspec.convert(section, DevicesSection))
    assert caught.value.path == path
