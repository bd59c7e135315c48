"""Whom the quota is about: claims that ask for no GPU, that the selector selects and that are not exempt.

The answer is the same for usage, filter, score and rank. A claim asks for a GPU if it requests a resource that one
of the configured names matches, a part of a GPU as other dialects spell it, has claims for devices, or is a
TensorFusion worker, which requests no GPU resource at all. Answers are remembered by spec: the claims of one job share
theirs.
"""

from __future__ import annotations

import re
from typing import Final, final

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.crossquota.arguments import Arguments
from bursar.policies.crossquota.names import CLAIMS_DEVICES
from bursar.policies.crossquota.patterns import Patterns
from bursar.policies.tensorfusion.worker import is_worker
from bursar.vectors import Vector

MIRROR: Final = "kubernetes.io/config.mirror"
DAEMON_SET: Final = "DaemonSet/"  # how the owner of such a pod begins
_PARTS: Final = re.compile(r"nvidia\.com/(mig-.*|gpu-[0-9]+gb)|n8s\.nebuly\.ai/gpu-memory", re.ASCII)
_REMEMBERED: Final = 65_536


@final
class Scope:
    """Judges claims by some arguments."""

    __slots__ = ("arguments", "patterns", "reasons")

    def __init__(self, arguments: Arguments, patterns: Patterns) -> None:
        self.arguments: Final = arguments
        self.patterns: Final = patterns
        self.reasons: Final[dict[ClaimSpec, str]] = {}  # by identity: why it is not limited, "" if it is

    def limited(self, claim: Claim) -> bool:
        """Whether the quota is about the claim."""
        return not self.why_not(claim)

    def why_not(self, claim: Claim) -> str:
        """Why the quota is not about the claim; "" when it is."""
        if claim.namespace in self.arguments.exempt_namespaces:
            return f"namespace {claim.namespace} is exempt"
        spec = claim.spec
        found = self.reasons.get(spec)
        if found is None:
            found = self._why_not(spec)
            if len(self.reasons) >= _REMEMBERED:
                self.reasons.clear()
            self.reasons[spec] = found
        return found

    def _why_not(self, spec: ClaimSpec) -> str:
        arguments = self.arguments
        if not self.patterns:
            return "no GPU resources are named"
        if self._asks_for_gpu(spec):
            return "it asks for a GPU"
        if arguments.exempt_daemon_sets and spec.owner.startswith(DAEMON_SET):
            return "pods of DaemonSets are exempt"
        if arguments.exempt_mirrors and MIRROR in spec.annotations:
            return "mirror pods are exempt"
        if not arguments.selector.matches(spec.labels):
            return "the label selector does not select it"
        return ""

    def _asks_for_gpu(self, spec: ClaimSpec) -> bool:
        for name in spec.requests.names():
            if self.patterns.match(name) or _PARTS.fullmatch(name) is not None:
                return True
        if CLAIMS_DEVICES in spec.annotations:
            return True
        return is_worker(spec.labels, spec.annotations)

    def gpus(self, requests: Vector) -> int:
        """How many GPUs are requested by the configured names."""
        total = 0
        for name, amount in requests.pairs():
            if self.patterns.match(name):
                total += amount
        return total
