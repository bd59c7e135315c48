"""Which pod is which claim, and what a pod asks for. A pod's priority is settled by admission, before it comes here."""

from __future__ import annotations

from typing import cast

from bursar.control.translation import ObjectChange
from bursar.ledger.claims import Claim
from bursar.objects.core import Pod
from bursar.objects.pods import SpecCache, claim_from_pod
from bursar.objects.priorities import Priorities
from bursar.policies.plugin import Registry

_PRIORITIES = Priorities()
_ENDED = ("Succeeded", "Failed")


class PodBook:
    """The claims of the pods that are there, by the pod's namespace/name."""

    def __init__(self, registry: Registry) -> None:
        self._unpreemptible = [plugin.unpreemptible for plugin in registry if plugin.unpreemptible is not None]
        self._cache = SpecCache()
        self._claims: dict[str, Claim] = {}
        self._keys: dict[str, str] = {}

    def read(self, change: ObjectChange) -> tuple[Claim | None, str]:
        """The claim that the pod makes, new and in no ledger, and its key; None when it is gone or has ended."""
        pod = cast("Pod | None", change.typed)
        if pod is None or pod.status.phase in _ENDED:
            return None, change.key
        claim = claim_from_pod(pod, change.created, _PRIORITIES, self._unpreemptible, self._cache)
        return claim, change.key

    def add(self, key: str, claim: Claim) -> None:
        self._claims[key] = claim
        self._keys[claim.uid] = key

    def remove(self, uid: str) -> None:
        key = self._keys.pop(uid, None)
        if key is not None:
            del self._claims[key]

    def claim(self, key: str) -> Claim | None:
        return self._claims.get(key)
