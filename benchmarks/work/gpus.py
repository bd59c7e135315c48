"""Fractions of GPUs under namespace quotas: decisions over many GPUs, and the quota check alone."""

import time
from statistics import median

from benchmarks.timing import collector, rate
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.gpus.fleet import Gpu
from bursar.policies.gpus.policy import GpusPolicy
from bursar.policies.gpus.settings import GPU, GpuBody
from bursar.policies.namespace.policy import QUOTA, LimitsPolicy, quota_refusal
from bursar.policies.namespace.settings import NamespaceQuotaBody, Space
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.resources import Limits, from_amounts

_WIDE = {"requests.tflops": 10**15, "requests.vram": 10**18, "limits.tflops": 10**15, "workers": 10**9}
_RUNS = 5


def engine_of(nodes: int, per_node: int, namespaces: int) -> Engine:
    """Nodes of equal GPUs, and a quota for each namespace that is wide enough for everything."""
    engine = Engine([LimitsPolicy(), NodesPolicy(), GpusPolicy()])
    settings: list[Setting] = []
    for number in range(nodes):
        node = f"node-{number:05}"
        settings.append(Setting(NODE, node, NodeBody(Limits({"cpu": 64_000, "memory": 2**40}))))
        for index in range(per_node):
            gpu = Gpu(f"{node}-gpu-{index}", node, 312_000, 80 * 2**30, "pool", "A100", "NVIDIA", index)
            settings.append(Setting(GPU, gpu.name, GpuBody(gpu)))
    settings.extend(Setting(QUOTA, f"ns-{n}/quota", NamespaceQuotaBody(_WIDE)) for n in range(namespaces))
    engine.configure(settings)
    return engine


def worker(gpus: int, shape: int = 0) -> ClaimSpec:
    """A worker; each shape asks for a little more than the one before."""
    amounts = {"tflops-request": f"{30_000 + shape}m", "vram-request": "4Gi", "gpu-count": str(gpus), "gpupool": "pool"}
    annotations = {f"tensor-fusion.ai/{name}": value for name, value in amounts.items()}
    return ClaimSpec(from_amounts({"cpu": 100}), annotations=annotations)


def decisions(nodes: int, per_node: int, namespaces: int, workers: int, gpus: int, shapes: int = 0) -> dict[str, float]:
    """Decide and commit so many workers of so many GPUs each; they are released after each run.

    ``shapes`` 0: all of one job, which share one spec. Otherwise every worker has a spec of its own, which has to be
    read, and asks for one of so many different amounts.
    """
    with collector(enabled=False):
        engine = engine_of(nodes, per_node, namespaces)
        shared = worker(gpus)
        rates: list[float] = []
        for run in range(_RUNS):
            specs = [worker(gpus, n % shapes) if shapes else shared for n in range(workers)]
            spaces = [f"ns-{n % namespaces}" for n in range(workers)]
            rates.append(_run(engine, [Claim(f"{run}-{n}", specs[n], n, spaces[n]) for n in range(workers)]))
        return {"decisions": median(rates)}


def _run(engine: Engine, claims: list[Claim]) -> float:
    started = time.process_time()
    decided = engine.decide_many(claims)
    took = time.process_time() - started
    if not all(decision.admitted for decision in decided):
        raise RuntimeError("the GPUs of the benchmark are too few")
    engine.release_many([claim.uid for claim in claims])
    engine.journal.records.clear()
    return len(claims) / took


def checks(rounds: int) -> dict[str, float]:
    """The quota check alone, called from Python: single limits, GPU count and totals of two quotas.

    A worker is counted already: against an account that nobody used yet the check is done before it begins.
    """
    engine = engine_of(1, 1, 1)
    engine.decide(Claim("counted", worker(1), 0, "ns-0"))
    singles = {"limits.tflops": 10**12, "gpus": 8}
    space = Space({f"ns-0/{name}": NamespaceQuotaBody(_WIDE, singles) for name in ("a", "b")})
    account = engine.state.accounts["limits/ns-0"]
    cost = from_amounts({"requests.tflops": 30_000, "requests.vram": 2**32, "limits.tflops": 30_000, "workers": 1})

    def work() -> int:
        for _ in range(rounds):
            quota_refusal(space, "ns-0", account, cost, 1)
        return rounds

    return {"checks": rate(work)}
