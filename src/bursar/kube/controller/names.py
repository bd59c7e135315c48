"""The names by which the controller knows its own marks on objects; those that guards know too are theirs.

What Bursar writes on a pod is never read back as a wish of the pod's owner; at a rebuild it is read as a record.
"""

from __future__ import annotations

from typing import Final

from bursar.kube.admission import options
from bursar.policies.crossquota.names import GPU_NODE_LABEL
from bursar.policies.elastic.names import CAPACITY_LABEL
from bursar.policies.tensorfusion.worker import CONTAINER_GPUS, GPU_IDS, HARD_PERCENT

GATE: Final = options.GATE
GOVERNED_LABEL: Final = options.NAMESPACE_LABEL
ENFORCED: Final = options.ENFORCED
ADMISSION: Final = options.RECORD_ANNOTATION
TERM: Final = options.TERM_ANNOTATION
OWN_PREFIX: Final = options.OWN_PREFIX  # of annotations; labels with it are the users'
HOLD: Final = OWN_PREFIX + "hold"
GPU_NODE: Final = GPU_NODE_LABEL
OWN_ANNOTATIONS: Final = frozenset({GPU_IDS, CONTAINER_GPUS, HARD_PERCENT})
OWN_LABELS: Final = frozenset({CAPACITY_LABEL})

INVALID: Final = "control.invalid"
UNJUDGED: Final = "control.unjudged"
PREEMPTED: Final = "control.preempted-by-others"


def is_own_annotation(name: str) -> bool:
    return name.startswith(OWN_PREFIX) or name in OWN_ANNOTATIONS
