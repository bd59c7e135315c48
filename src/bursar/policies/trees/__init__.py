"""Quota trees and forests: the policy of the engine, and ``QuotaManager``, the same as a library of its own."""

from bursar.policies.trees.consumer import ConsumerInfo
from bursar.policies.trees.desk import MAINTENANCE, NORMAL
from bursar.policies.trees.documents import consumer_from_plain, read_consumer
from bursar.policies.trees.manager import QuotaManager
from bursar.policies.trees.refresh import Report
from bursar.policies.trees.responses import AllocationResponse, Move, NodeState, QuotaError, StaleTokenError, Token

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
