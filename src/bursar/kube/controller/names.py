"""The names by which the controller knows its own marks on objects.

What Bursar writes on a pod is never read back as a wish of the pod's owner; at a rebuild it is read as a record.
"""

from __future__ import annotations

from typing import Final

from bursar.policies.crossquota.names import GPU_NODE_LABEL
from bursar.policies.elastic.names import CAPACITY_LABEL
from bursar.policies.tensorfusion.worker import CONTAINER_GPUS, GPU_IDS, HARD_PERCENT

GATE: Final = "bursar.dev/quota"
GOVERNED_LABEL: Final = "bursar.dev/quota"  # on namespaces
ENFORCED: Final = "enforced"
ADMISSION: Final = "bursar.dev/admission"
TERM: Final = "bursar.dev/term"
HOLD: Final = "bursar.dev/hold"
GPU_NODE: Final = GPU_NODE_LABEL
OWN_PREFIX: Final = "bursar.dev/"  # of annotations; labels with it are the users'
OWN_ANNOTATIONS: Final = frozenset({GPU_IDS, CONTAINER_GPUS, HARD_PERCENT})
OWN_LABELS: Final = frozenset({CAPACITY_LABEL})

INVALID: Final = "control.invalid"
UNJUDGED: Final = "control.unjudged"


def is_own_annotation(name: str) -> bool:
    return name.startswith(OWN_PREFIX) or name in OWN_ANNOTATIONS
