"""The lines of a journal, as its decoder reads them.

A line is decoded in one pass into these structs, which also checks it: an effect of an unknown kind and a part that is
missing, superfluous or of another type are decoding errors. Parts that repeat in equal form (specs, bindings, costs)
stay raw text: replay looks them up by their text and decodes only new ones. Interpreted, because msgspec builds these
classes.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Raw, Struct
from msgspec.json import Decoder, decode, encode


class _Effect(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """Written as a list whose first item is the kind."""


class Bound(_Effect, tag="bound"):
    """A charge in the very accounts and at the costs of one of the claim's bindings."""

    uid: str
    mode: int
    slot: int


class Charged(_Effect, tag="charge"):
    """A charge in any accounts; a single cost stands for all of them."""

    uid: str
    mode: int
    accounts: list[str]
    costs: list[Raw]


class Stated(_Effect, tag="state"):
    uid: str
    state: int


class BindingsEffect(_Effect, tag="bind"):
    uid: str
    bindings: list[Raw]


class Entered(_Effect, tag="claim"):
    uid: str
    namespace: str
    name: str
    created: int
    spec: Raw


class Dropped(_Effect, tag="drop"):
    uid: str


class FieldEffect(_Effect, tag="field"):
    uid: str
    field: int
    value: Raw


class Cell(_Effect, tag="cell"):
    policy: str
    table: str
    key: str
    value: Raw


class Opened(_Effect, tag="open"):
    policy: str
    name: str
    topic: str
    physical: bool


class Closed(_Effect, tag="close"):
    name: str


class Limited(_Effect, tag="limits"):
    name: str
    listed: dict[str, int]
    stock: bool


class ObjectVoucher(_Effect, tag="objects"):
    """What a record vouches for; it changes nothing."""

    sum: str
    change: int
    hash: str


Effect = (
    ObjectVoucher | Bound | Stated | BindingsEffect | Charged | Entered | Dropped | FieldEffect | Cell | Opened | Closed
    | Limited
)  # fmt: skip
EFFECTS = frozenset(
    (
        "bound", "charge", "state", "bind", "claim", "drop", "field", "cell", "open", "close", "limits", "objects",
    ),
)  # fmt: skip


class JournalLine(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A whole line. Decision and effects stay raw until they are needed."""

    format: int
    seq: int
    at: int
    engine: str
    cause: list[Any]
    decided: Raw
    changes: list[Effect]
    digest: str
    hash: str

    @property
    def decision(self) -> list[Any] | None:
        return cast("list[Any] | None", decode(self.decided))

    @property
    def effects(self) -> list[list[Any]]:
        return cast("list[list[Any]]", decode(encode(self.changes)))


class Header(Struct, array_like=True, gc=False):
    """The first line of a snapshot. The engine decodes the decisions, one by one."""

    mark: str
    format: int
    seq: int
    at: int
    head: str
    digest: str
    decisions: list[Raw]


HEADERS: Decoder[Header] = Decoder(Header)
LINES: Decoder[JournalLine] = Decoder(JournalLine)
EFFECT_LISTS: Decoder[list[Effect]] = Decoder(list[Effect])
AMOUNTS: Decoder[dict[str, int]] = Decoder(dict[str, int])
