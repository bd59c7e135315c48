"""Random histories of one namespace that gets GPUs in every way, against a reference model.

Whole GPUs of a device plugin, fractions, slices of HAMi and devices by claim (of templates, shared, with alternatives)
come and go on nodes whose GPUs fail, are divided otherwise and return. The model knows manifests and where pods run,
and adds up what they cost from scratch. No decision goes above a quota, no GPU holds more than it has, no pending pod
would be admitted if it were tried, and a cluster that is rebuilt from nodes and bound pods counts the same.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.policies.gpus.worker import DOMAIN
from tests.at_rest import assert_at_rest, is_at_rest
from tests.builders import Manifest, node, pod
from tests.control.devices_world import claim, device_class, exactly, first_of, gpus, result, template, user
from tests.policies.gpus.hami_world import GPU, MIB, gpu, hami_node, slices
from tests.policies.gpus.world import GI
from tests.sim.steps import TestBed

STEPS = 50
CARD = 40_960  # MiB of a GPU of HAMi
H200, A100, H100 = 989_000, 312_000, 989_000
LABELS = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": str(80 * 1024)}
DIMENSIONS = ("requests.tflops", "requests.vram", "workers")
Cost = tuple[int, int, int]
"""Milli-tflops, bytes, workers."""


def in_team(manifest: Manifest) -> Manifest:
    manifest["metadata"]["namespace"] = "team"
    return manifest


def quota(tflops: int, vram: int, workers: int) -> Manifest:
    total = {"requests": {"tflops": str(tflops), "vram": f"{vram}Gi"}, "maxWorkers": workers}
    metadata = {"name": "quota", "namespace": "team"}
    return {
        "apiVersion": "tensor-fusion.ai/v1",
        "kind": "GPUResourceQuota",
        "metadata": metadata,
        "spec": {"total": total},
    }


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.limits = (6_000, 500, 9)
        self.pods: dict[str, Manifest] = {}
        self.costs: dict[str, dict[str, Any]] = {}  # by pod: what it asks for, in terms of the model
        self.shared: dict[str, tuple[dict[str, Any], int, int | None]] = {}  # by claim: request, most, GPUs that it got
        self.cards = {"healthy": 3, "fractions": 2, "plugin": 4}
        self.made = 0
        self.bed = TestBed(*self.objects())

    # Objects

    def objects(self) -> list[Manifest]:
        templates = [in_team(template(f"t{count}", exactly(count))) for count in (1, 2)]
        either = in_team(template("either", first_of(exactly(3), exactly(1))))
        static = [device_class(), gpus("claims", 6), node("claims", {"cpu": 64}), *templates, either]
        return [*static, self.hami(), self.divided(), quota(*self.limits)]

    def hami(self) -> Manifest:
        return hami_node("hami", [gpu(i, CARD, health=i < self.cards["healthy"]) for i in range(3)])

    def divided(self) -> Manifest:
        made = node("divided", {"cpu": 64, GPU: self.cards["plugin"]}, labels=dict(LABELS))
        made["metadata"]["labels"] |= {"bursar.dev/gpu-fractions": str(self.cards["fractions"])}
        made["status"]["capacity"] = {"cpu": 64, GPU: 4}
        return made

    # Steps

    def add(self, manifest: Manifest, **asks: Any) -> None:  # noqa: ANN401 in terms of the model
        name = manifest["metadata"]["name"]
        manifest["spec"]["priority"] = self.chance.choice((0, 0, 0, 10))
        self.pods[name], self.costs[name] = manifest, asks
        self.bed.advance(self.chance.choice((0, 1000)))
        self.bed.give(manifest)

    def name(self) -> str:
        self.made += 1
        return f"p{self.made}"

    def add_slices(self) -> None:
        pick = self.chance.choice
        count, memory, percentage = pick((1, 1, 2)), pick((0, 4_096, 20_480)), pick((0, 25, 50))
        cores = pick((0, 20, 60))
        asks = {"count": count, "memory": memory, "percentage": percentage, "cores": cores}
        whole = {"whole": count} if not (memory or percentage or cores) else {"slices": asks}
        self.add(slices(self.name(), count, memory, percentage, cores), **whole)

    def add_whole(self) -> None:
        count = self.chance.choice((1, 1, 2, 3))
        self.add(pod(self.name(), "team", {GPU: count}), whole=count)

    def add_fraction(self) -> None:
        tflops, vram, count = self.chance.choice((50, 200)), self.chance.choice((8, 60)), self.chance.choice((1, 1, 2))
        marks = {f"{DOMAIN}tflops-request": str(tflops), f"{DOMAIN}vram-request": f"{vram}Gi"}
        marks[f"{DOMAIN}gpu-count"] = str(count)
        self.add(pod(self.name(), "team", annotations=marks), fraction=(tflops * 1000 * count, vram * GI * count))

    def add_claimant(self) -> None:
        of = self.chance.choice(("t1", "t2", "either"))
        self.add(in_team(user(self.name(), of_template=of)), devices={"t1": 1, "t2": 2, "either": 3}[of])

    def add_sharer(self) -> None:
        name = self.chance.choice(("one", "two"))
        if name not in self.shared:
            count = self.chance.choice((1, 2))
            self.shared[name] = (exactly(count), count, None)
            self.bed.give(in_team(claim(name, exactly(count))))
        self.add(in_team(user(self.name(), name)), shared=name)

    def allocate(self) -> None:
        for name, (request, most, got) in self.shared.items():
            if got is None and [one for one in self.running() if self.costs[one].get("shared") == name]:
                given = self.chance.randint(1, most)
                results = [{**result(f"gpu-{i}"), "pool": "claims"} for i in range(given)]
                self.bed.give(in_team(claim(name, request, allocated=results)))
                self.shared[name] = (request, most, given)
                return

    def remove(self) -> None:
        if self.pods:
            name = self.chance.choice(sorted(self.pods))
            self.bed.take(f"Pod/team/{name}")
            del self.pods[name], self.costs[name]

    def resize(self) -> None:
        """A fraction grows or shrinks where it runs."""
        named = [name for name in self.running() if "fraction" in self.costs[name]]
        if named:
            name = self.chance.choice(named)
            tflops = self.chance.choice((20, 100))
            count = int(self.pods[name]["metadata"]["annotations"][f"{DOMAIN}gpu-count"])
            made = json.loads(json.dumps(self.pods[name]))
            made["metadata"]["annotations"][f"{DOMAIN}tflops-request"] = str(tflops)
            said = ""
            try:
                self.bed.give(made)
            except ManifestError as error:  # above the quota, or no room on the GPU: it stays as it is
                said = str(error)
            assert not said or "metadata.annotations" in said
            if not said:
                self.pods[name] = made
                self.costs[name] = {"fraction": (tflops * 1000 * count, self.costs[name]["fraction"][1])}

    def change_nodes(self) -> None:
        self.cards["healthy"] = self.chance.randint(1, 3)
        self.cards["fractions"] = self.chance.choice((0, 1, 2, 4))
        self.cards["plugin"] = self.chance.choice((4, 4, 3))
        self.bed.give(self.hami(), self.divided())

    def change_quota(self) -> None:
        self.limits = self.chance.choice(((6_000, 500, 9), (2_500, 200, 4), (12_000, 900, 20)))
        self.bed.give(quota(*self.limits))

    def step(self) -> None:
        adds = (self.add_slices, self.add_whole, self.add_fraction, self.add_claimant, self.add_sharer)
        changes = (self.change_nodes, self.change_quota, self.allocate, self.resize)
        kind = self.chance.random()
        before, cards = self.used(), self.of_cards()
        if kind < 0.55:
            self.chance.choice(adds)()
        elif kind < 0.8:
            self.remove()
        else:
            self.chance.choice(changes)()
        if kind < 0.8:
            limits = (self.limits[0] * 1000, self.limits[1] * GI, self.limits[2])
            assert all(now <= max(most, old) for now, most, old in zip(self.used(), limits, before, strict=True))
            for name, (now, most) in self.of_cards().items():
                assert now <= max(most, cards.get(name, (0, 0))[0]), name

    # What the cluster says

    def running(self) -> list[str]:
        return [name for name in self.pods if self.bed.see(f"team/{name}").phase == "Running"]

    def used(self) -> Cost:
        account = self.bed.engine.state.accounts.get("limits/team")
        found = [0 if account is None else account.used.amount(name) for name in DIMENSIONS]
        return found[0], found[1], found[2]

    def of_cards(self) -> dict[tuple[str, str], tuple[int, int]]:
        """By account of a GPU, or of all that a plugin may hand out, and dimension: (used, there)."""
        accounts = [one for one in self.bed.engine.state.accounts.values() if one.name.startswith("gpus/")]
        return {
            (one.name, dimension): (one.used.amount(dimension), one.limits.cap(dimension))
            for one in accounts
            for dimension in one.limits.listed
        }

    def charge(self, name: str) -> Cost:
        one = self.bed.controller.claim(f"team/{name}")
        binding = None if one is None else one.binding_of("limits")
        cost = None if binding is None or not binding.costs else binding.costs[0]
        found = [0 if cost is None else cost.amount(dimension) for dimension in DIMENSIONS]
        return found[0], found[1], found[2]

    # What the model says

    def cost(self, name: str) -> Cost:
        asks, place = self.costs[name], self.bed.see(f"team/{name}").node
        if "slices" in asks or (place == "hami" and "whole" in asks):
            return self.cost_of_slices(**asks.get("slices", {"count": asks.get("whole", 0)}))
        if "whole" in asks:
            return asks["whole"] * A100, asks["whole"] * 80 * GI, 1
        if "fraction" in asks:
            return (*asks["fraction"], 1)
        count = asks["devices"] if "devices" in asks else self.cost_of_shared(name, asks["shared"])
        return count * H100, count * 80 * GI, 1

    def cost_of_slices(self, count: int, memory: int = 0, percentage: int = 0, cores: int = 0) -> Cost:
        each = memory or (CARD * percentage // 100 if percentage else CARD)
        return count * (H200 * cores // 100 if cores else H200), count * each * MIB, 1

    def cost_of_shared(self, name: str, named: str) -> int:
        """The oldest pod that was admitted pays; the cluster says which one, the others must pay nothing."""
        _, most, got = self.shared[named]
        paid = self.charge(name)[1] // (80 * GI)
        sharing = [one for one in self.running() if self.costs[one].get("shared") == named]
        assert sorted(self.charge(one)[1] for one in sharing)[:-1] == [0] * (len(sharing) - 1)
        assert max(self.charge(one)[1] for one in sharing) == 80 * GI * (most if got is None else got)
        return paid

    def check(self) -> None:
        total = [0, 0, 0]
        for name in self.running():
            cost = self.cost(name)
            if "shared" in self.costs[name] and not self.charge(name)[1]:
                cost = (0, 0, self.charge(name)[2])
            assert self.charge(name) == cost, (name, self.costs[name], self.bed.see(f"team/{name}").node)
            total = [total[i] + cost[i] for i in range(3)]
        assert list(self.used()) == total
        if is_at_rest(self.bed):
            assert_at_rest(self.bed)

    def check_rebuilt(self) -> None:
        """Nodes first, then every pod where it runs."""
        other = TestBed(*self.objects())
        for name, (request, _, got) in self.shared.items():
            results = [{**result(f"gpu-{i}"), "pool": "claims"} for i in range(got or 0)]
            other.give(in_team(claim(name, request, allocated=results if got else None)))
        for name in self.running():
            made = json.loads(json.dumps(self.pods[name]))
            view = self.bed.see(f"team/{name}")
            made["spec"]["nodeName"] = view.node
            made["metadata"]["annotations"] = {**made["metadata"]["annotations"], **view.annotations}
            other.give(made)
        mine, theirs = self.bed.engine.state.accounts, other.engine.state.accounts
        fractions = min(self.cards["fractions"], self.cards["plugin"])
        for name in {*mine, *theirs}:
            # Of GPUs that failed, or are no longer for fractions, only the live ledger knows that workers have them.
            number = name.removeprefix("gpus/divided:")
            lost = number.isdigit() and int(number) >= fractions
            if name.startswith(("limits/", "gpus/")) and not lost and (fractions or name != "gpus/plugin/divided"):
                found = [of[name].used.vector().show() if name in of else {} for of in (mine, theirs)]
                assert found[0] == found[1], name


@pytest.mark.parametrize("seed", range(20))
def test_every_way_to_get_gpus_counts_as_the_model_says(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
        history.check()
    history.check_rebuilt()
