"""The manifests of the dialect: ElasticQuota, ElasticQuotaProfile, and the section ``pools`` of the Configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, field

from bursar.objects.core import LabelSelector, Manifest, Part, Quantities
from bursar.objects.crds import MIN_WITHIN_MAX, SUBDOMAIN, Rule, WrittenStatus
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind, PrinterColumn
from bursar.objects.validation import check_labels, check_name, duration_ms, selector_from
from bursar.policies.ownership import AccessRule, named_by
from bursar.policies.pools.node_pools import Profile
from bursar.policies.pools.parse import is_exclusive, quota_from, ratio_from, resource_keys, tree_id
from bursar.policies.pools.settings import (
    BUILT_IN,
    IS_PARENT,
    NAME,
    PARENT,
    QUOTA_OF_POD,
    ROOT,
    RUNTIME,
    TREE,
    PoolOptions,
    QuotaObject,
)

_LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_DURATION = r"^(0|([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)?)$"


class PoolQuotaSpec(Part, frozen=True):
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.min) || self.min.all(name, has(self.max) && name in self.max)",
            "min lists a resource that max does not, which says what the quota manages",
            ".min",
        ),
        MIN_WITHIN_MAX,
    )

    max: Annotated[
        Quantities, Meta(description="What is never exceeded; its resources are those that the quota manages.")
    ] = field(default_factory=dict)
    min: Annotated[Quantities, Meta(description="What is guaranteed; what is not asked for is lent to siblings.")] = (
        field(default_factory=dict)
    )


class PoolQuota(Manifest, frozen=True):
    spec: PoolQuotaSpec = PoolQuotaSpec()


class PoolQuotaStatus(WrittenStatus, frozen=True):
    used: Annotated[Quantities, Meta(description="What pods of the quota and of those below it use.")] = field(
        default_factory=dict
    )


class ElasticQuotaProfileSpec(Part, frozen=True):
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(f"!(self.quotaName in {list(BUILT_IN)})", "this is the name of a built-in quota", ".quotaName"),
        Rule(
            r"!has(self.resourceRatio) || self.resourceRatio.matches(r'^(0+\.0*[1-9][0-9]*|0*1(\.0+)?)$')",
            "must be more than 0 and at most 1",
            ".resourceRatio",
        ),
        Rule(
            "!has(self.nodeSelector.matchExpressions) || self.nodeSelector.matchExpressions.all(e, "
            "e.operator in ['Exists', 'DoesNotExist'] ? !has(e.values) || e.values.size() == 0 : "
            "e.operator in ['In', 'NotIn'] && has(e.values) && e.values.size() > 0)",
            "In and NotIn need values, Exists and DoesNotExist take none, and there are no other operators",
            ".nodeSelector.matchExpressions",
        ),
    )

    quota_name: Annotated[
        str,
        Meta(
            description="The root quota of the tree, which is made from this profile.",
            extra_json_schema={"pattern": f"^{SUBDOMAIN}$", "maxLength": 253},
        ),
    ]
    node_selector: Annotated[LabelSelector, Meta(description="The nodes that make up the tree; empty: all.")]
    quota_labels: Annotated[
        dict[str, Annotated[str, Meta(extra_json_schema={"pattern": _LABEL_VALUE, "maxLength": 63})]],
        Meta(description="Labels that the root quota gets."),
    ] = field(default_factory=dict)
    resource_ratio: Annotated[
        str | None,
        Meta(
            description="The share of the nodes that is handed out, such as 0.9.",
            extra_json_schema={"pattern": r"^[0-9]{1,9}(\.[0-9]{1,18})?$", "maxLength": 28},
        ),
    ] = None


class ElasticQuotaProfile(Manifest, frozen=True, kw_only=True):
    spec: ElasticQuotaProfileSpec


class ElasticQuotaProfileStatus(WrittenStatus, frozen=True):
    nodes: Annotated[int, Meta(description="How many nodes the profile has.")] = 0
    total: Annotated[Quantities, Meta(description="What they have, times the ratio.")] = field(default_factory=dict)
    tree_id: Annotated[str, Meta(description="The tree that they make up.")] = ""


class PoolsSection(Part, frozen=True):
    """Options; every one has a default that suits most clusters."""

    runtime_quota: Annotated[bool, Meta(description="False: quotas are held to their max only.")] = True
    guarantee_usage: Annotated[bool, Meta(description="What a quota uses is never taken back for others.")] = False
    revoke_overuse: Annotated[bool, Meta(description="Over-use that others wait for is evicted.")] = False
    delay_evict_time: Annotated[
        str,
        Meta(description="Over-use is tolerated that long.", extra_json_schema={"pattern": _DURATION, "maxLength": 63}),
    ] = "120s"
    preempt_default_quota: Annotated[bool, Meta(description="Pods of the default quota may be preempted.")] = False
    parent_quota_pods: Annotated[bool, Meta(description="Pods may name a quota that has children.")] = False


def quota_of_object(quota: PoolQuota, key: str = "") -> QuotaObject:
    """The quota, under the key that the cluster knows it by; raises ``ManifestError``."""
    meta = quota.metadata
    namespace, _, name = key.partition("/") if key else (meta.namespace, "", meta.name)
    return quota_from(namespace, name, meta.labels, meta.annotations, quota.spec.max, quota.spec.min)


def profile_of_object(profile: ElasticQuotaProfile, key: str = "") -> Profile:
    """The profile, under the key that the cluster knows it by; raises ``ManifestError``."""
    meta, spec = profile.metadata, profile.spec
    namespace, _, name = key.partition("/") if key else (meta.namespace, "", meta.name)
    requirements = selector_from(spec.node_selector, "spec.nodeSelector").requirements
    check_name(spec.quota_name, "spec.quotaName")
    if spec.quota_name in BUILT_IN:
        raise ManifestError(f"{spec.quota_name} is a built-in quota", "spec.quotaName")
    check_labels(spec.quota_labels, "spec.quotaLabels")
    numerator, denominator = ratio_from(spec.resource_ratio)
    pinned = meta.labels.get(TREE, "")
    return Profile(
        namespace,
        name,
        spec.quota_name,
        pinned or tree_id(namespace, name),
        tuple(requirements),
        numerator,
        denominator,
        resource_keys(meta.annotations),
        tuple(sorted(spec.quota_labels.items())),
        bool(pinned),
        is_exclusive(meta.annotations),
    )


def options_of_section(section: PoolsSection | None) -> PoolOptions:
    if section is None:
        return PoolOptions()
    return PoolOptions(
        section.guarantee_usage,
        section.runtime_quota,
        section.revoke_overuse,
        duration_ms(section.delay_evict_time, "spec.pools.delayEvictTime"),
        section.preempt_default_quota,
    )


def access_of_quota(quota: PoolQuota, key: str = "") -> list[AccessRule]:
    """Who may use the quota: the namespaces that Koordinator's annotation lists are named, too."""
    found = quota_of_object(quota, key).quota
    annotations = quota.metadata.annotations
    named = named_by(annotations, found.namespaces)
    members = (*found.namespaces, found.namespace) if found.name == found.namespace else found.namespaces
    return [
        AccessRule(
            f"{NAME}/{found.name}",
            f"quota {found.name}",
            "" if found.parent == ROOT else f"{NAME}/{found.parent}",
            QUOTA_OF_POD,
            found.name,
            members,
            found.namespace,
            *named.fields,
        )
    ]


