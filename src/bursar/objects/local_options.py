"""The section ``local`` of the Configuration: who may queue jobs on GPU servers for which team, and how jobs end.

Without a table of teams, the teams of a user are the groups that the user is a member of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from bursar.objects.core import Part
from bursar.objects.decode import ManifestError
from bursar.objects.validation import check_namespace, duration_ms

SECTION = "local"
MACHINE = "local.bursar.dev/machine"
"""The annotation of a pod that stands for processes on a machine: whose agent runs them and reports their end."""
EXIT_CODE = "local.bursar.dev/exit-code"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,255}\$?")


class Members(Part, frozen=True):
    """Users and groups of the machine, by name."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class LocalSection(Part, frozen=True):
    """``Configuration.spec.local``."""

    teams: Annotated[
        dict[str, Members] | None, Meta(description="Who may queue jobs for which team; else teams are groups.")
    ] = None
    admins: Annotated[Members, Meta(description="Who may stop, attach to and read all jobs, beside root.")] = Members()
    grace_period: Annotated[str, Meta(description="Between SIGTERM and SIGKILL; jobs may ask for less.")] = "30s"
    mps: Annotated[bool, Meta(description="Enforce fractions by an MPS daemon for each GPU.")] = False
    strays: Annotated[
        Literal["hold", "ignore"], Meta(description="What a compute process without a job means for its GPU.")
    ] = "hold"
    idle_after: Annotated[str, Meta(description="How long a GPU does nothing before its job is called idle.")] = "10m"
    evict_idle_after: Annotated[str, Meta(description="Evict over-quota jobs whose GPUs did nothing so long.")] = ""


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """The section with its values read."""

    teams: Mapping[str, Members] | None = None
    admins: Members = field(default_factory=Members)
    grace_ms: int = 30_000
    mps: bool = False
    strays: str = "hold"
    idle_after_ms: int = 600_000
    evict_idle_after_ms: int = 0  # never


def local_options(section: LocalSection | None) -> LocalOptions:
    """The values of the section; ``ManifestError`` names the field that cannot be read."""
    given = section or LocalSection()
    for team, members in (given.teams or {}).items():
        check_namespace(team, f"spec.local.teams.{team}")
        _check_members(members, f"spec.local.teams.{team}")
    _check_members(given.admins, "spec.local.admins")
    return LocalOptions(
        given.teams,
        given.admins,
        duration_ms(given.grace_period, "spec.local.gracePeriod"),
        given.mps,
        given.strays,
        duration_ms(given.idle_after, "spec.local.idleAfter"),
        duration_ms(given.evict_idle_after, "spec.local.evictIdleAfter") if given.evict_idle_after else 0,
    )


def _check_members(members: Members, path: str) -> None:
    for kind, names in (("users", members.users), ("groups", members.groups)):
        for index, name in enumerate(names):
            if _NAME.fullmatch(name) is None:
                raise ManifestError(f"{name!r:.60} is not the name of a user or group", f"{path}.{kind}[{index}]")


def options_of(configuration: Mapping[str, Any] | None) -> LocalOptions:
    """Of the Configuration's manifest, or of none."""
    section = None if configuration is None else (configuration.get("spec") or {}).get(SECTION)
    return local_options(None if section is None else msgspec.convert(section, LocalSection))
