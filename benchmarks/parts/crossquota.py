"""Part crossquota: filter and score of one CPU pod over 5,000 GPU nodes with 100 pods each."""

from collections.abc import Iterator

from benchmarks.children import COMPILED, INTERPRETED, measure
from benchmarks.rows import AT_MOST, Row

_NODES = 5_000
_PODS = 100
_MILLISECONDS = 1.0


def rows() -> Iterator[Row]:
    compiled = measure("benchmarks.work.crossquota:bulk", COMPILED, nodes=_NODES, pods=_PODS)
    where = f"{_NODES:,} nodes, {_PODS} pods each"
    yield Row(f"filter+score for a pod, {where}, compiled", compiled["bulk"], "ms", _MILLISECONDS, AT_MOST)
    yield Row("the same, recomputed for each pod and node, plain Python", compiled["original"], "ms")
    yield Row("recomputed against incremental, compiled", compiled["original"] / compiled["bulk"], "times")
    small = _NODES // 10
    interpreted = measure("benchmarks.work.crossquota:bulk", INTERPRETED, nodes=small, pods=_PODS)
    yield Row(f"filter+score for a pod, {small:,} nodes, interpreted", interpreted["bulk"], "ms")
    yield Row("recomputed against incremental, interpreted", interpreted["original"] / interpreted["bulk"], "times")
