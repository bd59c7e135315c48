"""What pods ask of GPUs by annotation (tflops, vram, percent), in one form for lists: the sum over the GPUs they want.

A pod whose annotations cannot be read asks for nothing here; why it waits says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from bursar.policies.tensorfusion.reading import read_worker
from bursar.policies.tensorfusion.worker import NOT_GIVEN, Unreadable, Worker, gpu_share
from bursar.quantity import MILLI


def gpu_parts(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """As in {"gpus": "2", "tflops": "40", "vram": "32Gi"}; how many GPUs is left out where it is a part of one."""
    try:
        worker = read_worker(labels, annotations)
    except Unreadable:
        return {}
    return {} if worker is None else _shown(worker)


def _shown(worker: Worker) -> dict[str, str]:
    if worker.whole:
        return {"gpus": str(worker.count)}
    request, count = worker.request, worker.count
    found = {"gpus": str(count)} if count > 1 else {}
    if request.percent != NOT_GIVEN:
        found["compute"] = _percent(request.percent * count)
    return found | gpu_share(max(request.tflops, 0) * count, max(request.vram, 0) * count).show()


def _percent(thousandths: int) -> str:
    whole, rest = divmod(thousandths, MILLI)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".") + "%" if rest else f"{whole}%"
