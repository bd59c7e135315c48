"""Elastic quotas: a guaranteed minimum, borrowing of what others leave unused, fair shares of it, and reclaim."""
