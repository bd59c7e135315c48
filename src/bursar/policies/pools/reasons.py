"""What the quota trees over node pools say when they refuse or take back."""

from __future__ import annotations

from typing import Final

from bursar.policies.reasons import Reason

REASONS: Final = (
    Reason(
        "pools.max.<resource>",
        "The pod's quota, or one above it, would exceed its `max`.",
        "Wait, ask for less, or raise `max`.",
    ),
    Reason(
        "pools.runtime.<resource>",
        "The quota has used up its runtime quota: its `min` and its weighted part of what others leave idle now.",
        "Wait until others need less, or raise `min` or the shared weight.",
    ),
    Reason(
        "pools.min.<resource>",
        "The pod may not be preempted, so it must fit into `min` of its quota, and does not.",
        "Let it be preemptible, or raise `min`.",
    ),
    Reason(
        "pools.loose",
        "The pod's quota hangs on no tree: its parent is missing.",
        "Apply the parent, or correct the label that names it. The note says what is wrong.",
    ),
    Reason(
        "pools.unplaceable",
        "Seen in `explain` only: no node of the tree could ever take the pod, so its demand is not counted.",
        "Ask for what a node of the pool has, or add nodes.",
    ),
    Reason(
        "pools.revoked",
        "The pod was evicted, because its quota used more than its runtime quota for longer than `delayEvictTime`.",
        "Submit it again: it starts when the quota has room. To be safe from this, stay within `min`.",
    ),
)
