"""Trace one pod through the code: which modules and functions it enters, and how often.

``PYTHONPATH=src:. python tools/walk.py [embedded] [kubernetes]`` prints a table; without a name it runs both walks.
``--list`` also prints the modules, each with its functions, in the order of first entry.

Each walk has one node and one ElasticQuota with room. A first pod is admitted and runs before the trace begins, so that
what is done once per process or once per kind of pod is not counted. The trace covers the second pod, equal but for its
name, until nothing is left to do:

- ``embedded``: the pod is applied to the embedded cluster, from its parsed manifest.
- ``kubernetes``: the pod appears, gated, in the fake API server of the tests. One leader term of the controller admits
  it, the test's scheduler binds it, and the controller writes the status of the quota. What only time brings is left
  out: lease renewals, the periodic tick with its drift check, retries for kinds that the server lacks.

What is counted: functions, methods, lambdas, generators and comprehensions whose code is in a source file of bursar;
not what dataclasses generate, nor C code. A call is an entry of such code; each resumption of a generator or coroutine
is one more. A call crosses a module if its nearest caller in bursar is in another module. Calls that the fake API
server makes do not count. The depth is that of frames of bursar on one stack; a function that calls itself directly
counts once. Records are those of the journal. Repeated runs give the same figures, unless a slow machine splits work.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType

from bursar import __file__ as package_file
from bursar.control.admission import known_kinds
from bursar.kube.client.api import Resource
from bursar.kube.client.http import Http
from bursar.kube.controller import leader_term
from bursar.objects.manifests import Document
from bursar.policies.plugin import default_registry
from bursar.sim.cluster import Cluster
from tests import __file__ as tests_file
from tests.kube.controller.stage import GPU, Stage
from tests.kube.fakeapi import FakeApi

PACKAGE, TESTS = Path(package_file).parent, Path(tests_file).parent
TEAM = "team"
QUIET = 1.3  # seconds without a request; the controller gathers changes of one status for 1.0


class Trace:
    """What was entered while it was on."""

    def __init__(self) -> None:
        self.functions: dict[CodeType, str] = {}  # with the module, in the order of first entry
        self.calls = 0
        self.crossing = 0
        self.depth = 0
        self.records = 0

    @contextmanager
    def on(self) -> Iterator[None]:
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not is_below(frame.f_code, PACKAGE):
            return
        stack = [frame]
        above = frame.f_back
        while above is not None:
            if is_below(above.f_code, TESTS):
                return
            if is_below(above.f_code, PACKAGE):
                stack.append(above)
            above = above.f_back
        module = module_of(frame)
        self.functions.setdefault(frame.f_code, module)
        self.calls += 1
        self.crossing += len(stack) > 1 and module_of(stack[1]) != module
        self.depth = max(self.depth, sum(1 for _ in groupby(stack, lambda one: one.f_code)))

    def by_module(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for code, module in self.functions.items():
            found.setdefault(module, []).append(code.co_qualname)
        return found


def is_below(code: CodeType, folder: Path) -> bool:
    return code.co_filename.startswith(f"{folder}/")


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals["__name__"])


# The walks


def embedded() -> Trace:
    cluster, trace = Cluster(), Trace()
    node = _document("v1", "Node", {"name": "node"}, status={"allocatable": {GPU: 8}})
    quota = {"min": {GPU: 4}, "max": {GPU: 8}}
    elastic = _document("n8s.nebuly.ai/v1alpha1", "ElasticQuota", {"namespace": TEAM, "name": "quota"}, spec=quota)
    containers = [{"name": "main", "resources": {"limits": {GPU: 1}}}]
    first, second = (
        _document("v1", "Pod", {"namespace": TEAM, "name": name}, spec={"containers": containers})
        for name in ("first", "second")
    )
    cluster.apply([node, elastic])
    cluster.apply([first])
    before = cluster.engine.version
    with trace.on():
        cluster.apply([second])
    trace.records = cluster.engine.version - before
    view = cluster.pod(f"{TEAM}/second")
    _check(view is not None and view.phase == "Running")
    return trace


def _document(version: str, kind: str, metadata: dict[str, str], **parts: object) -> Document:
    return Document("", 0, {"apiVersion": version, "kind": kind, "metadata": metadata, **parts})


def kubernetes() -> Trace:
    return asyncio.run(_kubernetes())


async def _kubernetes() -> Trace:
    trace = Trace()
    leader_term.TICK = 3600.0  # seconds: not during the walk
    kinds = [Resource.of(kind) for kind in known_kinds(default_registry())]
    async with FakeApi(*kinds) as fake, Http(fake.config()) as http:
        cluster = Stage(fake, http)
        cluster.node("node", 8)
        cluster.namespace(TEAM)
        cluster.quota(TEAM, 8, 4)
        term = await cluster.lead()
        await _run(cluster, "first")
        before = term.mirror.engine.version
        with trace.on():
            await _run(cluster, "second")
        trace.records = term.mirror.engine.version - before
        await cluster.depose()
    return trace


async def _run(cluster: Stage, name: str) -> None:
    """Create a pod, bind it when it is admitted, and wait until the controller has nothing left to write."""
    pod = cluster.pod(TEAM, name)
    await cluster.until(lambda: cluster.started(pod))
    cluster.schedule()
    requests = -1
    while requests != len(cluster.fake.seen):
        requests = len(cluster.fake.seen)
        await asyncio.sleep(QUIET)
    found = cluster.find(TEAM, name)
    _check(found is not None and found["spec"].get("nodeName") == "node")


def _check(done: bool) -> None:
    if not done:
        raise SystemExit("the pod does not run: this walk is not the one to measure")


WALKS: dict[str, Callable[[], Trace]] = {"embedded": embedded, "kubernetes": kubernetes}


def table(traces: dict[str, Trace]) -> str:
    rows: dict[str, Callable[[Trace], int]] = {
        "modules": lambda trace: len(trace.by_module()),
        "functions": lambda trace: len(trace.functions),
        "calls": lambda trace: trace.calls,
        "calls that cross a module": lambda trace: trace.crossing,
        "deepest stack": lambda trace: trace.depth,
        "journal records": lambda trace: trace.records,
    }
    lines = [f"{'walk of one pod':<28}" + "".join(f"{name:>12}" for name in traces)]
    lines += [f"{title:<28}" + "".join(f"{of(trace):>12,}" for trace in traces.values()) for title, of in rows.items()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walks", metavar="WALK", nargs="*", help=f"{', '.join(WALKS)}; default: both")
    parser.add_argument("--list", action="store_true", help="print modules and functions in order of first entry")
    options = parser.parse_args(arguments)
    if unknown := set(options.walks) - set(WALKS):
        parser.error(f"no walk {', '.join(sorted(unknown))}: choose from {', '.join(WALKS)}")
    if any(PACKAGE.rglob("*.so")):
        parser.error(f"{PACKAGE} is compiled, and compiled functions cannot be traced: use PYTHONPATH=src:.")
    traces = {name: WALKS[name]() for name in options.walks or WALKS}
    print(table(traces))
    for name, trace in traces.items() if options.list else ():
        print(f"\n{name}")
        for module, functions in trace.by_module().items():
            print(f"  {module}: {', '.join(functions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
