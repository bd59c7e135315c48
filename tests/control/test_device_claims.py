"""Pods with claims of devices are charged in quotas, in the embedded cluster."""

from __future__ import annotations

import pytest

from bursar.objects.decode import ManifestError
from tests.control.devices_world import (
    GPU,
    claim,
    configuration,
    device_class,
    exactly,
    first_of,
    generated,
    gpus,
    result,
    template,
    user,
    world,
)
from tests.sim.steps import TestBed


def charged(bed: TestBed, key: str) -> dict[str, str]:
    found = bed.controller.claim(key)
    assert found is not None
    return found.spec.devices.show()


def used(bed: TestBed) -> int:
    return bed.engine.state.accounts["elastic/ElasticQuota/default/quota"].used.amount(GPU)


def test_a_pod_with_a_template_is_charged_in_its_quota() -> None:
    bed = TestBed(*world(), template("two", exactly(2)))
    bed.give(user("a", of_template="two"), user("b", of_template="two"), user("c", of_template="two"))
    assert bed.phases() == {"default/a": "Running", "default/b": "Running", "default/c": "Pending"}
    assert charged(bed, "default/a") == {GPU: "2", "tflops": "1978", "vram": "160Gi"}
    assert bed.see("default/c").reason.startswith("elastic.")
    bed.take("Pod/default/a")
    assert bed.see("default/c").phase == "Running"


def test_a_claim_that_is_not_there_is_waited_for() -> None:
    bed = TestBed(*world())
    bed.give(user("a", named="one"))
    assert bed.see("default/a").reason == "devices.claim"
    bed.give(claim("one", exactly()))
    assert bed.see("default/a").phase == "Running"


@pytest.mark.parametrize(
    ("missing", "reason"),
    [("DeviceClass/gpu.nvidia.com", "devices.class"), ("ResourceSlice/n1-gpu.nvidia.com", "devices.none")],
)
def test_a_pod_waits_for_the_class_and_for_devices(missing: str, reason: str) -> None:
    bed = TestBed(*world(), claim("one", exactly()))
    bed.take(missing)
    bed.give(user("a", named="one"))
    assert bed.see("default/a").reason == reason
    bed.give(device_class(), gpus("n1", 8))
    assert bed.see("default/a").phase == "Running"


def test_a_class_without_a_mapping_is_named_or_ignored() -> None:
    other = gpus("n1", 1) | {"metadata": {"name": "other"}}
    other["spec"] |= {"driver": "nic.example.com"}
    nics = device_class("nics", "device.driver == 'nic.example.com'")
    bed = TestBed(*world(), other, nics, claim("nic", exactly(1, "nics")))
    bed.give(user("a", named="nic"))
    assert bed.see("default/a").reason == "devices.unmapped"
    assert "DeviceClass nics" in bed.see("default/a").message
    bed.give(configuration(unmapped="ignore"))
    assert bed.see("default/a").phase == "Running"
    assert charged(bed, "default/a") == {}


def test_an_allocation_corrects_the_charge() -> None:
    bed = TestBed(*world(gpus("n1", 4), gpus("n2", 4, "141Gi")), template("any", exactly()))
    bed.give(user("a", of_template="any"))
    assert charged(bed, "default/a")["vram"] == "141Gi"
    bed.give(generated("a-gpu-x", "a", exactly(), allocated=[result("gpu-1")]))
    assert charged(bed, "default/a")["vram"] == "80Gi"


def test_results_name_request_and_alternative() -> None:
    big = first_of(exactly(2), exactly(1))
    bed = TestBed(*world(), claim("one", big))
    bed.give(user("a", named="one"))
    assert charged(bed, "default/a")[GPU] == "2"
    bed.give(claim("one", big, allocated=[result("gpu-0", "gpu/choice-1")]))
    assert charged(bed, "default/a")[GPU] == "1"


def test_a_shared_claim_is_charged_once_and_then_to_the_next_pod() -> None:
    bed = TestBed(*world(), claim("shared", exactly(3)), claim("own", exactly(3)))
    bed.give(user("a", named="shared"))
    bed.give(user("b", named="shared"))
    assert bed.phases() == {"default/a": "Running", "default/b": "Running"}
    assert (charged(bed, "default/a")[GPU], charged(bed, "default/b"), used(bed)) == ("3", {}, 3)
    bed.take("Pod/default/a")
    assert (charged(bed, "default/b")[GPU], used(bed)) == ("3", 3)
    bed.give(user("c", named="own"))
    assert bed.see("default/c").phase == "Pending"


