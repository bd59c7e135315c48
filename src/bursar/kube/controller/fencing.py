"""The term that the fence lets through: an annotation of Bursar's own namespace.

Whoever leads writes the number of its term there before it lists anything. It has read the namespace first and names
the version that it read, and the lease gates the write: so a leader that was frozen in between, and woken after its
successor wrote, is refused as a conflict, and one that is woken before it reads never writes. Others may change the
namespace meanwhile: then it is read once more.
"""

from __future__ import annotations

import asyncio

from bursar.kube.client.api import Api, PatchKind
from bursar.kube.client.errors import Conflict
from bursar.kube.client.models import Body
from bursar.kube.client.resources import NAMESPACES
from bursar.kube.controller.names import TERM

_PAUSE = 0.1  # seconds after a conflict


async def announce(api: Api, namespace: str, term: int) -> None:
    """Let the patches of this term through, and of no other."""
    while True:
        found = await api.get(NAMESPACES, namespace)
        if _written(found) == str(term):
            return
        version = found.meta.resource_version
        patch = {"metadata": {"resourceVersion": version, "annotations": {TERM: str(term)}}}
        try:
            await api.patch(NAMESPACES, namespace, "", PatchKind.MERGE, patch)
        except Conflict:
            await asyncio.sleep(_PAUSE)
        else:
            return


async def announced(api: Api, namespace: str) -> int:
    """The term whose patches get through; 0 where nobody ever led."""
    found = await api.find(NAMESPACES, namespace)
    written = "" if found is None else _written(found)
    return int(written) if written.isdecimal() else 0


def _written(namespace: Body) -> str:
    annotations: dict[str, str] = namespace.plain()["metadata"].get("annotations") or {}
    return annotations.get(TERM, "")
