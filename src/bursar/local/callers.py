"""Who asks: the user that the kernel names, the teams of the user, and what the user may do.

An agent of root serves all users of the machine; one of another user serves that user only, for any team.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from dataclasses import dataclass

from bursar.local.submission import JobRefusedError
from bursar.objects.local_options import LocalOptions, Members

_REMEMBERED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LocalUser:
    """A user of the machine, with the names of the groups, the own one first."""

    uid: int
    gid: int
    name: str
    groups: tuple[str, ...]

    @classmethod
    def of(cls, uid: int) -> LocalUser:
        """As the machine's database of users has it now; this may ask a directory server."""
        try:
            user = pwd.getpwuid(uid)
        except KeyError:
            return cls(uid, uid, f"uid-{uid}", ())
        ids = [user.pw_gid, *(one for one in os.getgrouplist(user.pw_name, user.pw_gid) if one != user.pw_gid)]
        return cls(uid, user.pw_gid, user.pw_name, tuple(name for name in map(_group, ids) if name))

    def among(self, members: Members) -> bool:
        return self.name in members.users or any(group in members.groups for group in self.groups)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


class UserCache:
    """Users that asked lately. ``find`` may block."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, LocalUser]] = {}

    def find(self, uid: int) -> LocalUser:
        now = time.monotonic()
        known = self._known.get(uid)
        if known is not None and now - known[0] < _REMEMBERED_SECONDS:
            return known[1]
        found = LocalUser.of(uid)
        self._known[uid] = (now, found)
        return found


@dataclass(frozen=True, slots=True)
class LocalRights:
    """What callers may do; ``owner`` is the user that the agent runs as."""

    options: LocalOptions
    owner: int

    def serves(self, uid: int) -> bool:
        return self.owner in {0, uid}

    def is_admin(self, caller: LocalUser) -> bool:
        return caller.uid in {0, self.owner} or caller.among(self.options.admins)

    def teams(self, caller: LocalUser) -> list[str]:
        """Those that the caller may queue jobs for; the usual one first."""
        table = self.options.teams
        if table is None:
            return [name for name in caller.groups if name]
        return [team for team, members in sorted(table.items()) if caller.among(members)]

    def team(self, caller: LocalUser, asked: str) -> str:
        """The team of a job; ``JobRefusedError`` unless the caller belongs to it."""
        teams = self.teams(caller)
        if self.options.teams is None and self.owner != 0 and asked:
            return asked  # an instance of one's own
        if asked in teams:
            return asked
        yours = f"your teams: {', '.join(teams)}" if teams else f"user {caller.name} is in no team"
        if asked:
            known = self.options.teams is None or asked in self.options.teams
            problem = f"you are not in team {asked!r:.60}" if known else f"there is no team {asked!r:.60}"
            raise JobRefusedError(f"{problem}; {yours}")
        if not teams:
            raise JobRefusedError(f"{yours}: an admin can add one to the Configuration, section local")
        if len(teams) > 1 and self.options.teams is not None and teams[0] not in caller.groups:
            raise JobRefusedError(f"name the team with -n; {yours}", 2)
        return teams[0]

    def check_own(self, caller: LocalUser, owner: int, pod: str) -> None:
        """``JobRefusedError`` unless the job is the caller's own, or the caller is an admin."""
        if caller.uid != owner and not self.is_admin(caller):
            raise JobRefusedError(f"{pod} is a job of another user")
