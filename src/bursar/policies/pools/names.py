"""The keys and names of the dialect: labels, annotations, built-in quotas."""

from __future__ import annotations

from typing import Final

NAME: Final = "pools"
QUOTA_OBJECT: Final = "ElasticQuota.scheduling.sigs.k8s.io"
PROFILE_OBJECT: Final = "ElasticQuotaProfile.quota.koordinator.sh"

ROOT: Final = "koordinator-root-quota"
SYSTEM: Final = "koordinator-system-quota"
DEFAULT: Final = "koordinator-default-quota"
BUILT_IN: Final = (ROOT, SYSTEM, DEFAULT)
BUILT_IN_NAMESPACE: Final = "koordinator-system"
DEFAULT_TREE: Final = ""

PREFIX: Final = "quota.scheduling.koordinator.sh/"
# Labels of quotas
PARENT: Final = PREFIX + "parent"
IS_PARENT: Final = PREFIX + "is-parent"
LENDS: Final = PREFIX + "allow-lent-resource"
TREE: Final = PREFIX + "tree-id"
IS_ROOT: Final = PREFIX + "is-root"
PROFILE: Final = PREFIX + "profile"
IGNORE_DEFAULT_TREE: Final = PREFIX + "ignore-default-tree"
FORCE_UPDATE: Final = PREFIX + "allow-force-update"
# Labels of pods
QUOTA_OF_POD: Final = PREFIX + "name"
PREEMPTIBLE: Final = PREFIX + "preemptible"
# Annotations that people write
WEIGHT: Final = PREFIX + "shared-weight"
NAMESPACES: Final = PREFIX + "namespaces"
RESOURCE_KEYS: Final = PREFIX + "resource-keys"  # on a profile
STRICT_KEYS: Final = PREFIX + "max-strict-check-resource-keys"
# Annotations that Bursar writes
TOTAL: Final = PREFIX + "total-resource"
UNSCHEDULABLE: Final = PREFIX + "unschedulable-resource"
RUNTIME: Final = PREFIX + "runtime"
REQUEST: Final = PREFIX + "request"
CHILD_REQUEST: Final = PREFIX + "child-request"
GUARANTEED: Final = PREFIX + "guaranteed"
ALLOCATED: Final = PREFIX + "allocated"
FIRM_REQUEST: Final = PREFIX + "non-preemptible-request"
FIRM_USED: Final = PREFIX + "non-preemptible-used"

# The max of a root quota: the largest number of cores whose millicores still fit 64 bits.
ENDLESS: Final = 4611686018427387
