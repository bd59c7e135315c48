"""The labels and annotations of pods that quotas read, and those that only Bursar writes."""

from __future__ import annotations

from bursar.kube.admission.options import OWN_PREFIX, Options
from bursar.kube.admission.terms import AllOf, AnyOf, Labelled, Marked, Not, Term
from bursar.objects.pods import GROUP_LABEL, GROUP_SIZE_LABEL, PREEMPTIBLE_LABEL
from bursar.policies.crossquota.names import STRATEGY
from bursar.policies.pools.names import PREEMPTIBLE, QUOTA_OF_POD
from bursar.policies.tensorfusion.worker import (
    COMPONENT,
    CONTAINER_COUNTS,
    CONTAINER_GPUS,
    DEDICATED,
    GPU_COUNT,
    GPU_IDS,
    GPU_INDICES,
    GPU_MODEL,
    GPU_POOL,
    HARD_PERCENT,
    ISOLATION,
    PERCENT_LIMIT,
    PERCENT_REQUEST,
    TFLOPS_LIMIT,
    TFLOPS_REQUEST,
    VENDOR,
    VRAM_LIMIT,
    VRAM_REQUEST,
)
from bursar.policies.trees.asks import LABEL as TREE_PREFIX

MIRROR = "kubernetes.io/config.mirror"

# Any of these makes a pod without the component label a worker, as the contract of workers has it.
GPU_DEMANDS = (
    TFLOPS_REQUEST, TFLOPS_LIMIT, VRAM_REQUEST, VRAM_LIMIT, PERCENT_REQUEST, PERCENT_LIMIT, GPU_COUNT, GPU_INDICES,
    GPU_POOL, GPU_MODEL, ISOLATION, DEDICATED, CONTAINER_COUNTS,
)  # fmt: skip

NAMES_A_QUOTA = Marked("labels", keys=(QUOTA_OF_POD,), prefixes=(TREE_PREFIX,))
ASKS_FOR_A_FRACTION: Term = AnyOf(
    (
        Labelled(COMPONENT, "worker"),
        AllOf((Not(Marked("labels", (COMPONENT,))), Marked("annotations", GPU_DEMANDS))),
    )
)

OWN_ANNOTATIONS = Marked("annotations", keys=(GPU_IDS, CONTAINER_GPUS, HARD_PERCENT), prefixes=(OWN_PREFIX,))
QUOTA_ANNOTATIONS = Marked("annotations", keys=(*GPU_DEMANDS, VENDOR, STRATEGY))


def quota_labels(options: Options) -> Marked:
    """Labels that decide which quotas govern a pod and how, and so stay as they were when it was created."""
    keys = (QUOTA_OF_POD, PREEMPTIBLE, COMPONENT, PREEMPTIBLE_LABEL, GROUP_LABEL, GROUP_SIZE_LABEL)
    return Marked("labels", keys=(*keys, *options.more_labels), prefixes=(TREE_PREFIX,))
