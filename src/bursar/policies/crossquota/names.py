"""The names that the rules share: accounts, tables, argument keys, annotations and reasons."""

from __future__ import annotations

from typing import Final

NAME: Final = "crossquota"
PREFIX: Final = "crossquota/"  # of the account of a node: what CPU pods use there
RESERVE: Final = "/reserve"  # then follows on the node's name: what all claims use there
TOPIC: Final = "nodes"  # the topic of all nodes: a claim that finds no place listens to it
NODE_KIND: Final = "crossquota.Node"
ARGUMENTS_KIND: Final = "crossquota.Arguments"
NODES: Final = "crossquota.nodes"  # the table of what is known of each node
ARGUMENTS: Final = "crossquota.arguments"
CURRENT: Final = "default"  # the only key of that table

GPU_NAMES: Final = "gpu-resource-names"
RESOURCES: Final = "quota-resources"
QUOTA: Final = "quota."
PERCENTAGE: Final = "quota-percentage."
WEIGHT: Final = "crossQuotaWeight"
RESOURCE_WEIGHT: Final = "weight."
SELECTOR: Final = "label-selector"
PREFER: Final = "prefer-non-gpu-nodes"
RESERVE_EACH: Final = "reserve-per-gpu."
EXEMPT_NAMESPACES: Final = "exempt-namespaces"
EXEMPT_DAEMON_SETS: Final = "exempt-daemonsets"
EXEMPT_MIRRORS: Final = "exempt-mirror-pods"
VOLCANO: Final = "volcano-scheduler.conf"

NODE_MARKS: Final = "volcano.sh/crossquota-"  # then the resource
NODE_PERCENTAGE_MARKS: Final = "volcano.sh/crossquota-percentage-"
STRATEGY: Final = "volcano.sh/crossquota-scoring-strategy"
LEAST_ALLOCATED: Final = "least-allocated"
GPU_NODE_LABEL: Final = "bursar.dev/gpu-node"
DEVICES: Final = "bursar.dev/devices"  # of a node: driver=count, with commas between them; from its ResourceSlices
CLAIMS_DEVICES: Final = "bursar.dev/claims-devices"  # of a pod that has resource claims
GPU_DRIVER: Final = "gpu."  # how the names of drivers for GPUs begin, such as gpu.nvidia.com

QUOTA_REASON: Final = "crossquota.quota."  # then the resource
RESERVE_REASON: Final = "crossquota.reserve."
BAD_ANNOTATION: Final = "crossquota.annotation"
EXCEEDED: Final = "crossquota.exceeded"
GPUS: Final = "gpus"  # the dimension in which the account of all claims counts the GPUs that are taken


def spelt(resource: str) -> str:
    """A resource as keys of arguments and annotations spell it: these may hold no second slash."""
    return resource.replace("/", "__", 1)


def unspelt(name: str) -> str:
    """The inverse; the domain of a resource has no underscore, so the first pair is the slash."""
    return name if "/" in name else name.replace("__", "/", 1)
