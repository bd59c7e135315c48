"""Quota trees and forests: the policy of the engine, and ``QuotaManager``, the same as a library of its own."""

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
    "consumer_from_plain",
    "read_consumer",
]
