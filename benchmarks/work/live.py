"""A server in a process of its own, and requests to it over connections that are kept open.

``python -m benchmarks.work.live FILE`` serves a store until its input is closed; the first line it prints is its port.
"""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Self

from bursar.server.serve import ServeOptions, listen, running, server


class Caller:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 whatever the server answers
        text = None if body is None else json.dumps(body)
        self._connection.request(method, f"/api/v1{path}", text, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer

    def timed(self, method: str, path: str, body: object = None) -> float:
        """Milliseconds until the answer was read."""
        begun = time.perf_counter()
        self.ask(method, path, body)
        return (time.perf_counter() - begun) * 1e3


@contextmanager
def serving(path: Path) -> Iterator[int]:
    """A server over a store file; its port."""
    command = [sys.executable, "-m", "benchmarks.work.live", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = process.stdout.readline()
        assert port, "the server did not start"
        try:
            yield int(port)
        finally:
            process.stdin.close()


def together(count: int, work: Callable[[int], list[float]]) -> tuple[list[float], float]:
    """What so many threads return, sorted, and how many seconds they took."""
    found: list[float] = []
    threads = [Thread(target=lambda number=number: found.extend(work(number))) for number in range(count)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found), time.perf_counter() - begun


def p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


def main(path: Path) -> None:
    options = ServeOptions(data=path, port=0)
    listener = listen("127.0.0.1", 0)
    with running(options) as (_, app):
        built = server(app, options)

        def end() -> None:
            sys.stdin.read()
            built.should_exit = True

        Thread(target=end, daemon=True).start()
        print(listener.getsockname()[1], flush=True)
        built.run(sockets=[listener])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
