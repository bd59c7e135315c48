"""Kinds of objects: how a manifest is recognised, typed and named.

A kind is called ``Kind`` for Kubernetes' own and ``Kind.group`` otherwise (``ElasticQuota.n8s.nebuly.ai``), because
two dialects share the name ElasticQuota. Quota kinds are strict: a field that nobody knows is an error there, since
a misspelt limit would otherwise be no limit. Everywhere else unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec


class Column(NamedTuple):
    """What a listing prints beside the name."""

    title: str
    path: str  # a JSON path, such as .status.used
    wide: bool = False  # only in the wide form


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of manifest, and the struct that it is read into."""

    group: str  # "" for v1
    version: str
    kind: str
    plural: str
    namespaced: bool
    struct: type[msgspec.Struct]
    strict: bool = False
    short_names: tuple[str, ...] = ()
    qualified: bool = True  # False: called by its bare name although it has a group (PriorityClass)
    bare: bool = False  # documents without an apiVersion are read as this kind too
    name_path: tuple[str, ...] = ("metadata", "name")  # what identifies an object
    any_name: bool = False  # the name may be any text, not only a DNS name
    check: Callable[[Any], None] | None = None  # of the struct; raises errors.ManifestError with the field's path
    columns: tuple[Column, ...] = ()  # the age comes last without being listed
    status: type[msgspec.Struct] | None = None  # what Bursar writes there; None: conditions only

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.group}" if self.group and self.qualified else self.kind

    @property
    def has_status(self) -> bool:
        """Whether Bursar says of such objects how they fare; some are only read."""
        return self.status is not None or self.strict

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version