def test_a_shared_claim_is_passed_on_even_above_the_quota() -> None:
    bed = TestBed(*world(), claim("shared", exactly(4)))
    bed.give(user("a", named="shared"), user("b", named="shared"))
    bed.give({**world()[-1], "spec": {"min": {GPU: 1}, "max": {GPU: 1}}})
    bed.take("Pod/default/a")
    assert charged(bed, "default/b")[GPU] == "4"
    assert bed.see("default/b").phase == "Running"
    assert [event.key for event in bed.events if event.reason == "DevicesAboveQuota"] == ["default/b"]


def test_a_gang_that_shares_a_claim_is_charged_once() -> None:
    gang = {"bursar.dev/group": "job", "bursar.dev/group-size": "2"}
    bed = TestBed(*world(), claim("shared", exactly(4)))
    bed.give(user("a", named="shared", labels=gang), user("b", named="shared", labels=gang))
    assert bed.phases() == {"default/a": "Running", "default/b": "Running"}
    assert used(bed) == 4


def test_a_claim_made_anew_before_allocation_evicts_the_pod_that_it_outgrew() -> None:
    bed = TestBed(*world(), claim("one", exactly(1)))
    bed.give(user("a", named="one"))
    bed.take("ResourceClaim/default/one")
    assert charged(bed, "default/a")[GPU] == "1"
    bed.give(claim("one", exactly(4)))
    assert bed.see("default/a").phase == "Evicted"
    assert bed.see("default/a").reason == "devices.remade"
    assert used(bed) == 0


def test_a_claim_made_anew_and_smaller_is_charged_as_it_is_now() -> None:
    bed = TestBed(*world(), claim("one", exactly(4)))
    bed.give(user("a", named="one"))
    bed.take("ResourceClaim/default/one")
    bed.give(claim("one", exactly(2)))
    assert (bed.see("default/a").phase, used(bed)) == ("Running", 2)


def test_an_extended_resource_of_a_class_is_charged_once_by_the_pod() -> None:
    bed = TestBed(*world())
    bed.give(device_class(extended=GPU))
    made = user("a", named="x")
    del made["spec"]["resourceClaims"]
    made["spec"]["containers"][0]["resources"] = {"limits": {GPU: 3}}
    bed.give(made)
    assert (bed.see("default/a").phase, used(bed)) == ("Running", 3)
    assert charged(bed, "default/a") == {GPU: "3", "tflops": "2967", "vram": "240Gi"}
    other = {**made, "metadata": {**made["metadata"], "name": "b"}}
    resources = {"limits": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 2}}
    other["spec"] = {"containers": [{"name": "main", "resources": resources}]}
    bed.give(other)
    assert bed.see("default/b").reason.startswith("elastic.")


def test_a_class_that_comes_later_stands_for_an_extended_resource() -> None:
    other = "example.com/gpu"
    bed = TestBed(*world())
    made = user("a", named="x")
    del made["spec"]["resourceClaims"]
    made["spec"]["containers"][0]["resources"] = {"limits": {other: 3}}
    bed.give(made)
    assert bed.see("default/a").reason == "nodes.none"
    bed.give(device_class(extended=other))
    assert (bed.see("default/a").phase, used(bed)) == ("Running", 3)


def test_a_pod_that_runs_with_devices_that_are_not_mapped_may_change() -> None:
    bed = TestBed(*world(), claim("one", exactly(1, "nics")))
    bed.give(user("a", named="one", nodeName="n1"))
    assert bed.see("default/a").phase == "Running"
    bed.give(user("a", named="one", nodeName="n1", labels={"team": "x"}))
    assert [event.reason for event in bed.events if event.type == "Warning"] == []


def test_what_a_claim_asks_for_never_changes() -> None:
    bed = TestBed(*world(), claim("one", exactly(1)))
    with pytest.raises(ManifestError, match=r"ResourceClaim default/one: spec: is fixed"):
        bed.give(claim("one", exactly(2)))
    bed.give(claim("one", exactly(1), allocated=[result("gpu-0")]))


def test_a_running_pod_keeps_its_charge_while_devices_are_gone() -> None:
    bed = TestBed(*world(), claim("one", exactly(2)))
    bed.give(user("a", named="one"))
    bed.take("ResourceSlice/n1-gpu.nvidia.com")
    assert used(bed) == 2
    bed.give(user("a", named="one", labels={"team": "x"}))
    assert (bed.see("default/a").phase, used(bed)) == ("Running", 2)
    bed.take("ResourceClaim/default/one")
    assert used(bed) == 2


def test_a_pod_with_more_claims_than_are_read_waits() -> None:
    bed = TestBed(*world(), claim("one", exactly(1)))
    many = user("a", named="one")
    many["spec"]["resourceClaims"] = [{"name": f"gpu-{i}", "resourceClaimName": "one"} for i in range(33)]
    bed.give(many)
    assert bed.see("default/a").reason == "devices.too-many"


