"""A process that leads and writes as fast as it can, to be frozen and woken by a test.

By itself, or (``child``) with a child process that renews the lease. Prints ``leading`` when a write succeeded, the
first time, and ``fenced`` for writes after it that the gate held back; then it writes and leads no more, and waits for
its end. A machine that is so busy that the lease ends before the first
write lets it lead a second time.
"""

import asyncio
import sys
from itertools import count

from bursar.kube.client.api import CONFIG_MAPS, Api
from bursar.kube.client.election import ClusterAccess, ElectionChild
from bursar.kube.client.errors import Fenced, KubeError
from bursar.kube.client.http import Http
from bursar.kube.client.kubeconfig import load
from bursar.kube.client.lease import Elector, Timing


async def main(kubeconfig: str, identity: str, how: str) -> None:
    async with Http(load(kubeconfig)) as http:
        api = Api(http)
        elector = election(api, kubeconfig, identity, child=how == "child", timing=Timing(3.0, 2.0, 0.5))
        http.gate = elector.remaining
        running = asyncio.create_task(elector.run())
        led = asyncio.Event()
        await asyncio.gather(*(write(api, f"{identity}-{worker}", led) for worker in range(8)))
        running.cancel()
        await asyncio.Event().wait()


def election(api: Api, kubeconfig: str, identity: str, *, child: bool, timing: Timing) -> Elector | ElectionChild:
    names = ("lock", "ns", identity)
    if not child:
        return Elector(api, *names, timing=timing, started=lambda _: None, stopped=lambda: None)
    access = ClusterAccess(kubeconfig)
    return ElectionChild(api.http, access, *names, timing=timing, started=lambda _: None, stopped=lambda: None)


async def write(api: Api, name: str, led: asyncio.Event) -> None:
    for number in count():
        try:
            await api.create(CONFIG_MAPS, {"metadata": {"name": f"{name}-{number}"}}, "ns")
        except Fenced:
            if led.is_set():
                print("fenced", flush=True)  # noqa: T201 read by the test
                return
        except KubeError as error:
            print(f"failed: {error}", flush=True)  # noqa: T201 read by the test
        else:
            if not led.is_set():
                print("leading", flush=True)  # noqa: T201 read by the test
                led.set()
        await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
