"""CPU pods on GPU nodes: filter and score for one pod over many full nodes, and the way the original does it.

The original classifies every pod of every node by regular expression and sums its requests for each pending pod and
node, once to filter and once to score. That is repeated here in plain Python over the same nodes and pods; both ways
must find the same nodes and, to a millionth, the same scores.
"""

import re
import time
from statistics import median

from librt.vecs import vec
from mypy_extensions import i64

from benchmarks.timing import collector, say
from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.transaction import Ledger
from bursar.policies.crossquota.arguments import ARGUMENTS_KIND, CURRENT, NAME, NODE_KIND, Arguments
from bursar.policies.crossquota.node_quota import CrossQuotaNodeBody
from bursar.policies.crossquota.policy import CrossQuotaPolicy
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.results import Setting
from bursar.resources import from_amounts

RUNS = 101
_GIB = 2**30
_GPU = "nvidia.com/gpu"
_RESOURCES = ("cpu", "memory")
_ARGUMENTS = Arguments((r"nvidia\.com/gpu", r"amd\.com/gpu"), _RESOURCES, {"cpu": 192_000}, {"memory": (100, 1)})
_WEIGHTS = {"cpu": 10, "memory": 1}
_ALLOCATABLE = {"cpu": 256_000, "memory": 2_048 * _GIB, "pods": 250, _GPU: 8}
_SHAPES = (
    {"cpu": 500, "memory": 3 * _GIB + 777},
    {"cpu": 250, "memory": _GIB},
    {"cpu": 1_500, "memory": 20 * _GIB},
    {"cpu": 2_000, "memory": 16 * _GIB, _GPU: 1},
)
_WANTED = {"cpu": 1_300, "memory": 5 * _GIB + 12_345}

Amounts = dict[str, int]


class Plain:
    """A pod or node as the original sees it: a map of names to numbers."""

    def __init__(self, name: str, amounts: Amounts, tasks: list["Plain"]) -> None:
        self.name = name
        self.amounts = amounts
        self.tasks = tasks


class Original:
    """Filter and score as the original computes them, recomputed for each pod and node."""

    def __init__(self) -> None:
        self.patterns = [re.compile(text) for text in _ARGUMENTS.gpu_names]
        self.quotas = {"cpu": 192_000.0, "memory": float(_ALLOCATABLE["memory"])}

    def is_gpu(self, amounts: Amounts) -> bool:
        for name, amount in amounts.items():
            for pattern in self.patterns:
                if pattern.search(name) and amount > 0:
                    return True
        return False

    def usage(self, node: Plain) -> dict[str, float]:
        total = dict.fromkeys(_RESOURCES, 0.0)
        for task in node.tasks:
            if not self.is_gpu(task.amounts):
                for name in _RESOURCES:
                    total[name] += task.amounts.get(name, 0)
        return total

    def fits(self, pod: Plain, node: Plain) -> bool:
        if self.is_gpu(pod.amounts) or not self.is_gpu(node.amounts):
            return True
        used = self.usage(node)
        return all(used[name] + pod.amounts.get(name, 0) <= self.quotas[name] for name in _RESOURCES)

    def score(self, pod: Plain, node: Plain) -> float:
        if self.is_gpu(pod.amounts) or not self.is_gpu(node.amounts):
            return 0.0
        used = self.usage(node)
        total = sum((used[n] + pod.amounts[n]) / self.quotas[n] * _WEIGHTS[n] for n in _RESOURCES)
        return total / sum(_WEIGHTS.values()) * 10


def shape_of(node: int, number: int) -> int:
    return (node * 31 + number * 17 + node * number) % len(_SHAPES)


class Filled:
    """The policy alone over that many nodes with that many pods each."""

    def __init__(self, nodes: int, pods: int) -> None:
        self.ledger = Ledger()
        self.policy = CrossQuotaPolicy()
        self.nodes = NodeIndex()
        self.ledger.watch(NAME, self.policy)
        self.policy.attach(self.ledger.state, self.nodes)
        tx = self.ledger.begin()
        self.policy.configure(tx, Setting(ARGUMENTS_KIND, CURRENT, _ARGUMENTS))
        specs = [ClaimSpec(from_amounts(shape)) for shape in _SHAPES]
        for node in range(nodes):
            name = f"node-{node:05d}"
            self.policy.configure(tx, Setting(NODE_KIND, name, CrossQuotaNodeBody(dict(_ALLOCATABLE), {})))
            for number in range(pods):
                claim = Claim(f"{node}-{number}", specs[shape_of(node, number)], number)
                bound = self.policy.bind(claim, name)
                if isinstance(bound, Binding):
                    self.policy.charge(tx, claim, bound, True)
            tx.log.clear()
        self.pod = Claim("probe", ClaimSpec(from_amounts(_WANTED)))

    def once(self) -> tuple[bytearray, vec[i64]]:
        mask = bytearray(b"\x01" * len(self.nodes))
        self.policy.filter(self.pod, mask)
        points = self.policy.score(self.pod, mask)
        assert points is not None
        return mask, points


def plain_nodes(nodes: int, pods: int) -> list[Plain]:
    kinds = [Plain("pod", shape, []) for shape in _SHAPES]
    return [
        Plain(f"node-{node:05d}", _ALLOCATABLE, [kinds[shape_of(node, number)] for number in range(pods)])
        for node in range(nodes)
    ]


def bulk(nodes: int, pods: int) -> dict[str, float]:
    """Milliseconds of filter and score for one pod: kept incrementally, and recomputed as the original does."""
    say(f"   filling {nodes} nodes with {pods} pods each")
    with collector(False):
        filled = Filled(nodes, pods)
        times: list[float] = []
        for _ in range(RUNS):
            started = time.process_time()
            filled.once()
            times.append(time.process_time() - started)
        mask, scores = filled.once()
    original = Original()
    pod = Plain("probe", _WANTED, [])
    plain = plain_nodes(nodes, pods)
    started = time.process_time()
    found = [original.score(pod, node) if original.fits(pod, node) else None for node in plain]
    recomputed = time.process_time() - started
    for slot, score in enumerate(found):
        assert bool(mask[slot]) == (score is not None)
        assert score is None or abs(int(scores[slot]) / 1e6 - score) < 2e-6
    return {"bulk": median(times) * 1e3, "original": recomputed * 1e3, "open": float(sum(mask))}
