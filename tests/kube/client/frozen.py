"""A process that leads and writes as fast as it can, to be frozen and woken by a test.

Prints ``leading`` when its first write succeeded and ``fenced`` for the first write that the gate held back.
"""

import asyncio
import sys

from bursar.kube.client.api import Api
from bursar.kube.client.config import ClusterConfig
from bursar.kube.client.errors import Fenced, KubeError
from bursar.kube.client.http import Http
from bursar.kube.client.lease import Elector, Timing
from bursar.kube.client.resources import CONFIG_MAPS


async def main(url: str, identity: str) -> None:
    async with Http(ClusterConfig(url)) as http:
        api = Api(http)
        led = asyncio.Event()
        elector = Elector(
            api, "lock", "ns", identity, timing=Timing(3.0, 2.0, 0.5), started=lambda _: led.set(), stopped=led.clear
        )
        http.gate = elector.remaining
        running = asyncio.create_task(elector.run())
        await led.wait()
        await asyncio.gather(*(write(api, identity, worker) for worker in range(8)))
        running.cancel()


async def write(api: Api, identity: str, worker: int) -> None:
    number = 0
    while True:
        number += 1
        name = f"{identity}-{worker}-{number}"
        try:
            await api.create(CONFIG_MAPS, {"metadata": {"name": name}}, "ns")
        except Fenced:
            print("fenced", flush=True)  # noqa: T201 read by the test
            return
        except KubeError as error:
            print(f"failed: {error}", flush=True)  # noqa: T201 read by the test
            continue
        if number == 1:
            print("leading", flush=True)  # noqa: T201 read by the test
        await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
