"""Response types of sums: the whole cluster at a moment, and what was used and waited for over time.

Amounts are canonical quantities as text, as everywhere in the API. Averages and amounts times hours are rounded down to
thousandths, and bytes to whole ones.
"""

from __future__ import annotations

from bursar.server.types import Amounts, Answer, Moment


class ResourceTotal(Answer, frozen=True):
    """One resource of the whole cluster: allocatable = used + reserved + free, unless claims overuse it."""

    resource: str
    allocatable: str  # of nodes that are ready, or of GPUs that are handed out in parts
    used: str
    reserved: str  # by claims whose pods do not run yet
    free: str
    usable: str  # of free: in pieces as large as the largest claim that waits
    largest: str  # what that claim asks for; empty: none waits
    largest_claim: str


class TeamTotal(Answer, frozen=True):
    """The claims of a namespace."""

    namespace: str
    used: Amounts
    wanted: Amounts  # by claims that wait
    running: int
    waiting: int
    borrowing: int


class PoolTotal(Answer, frozen=True):
    """The nodes of a pool."""

    name: str
    nodes: int
    ready: int
    allocatable: Amounts
    used: Amounts


class Overview(Answer, frozen=True):
    """The whole cluster, by resource, team and pool."""

    moment: Moment
    resources: list[ResourceTotal]
    teams: list[TeamTotal]
    pools: list[PoolTotal]


class ActivitySeries(Answer, frozen=True):
    """One resource over time: averages of spans."""

    resource: str
    used: list[str]
    waited: list[str]  # asked for by claims that waited


class TeamHours(Answer, frozen=True):
    """Amount times hours of a team, of the whole answer."""

    namespace: str
    resource: str
    used: str
    waited: str


class Activity(Answer, frozen=True):
    """What was used and what waited over time, and how many claims came, started, were evicted and ended."""

    moment: Moment
    complete: bool  # False: the journal is still being read; ask again
    begins: str  # of the journal
    start: str  # of the first span
    step_seconds: int
    points: int
    series: list[ActivitySeries]
    teams: list[TeamHours]
    submitted: list[int]
    started: list[int]
    evicted: list[int]
    finished: list[int]
