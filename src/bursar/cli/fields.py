"""Fields that changed, a line each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bursar.server import chronicle

_LONGEST = 60


def field_lines(fields: Sequence["chronicle.FieldChange"]) -> list[str]:
    return [f"{one.path}: {_shown(one.before)} -> {_shown(one.after)}" for one in fields]


def _shown(value: object) -> str:
    import json

    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
