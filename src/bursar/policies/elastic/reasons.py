"""What the elastic quotas say when they refuse."""

from __future__ import annotations

from typing import Final

from bursar.policies.reasons import Reason

REASONS: Final = (
    Reason(
        "elastic.max.<resource>",
        "The quota of the pod's namespace would exceed its `max`.",
        "Wait for pods of the team to end, ask for less, or raise `max`.",
    ),
    Reason(
        "elastic.total.<resource>",
        "All that the quotas guarantee (the sum of every `min`) is in use, and the pod may not take any of it back: "
        "its team already has its `min` and its fair part of what others leave idle.",
        "Wait, ask for less, or raise `min` of the team if the cluster has more than the sum of the minimums.",
    ),
    Reason(
        "elastic.min.<resource>",
        "The pod may not be preempted, so it must fit into `min` of its quota, and does not.",
        "Let it be preemptible, or raise `min`.",
    ),
    Reason(
        "elastic.unreadable",
        "What the pod asks for is a number too large to count.",
        "Correct its requests.",
    ),
)
