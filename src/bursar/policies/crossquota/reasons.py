"""What the quota of CPU pods on GPU nodes says when it refuses, and its events on nodes."""

from __future__ import annotations

from typing import Final

from bursar.policies.reasons import Reason

REASONS: Final = (
    Reason(
        "crossquota.quota.<resource>",
        "Pods without a GPU already have all that they may have of this GPU node.",
        "Wait, let the pod run on nodes without GPUs, or raise the quota of the node.",
    ),
    Reason(
        "crossquota.reserve.<resource>",
        "What is left on this GPU node is kept for pods that will use its idle GPUs.",
        "Wait, let the pod run on nodes without GPUs, or lower the reserve.",
    ),
    Reason(
        "crossquota.annotation",
        "Event on a node: an annotation with the node's own quota cannot be read, and is not used.",
        "Correct the annotation.",
    ),
    Reason(
        "crossquota.exceeded",
        "Event on a node: pods without a GPU have more of it than they may, because the quota was lowered or they were "
        "there before it.",
        "Nothing has to be done: nobody is evicted, and nobody else gets in until it is within the quota again.",
    ),
)
