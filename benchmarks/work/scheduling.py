"""Pods through a real control plane: created as fast as it takes them, timed until the last one is bound.

The load is the same for everyone who is measured: so many pods in a namespace of their own, by 32 requests at once,
while whoever gates and the scheduler work on those that came before. Bound pods are counted by a watch that carries
metadata only. Nobody plays the kubelet.
"""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp

from benchmarks.work.kubeapi import PARTIAL, follow, session
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import Object

_CREATES = 32  # in flight
_SECONDS = 600  # a run that takes longer has failed
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


async def time_pods(plane: ControlPlane, namespace: str, bodies: Iterator[Object], count: int) -> float:
    """Pods a second of wall-clock time, from the first request until the last pod is bound."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with session(plane.url, plane.ca_path, plane.token()) as http, asyncio.timeout(_SECONDS):
        watching = asyncio.Event()
        bound = asyncio.create_task(_count_bound(http, path, count, watching))
        await watching.wait()
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CREATES):
                tasks.create_task(_create(http, path, bodies))
        await bound
        return count / (time.perf_counter() - started)


async def _create(http: aiohttp.ClientSession, path: str, bodies: Iterator[Object]) -> None:
    for body in bodies:
        async with http.post(path, json=body) as answer:
            if answer.status >= 400:
                raise RuntimeError(f"creating a pod: {answer.status} {await answer.text()}")
            await answer.read()


async def _count_bound(http: aiohttp.ClientSession, path: str, count: int, watching: asyncio.Event) -> None:
    seen: set[str] = set()
    async for lines in follow(http, path, "spec.nodeName!=", PARTIAL.format(""), watching.set):
        seen.update(json.loads(line)["object"]["metadata"]["name"] for line in lines)
        if len(seen) == count:
            return


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
