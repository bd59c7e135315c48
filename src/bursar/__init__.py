"""Bursar: which pods may use which GPUs now, why, and the proof.

The public API of the library is what this package and ``bursar.policies.trees`` export; all other modules are private.

* ``Engine`` decides over the claims of pods by a set of policies; ``Cluster`` is a whole cluster in memory, which
  takes manifests; ``Auditor`` checks a journal.
* ``QuotaPolicy``, ``Plugin`` and the names beside them are for policies of your own.
* ``bursar.policies.trees`` has ``QuotaManager``, quota trees as a library of its own.

Each name is imported on first use, so that ``import bursar`` and the command line start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bursar._version import __version__

if TYPE_CHECKING:
    from bursar.audit.auditor import AuditError, Auditor
    from bursar.engine.decision import Decision
    from bursar.engine.engine import Engine
    from bursar.ledger.claims import Binding, Claim, ClaimSpec
    from bursar.ledger.transaction import Transaction
    from bursar.objects.core import Manifest, Part, Quantities
    from bursar.objects.decode import ManifestError
    from bursar.objects.kinds import Kind
    from bursar.objects.manifests import load_path, load_text
    from bursar.objects.requests import amounts_from
    from bursar.policies.fix_fields import FixFields, LimitField, limit_fields
    from bursar.policies.plugin import ObjectView, Plugin, Reason, Registry, default_registry
    from bursar.policies.policy import PlacementPolicy, QuotaPolicy
    from bursar.policies.quota_table import QuotaRecord, QuotaTable
    from bursar.policies.results import Body, Check, Output, Refusal, Setting, SettingError
    from bursar.resources import Limits, Vector, parse_vector
    from bursar.sim.cluster import Cluster

__all__ = [
    "AuditError",
    "Auditor",
    "Binding",
    "Body",
    "Check",
    "Claim",
    "ClaimSpec",
    "Cluster",
    "Decision",
    "Engine",
    "FixFields",
    "Kind",
    "LimitField",
    "Limits",
    "Manifest",
    "ManifestError",
    "ObjectView",
    "Output",
    "Part",
    "PlacementPolicy",
    "Plugin",
    "Quantities",
    "QuotaPolicy",
    "QuotaRecord",
    "QuotaTable",
    "Reason",
    "Refusal",
    "Registry",
    "Setting",
    "SettingError",
    "Transaction",
    "Vector",
    "__version__",
    "amounts_from",
    "default_registry",
    "limit_fields",
    "load_path",
    "load_text",
    "parse_vector",
]
_NAMES = {
    "bursar.audit.auditor": ("AuditError", "Auditor"),
    "bursar.engine.decision": ("Decision",),
    "bursar.engine.engine": ("Engine",),
    "bursar.ledger.claims": ("Binding", "Claim", "ClaimSpec"),
    "bursar.ledger.transaction": ("Transaction",),
    "bursar.objects.core": ("Manifest", "Part", "Quantities"),
    "bursar.objects.decode": ("ManifestError",),
    "bursar.objects.kinds": ("Kind",),
    "bursar.objects.manifests": ("load_path", "load_text"),
    "bursar.objects.requests": ("amounts_from",),
    "bursar.policies.fix_fields": ("FixFields", "LimitField", "limit_fields"),
    "bursar.policies.plugin": ("ObjectView", "Plugin", "Reason", "Registry", "default_registry"),
    "bursar.policies.policy": ("PlacementPolicy", "QuotaPolicy"),
    "bursar.policies.quota_table": ("QuotaRecord", "QuotaTable"),
    "bursar.policies.results": ("Body", "Check", "Output", "Refusal", "Setting", "SettingError"),
    "bursar.resources": ("Limits", "Vector", "parse_vector"),
    "bursar.sim.cluster": ("Cluster",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'bursar' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
