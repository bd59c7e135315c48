"""How the gpus policy joins: GPU objects, pools and nodes into settings.

Nodes without GPU objects but with ``nvidia.com/gpu`` and the usual labels have derived GPUs: as many as the label
``bursar.dev/gpu-fractions`` gives for fractions (a number or ``all``), the rest stay with the device plugin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bursar.ledger.claims import Claim
from bursar.objects.core import Node
from bursar.objects.decode import ManifestError
from bursar.objects.hami_register import REGISTER
from bursar.policies.fix_fields import FixFields, no_limit_fields
from bursar.policies.gpus import fleet
from bursar.policies.gpus.api import (
    GPU_KIND,
    POOL_KIND,
    TEMPLATE_KIND,
    GpuObject,
    GpuPool,
    GpusSection,
    SchedulingConfigTemplate,
)
from bursar.policies.gpus.fleet import ScoringOptions
from bursar.policies.gpus.hami import SliceDefaults
from bursar.policies.gpus.node_labels import host_body
from bursar.policies.gpus.policy import GpusPolicy
from bursar.policies.gpus.published import slice_settings
from bursar.policies.gpus.settings import (
    GPU,
    HOST,
    OPTIONS,
    POOL,
    TEMPLATE,
    GpuBody,
    GpuOptionsBody,
    PoolBody,
    TemplateBody,
)
from bursar.policies.gpus.worker import (
    COMPONENT,
    CONTAINER_GPUS,
    DEMANDS,
    DOMAIN,
    GPU_COUNT,
    GPU_IDS,
    HARD_PERCENT,
    NOT_GIVEN,
    TFLOPS_LIMIT,
    TFLOPS_REQUEST,
    VENDOR,
    VRAM_LIMIT,
    VRAM_REQUEST,
    WORKER,
    Unreadable,
    gpu_share,
    is_worker,
    read_worker,
)
from bursar.policies.namespace.policy import WHOLE_GPUS
from bursar.policies.namespace.settings import WholeGpusBody
from bursar.policies.plugin import AnnotatedDemand, ObjectView, PlacementRules, Plugin, PodMarks, Reason
from bursar.policies.quota_table import GpuRecord, QuotaTable
from bursar.policies.results import Setting
from bursar.quantity import MILLI, QuantityError
from bursar.resources import dimension

HOSTNAME = "kubernetes.io/hostname"
_CAPABILITIES = DOMAIN + "virtualization-capabilities"
_DEFAULT_POOL = DOMAIN + "is-default-pool"


def gpu_settings(key: str, gpu: GpuObject | None) -> list[Setting]:
    """A GPU object; one that is on no node yet is none that could be used."""
    node = "" if gpu is None else node_of(gpu)
    if gpu is None or not node:
        return [Setting(GPU, key, None)]
    status = gpu.status
    tflops, vram = gpu_capacity(gpu)
    facts = fleet.Gpu(
        key,
        node,
        tflops,
        vram,
        gpu.metadata.labels.get(DOMAIN + "gpupool", ""),
        status.gpu_model,
        status.vendor,
        -1 if status.index is None else status.index,
        status.phase == "Running" and status.isolation_policy in {"", "Static"},
        status.used_by not in {"", fleet.FRACTION_SET},
        status.isolation_mode,
        _supports(gpu.metadata.annotations.get(_CAPABILITIES)),
    )
    return [Setting(GPU, key, GpuBody(facts))]


def node_of(gpu: GpuObject) -> str:
    return gpu.status.node_selector.get(HOSTNAME, "") or gpu.metadata.labels.get(DOMAIN + "managed-by", "")


def gpu_capacity(gpu: GpuObject) -> tuple[int, int]:
    """(milli-tflops, bytes); what is not given is 0, which only a GPU that does not run may have."""
    capacity = gpu.status.capacity
    amounts: list[int] = []
    for name in ("tflops", "vram"):
        value = None if capacity is None else getattr(capacity, name)
        try:
            amounts.append(0 if value is None else dimension(name).parse(value))
        except QuantityError as error:
            raise ManifestError(str(error), f"status.capacity.{name}") from None
    return amounts[0], amounts[1]


def _supports(text: str | None) -> tuple[str, ...] | None:
    """The isolation modes that a GPU says it is capable of; None when it does not say, or not readably."""
    try:
        flags = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(flags, dict):
        return None
    return tuple(mode for mode in ("soft", "hard") if flags.get(f"Supports{mode.capitalize()}Isolation"))


def pool_settings(key: str, pool: GpuPool | None) -> list[Setting]:
    if pool is None:
        return [Setting(POOL, key, None)]
    default = pool.metadata.annotations.get(_DEFAULT_POOL) == "true"
    config = pool.spec.capacity_config
    promised = None if config is None else config.oversubscription
    oversell = None
    if promised is not None:
        memory, disk = promised.vram_expand_to_host_mem, promised.vram_expand_to_host_disk
        oversell = (memory, disk, promised.tflops_oversell_ratio)
    return [Setting(POOL, key, PoolBody(pool.spec.scheduling_config_template or "", default, oversell))]


def template_settings(key: str, template: SchedulingConfigTemplate | None) -> list[Setting]:
    return [Setting(TEMPLATE, key, None if template is None else TemplateBody(template.spec.placement.mode))]


def node_settings(key: str, node: Node | None) -> list[Setting]:
    """What a node says of its GPUs."""
    if node is None:
        return [Setting(HOST, key, None)]
    return [Setting(HOST, key, host_body(node))]


def section_settings(key: str, section: GpusSection | None) -> list[Setting]:
    if section is None:
        return [Setting(OPTIONS, key, None), Setting(WHOLE_GPUS, key, None)]
    models: dict[str, tuple[int, int]] = {}
    for name, model in section.models.items():
        try:
            vram = 0 if model.vram is None else dimension("vram").parse(model.vram)
            models[name] = (dimension("tflops").parse(model.tflops), vram)
        except QuantityError as error:
            raise ManifestError(str(error), f"spec.gpus.models.{name}") from None
    options = ScoringOptions(section.placement_mode, section.vram_weight)
    slices = SliceDefaults(section.hami.default_memory, section.hami.default_cores)
    whole = section.whole_gpus == "count"
    return [
        Setting(OPTIONS, key, GpuOptionsBody(options, section.fractions == "all", models, slices)),
        Setting(WHOLE_GPUS, key, None if whole else WholeGpusBody()),
    ]


def admit_pod(_view: ObjectView, old: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """GPU ids are the allocator's to give; only a pod that has its node already brings the record of its GPUs."""
    annotations = (new.get("metadata") or {}).get("annotations") or {}
    if old is None and GPU_IDS in annotations and not (new.get("spec") or {}).get("nodeName"):
        raise ManifestError("is written by Bursar, not by the creator of the pod", f"metadata.annotations.{GPU_IDS}")
    return new


