"""Pages follow the server by one stream for all tabs, also over an interruption; an idle page costs nothing."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Page, Route

from tests.dashboard.conftest import Opener
from tests.server.live import Live, live, node, pod, quota, wait_for

IDLE_SECONDS = 5


def waiting(page: Page) -> int:
    return page.locator(".table tbody tr:not(.gap)").count()


def test_a_new_claim_appears_without_asking(bed: Live, tabs: Opener) -> None:
    tab = tabs(bed.address)
    page = tab.open("queue", ".empty, .table")
    page.wait_for_selector(".connection.live")
    assert "Nothing waits." in tab.text()
    bed.give(pod("a", "too-large", 9))
    page.wait_for_selector("text=a/too-large")
    bed.client.delete(["Pod/a/too-large"])
    page.wait_for_selector("text=Nothing waits.")


def test_eight_tabs_share_one_stream(bed: Live, tabs: Opener) -> None:
    first = tabs(bed.address)
    first.open("", ".connection.live")
    others = [tabs(bed.address, context=first.page.context) for _ in range(7)]
    for tab in others:
        tab.open("queue", ".connection.live")
    assert len(bed.streams()) == 1
    bed.give(pod("a", "too-large", 9))
    for tab in others:
        tab.page.wait_for_selector("text=a/too-large")
    for tab in [first, *others]:
        tab.page.close()
    wait_for("the stream ends with the last tab", lambda: not bed.streams())


def test_a_server_that_goes_and_comes_back(tmp_path: Path, tabs: Opener) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(live(tmp_path / "b.db"))
        first.give(node("n1"), quota("a", 2), pod("a", "waits", 9))
        tab = tabs(first.address)
        page = tab.open("queue", ".connection.live")
        page.wait_for_selector("text=a/waits")
        stack.close()
        page.wait_for_selector(".banner.gone")
        assert page.inner_text(".connection") == "reconnecting"
        assert "a/waits" in tab.text()  # what was known stays
        with live(tmp_path / "b.db", port=first.port) as again:
            again.give(pod("a", "later", 9))
            page.wait_for_selector("text=a/later")
            page.wait_for_selector(".banner.gone", state="detached")
            page.wait_for_selector(".connection.live")
    tab.errors[:] = [one for one in tab.errors if "ERR_CONNECTION_REFUSED" not in one and "ERR_INCOMPLETE" not in one]


def test_an_unreachable_server_at_the_start_is_said(bed: Live, tabs: Opener) -> None:
    tab = tabs(bed.address)
    tab.page.route("**/api/v1/overview*", lambda route: route.abort())
    page = tab.open("", ".failure")
    assert "The server cannot be reached" in page.inner_text(".failure")
    tab.page.unroute("**/api/v1/overview*")
    page.click(".failure >> text=Try again")
    page.wait_for_selector(".totals .total")
    tab.errors[:] = [one for one in tab.errors if "ERR_FAILED" not in one]


def test_a_page_that_loads_says_so(bed: Live, tabs: Opener) -> None:
    tab = tabs(bed.address)

    def slow(route: Route) -> None:
        time.sleep(1)
        route.continue_()

    tab.page.route("**/api/v1/quotas*", slow)
    page = tab.open("quotas", ".loading")
    page.wait_for_selector(".table")
    assert page.locator(".loading").count() == 0


def test_empty_pages_say_what_to_do(tmp_path: Path, tabs: Opener) -> None:
    said = {
        "": "There is nothing here yet.",
        "quotas": "There are no quotas.",
        "queue": "Nothing waits.",
        "claims": "There are no claims.",
        "nodes": "There are no nodes.",
        "history": "Nothing was used in this time.",
        "plan": "Nothing was tried yet.",
        "reports": "No team used this in that time.",
    }
    with live(tmp_path / "b.db") as found:
        tab = tabs(found.address)
        for view, text in said.items():
            tab.open(view).wait_for_selector(f"text={text}")


def test_rows_keep_their_places_while_figures_change(bed: Live, tabs: Opener) -> None:
    for name in ("a", "b"):
        bed.give(pod(name, "one"))
    tab = tabs(bed.address)
    page = tab.open("claims", ".table tbody tr")
    page.click("thead >> text=Priority")
    names = "[...document.querySelectorAll('.table tbody th')].map(one => one.textContent)"
    assert page.evaluate(names) == ["a/one", "b/one"]
    urgent = {**pod("a", "urgent"), "spec": {**pod("a", "urgent")["spec"], "priority": 7}}
    bed.give(urgent)
    page.wait_for_selector("text=a/urgent")
    assert page.evaluate(names) == ["a/urgent", "a/one", "b/one"]
    page.click("thead >> text=Priority")
    assert page.evaluate(names) == ["a/one", "b/one", "a/urgent"]


def test_an_idle_page_costs_nothing(bed: Live, tabs: Opener) -> None:
    tab = tabs(bed.address)
    page = tab.open("", ".connection.live")
    page.wait_for_timeout(3000)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def busy() -> float:
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["TaskDuration"])

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    before = busy()
    page.wait_for_timeout(IDLE_SECONDS * 1000)
    assert (busy() - before) / IDLE_SECONDS < 0.01
    assert asked == []
