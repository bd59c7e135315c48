"""The options of the policy: the setting that brings them and the cell that keeps them."""

from __future__ import annotations

from typing import Final, cast, final

from bursar.policies.settings import Body

DELAY: Final = 120_000


@final
class Options(Body):
    """What the section ``pools`` of the Configuration says."""

    __slots__ = ("default_preemption", "delay", "guarantee", "revoke", "runtime")

    def __init__(
        self,
        guarantee: bool = False,
        runtime: bool = True,
        revoke: bool = True,
        delay: int = DELAY,
        default_preemption: bool = False,
    ) -> None:
        self.guarantee: Final = guarantee  # what is in use is never taken back for others
        self.runtime: Final = runtime  # False: quotas are held to their max only
        self.revoke: Final = revoke
        self.delay: Final = delay  # milliseconds of over-use before claims are taken back
        self.default_preemption: Final = default_preemption  # pods of the default quota may be preempted

    def cell(self) -> tuple[object, ...]:
        return (self.guarantee, self.runtime, self.revoke, self.delay, self.default_preemption)


def options_of(cell: object) -> Options:
    """The options in a cell; the defaults for no cell."""
    if cell is None:
        return Options()
    guarantee, runtime, revoke, delay, default_preemption = cast("tuple[object, ...]", cell)
    return Options(
        cast("bool", guarantee),
        cast("bool", runtime),
        cast("bool", revoke),
        cast("int", delay),
        cast("bool", default_preemption),
    )
