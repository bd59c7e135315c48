"""Part gpus: fractions of GPUs under namespace quotas, at the size of large clusters, and how it grows."""

from collections.abc import Iterator

from benchmarks.children import COMPILED, INTERPRETED, measure
from benchmarks.rows import AT_MOST, Row

_DECIDE = "benchmarks.work.gpus:decisions"
_NAMESPACES = 100
_GROWING = (13, 125, 1250)  # nodes of eight GPUs


def rows() -> Iterator[Row]:
    yield from _large()
    yield from _known_shape()
    yield from _check()
    yield from _slices()
    yield from _claims()
    yield from _growth()
    yield from _changes()


def _large() -> Iterator[Row]:
    """10,000 GPUs on 1,250 nodes."""
    size = {"nodes": 1250, "per_node": 8, "namespaces": _NAMESPACES}
    one = measure(_DECIDE, COMPILED, **size, workers=2000, gpus=1)["decisions"]
    yield Row("decide, one GPU of 10,000, workers of one job", one, "decisions/s", 5_000)
    mixed = measure(_DECIDE, COMPILED, **size, workers=2000, gpus=1, shapes=50)["decisions"]
    yield Row("decide, one GPU of 10,000, 50 shapes, no two alike in spec", mixed, "decisions/s", 5_000)
    eight = measure(_DECIDE, COMPILED, **size, workers=1000, gpus=8)["decisions"]
    yield Row("decide, eight GPUs of 10,000", eight, "decisions/s", 2_000)


def _known_shape() -> Iterator[Row]:
    """500 nodes, 3,000 GPUs, 10,000 workers: TensorFusion's own benchmark, 480 µs for filter and reserve there."""
    size = {"nodes": 500, "per_node": 6, "namespaces": _NAMESPACES}
    found = measure(_DECIDE, COMPILED, **size, workers=10_000, gpus=1)["decisions"]
    yield Row("decide, 10,000 workers on 3,000 GPUs, one job", found, "decisions/s", 10_000)
    mixed = measure(_DECIDE, COMPILED, **size, workers=10_000, gpus=1, shapes=50)["decisions"]
    yield Row("decide, 10,000 workers on 3,000 GPUs, 50 shapes", mixed, "decisions/s", 10_000)


def _check() -> Iterator[Row]:
    compiled = measure("benchmarks.work.gpus:checks", COMPILED, rounds=100_000)["checks"]
    yield Row("quota check, compiled", compiled, "checks/s", 1_000_000)
    interpreted = measure("benchmarks.work.gpus:checks", INTERPRETED, rounds=5_000)["checks"]
    yield Row("quota check, interpreted", interpreted, "checks/s")


def _slices() -> Iterator[Row]:
    """Slices of HAMi, on 1,250 nodes of eight GPUs."""
    size = {"nodes": 1250, "per_node": 8, "namespaces": _NAMESPACES, "pods": 1000}
    found = measure("benchmarks.work.gpus:slices", COMPILED, **size)["decisions"]
    yield Row("decide, a slice of HAMi, among 10,000 GPUs", found, "decisions/s")


def _claims() -> Iterator[Row]:
    """Claims of devices (dynamic resource allocation), over slices of 10,000 GPUs."""
    size = {"nodes": 1250, "per_node": 8, "pods": 1000}
    found = measure("benchmarks.work.device_claims:decisions", COMPILED, **size)["decisions"]
    yield Row("read and decide, a pod with a claim of one of 10,000 devices", found, "decisions/s", 5_000)
    took = measure("benchmarks.work.device_claims:slice_changes", COMPILED, **size)["ms"]
    yield Row("a ResourceSlice of 10,000 devices changes, 1,000 pods with claims", took, "ms")


def _growth() -> Iterator[Row]:
    costs: list[float] = []
    for nodes in _GROWING:
        size = {"nodes": nodes, "per_node": 8, "namespaces": _NAMESPACES}
        costs.append(1e6 / measure(_DECIDE, COMPILED, **size, workers=800, gpus=1)["decisions"])
        yield Row(f"a decision among {nodes * 8:,} GPUs", costs[-1], "µs")
    times = _GROWING[-1] / _GROWING[0]
    yield Row(f"{times:.0f} times the GPUs, a decision takes longer", costs[-1] / costs[0], "times", times, AT_MOST)


def _changes() -> Iterator[Row]:
    """A change of one object, up to the end of the next decision."""
    found = measure("benchmarks.work.gpus:changes", COMPILED, nodes=1250, per_node=8, rounds=200)
    yield Row("a label on a Node, among 10,000 GPUs", found["label"], "ms", 2, AT_MOST)
    yield Row("the capacity of a GPU, among 10,000", found["gpu"], "ms", 2, AT_MOST)
