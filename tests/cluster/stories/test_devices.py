"""Claims of devices: slices as a driver publishes them, devices that the scheduler allocates, and quotas over both."""

from __future__ import annotations

from typing import Any

from tests.cluster.stories.story import POOL, Manifest, Story

GPU = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"
API = "resource.k8s.io/v1"


def publish(story: Story, node: str, *memory: str) -> None:
    """A driver publishes GPUs of that much memory."""
    devices = [
        {"name": f"gpu-{i}", "attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": value}}}
        for i, value in enumerate(memory)
    ]
    story.apply(
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{DRIVER}", "labels": {POOL: story.name}},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        },
        {
            "apiVersion": API,
            "kind": "DeviceClass",
            "metadata": {"name": story.name},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
        },
    )


def requests(story: Story, count: int, *expressions: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"deviceClassName": story.name, "count": count}
    if expressions:
        asked["selectors"] = [{"cel": {"expression": one}} for one in expressions]
    return {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}}


def claim(story: Story, name: str, count: int, *expressions: str) -> Manifest:
    spec = requests(story, count, *expressions)
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def template(story: Story, name: str, count: int, *expressions: str) -> Manifest:
    spec = {"spec": requests(story, count, *expressions)}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def quota(story: Story, team: str, **most: str) -> None:
    body = {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "quota"}}
    story.apply({**body, "spec": {"min": most, "max": most}}, namespace=team)
    story.governed(team)


def user(story: Story, name: str, named: str = "", of_template: str = "") -> Manifest:
    one = {"resourceClaimName": named} if named else {"resourceClaimTemplateName": of_template}
    made = story.pod(name, {"cpu": "1"}, resourceClaims=[{"name": "gpu", **one}])
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return made


def used(story: Story, team: str, **amounts: object) -> None:
    story.status("elasticquota.n8s.nebuly.ai", "quota", team, {"used": amounts})


def test_claims_of_a_template_count_and_the_rest_waits(story: Story) -> None:
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi"})
    publish(story, node, "80Gi", "80Gi", "80Gi", "80Gi")
    team = story.namespace()
    quota(story, team, **{GPU: "3"})
    story.apply(template(story, "two", 2), namespace=team)
    story.submit(team, user(story, "first", of_template="two"))
    story.running(team, "first")
    story.submit(team, user(story, "second", of_template="two"))
    story.waits(team, "second", f"elastic.max.{GPU}")
    used(story, team, **{GPU: "2"})
    story.delete("pod", "first", team)
    story.running(team, "second")


def test_what_the_scheduler_allocated_is_what_counts(story: Story) -> None:
    """The selector is one that Bursar does not read, so that the larger device counts until one is allocated."""
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi"})
    publish(story, node, "80Gi", "141Gi")
    team = story.namespace()
    quota(story, team, vram="200Gi")
    small = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('100Gi')) < 0 || false"
    story.apply(template(story, "small", 1, small), template(story, "any", 1), namespace=team)
    story.submit(team, user(story, "first", of_template="small"))
    story.running(team, "first")
    used(story, team, vram="80Gi")
    story.submit(team, user(story, "second", of_template="any"))
    story.waits(team, "second", "elastic.max.vram")


def test_a_shared_claim_counts_once_and_stays_with_who_is_left(story: Story) -> None:
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi"})
    publish(story, node, "80Gi", "80Gi")
    team = story.namespace()
    quota(story, team, **{GPU: "2"})
    story.apply(claim(story, "shared", 2), namespace=team)
    story.submit(team, user(story, "first", named="shared"), user(story, "second", named="shared"))
    story.running(team, "first", "second")
    used(story, team, **{GPU: "2"})
    story.apply(claim(story, "more", 1), namespace=team)
    story.delete("pod", "first", team)
    story.gone(team, "first")
    story.submit(team, user(story, "third", named="more"))
    story.waits(team, "third", f"elastic.max.{GPU}")
    used(story, team, **{GPU: "2"})


def test_a_quota_of_the_namespace_counts_devices(story: Story) -> None:
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi"})
    publish(story, node, "80Gi", "80Gi", "80Gi", "80Gi")
    team = story.namespace()
    body = {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPUResourceQuota", "metadata": {"name": "quota"}}
    story.apply({**body, "spec": {"total": {"requests": {"vram": "200Gi"}, "maxWorkers": 4}}}, namespace=team)
    story.governed(team)
    story.apply(template(story, "two", 2), namespace=team)
    story.submit(team, user(story, "first", of_template="two"))
    story.running(team, "first")
    story.submit(team, user(story, "second", of_template="two"))
    story.waits(team, "second", "total.max.vram.request")


def test_a_claim_without_a_mapping_is_waited_for(story: Story) -> None:
    """The driver publishes devices of which nothing says what they count as, until the Configuration does."""
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi"})
    team = story.namespace()
    quota(story, team, **{"example.com/nic": "1"})
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "nic.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "nic-0"}]}
    chosen = [{"cel": {"expression": "device.driver == 'nic.example.com'"}}]
    story.apply(
        {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{node}-nics"}, "spec": spec},
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": story.name}, "spec": {"selectors": chosen}},
    )
    story.apply(claim(story, "nic", 1), namespace=team)
    story.submit(team, user(story, "sender", named="nic"))
    assert f"DeviceClass {story.name}" in story.waits(team, "sender", "devices.unmapped")
    mapping = {"deviceClass": story.name, "charge": [{"resource": "example.com/nic", "count": 1}]}
    story.apply(
        {
            "apiVersion": "bursar.dev/v1alpha1",
            "kind": "Configuration",
            "metadata": {"name": "default"},
            "spec": {"devices": {"mappings": [mapping]}},
        }
    )
    story.running(team, "sender")
    used(story, team, **{"example.com/nic": "1"})


def test_a_pod_whose_claim_was_made_anew_and_grew_is_evicted(story: Story) -> None:
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi"})
    publish(story, node, "80Gi", "80Gi", "80Gi", "80Gi")
    team = story.namespace()
    quota(story, team, **{GPU: "2"})
    story.apply(claim(story, "one", 1), namespace=team)
    with story.without_scheduler():
        story.submit(team, user(story, "first", named="one"))
        story.wait(lambda: story.admitted(team, "first"), "first is admitted")
        story.delete("resourceclaim", "one", team)
        story.wait(lambda: not _there(story, team), "the claim is gone")
        story.apply(claim(story, "one", 4), namespace=team)
        story.gone(team, "first")


def _there(story: Story, team: str) -> bool:
    found = story.plane.api().get(f"/apis/{API}/namespaces/{team}/resourceclaims")["items"]
    return bool(found)
