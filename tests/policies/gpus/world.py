"""An engine with limits, nodes and gpus, and short ways to put quotas, GPUs and workers into it."""

from __future__ import annotations

from typing import Any

from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.gpus.fleet import Gpu, ScoringOptions
from bursar.policies.gpus.policy import GpusPolicy
from bursar.policies.gpus.selection import fits
from bursar.policies.gpus.settings import (
    GPU,
    HOST,
    OPTIONS,
    POOL,
    TEMPLATE,
    GpuBody,
    GpuOptionsBody,
    HostBody,
    Offer,
    PoolBody,
    TemplateBody,
)
from bursar.policies.gpus.worker import DOMAIN, Worker, read_worker
from bursar.policies.namespace.policy import QUOTA, LimitsPolicy
from bursar.policies.namespace.settings import DEFAULT_THRESHOLD, NamespaceQuotaBody
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Body, Setting
from bursar.resources import Tally, dimension, parse_vector
from bursar.selectors import NO_NEEDS, NodeNeeds
from tests.amounts import parse_limits

GI = 2**30
NS = "test-ns"
Amount = int | str
Pair = tuple[Amount, Amount]


def amounts(side: str, pair: Pair) -> dict[str, int]:
    return {
        f"{side}.{name}": dimension(name).parse(value) for name, value in zip(("tflops", "vram"), pair, strict=True)
    }


def total(tflops: Amount, vram: Amount, workers: int | None = None) -> dict[str, int]:
    """The same total for requests and limits, as the vectors write Q(T, V, W)."""
    both = amounts("requests", (tflops, vram)) | amounts("limits", (tflops, vram))
    return both if workers is None else both | {"workers": workers}


def marks(request: Pair | None = None, limit: Pair | None = None, count: int = 1, /, **more: str) -> dict[str, str]:
    """The annotations of a worker; further keywords are annotations too (``gpu_model="A100"``)."""
    found: dict[str, str] = {}
    for side, pair in (("request", request), ("limit", limit or request)):
        if pair is not None:
            found |= {f"tflops-{side}": str(pair[0]), f"vram-{side}": str(pair[1])}
    if count != 1:
        found["gpu-count"] = str(count)
    found |= {name.replace("_", "-"): value for name, value in more.items()}
    return {DOMAIN + name: value for name, value in found.items()}


def worker(annotations: dict[str, str]) -> Worker:
    found = read_worker({}, annotations)
    assert found is not None
    return found


def host(
    count: int,
    model: str = "",
    vram: int = 0,
    fractions: int = -1,
    usual: tuple[int, int] = (0, 0),
    **more: Any,  # noqa: ANN401
) -> HostBody:
    """A node whose device plugin serves that many GPUs."""
    served = more.pop("served", count)
    offer = Offer("nvidia.com/gpu", count, served, model, vram, usual, **more)
    return HostBody((offer,), fractions)