def gpu_records(policy: GpusPolicy) -> Iterator[GpuRecord]:
    tflops, vram = dimension("tflops"), dimension("vram")
    for name, cell in sorted(policy.state.cells(fleet.GPUS).items()):
        gpu = fleet.gpu_of(name, cell)
        if gpu is not None:
            capacity = {"tflops": tflops.show(gpu.tflops), "vram": vram.show(gpu.vram)}
            yield GpuRecord(gpu.name, gpu.node, gpu.model, capacity, fleet.PREFIX + gpu.name, gpu.uuid)


def shown_requests(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """As in {"gpus": "2", "tflops": "40", "vram": "32Gi"}: the sum over the GPUs of a worker.

    The number of GPUs is left out of a part of one. A pod whose annotations cannot be read requests nothing here.
    """
    try:
        worker = read_worker(labels, annotations)
    except Unreadable:
        return {}
    if worker is None:
        return {}
    if worker.whole:
        return {"gpus": str(worker.count)}
    request, count = worker.request, worker.count
    found = {"gpus": str(count)} if count > 1 else {}
    if request.percent != NOT_GIVEN:
        found["compute"] = _percent(request.percent * count)
    return found | gpu_share(max(request.tflops, 0) * count, max(request.vram, 0) * count).show()


def _percent(thousandths: int) -> str:
    whole, rest = divmod(thousandths, MILLI)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".") + "%" if rest else f"{whole}%"


