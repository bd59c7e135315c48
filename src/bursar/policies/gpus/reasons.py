"""What the GPUs say when they refuse."""

from __future__ import annotations

from typing import Final

from bursar.policies.reasons import Reason

REASONS: Final = (
    Reason(
        "gpus.full",
        "GPUs could take the pod if they were empty, but no node has enough of them with room now.",
        "Wait, or ask for less. `explain` counts the GPUs by what is against each.",
    ),
    Reason(
        "gpus.none",
        "No node has GPUs that could ever take the pod.",
        "Ask for less, or for another model or pool.",
    ),
    Reason(
        "gpus.room.<resource>",
        "This GPU has not enough of the resource left.",
        "Wait, or ask for less.",
    ),
    Reason(
        "gpus.suitable",
        "The node has too few GPUs that suit the pod.",
        "Ask for fewer GPUs, or for less of each.",
    ),
    Reason(
        "gpus.pool",
        "The GPU is in another pool than the one that the pod asks for.",
        "Name another pool, or move GPUs.",
    ),
    Reason(
        "gpus.model",
        "The GPU is of another model than the one that the pod asks for.",
        "Ask for another model, or for none.",
    ),
    Reason(
        "gpus.phase",
        "The GPU is not running.",
        "See the status of the `GPU` object.",
    ),
    Reason(
        "gpus.plugin",
        "The GPU is handed out whole by the device plugin, and not in parts.",
        "Ask for `nvidia.com/gpu`, or use GPUs that are handed out in parts.",
    ),
    Reason(
        "gpus.plugin.<resource>",
        "All GPUs that the device plugin may hand out on this node are taken.",
        "Wait, or ask for fewer.",
    ),
    Reason(
        "gpus.annotation",
        "An annotation that says what part of a GPU the pod wants cannot be read; the note names it.",
        "Correct the annotation, and create the pod anew.",
    ),
    Reason(
        "gpus.unknown",
        "The pod is recorded on a GPU that is not known.",
        "Apply the `GPU` object.",
    ),
    Reason(
        "gpus.gone",
        "A GPU that the pod has is gone.",
        "Apply the `GPU` object again, or delete the pod.",
    ),
    Reason(
        "gpus.fixed",
        "A running pod keeps its GPUs: their number cannot change.",
        "Create the pod anew with the number that it wants.",
    ),
)
