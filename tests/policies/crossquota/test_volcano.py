"""Arguments out of a Volcano scheduler configuration: its text, its file, or the ConfigMap around it."""

from __future__ import annotations

import pytest
import yaml

from bursar.objects.decode import ManifestError
from bursar.policies.crossquota.plugin import arguments_from

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
- plugins:
  - name: predicates
  - name: crossquota
    arguments:
      gpu-resource-names: "nvidia.com/gpu,amd.com/gpu"
      quota-resources: "cpu,memory"
      quota.cpu: "32"
      quota-percentage.memory: "50"
      crossQuotaWeight: 10
      weight.cpu: 10
      weight.memory: 1
"""


def entry(**fields: object) -> str:
    return yaml.safe_dump({"tiers": [{"plugins": [{"name": "crossquota", **fields}]}]})


def test_the_seeds_arguments_are_read_out_of_the_text() -> None:
    read = arguments_from({"volcano-scheduler.conf": CONF})
    assert read.gpu_names == ("nvidia.com/gpu", "amd.com/gpu")
    assert (read.resources, read.quotas, read.percentages) == (
        ("cpu", "memory"),
        {"cpu": 32000},
        {"memory": (50, 1)},
    )
    assert (read.weight, read.weight_of("cpu"), read.weight_of("memory")) == (10, 10, 1)


def test_a_selector_in_a_real_file_is_honoured() -> None:
    text = entry(arguments={"label-selector": {"matchLabels": {"team": "a"}}})
    assert arguments_from({"volcano-scheduler.conf": text}).selector.show() == "team In [a]"


def test_scoring_can_be_switched_off() -> None:
    assert arguments_from({"volcano-scheduler.conf": entry(enableNodeOrder=False)}).weight == 0


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"volcano-scheduler.conf": "a: [b"}, "spec.crossquota.volcano-scheduler.conf: not YAML"),
        ({"volcano-scheduler.conf": ""}, "is not a Volcano scheduler configuration"),
        ({"volcano-scheduler.conf": "- a"}, "is not a Volcano scheduler configuration"),
        ({"volcano-scheduler.conf": "actions: x"}, "volcano-scheduler.conf.tiers: expected a list"),
        ({"volcano-scheduler.conf": "tiers: [x]"}, "volcano-scheduler.conf.tiers[0]: expected a mapping"),
        ({"volcano-scheduler.conf": "tiers: [{plugins: [x]}]"}, ".tiers[0].plugins[0]: expected a mapping"),
        ({"volcano-scheduler.conf": "tiers: []"}, "the plugin crossquota is not listed"),
        (
            {"volcano-scheduler.conf": "tiers: [{plugins: [{name: crossquota}, {name: crossquota}]}]"},
            "listed more than once",
        ),
        ({"volcano-scheduler.conf": entry(enablePredicate=False)}, ".plugins[0].enablePredicate: the quota cannot"),
        ({"volcano-scheduler.conf": entry(arguments=[])}, ".plugins[0].arguments: expected a mapping"),
        (
            {"volcano-scheduler.conf": entry(arguments={"quota.cpu": "x"})},
            "spec.crossquota.volcano-scheduler.conf.tiers[0].plugins[0].arguments.quota.cpu: 'x' is not a quantity",
        ),
        (
            {"volcano-scheduler.conf": entry(arguments={"volcano-scheduler.conf": "x"})},
            "arguments.volcano-scheduler.conf: is not a known argument",
        ),
        ({"volcano-scheduler.conf": 7}, "expected the text of a Volcano scheduler configuration"),
        ({"volcano-scheduler.conf": CONF, "quota.cpu": 1}, "none can be given beside it"),
    ],
)
def test_bad_text_is_refused_with_its_place(section: dict[str, object], problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        arguments_from(section)
    assert problem in str(caught.value)