def test_a_claim_for_more_than_can_be_counted_waits() -> None:
    bed = TestBed(*world(), claim("one", exactly(2**50)))
    bed.give(user("a", named="one"))
    assert bed.see("default/a").reason == "devices.out-of-range"


def gpu_quota(**spec: object) -> dict[str, object]:
    return {
        "apiVersion": "tensor-fusion.ai/v1",
        "kind": "GPUResourceQuota",
        "metadata": {"name": "quota", "namespace": "default"},
        "spec": spec,
    }


def test_a_quota_of_the_namespace_counts_devices_as_one_worker() -> None:
    bed = TestBed(*world()[:-1], template("two", exactly(2)), template("three", exactly(3)))
    bed.give(user("early", of_template="two"))
    single = {"maxGPUCount": 2}
    bed.give(gpu_quota(total={"requests": {"tflops": "4000", "vram": "330Gi"}}, single=single))
    bed.give(user("a", of_template="two"), user("b", of_template="two"), user("big", of_template="three"))
    assert bed.see("default/a").phase == "Running"
    assert bed.see("default/b").reason == "total.max.tflops.request"
    assert bed.see("default/big").reason == "single.max.gpuCount.limit"
    used = bed.engine.state.accounts["limits/default"].used
    assert [used.amount(name) for name in ("requests.tflops", "limits.vram", "workers")] == [3_956_000, 320 * 2**30, 2]


def test_a_model_without_known_tflops_is_named_where_tflops_are_limited() -> None:
    slices = gpus("n1", 2, productName="Foo 1000")
    bed = TestBed(*world(slices)[:-1], template("one", exactly(1)))
    bed.give(gpu_quota(total={"requests": {"tflops": "4000"}}), user("a", of_template="one"))
    assert bed.see("default/a").reason == "limits.capacity"
    assert "Foo 1000" in bed.see("default/a").message
    bed.give(gpu_quota(total={"requests": {"vram": "80Gi"}}))
    assert bed.see("default/a").phase == "Running"


def test_administrators_access_costs_nothing() -> None:
    bed = TestBed(*world(), claim("look", exactly(1, adminAccess=True, allocationMode="All")))
    bed.give(user("a", named="look"))
    assert (bed.see("default/a").phase, charged(bed, "default/a")) == ("Running", {})


def test_pods_of_one_claim_under_different_quotas_wait() -> None:
    tree = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "pool", "namespace": "default"},
        "spec": {"min": {"cpu": 10}, "max": {"cpu": 10}},
    }
    bed = TestBed(*world(), tree, claim("shared", exactly(1)))
    chosen = {"quota.scheduling.koordinator.sh/name": "pool"}
    bed.give(user("a", named="shared", labels=chosen), user("b", named="shared"))
    assert {bed.see("default/a").reason, bed.see("default/b").reason} == {"devices.shared"}
    bed.take("Pod/default/a")
    assert bed.see("default/b").phase == "Running"


def test_nothing_is_kept_of_a_generated_claim_that_is_gone_and_the_other_one_of_the_pod_stays() -> None:
    bed = TestBed(*world(), template("one", exactly()))
    bed.give(generated("a-old", "a", exactly()), generated("a-new", "a", exactly()))
    made = bed.controller._devices._book._generated
    bed.take("ResourceClaim/default/a-old")
    assert [list(names) for names in made.values()] == [["default/a-new"]]
    bed.take("ResourceClaim/default/a-new")
    assert made == {}


def test_a_pod_that_shares_under_other_quotas_is_found_by_the_one_that_came_first() -> None:
    bed = TestBed(*world(), claim("one", exactly()))
    bed.give(user("a", named="one"), user("b", named="one"))
    first, second = bed.controller.claim("default/a"), bed.controller.claim("default/b")
    assert first is not None
    sharing = bed.controller._devices._book.sharing
    assert sharing.clashing(first) == []
    sharing._quotas_of = lambda one: (one.name,)
    assert sharing.clashing(first) == [second]


def test_a_relabelled_pod_needs_room_for_its_devices_in_the_other_group() -> None:
    nodes: dict[str, object] = {"root": {"quota": {GPU: 4}}}
    nodes |= {name: {"parent": "root", "hard": True, "quota": {GPU: most}} for name, most in (("x", 4), ("y", 0))}
    tree = {"kind": "QuotaTree", "metadata": {"name": "t"}, "spec": {"resourceNames": [GPU], "nodes": nodes}}
    bed = TestBed(*world(), tree, claim("one", exactly()))
    bed.give(user("a", named="one", labels={"quota.bursar.dev/t": "x"}))
    assert bed.see("default/a").phase == "Running"
    with pytest.raises(ManifestError, match=r"metadata\.labels.*trees/t/y"):
        bed.give(user("a", named="one", labels={"quota.bursar.dev/t": "y"}))
