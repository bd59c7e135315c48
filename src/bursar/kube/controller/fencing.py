"""The term that the fence lets through: an annotation of Bursar's own namespace.

Whoever leads writes the number of its term there before it lists anything, and it never writes over its successor: it
reads the namespace, then sees that the lease is its own, then writes, naming the version that it read. A successor
takes the lease after that look and announces itself later still. So if its announcement comes before this write, the
write is a conflict; if after it, it stands. No clock is part of this, unlike of the gate that the lease puts before
every write; that one only makes it rare that anybody is refused here.

Others may change the namespace meanwhile: then it is read once more.
"""

from __future__ import annotations

import asyncio

from bursar.kube.client.api import Api, PatchKind
from bursar.kube.client.errors import Conflict
from bursar.kube.client.models import Body, Lease
from bursar.kube.client.resources import LEASES, NAMESPACES
from bursar.kube.controller.names import TERM
from bursar.kube.controller.outcomes import Dethroned

NOBODY = -1  # the term where nobody ever led
_PAUSE = 0.1  # seconds after a conflict


class Fence:
    """As one replica sees it."""

    def __init__(self, api: Api, namespace: str, lease: str, identity: str) -> None:
        self._api = api
        self._namespace = namespace
        self._lease = lease
        self._identity = identity

    async def announce(self, term: int) -> None:
        """Let the patches of this term through, and of no other; raises ``Dethroned`` when it is over."""
        while True:
            found = await self._api.get(NAMESPACES, self._namespace)
            if _written(found) == str(term):
                return
            await self._see_to_it_that_we_lead(term)
            version = found.meta.resource_version
            patch = {"metadata": {"resourceVersion": version, "annotations": {TERM: str(term)}}}
            try:
                await self._api.patch(NAMESPACES, self._namespace, "", PatchKind.MERGE, patch)
            except Conflict:
                await asyncio.sleep(_PAUSE)
            else:
                return

    async def announced(self) -> int:
        """The term whose patches get through."""
        found = await self._api.find(NAMESPACES, self._namespace)
        written = "" if found is None else _written(found)
        return int(written) if written.isdecimal() else NOBODY

    async def _see_to_it_that_we_lead(self, term: int) -> None:
        found = await self._api.find(LEASES, self._lease, self._namespace)
        spec = None if found is None else found.into(Lease).spec
        if spec is None or (spec.holder_identity, spec.lease_transitions) != (self._identity, term):
            raise Dethroned(f"term {term} is over: the lease {self._namespace}/{self._lease} is not ours any more")


def _written(namespace: Body) -> str:
    annotations: dict[str, str] = namespace.plain()["metadata"].get("annotations") or {}
    return annotations.get(TERM, "")
