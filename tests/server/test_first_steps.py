"""A newcomer's path: submit a pod that cannot run, ask why, follow a suggested fix, see it run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bursar.control.suggestions.trial import Edit, edited
from bursar.policies.fix_fields import Path as FieldPath
from bursar.server.demo import ORGANISATION
from bursar.server.types import Fix
from tests.server.live import ManualClock, live, pod, text


def follow(body: dict[str, Any], fix: Fix) -> dict[str, Any]:
    edits = [Edit(edit.kind, edit.key, steps(edit.field, body), edit.before, edit.after) for edit in fix.edits]
    return edited(body, edits)


def steps(field: str, body: object) -> FieldPath:
    """The path that people read, back as steps: keys may hold dots, so the manifest decides."""
    found: list[str | int] = []
    at = body
    while field:
        field = field.removeprefix(".")
        if field.startswith("["):
            index, _, field = field[1:].partition("]")
            found.append(int(index))
            at = at[int(index)] if isinstance(at, list) else None
            continue
        names = [name for name in (at if isinstance(at, dict) else {}) if field.startswith(name)]
        name = max(names, key=len, default=field)
        found.append(name)
        at = at.get(name) if isinstance(at, dict) else None
        field = field[len(name) :]
    return tuple(found)


def test_from_a_refusal_to_a_running_pod(tmp_path: Path) -> None:
    with live(tmp_path / "bursar.db", clock=ManualClock()) as bed:
        client = bed.client
        client.apply(ORGANISATION.read_text(), source="organisation.yaml")
        wanted = pod("vision", "mine", 16)
        assert client.what_if(text(wanted)).pods[0].verdict in {"queued", "never"}
        assert [news.what for news in client.apply(text(wanted)).pods] == ["waits"]

        why = client.explain("vision", "mine", fixes=True)
        assert why.claim.reason == "elastic.max.nvidia.com/gpu"
        assert "[elastic.max.nvidia.com/gpu]" in why.text
        fix = next(fix for fix in why.fixes if fix.code == "ask-less")

        changed = follow(wanted, fix)
        assert client.plan(text(changed)).starts == ["vision/mine"]
        assert [news.what for news in client.apply(text(changed)).pods] == ["started"]
        assert client.claim("vision", "mine").phase == "Running"
        assert client.history("Pod", "vision/mine").items[0].result == "created"
