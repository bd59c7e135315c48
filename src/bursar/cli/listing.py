"""What a command lists: the question, and the rows of an answer that comes in pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from bursar.cli.connection import fail, refuse

PAGE = 2000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What to list; filters that the table does not have are an error."""

    what: str
    names: tuple[str, ...]  # each in any form that some command prints
    filters: dict[str, str]
    limit: int
    live: bool = False  # the present, as a server has it: ages go on

    @property
    def most(self) -> int:
        """How many rows are enough; 0: all are read, as they must be where names are looked for among them."""
        return 0 if self.names else self.limit

    def only(self, *known: str) -> dict[str, str]:
        for name in self.filters:
            if name not in known:
                fail(f"{self.what} cannot be filtered by --{name}" if name != "at" else f"{self.what} takes no --at")
        return self.filters

    def called(self, forms: tuple[str, ...]) -> list[str]:
        """The names among those asked for that a row goes by."""
        return [name for name in self.names if name in forms]


def pages(fetch: Callable[..., Any], query: dict[str, str], most: int = 0) -> Any:  # noqa: ANN401 the list that fetch gives
    """All pages of a list as one, or so many that there are ``most`` rows; a bar on a terminal if there are several."""
    import msgspec

    first = fetch(**query, limit=min(most, PAGE) or PAGE)
    items = list(first.items)
    page = first
    if first.remaining and not (most and len(items) >= most):
        with click.progressbar(
            length=len(items) + first.remaining, label="reading", file=sys.stderr, hidden=not sys.stderr.isatty()
        ) as progress:
            while page.remaining and not (most and len(items) >= most):
                page = fetch(**{**query, "continue": page.next}, limit=PAGE)
                items.extend(page.items)
                progress.update(len(page.items))
    kept = items[:most] if most else items
    return msgspec.structs.replace(first, items=kept, remaining=len(items) - len(kept) + page.remaining, next="")


Forms = Callable[[Any], tuple[str, ...]]
"""What a row may be called; first what its table calls it."""


def selected(fetch: Callable[..., Any], asked: ListQuery, query: dict[str, str], forms: Forms) -> Any:  # noqa: ANN401 the list that fetch gives
    """The rows that were asked for."""
    found = pages(fetch, query, asked.most)
    return _named(found, asked, forms) if asked.names else found


def _named(found: Any, asked: ListQuery, forms: Forms) -> Any:  # noqa: ANN401 a list of the API
    """Only what was named; a name that nothing has ends the program."""
    import msgspec

    goes_by = [(item, asked.called(forms(item))) for item in found.items]
    known = {name for _, names in goes_by for name in names}
    for name in asked.names:
        if name not in known:
            not_there(asked.what, name, [forms(item)[0] for item in found.items])
    return msgspec.structs.replace(found, items=[item for item, names in goes_by if names])


_ONE = {"pods": "pod", "po": "pod", "claims": "claim", "queue": "pending pod", "no": "node", "nodes": "node",
        "quotas": "quota", "trees": "quota tree", "tree": "quota tree", "gpus": "GPU", "gpu": "GPU"}  # fmt: skip


def not_there(what: str, name: str, known: Sequence[str]) -> NoReturn:
    """End the program: nothing of what was asked for has that name. Says what was probably meant."""
    from bursar.objects.decode import or_nearest
    from bursar.server.types import Problem

    detail = f"there is no {_ONE.get(what.lower(), what)} {name}{or_nearest(name, known)}"
    refuse(Problem(type="", title="", status=404, detail=detail))
