"""How the limits policy joins: quotas and declared demand into settings, and the defaults that pods get.

A quota that is wrong is refused when it is applied. One that is seen in a cluster all the same becomes a setting that
says so, and the policy keeps the last good one in force.

Defaults are filled in when a pod is created, and stay what they were then: a later change of the quota is no resize.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec

from bursar.ledger.claims import Claim
from bursar.objects.decode import ManifestError
from bursar.policies.fix_fields import FixFields, LimitField, Path, limit_fields
from bursar.policies.gpus.worker import (
    COMPONENT,
    DEMANDS,
    PERCENT_LIMIT,
    PERCENT_REQUEST,
    TFLOPS_LIMIT,
    TFLOPS_REQUEST,
    VENDOR,
    VRAM_LIMIT,
    VRAM_REQUEST,
    WORKER,
    is_worker,
)
from bursar.policies.namespace.api import (
    PROFILE_KIND,
    QUOTA_KIND,
    WORKLOAD_KIND,
    GpuAmounts,
    GPUResourceQuota,
    Single,
    Total,
    Workload,
)
from bursar.policies.namespace.policy import DEMAND, PREFIX, QUOTA, LimitsPolicy
from bursar.policies.namespace.settings import COUNT, DEFAULT_THRESHOLD, WORKERS, DemandBody, NamespaceQuotaBody
from bursar.policies.plugin import AnnotatedDemand, ObjectView, Plugin, PodMarks, Reason
from bursar.policies.quota_table import QuotaRecord, QuotaTable
from bursar.policies.results import Refusal, Setting
from bursar.quantity import QuantityError
from bursar.resources import dimension, from_amounts

Amounts = dict[str, int]
_AMOUNTS = ("tflops", "vram")
_REQUESTS = {"tflops": TFLOPS_REQUEST, "vram": VRAM_REQUEST}
_LIMITS = {"tflops": TFLOPS_LIMIT, "vram": VRAM_LIMIT}
_COMPUTE = (TFLOPS_REQUEST, TFLOPS_LIMIT, PERCENT_REQUEST, PERCENT_LIMIT)


# Quotas


def quota_settings(key: str, quota: GPUResourceQuota | None) -> list[Setting]:
    """A quota as a setting, with its problem if it has one."""
    if quota is None:
        return [Setting(QUOTA, key, None)]
    try:
        return [Setting(QUOTA, key, quota_body(quota))]
    except ManifestError as error:
        return [Setting(QUOTA, key, NamespaceQuotaBody({}, problem=str(error)))]


def quota_body(quota: GPUResourceQuota) -> NamespaceQuotaBody:
    """Raises ``ManifestError`` for the first thing that is wrong, in the order of the fields."""
    total = quota.spec.total or Total()
    single = quota.spec.single or Single()
    totals = _sides(total.requests, total.limits, "spec.total", ("requests", "limits"))
    if total.max_workers is not None:
        totals[WORKERS] = _natural(total.max_workers, "spec.total.maxWorkers")
    singles = _sides(single.max_requests, single.max_limits, "spec.single", ("maxRequests", "maxLimits"))
    if single.max_gpu_count is not None:
        singles[COUNT] = _natural(single.max_gpu_count, "spec.single.maxGPUCount")
    _check_defaults(single, singles)
    return NamespaceQuotaBody(totals, singles, _threshold(total))


def _threshold(total: Total) -> int:
    threshold = DEFAULT_THRESHOLD if total.alert_threshold_percent is None else total.alert_threshold_percent
    if not 0 <= threshold <= 100:
        problem = f"alertThresholdPercent must be between 0 and 100, got {threshold}"
        raise ManifestError(problem, "spec.total.alertThresholdPercent")
    return threshold


def _sides(requests: GpuAmounts | None, limits: GpuAmounts | None, path: str, names: tuple[str, str]) -> Amounts:
    """``requests.tflops`` and so on, as far as they are given; limits must not be below requests."""
    asked = _amounts(requests, f"{path}.{names[0]}", "requests")
    most = _amounts(limits, f"{path}.{names[1]}", "limits")
    for name in _AMOUNTS:
        if most.get(f"limits.{name}", 0) < asked.get(f"requests.{name}", 0) and f"limits.{name}" in most:
            problem = f"limits.{name} cannot be less than requests.{name}"
            raise ManifestError(problem, f"{path}.{names[1]}.{name}")
    return asked | most


def _amounts(resource: GpuAmounts | None, path: str, side: str) -> Amounts:
    found: Amounts = {}
    for name in _AMOUNTS:
        value = None if resource is None else getattr(resource, name)
        if value is not None:
            found[f"{side}.{name}"] = _amount(value, name, f"{path}.{name}", f"{side}.{name}")
    return found


def _amount(value: object, name: str, path: str, called: str) -> int:
    try:
        amount = dimension(name).parse(value, negative=True)
    except QuantityError as error:
        raise ManifestError(str(error), path) from None
    if amount < 0:
        raise ManifestError(f"{called} cannot be negative", path)
    return amount


def _natural(value: int, path: str) -> int:
    if value < 0:
        raise ManifestError(f"{path.rpartition('.')[2]} cannot be negative", path)
    return value


def _check_defaults(single: Single, caps: Amounts) -> None:
    defaults = _sides(
        single.default_requests, single.default_limits, "spec.single", ("defaultRequests", "defaultLimits")
    )
    for name, amount in defaults.items():
        if amount > caps.get(name, amount):
            side, _, resource = name.partition(".")
            path = f"spec.single.default{side.capitalize()}.{resource}"
            raise ManifestError(f"is more than the maximum of one workload, {dimension(name).show(caps[name])}", path)


def admit_quota(_view: ObjectView, _old: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Refuse a quota that could not be in force."""
    quota_body(msgspec.convert(new, GPUResourceQuota))
    return new


