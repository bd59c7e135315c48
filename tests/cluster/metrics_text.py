"""What a replica tells Prometheus, by name and labels as they are printed."""

import re
from http.client import HTTPConnection
from pathlib import Path

from tests.cluster.waiting import eventually

_SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? ([0-9.e+]+)")


def get(port: int, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def announced_port(log: Path) -> int:
    """Where a replica serves that chose its port itself."""
    (port,) = eventually(lambda: re.findall(r"metrics on port (\d+)", log.read_text()), "the port is announced")
    return int(port)


def metrics(port: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in get(port, "/metrics").splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is not None:
            labels = f"{{{sample[2]}}}" if sample[2] else ""
            found[sample[1] + labels] = float(sample[3])
    return found
