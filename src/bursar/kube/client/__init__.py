"""A small typed client of the Kubernetes API: asynchronous, exact about failures, fenced by the lease.

The reasons for an own client are in docs/decisions/0007-own-kubernetes-client.md.
"""