def access_of_profile(profile: ElasticQuotaProfile, key: str = "") -> list[AccessRule]:
    """Who may use the root quota of a profile."""
    name, named = profile.spec.quota_name, named_by(profile.metadata.annotations)
    return [AccessRule(f"{NAME}/{name}", f"quota {name}", "", "", "", (), key.partition("/")[0], *named.fields)]


def check_quota(quota: PoolQuota) -> None:
    quota_of_object(quota)
    named_by(quota.metadata.annotations)


def check_profile(profile: ElasticQuotaProfile) -> None:
    profile_of_object(profile)
    named_by(profile.metadata.annotations)


def _mark(place: str, key: str) -> str:
    """The JSON path of a label or annotation."""
    return f".metadata.{place}." + key.replace(".", "\\.")


QUOTA = Kind(
    "scheduling.sigs.k8s.io",
    "v1alpha1",
    "ElasticQuota",
    "elasticquotas",
    True,
    PoolQuota,
    strict=True,
    short_names=("eq", "eqs"),
    check=check_quota,
    columns=(
        PrinterColumn("Parent", _mark("labels", PARENT)),
        PrinterColumn("Used", ".status.used"),
        PrinterColumn("Runtime", _mark("annotations", RUNTIME)),
        PrinterColumn("Min", ".spec.min", wide=True),
        PrinterColumn("Max", ".spec.max"),
        PrinterColumn("Tree", _mark("labels", TREE), wide=True),
        PrinterColumn("Is Parent", _mark("labels", IS_PARENT), wide=True),
        PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status', wide=True),
    ),
    status=PoolQuotaStatus,
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
    check=check_profile,
    columns=(
        PrinterColumn("Root Quota", ".spec.quotaName"),
        PrinterColumn("Tree", ".status.treeId"),
        PrinterColumn("Nodes", ".status.nodes"),
        PrinterColumn("Ratio", ".spec.resourceRatio", wide=True),
        PrinterColumn("Total", ".status.total", wide=True),
    ),
    status=ElasticQuotaProfileStatus,
)