class GpuPins(PlacementRules):
    """Pins every pod whose decision names GPUs, and, where some node hands out fractions, those with whole GPUs.

    To the scheduler all GPUs of a divided node are the device plugin's: a pod whose place is another node must not end
    up there. HAMi chooses node and GPUs for pods with slices: those are not pinned.
    """

    def __init__(self, policy: GpusPolicy) -> None:
        self._policy = policy

    def pins(self, claim: Claim) -> bool:
        policy = self._policy
        if policy.sets.only_slices(claim):
            return False
        if claim.binding_of(policy.name) is not None and claim.place not in policy.inventory.sliced:
            return True
        return bool(policy.inventory.divided) and bool(policy.sets.whole_cost(claim))


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
        "gpus.capacity",
        "Nothing says what a GPU of this model has, so no part of it can be counted; the note names the model.",
        "Set `spec.gpus.models` in the Configuration, or apply `GPU` objects.",
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
        "All that the device plugin may hand out on this node is taken: GPUs, or memory and cores on a node of HAMi.",
        "Wait, or ask for less.",
    ),
    Reason(
        "gpus.slices",
        "The pod asks for parts of GPUs by HAMi's resources, and HAMi hands out no GPUs of this node.",
        "Register the node with HAMi's device plugin, or ask for `nvidia.com/gpu` only.",
    ),
    Reason(
        "gpus.fractions",
        "Event on a node: its label `bursar.dev/gpu-fractions` cannot be read, or asks for more GPUs than it has now; "
        "or its annotation `hami.io/node-nvidia-register` cannot be read.",
        "Correct the label. If GPUs failed, or the device plugin restarts, wait until they are back.",
    ),
    Reason(
        "gpus.unsafe-split",
        "Event on a node: its device plugin serves GPUs that are for fractions, or a DRA driver publishes them: they "
        "may be handed out whole.",
        "Let the device plugin serve the other GPUs only; the note says how many. Keep a DRA driver off the node.",
    ),
    Reason(
        "gpus.plugin-overused",
        "Event on a node: pods have more whole GPUs of it than the device plugin may hand out.",
        "Nothing has to be done: GPUs for fractions that are empty take no workers meanwhile. Taint the node with "
        "`bursar.dev/divided:NoSchedule` to keep pods off that Bursar does not govern.",
    ),
    Reason(
        "gpus.annotation",
        "An annotation that says what part of a GPU the pod wants cannot be read; the note names it.",
        "Correct the annotation, and create the pod again.",
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
        "Create the pod again with the number that it wants.",
    ),
)


PLUGIN = Plugin(
    "gpus",
    70,
    GpusPolicy,
    kinds=(GPU_KIND, POOL_KIND, TEMPLATE_KIND),
    section=GpusSection,
    translate={
        GPU_KIND.name: gpu_settings,
        POOL_KIND.name: pool_settings,
        TEMPLATE_KIND.name: template_settings,
        "Node": node_settings,
        "ResourceSlice": slice_settings,
        "Configuration": section_settings,
    },
    admit={"Pod": admit_pod},
    reasons=REASONS,
    title="GPUs in parts ([guide](namespace-gpu-quota.md))",
    quotas=QuotaTable(gpus=gpu_records, requests=shown_requests),
    fixes=FixFields(
        limits=no_limit_fields,
        requests={
            "tflops": (TFLOPS_REQUEST, TFLOPS_LIMIT),
            "vram": (VRAM_REQUEST, VRAM_LIMIT),
            "gpus": (GPU_COUNT,),
        },
    ),
    pods=PodMarks(
        demands=(AnnotatedDemand(COMPONENT, WORKER, DEMANDS),),
        fixed_labels=(COMPONENT,),
        fixed_annotations=(*DEMANDS, VENDOR),
        own_annotations=(GPU_IDS, CONTAINER_GPUS, HARD_PERCENT),
        records=(GPU_IDS, CONTAINER_GPUS),
        read_annotations=(DOMAIN,),
    ),
    node_annotations=(REGISTER,),
    placement=GpuPins,
    needs_node=is_worker,
)
