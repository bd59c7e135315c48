"""The names by which the elastic policy is known: accounts, tables, reasons, and the dialect's own marks."""

from __future__ import annotations

from typing import Final

NAME: Final = "elastic"
GROUP: Final = "n8s.nebuly.ai"
CAPACITY_LABEL: Final = "n8s.nebuly.ai/capacity"
IN_QUOTA: Final = "in-quota"
OVER_QUOTA: Final = "over-quota"
GPU_MEMORY: Final = "n8s.nebuly.ai/gpu-memory"

ELASTIC_QUOTA: Final = "ElasticQuota"
COMPOSITE: Final = "CompositeElasticQuota"

# Kinds of settings.
QUOTA_SETTING: Final = "elastic.Quota"
OPTIONS_SETTING: Final = "elastic.Options"

# Tables of cells.
QUOTAS: Final = "elastic.quotas"
OPTIONS: Final = "elastic.options"

# Accounts. A quota has three of its own: what counts in decisions, what of it may not be preempted, what runs.
PREFIX: Final = "elastic/"
TOTAL: Final = "elastic/total"
FIRM_SUFFIX: Final = "#firm"
RUNNING_SUFFIX: Final = "#running"

# Rules, as they stand in reasons: elastic.<rule>.<resource>.
MAX_RULE: Final = "max"
TOTAL_RULE: Final = "total"
MIN_RULE: Final = "min"

# Classes of claims, worst first: the order in which they are taken away.
BEYOND_SHARE: Final = 0
WITHIN_SHARE: Final = 1
IN_MIN: Final = 2
CLASSES: Final = ("over-quota, beyond its quota's share", "over-quota, within its quota's share", "in-quota")


def quota_id(kind: str, key: str) -> str:
    """One name space for both kinds of quotas."""
    return f"{kind}/{key}"
