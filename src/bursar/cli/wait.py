"""`bursar wait`: until objects are as they should be, or time is up.

The objects are looked at again and again, each time all of those that are not yet as they should be. A condition is on
the whole manifest, status included, so that it works for every kind.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from bursar.cli import exit_codes
from bursar.cli.complete import complete_reference
from bursar.cli.connection import Target, asks, fail
from bursar.cli.names import Reference, references
from bursar.cli.output import echo

if TYPE_CHECKING:
    from bursar.server.client import Client

Body = dict[str, Any]
PHASES = ("Pending", "Running", "Terminating", "Succeeded", "Evicted")
_STEP = re.compile(r"\.?(?:([A-Za-z0-9_-]+)|\[(\d+)\]|\['([^']+)'\])")


@dataclass(frozen=True, slots=True)
class WaitCondition:
    """What is waited for; ``met`` gets the manifest, or None while there is no such object."""

    text: str
    met: Callable[[Body | None], bool]
    final: Callable[[Body | None], bool] = lambda _: False  # it can no longer come true


def read_condition(text: str) -> WaitCondition:
    """``delete``, ``create``, ``condition=NAME[=VALUE]``, ``phase=NAME`` or NAME, ``jsonpath={.path}[=VALUE]``."""
    name, _, rest = text.partition("=")
    if text.lower() in {"delete", "deleted"}:
        return WaitCondition("deleted", lambda body: body is None)
    if text.lower() in {"create", "created"}:
        return WaitCondition("created", lambda body: body is not None)
    if name == "condition" and rest:
        return _condition(rest)
    if name == "jsonpath" and rest:
        return _path(rest)
    phase = rest if name == "phase" else text
    known = next((one for one in PHASES if one.lower() == phase.lower()), None)
    if known is None:
        forms = "delete, create, a phase of pods, condition=NAME[=VALUE] and jsonpath={.status.field}=VALUE"
        fail(f"--for: {text!r:.80} is not understood; known are {forms} (phases: {', '.join(PHASES)})")
    return WaitCondition(known, lambda body: _phase(body) == known, lambda body: _is_over(body, known))


def _phase(body: Body | None) -> str:
    return str(_status(body).get("phase") or "")


def _status(body: Body | None) -> Body:
    found = (body or {}).get("status")
    return found if isinstance(found, dict) else {}


def _is_over(body: Body | None, phase: str) -> bool:
    """Whether a pod has ended otherwise than as wanted."""
    return _phase(body) in {"Succeeded", "Evicted"} and _phase(body) != phase


def _condition(text: str) -> WaitCondition:
    name, _, value = text.partition("=")
    value = value or "True"

    def met(body: Body | None) -> bool:
        return any(
            str(one.get("type", "")).lower() == name.lower() and str(one.get("status", "")).lower() == value.lower()
            for one in _status(body).get("conditions") or []
        )

    return WaitCondition(f"{name}={value}", met)


def _path(text: str) -> WaitCondition:
    path, _, value = text.partition("}")
    path, value = path.lstrip("{"), value.removeprefix("=")
    steps = _STEP.findall(path)
    if not steps or _STEP.sub("", path):
        fail(f"--for: {text!r:.80} is no path of a field: expected {{.status.field}}=VALUE")

    def met(body: Body | None) -> bool:
        found = _at(body, steps)
        return found is not None and (not value or str(found).lower() == value.lower())

    return WaitCondition(f"{path}={value}" if value else path, met)


def _at(value: Any, steps: list[tuple[str, str, str]]) -> Any:  # noqa: ANN401 any part of a manifest
    for name, index, quoted in steps:
        if index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        elif not index and isinstance(value, dict):
            value = value.get(name or quoted)
        else:
            return None
    return value


@click.command()
@click.argument("objects", nargs=-1, required=True, metavar="KIND/NAMESPACE/NAME", shell_complete=complete_reference)
@click.option(
    "--for",
    "condition",
    required=True,
    metavar="WHAT",
    help="delete, create, a phase (Running), condition=NAME[=VALUE], or jsonpath={.status.field}=VALUE.",
)
@click.option("-n", "--namespace", default="", help="The namespace of names that have none.")
@click.option("--timeout", metavar="DURATION", default="30s", show_default=True, help="How long to wait; 0: look once.")
@click.option("--interval", type=click.FloatRange(min=0.05), default=0.5, show_default=True,
              help="Seconds between looks.")  # fmt: skip
@asks
def wait(
    objects: tuple[str, ...], condition: str, namespace: str, timeout: str, interval: float, target: Target
) -> None:
    """Wait until objects are in a phase, have a condition or a value, are created or deleted.

    namespace/name alone is a pod; KIND NAME... works as well. Exit code 1: not within the time, or never again: a pod
    that was evicted does not run.
    """
    wanted, seconds = read_condition(condition), _seconds(timeout)
    if target.data is not None:
        fail("a store file is only read: nothing in it will change")
    end = time.monotonic() + seconds
    with target.looking() as opened:
        with opened() as client:
            left = references(client, objects, namespace or target.own_namespace)
        while True:
            with opened() as client:
                left = _looked(client, left, wanted)
            if not left:
                return
            if time.monotonic() >= end:
                names = ", ".join(f"{kind}/{key}" for kind, key in left)
                fail(f"not {wanted.text} within {timeout}: {names}", exit_codes.FAILED)
            time.sleep(min(interval, max(end - time.monotonic(), 0.01)))


def _looked(client: Client, left: list[Reference], wanted: WaitCondition) -> list[Reference]:
    """Those that are not yet as they should be."""
    still: list[Reference] = []
    for kind, key in left:
        body = _find(client, kind, key)
        if wanted.met(body):
            echo([f"{kind}/{key} {wanted.text}"])
        elif wanted.final(body):
            fail(f"{kind}/{key} is {_phase(body)}, and will not be {wanted.text}", exit_codes.FAILED)
        else:
            still.append((kind, key))
    return still


def _find(client: Client, kind: str, key: str) -> Body | None:
    from bursar.server.client import RequestFailedError

    try:
        return client.object(kind, key)
    except RequestFailedError as error:
        if error.status != 404:
            raise
        return None


def _seconds(text: str) -> float:
    from bursar.objects.decode import ManifestError
    from bursar.objects.validation import duration_ms

    try:
        return duration_ms(text) / 1000 if text != "0" else 0.0
    except ManifestError as error:
        fail(f"--timeout: {error.problem}")