class World:
    """Nodes come with their GPUs; workers are claims with annotations."""

    def __init__(self, replay: list[bytes] | None = None) -> None:
        self.limits = LimitsPolicy()
        self.gpus = GpusPolicy()
        self.engine = Engine([self.limits, NodesPolicy(), self.gpus])
        self.serial = 0
        if replay is not None:
            self.engine.replay(replay)

    # Settings

    def set(self, kind: str, key: str, body: Body | None) -> None:
        self.engine.configure([Setting(kind, key, body)])

    def quota(
        self,
        totals: dict[str, int] | None,
        singles: dict[str, int] | None = None,
        *,
        key: str = f"{NS}/q",
        threshold: int = DEFAULT_THRESHOLD,
        problem: str = "",
    ) -> None:
        """None takes the quota away."""
        self.set(QUOTA, key, None if totals is None else NamespaceQuotaBody(totals, singles or {}, threshold, problem))

    def node(self, name: str, labels: dict[str, str] | None = None, gpus: int = 0) -> None:
        """``gpus``: what the device plugin offers."""
        self.set(NODE, name, NodeBody(parse_limits({"nvidia.com/gpu": gpus}), labels or {}))

    def gpu(self, name: str, node: str, tflops: Amount, vram: Amount, **facts: object) -> None:
        if node and f"nodes/{node}" not in self.engine.state.accounts:
            self.node(node)
        t, v = (dimension(n).parse(a) for n, a in (("tflops", tflops), ("vram", vram)))
        self.set(GPU, name, GpuBody(Gpu(name, node, t, v, **facts)))  # type: ignore[arg-type]

    def no_gpu(self, name: str) -> None:
        self.set(GPU, name, None)

    def host(self, node: str, body: HostBody | None) -> None:
        self.set(HOST, node, body)

    def mode(self, mode: str, vram_weight: int = 70) -> None:
        self.set(OPTIONS, "default", GpuOptionsBody(ScoringOptions(mode, vram_weight)))

    def pool(self, name: str, mode: str, default: bool = False, oversell: tuple[int, int, int] | None = None) -> None:
        self.set(TEMPLATE, f"{name}-template", TemplateBody(mode))
        self.set(POOL, name, PoolBody(f"{name}-template", default, oversell))

    # Claims

    def claim(
        self,
        annotations: dict[str, str],
        uid: str = "",
        *,
        namespace: str = NS,
        priority: int = 0,
        requests: dict[str, object] | None = None,
        needs: NodeNeeds = NO_NEEDS,
    ) -> Claim:
        self.serial += 1
        spec = ClaimSpec(parse_vector(requests or {}), annotations=annotations, priority=priority, needs=needs)
        return Claim(uid or f"w{self.serial}", spec, self.serial, namespace)

    def alloc(
        self,
        request: Pair,
        count: int = 1,
        uid: str = "",
        *,
        limit: Pair | None = None,
        namespace: str = NS,
        priority: int = 0,
        **more: str,
    ) -> Decision:
        annotations = marks(request, limit, count, **more)
        return self.decide(annotations, uid, namespace=namespace, priority=priority)

    def decide(self, annotations: dict[str, str], uid: str = "", *, namespace: str = NS, priority: int = 0) -> Decision:
        return self.engine.decide(self.claim(annotations, uid, namespace=namespace, priority=priority))

    def adjust(self, uid: str, annotations: dict[str, str]) -> Decision:
        return self.engine.adjust(uid, ClaimSpec(annotations=annotations))

    # Answers

    def used(self, namespace: str = NS) -> tuple[str, int, str, int, int]:
        """(requests tflops, requests vram, limits tflops, limits vram, workers); tflops as Kubernetes prints them."""
        account = self.engine.state.accounts.get(f"limits/{namespace}")
        used = Tally() if account is None else account.used
        requests, limits = (dimension("tflops").show(used.amount(f"{s}.tflops")) for s in ("requests", "limits"))
        return requests, used.amount("requests.vram"), limits, used.amount("limits.vram"), used.amount("workers")

    def free(self, gpu: str) -> tuple[str, str]:
        account = self.engine.state.accounts[f"gpus/{gpu}"]
        names = ("tflops", "vram")
        t, v = (dimension(name).show(account.limits.cap(name) - account.used.amount(name)) for name in names)
        return t, v

    def on(self, uid: str) -> list[str]:
        """The GPUs of a worker."""
        binding = self.engine.claim(uid).bindings[2]
        return [] if binding is None else [account.name.removeprefix("gpus/") for account in binding.accounts]

    def candidates(self, annotations: dict[str, str]) -> list[str]:
        """GPUs that suit a worker and have room for it."""
        wanted = worker(annotations)
        fleet = self.gpus.index.sync()
        suits = fleet.suitable(wanted)
        rows = zip(fleet.gpus, fleet.accounts, suits, strict=True)
        return [gpu.name for gpu, account, suit in rows if suit and fits(wanted, gpu, account)]

    def open_nodes(self, annotations: dict[str, str]) -> list[str]:
        probe = self.claim(annotations, "probe")
        nodes = self.engine._core.nodes
        mask = bytearray(b"\x01" * len(nodes))
        self.gpus.filter(probe, mask)
        return sorted(nodes.names[slot] for slot in range(len(mask)) if mask[slot])

    def pool_status(self) -> dict[str, dict[str, Any]]:
        """Statuses of pools that are to be written now."""
        return {o.key: o.value or {} for o in self.engine.outputs(0) if o.kind == "GPUPool.tensor-fusion.ai"}

    def replayed(self) -> World:
        """Another world that repeats all that this one has committed; can be asked once."""
        return World(self.engine.journal.take())
