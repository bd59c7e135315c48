"""Reports: they load nothing, escape everything, and repeat the figures of the run."""

import csv
import io
import re
from html.parser import HTMLParser

from bursar.objects.manifests import Document
from bursar.simulate.comparison import plain, table_text
from bursar.simulate.demand import JobDemand, QuotaSet
from bursar.simulate.figures import Figures, figures_of
from bursar.simulate.html_report import page
from bursar.simulate.plots import Axis, line_plot, number
from bursar.simulate.quota_sets import quota_set
from bursar.simulate.run import Run, simulate
from tests.simulate.traces import demand_of

HOSTILE = "\"><script>alert(1)</script>'=SUM(A1)"


def found(names: tuple[str, ...] = ("hard-caps", "elastic")) -> list[tuple[Run, Figures]]:
    demand = demand_of(("a", 4, 0, 4), ("a", 4, 0, 4), ("b", 4, 1, 1))
    runs = [simulate(demand, quota_set(name, demand)) for name in names]
    return [(run, figures_of(run)) for run in runs]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    return tags


def test_page_has_plots_and_loads_nothing() -> None:
    text = page("a title", found())
    tags = read(text)
    assert tags.tags.count("svg") >= 8
    assert not {"script", "link", "img", "iframe", "object", "image", "use"} & set(tags.tags)
    assert not [name for name, _ in tags.attributes if name in {"src", "href", "xlink:href", "onload"}]
    assert not re.search(r"https?://|url\(|@import", text)
    assert "default-src 'none'" in text


def test_hostile_names_stay_text() -> None:
    demand = demand_of(("a", 4, 0, 1), ("b", 4, 0, 1))
    hostile = JobDemand(HOSTILE, demand.jobs, demand.shapes, demand.objects, demand.capacity, notes=(HOSTILE,))
    run = simulate(hostile, QuotaSet(HOSTILE))
    run.waiting = {HOSTILE: 1}
    figures = figures_of(run)
    figures.tenants[0].name = HOSTILE
    text = page(HOSTILE, [(run, figures)])
    assert "<script" not in text
    tags = read(text)
    assert "script" not in tags.tags
    assert HOSTILE in tags.text


def test_same_figures_make_the_same_page() -> None:
    pages = []
    for _ in range(2):
        runs = found()
        for _, figures in runs:
            figures.seconds = 1.0
        pages.append(page("a", runs))
    assert pages[0] == pages[1]


def test_csv_has_a_row_for_each_run_and_tenant() -> None:
    figures = [one for _, one in found()]
    rows = list(csv.DictReader(io.StringIO(table_text(figures))))
    assert [(row["quotas"], row["tenant"]) for row in rows] == [
        ("hard-caps", "a"), ("hard-caps", "b"), ("hard-caps", ""), ("elastic", "a"), ("elastic", "b"), ("elastic", ""),
    ]  # fmt: skip
    assert rows[2]["waitingGPUHours"] == "16.0"
    assert rows[5]["lostGPUHours"] == "4.0"


def test_csv_holds_no_formulas() -> None:
    figures = found(("elastic",))[0][1]
    figures.tenants[0].name = "=cmd|' /C calc'!A0"
    assert "\n=" not in table_text([figures]).replace("elastic,", "\n")


def test_json_repeats_the_figures() -> None:
    figures = [one for _, one in found()]
    value = plain(figures, ["a note"])
    assert value["notes"] == ["a note"]
    assert [run["quotas"] for run in value["runs"]] == ["hard-caps", "elastic"]
    assert value["runs"][1]["evictions"] == 1
    assert [tenant["tenant"] for tenant in value["runs"][0]["tenants"]] == ["a", "b"]


def test_plot_without_points_says_so() -> None:
    axis = Axis("time", number)
    assert "nothing to show" in line_plot({}, axis, axis)
    assert "nothing to show" in line_plot({"a": []}, axis, axis)


def test_documents_of_a_demand_are_applied_before_its_quotas() -> None:
    demand = demand_of(("a", 1, 0, 1))
    namespace = Document("", 0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    run = simulate(demand, QuotaSet("one", (namespace,)))
    assert figures_of(run).total.finished == 1
