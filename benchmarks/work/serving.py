"""An organisation for a server to serve: nodes, teams with quotas of two dialects, pods that run and pods that wait.

Half of the teams have an elastic quota over CPUs, half a namespace quota over shares of GPUs; every team has as many
pods, alike but for their names and one variable. One team in twenty asks for more than its quota lets in, so its last
pods wait.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.timing import say
from benchmarks.work.deciding import resident
from benchmarks.work.live import Caller, p99, serving, together
from bursar.objects.manifests import Document
from bursar.server.app import App
from bursar.server.background import AuditWatch, SnapshotKeeper, Ticker
from bursar.server.copies import CopyProcesses
from bursar.server.serve import ServeOptions, server
from bursar.server.service import Service
from bursar.server.what_if import explanation, what_if

Manifest = dict[str, Any]
_FRACTIONS, _CPUS = 80, 120  # pods on a node of each sort
_SHAPES = 20
_TOGETHER = 500


def nodes(pods: int) -> Iterator[Manifest]:
    """Enough for all of them, one half on shares of GPUs, the other on CPUs."""
    product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
    fractions = {"bursar.dev/gpu-fractions": "all", **product}
    for number in range(pods // 2 // _FRACTIONS + 1):
        yield _node(f"gpu-{number:05}", {"pool": "gpu", **fractions}, {"nvidia.com/gpu": 8})
    for number in range(pods // 2 // _CPUS + 1):
        yield _node(f"cpu-{number:05}", {"pool": "cpu"}, {})


def _node(name: str, labels: dict[str, str], more: dict[str, int]) -> Manifest:
    allocatable = {"cpu": "250", "memory": "1Ti", "pods": 250, **more}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}


def quotas(teams: int, pods: int) -> Iterator[Manifest]:
    each = pods // teams
    for team in range(teams):
        allowed = each - each // 5 if team % 20 < 2 else each + 1
        metadata = {"namespace": _team(team), "name": "quota"}
        if team % 2:
            least = {"cpu": str(2 * allowed)}
            kind = {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota"}
            yield {**kind, "metadata": metadata, "spec": {"min": least, "max": least}}
        else:
            kind = {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPUResourceQuota"}
            total = {"requests": {"tflops": str(30 * allowed), "vram": f"{8 * allowed}Gi"}, "maxWorkers": 2 * each}
            yield {**kind, "metadata": metadata, "spec": {"total": total}}


def pod(number: int, teams: int) -> Manifest:
    team = number % teams
    labels = {"app": f"job-{team % _SHAPES}", "team": _team(team)}
    annotations: dict[str, str] = {}
    if team % 2 == 0:
        labels["tensor-fusion.ai/component"] = "worker"
        annotations = {"tensor-fusion.ai/tflops-request": "30", "tensor-fusion.ai/vram-request": "8Gi"}
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "args": ["--steps", "1000", "--data", "/data"],
        "env": [{"name": "RANK", "value": str(number)}],
        "resources": {"requests": {"cpu": "2" if team % 2 else "1", "memory": "2Gi"}},
    }
    metadata = {
        "namespace": _team(team),
        "name": f"job-{number:06}",
        "labels": labels,
        "annotations": annotations,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _team(team: int) -> str:
    return f"team-{team:05}"


def organisation(pods: int, teams: int, here: int | None = None) -> Iterator[list[Document]]:
    """All of it, some hundred documents at a time; ``here``: with room for all pods, but only so many of them."""
    present = range(pods if here is None else here)
    bodies = chain(nodes(pods), quotas(teams, pods), (pod(number, teams) for number in present))
    while part := list(islice(bodies, _TOGETHER)):
        yield [Document("", number, body) for number, body in enumerate(part)]


def fill(path: str, pods: int, teams: int, here: int | None = None) -> dict[str, float]:
    """A store with that organisation; how fast it came to be."""
    service = Service.open(Path(path))
    count = 0
    begun = time.perf_counter()
    for documents in organisation(pods, teams, here):
        service.apply(documents)
        count += len(documents)
    service.close()
    return {"rate": count / (time.perf_counter() - begun)}


def asking(path: str, teams: int, pods: int, times: int) -> dict[str, float]:
    """Milliseconds (p99) of answers over HTTP about an organisation that is there; one caller."""
    with serving(Path(path)) as port, Caller(port) as caller:
        standing = [f"{_team(n % teams)}/job-{n:06}" for n in range(0, pods, pods // times)]
        waiting = [f"{one['namespace']}/{one['name']}" for one in caller.ask("GET", "/queue?limit=500")["items"]]
        assert waiting
        newcomers = [pod(pods + number, teams) for number in range(times)]
        explained = [caller.timed("GET", f"/claims/{key}/explain") for key in standing]
        refused = [caller.timed("GET", f"/claims/{waiting[n % len(waiting)]}/explain") for n in range(times)]
        tried = [caller.timed("POST", "/what-if", body) for body in newcomers]
        listed = [caller.timed("GET", "/claims?limit=500") for _ in range(times // 10)]
        fixes = [caller.timed("GET", f"/claims/{key}/explain?fixes=true") for key in waiting[:: len(waiting) // 10 + 1]]
    return {
        "explain": p99(explained),
        "explain_waiting": p99(refused),
        "what_if": p99(tried),
        "list": p99(listed),
        "fixes": max(fixes),
    }


def answering(path: str, teams: int, pods: int, times: int) -> dict[str, float]:
    """Milliseconds of processor time (p99) that the same questions take, without HTTP."""
    service = Service.open(Path(path))
    cluster = service.cluster
    standing = cluster.pods()[:: pods // times]
    waiting = [claim.key for claim in cluster.controller.queue.waiting()]
    newcomers = [[Document("", 0, pod(pods + number, teams))] for number in range(times)]
    found = {
        "explain": p99(_processor_times(partial(explanation, cluster, key) for key in standing)),
        "explain_waiting": p99(_processor_times(partial(explanation, cluster, key) for key in waiting)),
        "what_if": p99(_processor_times(partial(what_if, cluster, documents) for documents in newcomers)),
    }
    service.close()
    return found


def _processor_times(questions: Iterable[Callable[[], object]]) -> list[float]:
    found: list[float] = []
    for ask in questions:
        begun = time.process_time()
        ask()
        found.append((time.process_time() - begun) * 1e3)
    return found


def over_http(callers: int, each: int) -> dict[str, float]:
    """Pods a second that are applied, one a request, decided and durable; and how long a caller waits."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bursar.db"
        here = callers * 10
        fill(str(path), here + callers * each, callers, here)
        with serving(path) as port:

            def work(number: int) -> list[float]:
                bodies = [pod(here + callers * turn + number, callers) for turn in range(each)]
                with Caller(port) as caller:
                    return [caller.timed("POST", "/apply", body) for body in bodies]

            times, seconds = together(callers, work)
    return {"rate": len(times) / seconds, "p50": times[len(times) // 2], "p99": p99(times)}


def memory(path: str, pods: int, teams: int) -> dict[str, float]:
    """Megabytes of a whole server that such an organisation was given to, a few hundred objects at a time."""
    with _whole(Path(path)) as (service, audit):
        empty = resident()
        for done, documents in enumerate(organisation(pods, teams)):
            durable = service.apply(documents).durable
            if durable is not None:
                durable.result()
            if done % 40 == 39:
                say(f"   {(done + 1) * len(documents):,} objects, {resident() / 1e6:.0f} MB")
        found = _claims(service, pods)
        while audit.audited < service.store.last_seq:
            assert not audit.failures, audit.problem
            time.sleep(0.1)
        beside = resident(audit.pid)
    return {"megabytes": found, "empty": empty / 1e6, "auditor": beside / 1e6}


def reopened(path: str, pods: int) -> dict[str, float]:
    """The same of a server that is started on what the other one left."""
    begun = time.perf_counter()
    with _whole(Path(path)) as (service, _):
        seconds = time.perf_counter() - begun
        return {"megabytes": _claims(service, pods), "seconds": seconds}


@contextmanager
def _whole(path: Path) -> Iterator[tuple[Service, AuditWatch]]:
    """All that `bursar serve` has in memory; nobody calls."""
    service = Service.open(path)
    audit, keeper, ticker = AuditWatch(service), SnapshotKeeper(service), Ticker(service)
    copies = CopyProcesses(service, seconds=60)
    server(App(service, audit=audit, copies=copies), ServeOptions(data=path, port=0)).config.load()
    try:
        yield service, audit
    finally:
        copies.close()
        ticker.stop()
        keeper.stop()
        audit.stop()
        service.close()


def _claims(service: Service, pods: int) -> float:
    assert len(service.cluster.pods()) == pods
    return resident() / 1e6
