"""10,000 claims and 2,000 quotas do not stop a page: frames come, and no task takes long.

What is measured is the time that the page's main thread computes, from the browser's own trace, so that a machine that
also does other things says the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser

from bursar.objects.manifests import Document
from tests.dashboard.conftest import Opener, Tab
from tests.server.live import Live, live, node, pod, quota

CLAIMS = 10_000
QUOTAS = 2_000
FRAME = 50.0  # milliseconds
LONGEST = 200.0
TRACED = ["toplevel", "devtools.timeline", "blink.user_timing"]
TASKS = ("RunTask", "ThreadControllerImpl::RunTask")
SCROLL = """async () => {
  const table = document.querySelector('.table');
  performance.mark('scroll');
  for (let step = 0; step < 60; step++) {
    table.scrollTop = (table.scrollHeight / 60) * step;
    await new Promise((done) => requestAnimationFrame(done));
  }
  performance.mark('scrolled');
}"""


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    objects = [node(f"n{index}", 8) for index in range(40)]
    objects += [quota(f"team-{index}", 1, max={"nvidia.com/gpu": 4}) for index in range(QUOTAS)]
    objects += [pod(f"team-{index % QUOTAS}", f"train-{index}") for index in range(CLAIMS)]
    with live(tmp_path_factory.mktemp("crowd") / "b.db") as found:
        found.service.apply([Document("crowd", index, body) for index, body in enumerate(objects, 1)])
        yield found


def work(tab: Tab, view: str, text: str, everything: str) -> None:
    """Open a view, scroll from end to end, filter, sort."""
    page = tab.open(view, f"text={everything}")
    page.wait_for_selector(".table tbody tr:nth-child(5)")
    page.evaluate(SCROLL)
    page.locator(".filter").press_sequentially(text)
    page.wait_for_timeout(200)
    page.fill(".filter", "")
    if view != "quotas":
        page.click("thead th:nth-child(2) button")
    page.wait_for_timeout(300)


def main_thread(trace: bytes) -> list[dict[str, Any]]:
    """The events of the page's main thread, in their order."""
    events = json.loads(trace)["traceEvents"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    found = [one for one in events if names.get((one["pid"], one["tid"])) == "CrRendererMain" and "ts" in one]
    return sorted(found, key=lambda one: one["ts"])


def frames(events: list[dict[str, Any]]) -> list[float]:
    """What was computed between two frames while the table scrolled, in milliseconds."""
    begins, ends = (next(one["ts"] for one in events if one["name"] == mark) for mark in ("scroll", "scrolled"))
    tasks = {one["ts"]: one.get("tdur", 0) / 1000 for one in events if one["name"] in TASKS}
    shown = [one["ts"] for one in events if one["name"] == "FireAnimationFrame" and begins <= one["ts"] <= ends]
    assert len(shown) > 50
    return [sum(took for at, took in tasks.items() if begin <= at < end) for begin, end in pairwise(shown)]


@pytest.mark.parametrize(
    ("view", "text", "everything"),
    [
        ("claims", "team-77/", "10,000 of 10,000"),
        ("queue", "train-99", "waiting"),
        ("quotas", "team-1999", "2,000 quotas"),
    ],
)
def test_a_crowd_stops_no_page(
    crowd: Live, browser: Browser, tabs: Opener, view: str, text: str, everything: str
) -> None:
    tab = tabs(crowd.address)
    browser.start_tracing(page=tab.page, categories=TRACED)
    work(tab, view, text, everything)
    events = main_thread(browser.stop_tracing())
    longest = max(one.get("tdur", 0) / 1000 for one in events if one["name"] in TASKS)
    between = sorted(frames(events))
    assert (between[len(between) * 95 // 100] < FRAME, longest < LONGEST) == (True, True), (between[-5:], longest)
    assert tab.page.locator(".table tbody tr").count() < 120  # of all of them
    size = int(tab.page.get_attribute(".table table", "aria-rowcount") or 0)
    assert size > (2000 if view == "quotas" else 9000)
