"""Dashboard and alert rules speak of metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from tests.server.live import Live, pod

ROOT = Path(__file__).resolve().parents[2]


def expressions() -> list[str]:
    rules = yaml.safe_load((ROOT / "deploy" / "alerts" / "bursar.yaml").read_text())
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "bursar.json").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return found + [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_every_metric_that_is_asked_for_is_told(bed: Live) -> None:
    bed.give(pod("b", "loan", 4), pod("a", "p", 9))
    bed.give(pod("a", "owner", 1))
    told = bed.raw("GET", "/metrics")[2].decode()
    names = set(re.findall(r"^# TYPE (\S+)", told, re.MULTILINE)) | set(re.findall(r"^(\w+)[{ ]", told, re.MULTILINE))
    wanted = {name for text in expressions() for name in re.findall(r"\bbursar_\w+", text)}
    assert len(wanted) > 10
    assert wanted <= names
