"""A small typed client of the Kubernetes API: asynchronous, exact about what failed, and fenced by the lease.

Why there is one of our own: docs/decisions/0007-own-kubernetes-client.md.
"""
