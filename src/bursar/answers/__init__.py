"""The answers API: why pods wait, what quotas have, what changes would do; an aggregated API of the cluster."""
