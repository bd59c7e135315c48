"""The parts of the golden record that running servers give: answers of the API, and metrics of server and controller.

The embedded server runs the demo organisation, which has a quota of every dialect, for a while of virtual time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

from bursar.kube.controller.leader_term import TermOptions
from bursar.kube.controller.metrics import ControllerMetrics
from bursar.kube.controller.mirror import MirrorOptions
from bursar.kube.controller.replica import ProcessOptions, Replica
from bursar.policies.plugin import default_registry
from bursar.server import demo
from tests.golden.record import Part
from tests.golden.scenarios import in_short
from tests.kube.controller.stage import stage
from tests.server.live import Live, ManualClock, live

BEATS = 60
BEAT = 2000  # milliseconds
READS = (
    "",
    "/kinds",
    "/quotas",
    "/nodes",
    "/gpus",
    "/queue",
    "/claims?limit=20",
    "/decisions?limit=20",
    "/changes?limit=3",
    "/objects?limit=10",
    f"/claims/{demo.FIRST_POD}",
    f"/claims/{demo.FIRST_POD}/explain?fixes=true",
    f"/history/Pod/{demo.FIRST_POD}",
    "/diff?from=200&to=210",
    "/claims/you/nowhere",
    "/objects/Nothing/nowhere",
    "/nowhere",
)
POD = """
apiVersion: v1
kind: Pod
metadata: {namespace: vision, name: tried}
spec:
  nodeSelector: {pool: train}
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]
"""
YAML, JSON = "application/yaml", "application/json"
WRITES = (
    ("/apply?dryRun=true", YAML, POD),
    ("/what-if", YAML, POD),
    ("/plan", YAML, POD),
    ("/delete?dryRun=true", JSON, '{"objects": ["Node/train-1"]}'),
    ("/delete", JSON, '{"objects": ["Pod/you/nowhere"]}'),
    ("/apply?source=a.yaml", YAML, POD.replace("limits", "limit")),
    ("/changes/1/undo?dryRun=true", JSON, ""),
    ("/apply", "text/plain", POD),
    ("/apply?", YAML, POD),
)


def demo_run() -> Part:
    """What the API answers about the demo organisation after a few minutes, and the journal up to then."""
    with TemporaryDirectory() as folder, demo_server(Path(folder) / "bursar.db") as server:
        server.service.position()
        journal = [in_short(line) for line in server.service.store.load_journal(1)]
        found = {f"GET {path}": _answer(server.raw("GET", f"/api/v1{path}")) for path in READS}
        for path, kind, body in WRITES:
            found[f"POST {path}"] = _answer(server.raw("POST", f"/api/v1{path}", body.encode(), content_type=kind))
    return {"answers": found, "journal": journal}


@contextmanager
def demo_server(data: Path) -> Iterator[Live]:
    """A server that has run the demo organisation for a while, in a time that does not pass by itself."""
    clock = ManualClock()
    with live(data, clock=clock) as server:
        service = server.service
        service.apply(demo.organisation())
        for beat in islice(demo.beats(), BEATS):
            if beat:
                service.apply(beat)
            clock.now += BEAT
            service.tick()
        views = map(service.cluster.pod, service.cluster.pods())
        service.finish([next(view.key for view in views if view is not None and view.phase == "Running")])
        yield server


def _answer(response: tuple[int, dict[str, str], bytes]) -> dict[str, Any]:
    status, headers, body = response
    answer = json.loads(body)
    if isinstance(answer, dict) and "started" in answer:
        del answer["version"]
    return {"status": status, "type": headers["content-type"], "answer": answer}


# Metrics


def metrics() -> Part:
    """Names, types and labels of all metrics of the embedded server and of the controller, in shadow mode too."""
    with TemporaryDirectory() as folder, _declared() as server, live(Path(folder) / "bursar.db") as running:
        running.raw("GET", "/metrics")
    with _declared() as controller:
        asyncio.run(_scrape_controller())
    return {"server": server, "controller": controller}


@contextmanager
def _declared() -> Iterator[dict[str, Any]]:
    """All metrics that are declared meanwhile, also those without a sample; complete when it is left."""
    made: list[Any] = []
    found: dict[str, Any] = {}
    family, wrapper = Metric.__init__, MetricWrapperBase.__init__

    def note_family(self: Metric, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        family(self, *arguments, **options)
        made.append(self)

    def note_wrapper(self: MetricWrapperBase, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        wrapper(self, *arguments, **options)
        made.append(self)

    with patch.object(Metric, "__init__", note_family), patch.object(MetricWrapperBase, "__init__", note_wrapper):
        yield found
    rows = [_row(one) for one in made if hasattr(one, "_labelnames")]
    found.update(sorted(rows, key=lambda row: row[0]))


def _row(metric: Any) -> tuple[str, dict[str, Any]]:  # noqa: ANN401 a family or a wrapper
    if isinstance(metric, MetricWrapperBase):
        name, kind, text = metric._name, metric._type, metric._documentation
    else:
        name, kind, text = metric.name, metric.type, metric.documentation
    return name, {"type": kind, "labels": list(metric._labelnames), "help": text}


async def _scrape_controller() -> None:
    """A replica whose term is ready, once as leader and once in shadow mode."""
    for shadow in (False, True):
        async with stage() as cluster:
            cluster.node("n1", 8)
            cluster.namespace("a")
            cluster.quota("a", 2)
            options = TermOptions(MirrorOptions(shadow=shadow), dry_run=True)
            replica = Replica(cluster.api, default_registry(), ProcessOptions(options))
            replica.term = await cluster.lead(options)
            await ControllerMetrics(replica).render()
