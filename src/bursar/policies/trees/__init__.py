"""Quota trees and forests: a policy of the engine, and ``QuotaManager``, the same rules as a library of its own.

What this package exports is the public API of the library; its modules are private.
"""

from bursar.policies.trees.api import consumer_from_plain, read_consumer
from bursar.policies.trees.library_ledger import MAINTENANCE, NORMAL
from bursar.policies.trees.manager import QuotaManager
from bursar.policies.trees.records import ConsumerInfo
from bursar.policies.trees.responses import (
    AllocationResponse,
    Move,
    NodeState,
    QuotaError,
    Report,
    StaleTokenError,
    Token,
)
from bursar.policies.trees.tree_cache import TreeCache

__all__ = [
    "MAINTENANCE",
    "NORMAL",
    "AllocationResponse",
    "ConsumerInfo",
    "Move",
    "NodeState",
    "QuotaError",
    "QuotaManager",
    "Report",
    "StaleTokenError",
    "Token",
    "TreeCache",
    "consumer_from_plain",
    "read_consumer",
]