# Declared demand


def demand_settings(kind: str, key: str, workload: Workload | None) -> list[Setting]:
    """What a workload's replicas want together. Compute in percent depends on the GPU, so it is left out."""
    name = key.replace("/", f"/{kind}/", 1)
    if workload is None or workload.spec.replicas is None:
        return [Setting(DEMAND, name, None)]
    spec = workload.spec
    replicas = _natural(workload.spec.replicas, "spec.replicas")
    amounts: Amounts = {WORKERS: replicas}
    count = _natural(spec.gpu_count, "spec.gpuCount") * replicas
    for side, demand in (("requests", spec.resources.requests), ("limits", spec.resources.limits)):
        for resource in _AMOUNTS:
            value = getattr(demand, resource)
            if value is not None:
                path = f"spec.resources.{side}.{resource}"
                amounts[f"{side}.{resource}"] = _amount(value, resource, path, f"{side}.{resource}") * count
    return [Setting(DEMAND, name, DemandBody(from_amounts(amounts)))]


# Defaults of pods


def admit_pod(view: ObjectView, old: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Fill in what a worker leaves open: what it got when it was created, or else the namespace's defaults."""
    metadata = new.get("metadata") or {}
    given: dict[str, str] = metadata.get("annotations") or {}
    if not is_worker(metadata.get("labels") or {}, given):
        return new
    filled = _kept(old, given) if old is not None else _with_defaults(view, metadata.get("namespace", ""), given)
    return new if filled == given else {**new, "metadata": {**metadata, "annotations": filled}}


def _kept(old: Mapping[str, Any], given: dict[str, str]) -> dict[str, str]:
    before: Mapping[str, str] = (old.get("metadata") or {}).get("annotations") or {}
    vram = (VRAM_LIMIT, VRAM_REQUEST)
    names = vram if any(name in given for name in _COMPUTE) else (TFLOPS_LIMIT, TFLOPS_REQUEST, *vram)
    return {**{name: before[name] for name in names if name in before}, **given}


def _with_defaults(view: ObjectView, namespace: str, given: dict[str, str]) -> dict[str, str]:
    """Each amount from the first quota by name that has a default for it. Compute given in percent has none."""
    filled = dict(given)
    percent = PERCENT_REQUEST in given or PERCENT_LIMIT in given
    singles = list(_singles(view, namespace))
    for name in _AMOUNTS:
        if percent and name == "tflops":
            continue
        request = _first([single.default_requests for single in singles], name)
        limit = _first([single.default_limits for single in singles], name)
        asked, most = given.get(_REQUESTS[name]), given.get(_LIMITS[name])
        if asked is None and request is not None:
            filled[_REQUESTS[name]] = _least(name, request, most)
        if most is None and limit is not None:
            filled[_LIMITS[name]] = _greatest(name, limit, asked)
    return filled


def _singles(view: ObjectView, namespace: str) -> Iterator[Single]:
    for body in sorted(view.list(QUOTA_KIND.name, namespace), key=lambda body: cast("str", body["metadata"]["name"])):
        single = msgspec.convert({"spec": body.get("spec") or {}}, GPUResourceQuota).spec.single
        if single is not None:
            yield single


def _first(resources: list[GpuAmounts | None], name: str) -> str | None:
    for resource in resources:
        value = None if resource is None else getattr(resource, name)
        if value is not None:
            return str(value)
    return None


def _least(name: str, default: str, limit: str | None) -> str:
    """A default request never exceeds the limit that the pod gives itself."""
    return default if limit is None or not _less(name, limit, default) else limit


def _greatest(name: str, default: str, request: str | None) -> str:
    """A default limit is never below the request that the pod gives itself."""
    return default if request is None or not _less(name, default, request) else request


def _less(name: str, left: str, right: str) -> bool:
    try:
        return dimension(name).parse(left.strip()) < dimension(name).parse(right.strip())
    except QuantityError:
        return False  # the pod's own amount is unreadable: whoever decides over it says so


_SINGLE: Final = "Ask for less in one workload, or raise `spec.single` of the quota. Waiting does not help."
_TOTAL: Final = "Wait for workloads of the namespace to end, ask for less, or raise `spec.total` of the quota."


def _single(part: str, what: str) -> Reason:
    return Reason(f"single.max.{part}", f"One workload asks for more {what} than a single one may.", _SINGLE)


def _total(part: str, what: str) -> Reason:
    return Reason(f"total.max.{part}", f"All workloads of the namespace together would have too much: {what}.", _TOTAL)


# Rows and fixes


def read_row(row: QuotaRecord, body: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    total = (body.get("spec") or {}).get("total") or {}
    used = written.get("status", {}).get("used") or {}
    for side in ("requests", "limits"):
        row.fill("max", _prefixed(side, total.get(side)))
        row.fill("used", _prefixed(side, used.get(side)))
    row.fill("max", {"workers": total.get("maxWorkers")})
    row.fill("used", {"workers": used.get("workers")})
    row.account = PREFIX + row.namespace


def _prefixed(side: str, amounts: Mapping[str, Any] | None) -> dict[str, Any]:
    return {f"{side}.{name}": value for name, value in (amounts or {}).items()}


def fields_of(view: ObjectView, claim: Claim, refusal: Refusal) -> list[LimitField]:
    side, _, resource = refusal.resource.partition(".")
    path: Path
    if refusal.resource == WORKERS:
        path, resource, whole = ("spec", "total", "maxWorkers"), WORKERS, True
    elif refusal.resource == COUNT:
        path, resource, whole = ("spec", "single", "maxGPUCount"), COUNT, True
    elif refusal.reason.startswith("single."):
        path, whole = ("spec", "single", f"max{side.capitalize()}", resource), False
    else:
        path, whole = ("spec", "total", side, resource), False
    quotas = view.list(QUOTA_KIND.name, claim.namespace)
    return [one for body in quotas for one in limit_fields(QUOTA_KIND.name, body, path, resource, whole=whole)]


REASONS: Final = (
    _single("tflops.request", "tflops (request)"),
    _single("vram.request", "vram (request)"),
    _single("tflops.limit", "tflops (limit)"),
    _single("vram.limit", "vram (limit)"),
    _single("gpuCount.limit", "GPUs"),
    _total("tflops.request", "tflops (requests)"),
    _total("vram.request", "vram (requests)"),
    _total("tflops.limit", "tflops (limits)"),
    _total("vram.limit", "vram (limits)"),
    _total("workers.limit", "workers"),
    Reason(
        "limits.annotation",
        "An annotation that says what part of a GPU the pod wants cannot be read; the note names it.",
        "Correct the annotation, and create the pod again.",
    ),
    Reason(
        "limits.capacity",
        "The pod asks for a share of a GPU, and the capacity of no GPU that it may use is known.",
        "Set `spec.gpus.models` in the Configuration, apply `GPU` objects, or ask for tflops and vram.",
    ),
    Reason(
        "limits.invalid",
        "A quota of the namespace is invalid and has never been valid, so nothing can be judged by it.",
        "Correct the quota: the note says what is wrong with it.",
    ),
)


PLUGIN = Plugin(
    "limits",
    40,
    LimitsPolicy,
    kinds=(QUOTA_KIND, WORKLOAD_KIND, PROFILE_KIND),
    translate={
        QUOTA_KIND.name: quota_settings,
        WORKLOAD_KIND.name: partial(demand_settings, WORKLOAD_KIND.kind),
        PROFILE_KIND.name: partial(demand_settings, PROFILE_KIND.kind),
    },
    admit={QUOTA_KIND.name: admit_quota, "Pod": admit_pod},
    namespaces={QUOTA_KIND.name: lambda key, _: (key.partition("/")[0],)},
    reasons=REASONS,
    title="Quotas of namespaces ([guide](namespace-gpu-quota.md))",
    quotas=QuotaTable(objects={QUOTA_KIND.name: read_row}),
    fixes=FixFields(limits=fields_of),
    pods=PodMarks(
        demands=(AnnotatedDemand(COMPONENT, WORKER, DEMANDS),),
        fixed_labels=(COMPONENT,),
        fixed_annotations=(*DEMANDS, VENDOR),
    ),
)
