"""Alert rules and dashboard of the controller speak of metrics that it has."""

import json
import re
from pathlib import Path

import yaml

from bursar.answers import process
from bursar.kube.controller import metrics

ROOT = Path(__file__).resolve().parents[3]


def told() -> set[str]:
    """The names as Prometheus sees them; what is read when a replica leads stands in the source only."""
    source = "".join(Path(str(module.__file__)).with_suffix(".py").read_text() for module in (metrics, process))
    made = re.findall(r'\b(gauge|counter)\("(\w+)"', source)
    return {f"{name}_total" if kind == "counter" else name for kind, name in made}


def test_every_metric_that_is_asked_for_is_told() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "alerts" / "controller.yaml").read_text())
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "controller.json").read_text())
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    pictures = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for asked in (alerts, pictures):
        wanted = {name for text in asked for name in re.findall(r"\bbursar_\w+", text)}
        assert len(wanted) > 5
        assert wanted <= told()
