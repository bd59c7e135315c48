from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from bursar.quantity import MILLI, UNIT
from bursar.resources import dimension, dimension_at


@pytest.mark.parametrize(
    ("name", "resolution", "binary"),
    [
        ("cpu", MILLI, False),
        ("requests.cpu", MILLI, False),
        ("limits.memory", UNIT, True),
        ("memory", UNIT, True),
        ("requests.ephemeral-storage", UNIT, True),
        ("hugepages-2Mi", UNIT, True),
        ("requests.hugepages-1Gi", UNIT, True),
        ("nvidia.com/gpu", UNIT, False),
        ("requests.nvidia.com/gpu", UNIT, False),
        ("example.com/cpu", UNIT, False),
        ("pods", UNIT, False),
        ("tflops", MILLI, False),
        ("vram", UNIT, True),
    ],
)
def test_dimensions_know_their_resolution_and_format(name: str, resolution: int, binary: bool) -> None:
    found = dimension(name)
    assert (found.resolution, found.binary) == (resolution, binary)
    assert dimension_at(found.index) is found


def test_many_threads_intern_one_index_a_name() -> None:
    names = [f"thread.example/r{i}" for i in range(200)]
    start = Barrier(8)

    def intern(offset: int) -> dict[str, int]:
        start.wait()
        return {name: dimension(name).index for name in names[offset:] + names[:offset]}

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(intern, range(0, 200, 25)))
    assert all(each == found[0] for each in found)
    assert len(set(found[0].values())) == len(names)
    assert [dimension_at(found[0][name]).name for name in names] == names
