"""What one user asked of the API server, from the API server's own audit log.

``flags`` go to ``ControlPlane.start(apiserver_flags=...)``; ``events`` and ``calls`` read the log. Each finished
request is one line; watches are logged when they end.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

WRITES = ("create", "update", "patch", "delete", "deletecollection")


class Call(NamedTuple):
    verb: str
    group: str
    resource: str  # with its subresource: pods/status
    namespace: str
    name: str
    status: int


def flags(policy: Path, log: Path, user: str, verbs: tuple[str, ...] = ()) -> list[str]:
    """Log the requests of this user, all of them or those with these verbs. Writes the policy file."""
    rule: dict[str, object] = {"level": "Metadata", "users": [user], "omitStages": ["RequestReceived"]}
    if verbs:
        rule["verbs"] = list(verbs)
    text = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [rule, {"level": "None"}]}
    policy.write_text(json.dumps(text))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]


def events(log: Path) -> Iterator[dict[str, Any]]:
    """In the order of the log, without a line that is still being written. Before the first there is no log."""
    if not log.exists():
        return
    with log.open() as lines:
        for line in lines:
            if not line.endswith("\n"):
                return
            yield json.loads(line)


def calls(log: Path) -> Iterator[Call]:
    """The events of the log, as far as most readers care."""
    for event in events(log):
        what = event.get("objectRef", {})
        parts = [what.get("resource", ""), what.get("subresource", "")]
        yield Call(
            event["verb"],
            what.get("apiGroup", ""),
            "/".join(part for part in parts if part),
            what.get("namespace", ""),
            what.get("name", ""),
            int(event["responseStatus"]["code"]),
        )
