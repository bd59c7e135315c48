"""Namespace GPU quotas: totals of a namespace and caps of one workload."""
