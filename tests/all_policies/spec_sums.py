"""What nodes, namespaces, quotas and GPUs have in use, computed from the specs of claims and the manifests in force.

Nothing here looks at bindings or costs. It covers what follows from manifests without a policy's judgement: nodes,
namespace totals, elastic quotas, pool quotas that pods name, GPUs, and quota trees by the seats of claims.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Protocol, cast

from bursar.ledger.claims import PENDING, Claim
from bursar.ledger.state import State
from tests.all_policies.ledger_sums import parents_of, path
from tests.all_policies.surroundings import GPU, KOORDINATOR
from tests.all_policies.violation import require
from tests.all_policies.workloads import TENSOR_FUSION

GI = 2**30
_GPU_MEMORY = "n8s.nebuly.ai/gpu-memory"
_GB = 16
_TREE = "quota.bursar.dev/"


class Manifests(Protocol):
    """The manifests in force, by kind (``Kind.group``)."""

    def bodies(self, kind: str) -> list[Mapping[str, Any]]: ...


def check_specs(state: State, manifests: Manifests) -> None:
    """Accounts agree with the specs of the claims that count."""
    counting = [claim for claim in state.claims.values() if claim.counts()]
    _check_nodes(state)
    _check_namespaces(state, counting, manifests)
    _check_elastic(state, counting, manifests)
    _check_pools(state, counting)
    _check_trees(state, counting)
    _check_gpus(state, counting)


def requests_of(claim: Claim) -> Counter[str]:
    return Counter(dict(claim.spec.requests.pairs()))


def _compare(state: State, name: str, wanted: Counter[str], rule: str, busy: bool = False) -> None:
    account = state.accounts.get(name)
    right = {key: amount for key, amount in wanted.items() if amount}
    if account is None:
        require(not right, rule, f"there is no account {name} for {right}")
        return
    found = dict((account.busy if busy else account.used).vector().pairs())
    require(found == right, rule, f"{name} has {found}, by the specs of its claims {right}")


# Nodes


def _check_nodes(state: State) -> None:
    used: dict[str, Counter[str]] = defaultdict(Counter)
    busy: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in state.claims.values():
        if claim.state != PENDING and claim.place:
            cost = requests_of(claim) + Counter({"pods": 1})
            busy[claim.place].update(cost)
            if claim.counts():
                used[claim.place].update(cost)
    for name in {account.removeprefix("nodes/") for account in state.accounts if account.startswith("nodes/")} | {
        *busy
    }:
        _compare(state, f"nodes/{name}", used[name], "node usage")
        _compare(state, f"nodes/{name}", busy[name], "node busy", busy=True)


# Namespace quotas


def worker_cost(claim: Claim) -> Counter[str]:
    """What a worker costs its namespace: amounts of one GPU times its GPUs."""
    marks = {key.removeprefix(TENSOR_FUSION): value for key, value in claim.spec.annotations.items()}
    if "tflops-request" not in marks:
        return Counter()
    count = int(marks.get("gpu-count", "1"))
    tflops, limit = int(marks["tflops-request"]), int(marks.get("tflops-limit", marks["tflops-request"]))
    vram = int(marks["vram-request"].removesuffix("Gi")) * GI * count
    compute = {"requests.tflops": tflops * 1000 * count, "limits.tflops": limit * 1000 * count}
    return Counter(compute | {"requests.vram": vram, "limits.vram": vram, "workers": 1})


def _check_namespaces(state: State, counting: list[Claim], manifests: Manifests) -> None:
    """Under a quota a pod with whole GPUs is a worker, too; no node of these worlds says what its GPUs have."""
    governed = {body["metadata"]["namespace"] for body in manifests.bodies("GPUResourceQuota.tensor-fusion.ai")}
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in counting:
        cost = worker_cost(claim)
        if not cost and claim.namespace in governed and claim.spec.requests.amount(GPU):
            cost = Counter({"workers": 1})
        totals[claim.namespace].update(cost)
    for namespace in {claim.namespace for claim in counting}:
        _compare(state, f"limits/{namespace}", totals[namespace], "namespace totals")


# Elastic quotas


def _check_elastic(state: State, counting: list[Claim], manifests: Manifests) -> None:
    composites = manifests.bodies("CompositeElasticQuota.n8s.nebuly.ai")
    governed = {namespace for body in composites for namespace in body["spec"]["namespaces"]}
    quotas = [("CompositeElasticQuota", body, body["spec"]["namespaces"]) for body in composites]
    quotas += [
        ("ElasticQuota", body, [body["metadata"]["namespace"]])
        for body in manifests.bodies("ElasticQuota.n8s.nebuly.ai")
        if body["metadata"]["namespace"] not in governed
    ]
    total: Counter[str] = Counter()
    for kind, body, namespaces in quotas:
        used: Counter[str] = Counter()
        for claim in counting:
            if claim.namespace in namespaces:
                used.update(requests_of(claim))
                used[_GPU_MEMORY] += _GB * claim.spec.requests.amount(GPU)
        key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        _compare(state, f"elastic/{kind}/{key}", used, "elastic usage")
        total.update({name: used[name] for name in body["spec"]["min"]})
    _check_minimums(state, [body["spec"]["min"] for _, body, _ in quotas])


def _check_minimums(state: State, minimums: list[Mapping[str, Any]]) -> None:
    """Without the option for capacity, all of them together may use the sum of the minimums."""
    account = state.accounts.get("elastic/total")
    options = cast("list[tuple[Any, ...]]", list(state.cells("elastic.options").values()))
    if account is None or any(cell[2] == "capacity" for cell in options):
        return
    sums = Counter[str]()
    for least in minimums:
        for name, amount in least.items():
            sums[name] += int(amount) * (1000 if name == "cpu" else 1)
    listed = {name: amount for name, amount in account.limits.listed.items() if amount}
    require(listed == {name: amount for name, amount in sums.items() if amount}, "sum of min", f"{listed}, not {sums}")


# Pools


def _check_pools(state: State, counting: list[Claim]) -> None:
    """The own use of a quota that pods name by label."""
    quotas = cast("dict[str, tuple[Any, ...]]", state.cells("pools.quotas"))
    for name, cell in quotas.items():
        if cell[3] or name.startswith("koordinator-"):
            continue
        used: Counter[str] = Counter()
        for claim in counting:
            if claim.spec.labels.get(f"{KOORDINATOR}name") == name:
                asked = requests_of(claim)
                used.update({resource: asked[resource] for resource, _ in cell[5]})
        _compare(state, f"pools/{cell[2]}/{name}/own", used, "pool usage")


# Trees


def _check_trees(state: State, counting: list[Claim]) -> None:
    for tree, cell in state.cells("trees.spec").items():
        resources = cast("tuple[Any, ...]", cell)[0]
        parents = parents_of(state, tree)
        groups = set(parents) - set(parents.values())
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for claim in counting:
            group = claim.spec.labels.get(f"{_TREE}{tree}", "")
            seat = cast("tuple[str, int] | None", state.cell(f"trees.at/{tree}", claim.uid))
            if group in groups:
                require(seat is not None, "seats", f"{claim.key} counts, but not in group {group} of {tree}")
            if seat is not None:
                asked = requests_of(claim)
                for node in path(seat[0], parents):
                    used[node].update({name: asked[name] for name in resources})
        for node in parents:
            _compare(state, f"trees/{tree}/{node}", used[node], "tree usage")


# GPUs


def _check_gpus(state: State, counting: list[Claim]) -> None:
    """A worker that counts has as many GPUs as it asks for, all on its node, at what it asks for."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in counting:
        binding = claim.binding_of("gpus")
        asked = worker_cost(claim)
        if binding is None or not asked or binding.accounts[0].name.startswith("gpus/plugin/"):
            continue
        count = int(claim.spec.annotations.get(f"{TENSOR_FUSION}gpu-count", "1"))
        require(
            len({account.name for account in binding.accounts}) == count,
            "gpu count",
            f"{claim.key}: {binding.accounts}",
        )
        for account in binding.accounts:
            share = {"tflops": asked["requests.tflops"] // count, "vram": asked["requests.vram"] // count}
            used[account.name].update(share)
    for name in state.accounts:
        if name.startswith("gpus/") and not name.startswith("gpus/plugin/"):
            account = state.accounts[name]
            found = {key: account.used.amount(key) for key in ("tflops", "vram")}
            require(found == {key: used[name][key] for key in found}, "gpu usage", f"{name}: {found}, not {used[name]}")
