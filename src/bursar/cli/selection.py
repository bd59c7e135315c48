"""What a table is asked for, and the rows of it: all pages of a list as one, and of them those that were named.

Nothing is left out in silence: a filter that the table does not have is an error, and so is a name that nobody has.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from bursar.cli.connection import fail, refuse

PAGE = 2000


@dataclass(frozen=True, slots=True)
class Asked:
    """What to list; filters that the table does not have are an error."""

    what: str
    names: tuple[str, ...]
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

    def wants(self, key: str) -> bool:
        namespace = self.filters.get("namespace", "")
        return key in self.names or (bool(namespace) and key.partition("/")[2] in self.names)


def selected(fetch: Callable[..., Any], asked: Asked, query: dict[str, str], key: Callable[[Any], str]) -> Any:  # noqa: ANN401 the list that fetch gives
    """The rows that were asked for; ``key`` says what a row is named by."""
    found = pages(fetch, query, asked.most)
    return _named(found, asked, key) if asked.names else found


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


def _named(found: Any, asked: Asked, key: Callable[[Any], str]) -> Any:  # noqa: ANN401 a list of the API
    """Only the rows that were named."""
    import msgspec

    items = [item for item in found.items if asked.wants(key(item))]
    keys = {key(item) for item in items}
    for name in asked.names:
        if name not in keys and not any(one.partition("/")[2] == name for one in keys):
            from bursar.server.answers import Problem

            refuse(Problem(type="", title="", status=404, detail=f"there is no {asked.what} {name}"))
    return msgspec.structs.replace(found, items=items)
