"""Requests made up from the OpenAPI document, good and bad, against a real server.

Every answer must be one that the document describes, never 5xx; after each 4xx sequence number and digest must be what
they were before. ``python -m tests.server.fuzz --examples 500`` is the long run.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from bursar.server.openapi import document
from tests.server.live import Live, ManualClock, live, node, pod, quota

SKIPPED = {"events"}  # a stream does not end


@dataclass
class Found:
    requests: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def fuzz(data: Path, examples: int, seed: int) -> Found:
    found = Found()
    with live(data, clock=ManualClock()) as bed:
        bed.give(node("n1"), quota("a", 2), quota("b", 2), pod("a", "p1"), pod("b", "p2", 9))
        schema = schemathesis.openapi.from_dict(document())
        for result in schema.get_all_operations():
            assert isinstance(result, Ok), result
            operation = result.ok()
            if operation.definition.raw["operationId"] not in SKIPPED:
                _fuzz_operation(bed, operation, examples, seed, found)
    return found


def _fuzz_operation(bed: Live, operation: Any, examples: int, seed: int, found: Found) -> None:  # noqa: ANN401 theirs
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

        @hypothesis.seed(seed)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def attempt(case: Any) -> None:  # noqa: ANN401 theirs
            _send(bed, case, found)

        try:
            attempt()
        except hypothesis.errors.Unsatisfiable:
            continue  # nothing can be wrong with a request that has no parts


def _send(bed: Live, case: Any, found: Found) -> None:  # noqa: ANN401 theirs
    engine = bed.service.cluster.engine
    before = engine.version, engine.digest
    response = case.call(base_url=bed.address, timeout=60)
    found.requests += 1
    found.statuses[response.status_code] = found.statuses.get(response.status_code, 0) + 1
    where = f"{case.method} {case.formatted_path} {case.query} {case.body!r:.300}: {response.status_code}"
    if response.status_code >= 500:
        found.problems.append(f"{where}: {response.content[:300]!r}")
    if response.status_code >= 400:
        if (engine.version, engine.digest) != before:
            found.problems.append(f"{where}: was refused and left a trace")
        if response.headers["content-type"][0] != "application/problem+json":
            found.problems.append(f"{where}: is no problem document")
    elif str(response.status_code) not in case.operation.definition.raw["responses"]:
        found.problems.append(f"{where}: is not in the document")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = fuzz(Path(folder) / "bursar.db", options.examples, options.seed)
    for problem in found.problems[:50]:
        print(problem)  # noqa: T201
    print(found.requests, "requests", dict(sorted(found.statuses.items())), len(found.problems), "problems")  # noqa: T201
    raise SystemExit(bool(found.problems))


if __name__ == "__main__":
    main()
