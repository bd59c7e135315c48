"""Quota trees over node pools: hierarchical runtime quota, and the profiles that say which nodes are whose."""
