"""The manifests of the dialect: ElasticQuota, ElasticQuotaProfile, and the section ``pools`` of the Configuration."""

from __future__ import annotations

from msgspec import field

from bursar.objects.core import LabelSelector, Manifest, Part, Quantities
from bursar.objects.durations import duration_ms
from bursar.objects.kinds import Kind
from bursar.objects.selectors import selector_from
from bursar.policies.pools.changing import QuotaObject
from bursar.policies.pools.options import Options
from bursar.policies.pools.profiles import Profile
from bursar.policies.pools.reading import profile_from, quota_from


class ElasticQuotaSpec(Part, frozen=True):
    max: Quantities = field(default_factory=dict)
    min: Quantities = field(default_factory=dict)


class ElasticQuota(Manifest, frozen=True):
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


class ElasticQuotaProfileSpec(Part, frozen=True):
    quota_name: str
    node_selector: LabelSelector
    quota_labels: dict[str, str] = field(default_factory=dict)
    resource_ratio: str | None = None


class ElasticQuotaProfile(Manifest, frozen=True, kw_only=True):
    spec: ElasticQuotaProfileSpec


class PoolsSection(Part, frozen=True):
    """Options; every one has a default that suits most clusters."""

    runtime_quota: bool = True  # False: quotas are held to their max only
    guarantee_usage: bool = False  # what a quota uses is never taken back for others
    revoke_overuse: bool = True
    delay_evict_time: str = "120s"  # over-use is tolerated that long
    preempt_default_quota: bool = False
    parent_quota_pods: bool = False  # pods may name a quota that has children


def quota_of_object(quota: ElasticQuota) -> QuotaObject:
    meta = quota.metadata
    return quota_from(meta.namespace, meta.name, meta.labels, meta.annotations, quota.spec.max, quota.spec.min)


def profile_of_object(profile: ElasticQuotaProfile) -> Profile:
    meta, spec = profile.metadata, profile.spec
    requirements = selector_from(spec.node_selector, "spec.nodeSelector").requirements
    return profile_from(
        meta.namespace,
        meta.name,
        meta.labels,
        meta.annotations,
        spec.quota_name,
        requirements,
        spec.quota_labels,
        spec.resource_ratio,
    )


def options_of_section(section: PoolsSection | None) -> Options:
    if section is None:
        return Options()
    return Options(
        section.guarantee_usage,
        section.runtime_quota,
        section.revoke_overuse,
        duration_ms(section.delay_evict_time, "spec.pools.delayEvictTime"),
        section.preempt_default_quota,
    )


def _check_quota(quota: ElasticQuota) -> None:
    quota_of_object(quota)


def _check_profile(profile: ElasticQuotaProfile) -> None:
    profile_of_object(profile)


QUOTA = Kind(
    "scheduling.sigs.k8s.io",
    "v1alpha1",
    "ElasticQuota",
    "elasticquotas",
    True,
    ElasticQuota,
    strict=True,
    short_names=("eq",),
    check=_check_quota,
)
PROFILE = Kind(
    "quota.koordinator.sh",
    "v1alpha1",
    "ElasticQuotaProfile",
    "elasticquotaprofiles",
    True,
    ElasticQuotaProfile,
    strict=True,
    short_names=("eqp",),
    check=_check_profile,
)
