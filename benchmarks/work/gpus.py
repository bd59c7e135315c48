"""Fractions of GPUs under namespace quotas: decisions over many GPUs, and the quota check alone."""

import time
from statistics import median

from benchmarks.timing import collector, rate
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.hami_register import SlicedGpus
from bursar.policies.gpus.fleet import Gpu
from bursar.policies.gpus.policy import GpusPolicy
from bursar.policies.gpus.settings import GPU, HOST, GpuBody, HostBody, Offer
from bursar.policies.namespace.policy import QUOTA, LimitsPolicy, quota_refusal
from bursar.policies.namespace.settings import NamespaceQuotaBody, Space
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.resources import Limits, from_amounts

_WIDE = {"requests.tflops": 10**15, "requests.vram": 10**18, "limits.tflops": 10**15, "workers": 10**9}
_ROOM = Limits({"cpu": 64_000, "memory": 2**40})
_RUNS = 5


def engine_of(nodes: int, per_node: int, namespaces: int) -> Engine:
    """Nodes of equal GPUs, and a quota for each namespace that is wide enough for everything."""
    engine = Engine([LimitsPolicy(), NodesPolicy(), GpusPolicy()])
    settings: list[Setting] = []
    for number in range(nodes):
        node = f"node-{number:05}"
        settings.append(Setting(NODE, node, NodeBody(_ROOM)))
        for index in range(per_node):
            gpu = _gpu(f"{node}-gpu-{index}", 312_000)
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


def slices(nodes: int, per_node: int, namespaces: int, pods: int) -> dict[str, float]:
    """Decide and commit so many pods with a slice each, on nodes of HAMi; they are released after each run."""
    memory = 80 << 30
    card = Offer("nvidia.com/gpu", per_node * 10, per_node * 10, "NVIDIA-A100-SXM4-80GB", memory, (312_000, memory))
    host = HostBody((card,), slicing=SlicedGpus(per_node * memory, per_node * 100, memory, per_node))
    room = Limits({"cpu": 64_000, "memory": 2**40, "nvidia.com/gpu": per_node * 10})
    with collector(enabled=False):
        engine = Engine([LimitsPolicy(), NodesPolicy(), GpusPolicy()])
        names = [f"node-{number:05}" for number in range(nodes)]
        settings = [Setting(NODE, name, NodeBody(room)) for name in names] + [
            Setting(HOST, name, host) for name in names
        ]
        settings.extend(Setting(QUOTA, f"ns-{n}/quota", NamespaceQuotaBody(_WIDE)) for n in range(namespaces))
        engine.configure(settings)
        asked = from_amounts({"cpu": 100, "nvidia.com/gpu": 1, "nvidia.com/gpumem": 4096, "nvidia.com/gpucores": 10})
        spec = ClaimSpec(asked)
        runs = [[Claim(f"{run}-{n}", spec, n, f"ns-{n % namespaces}") for n in range(pods)] for run in range(_RUNS)]
        return {"decisions": median([_run(engine, claims) for claims in runs])}


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


def changes(nodes: int, per_node: int, rounds: int) -> dict[str, float]:
    """Milliseconds of one change and the next decision, in a fleet in use: a node label, and a GPU's capacity.

    Half of the workers take a share of compute, so that their cost depends on the largest GPU.
    """
    with collector(enabled=False):
        engine = engine_of(nodes, per_node, 1)
        for number in range(nodes):
            engine.configure([Setting(HOST, f"node-{number:05}", _host(per_node))])
        percent = {"tensor-fusion.ai/compute-percent-request": "10", "tensor-fusion.ai/vram-request": "4Gi"}
        specs = [worker(1), ClaimSpec(from_amounts({"cpu": 100}), annotations=percent)]
        engine.decide_many([Claim(f"w{n}", specs[n % 2], n, "ns-0") for n in range(2000)])
        probe = [Claim(f"probe-{n}", specs[n % 2], n, "ns-0") for n in range(2 * rounds)]
        labels = [
            _timed(engine, probe.pop(), Setting(NODE, node, NodeBody(_ROOM, {"round": str(n)})), _host(per_node))
            for n, node in enumerate(f"node-{n:05}" for n in range(rounds))
        ]
        capacity = [
            _timed(engine, probe.pop(), Setting(GPU, name, GpuBody(_gpu(name, 400_000 + n))), None)
            for n, name in enumerate(f"node-{n:05}-gpu-1" for n in range(rounds))
        ]
        return {"label": 1e3 * median(labels), "gpu": 1e3 * median(capacity)}


def _host(count: int) -> HostBody:
    return HostBody((Offer("nvidia.com/gpu", count, count, "A100", 80 * 2**30, (312_000, 0)),))


def _gpu(name: str, tflops: int) -> Gpu:
    node, _, index = name.rpartition("-gpu-")
    return Gpu(name, node, tflops, 80 * 2**30, "pool", "A100", "NVIDIA", int(index))


def _timed(engine: Engine, claim: Claim, setting: Setting, host: HostBody | None) -> float:
    """Seconds until a worker is decided after the change; a Node is one to both policies."""
    settings = [setting] if host is None else [setting, Setting(HOST, setting.key, host)]
    started = time.process_time()
    engine.configure(settings)
    decided = engine.decide(claim)
    took = time.process_time() - started
    if not decided.admitted:
        raise RuntimeError("the GPUs of the benchmark are too few")
    return took
