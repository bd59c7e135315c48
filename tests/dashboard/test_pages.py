"""Each page with the demo organisation, wide and narrow, light and dark: it shows what it should, and is accessible."""

from __future__ import annotations

import gzip
import re
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from bursar.server.dashboard import FILES, VIEWS
from tests.dashboard.conftest import Opener
from tests.server.live import Live

# A page, what has to be there before it is looked at, and texts that it shows.
PAGES = {
    "": (".totals .total", ["nvidia.com/gpu", "usable", "vision", "Needs a look", "The last hour"]),
    "quotas": (".table tbody tr", ["Quota trees", "Elastic quotas", "Pool quotas", "vision", "Who lends to whom"]),
    "queue?claim=you/first": (".panel .fix", ["you/first", "fix this first", "raise spec.max.nvidia.com/gpu"]),
    "claims?claim=you/first": (".panel .story li", ["Submitted", "Cannot start as things are"]),
    "nodes?node=serve-1": (".gpus .gpu", ["train-1", "L40S", "Fragmentation", "pool=serve"]),
    "history": (".chart canvas", ["used and waited for", "Starts and evictions", "Decisions"]),
    "plan": (".editor textarea", ["On paper", "What would happen", "Changes so far"]),
    "reports": (".table tbody tr", ["hours by team", "vision", "Export CSV", "lies idle"]),
}


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("view", PAGES)
def test_each_page_is_complete_and_accessible(demo: Live, tabs: Opener, view: str, width: int) -> None:
    ready, texts = PAGES[view]
    height = 800 if width > 400 else 844
    scheme = "light" if width > 400 else "dark"
    tab = tabs(demo.address, viewport={"width": width, "height": height}, color_scheme=scheme)
    page = tab.open(view, ready)
    shown = tab.text()
    for text in texts:
        assert text in shown, text
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing scrolls sideways but tables
    violations = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in violations] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["", "quotas?quota=vision/quota", "queue?claim=you/first"])
def test_both_colour_schemes_have_contrast(demo: Live, tabs: Opener, view: str, scheme: str) -> None:
    tab = tabs(demo.address, color_scheme=scheme)
    page = tab.open(view, ".total, .panel .tree")
    results = Axe().run(page, options={"runOnly": {"type": "rule", "values": ["color-contrast"]}}).response
    assert [node["html"][:200] for one in results["violations"] for node in one["nodes"]] == []
    page.click(f"[aria-label='Show in {'dark' if scheme == 'light' else 'light'} colours']")
    assert page.evaluate("document.documentElement.dataset.theme") != scheme
    page.reload()
    page.wait_for_selector(".total, .panel .tree")
    assert page.evaluate("document.documentElement.dataset.theme") != scheme  # the choice is kept


def test_the_first_view_comes_within_a_second(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address)
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        tab.page.goto(f"{demo.address}/")
        tab.page.wait_for_selector(".totals .total")
        took.append(time.perf_counter() - begun)
    assert min(took) < 1.0, took


def test_the_bundle_is_small_and_loads_nothing_from_elsewhere(demo: Live, tabs: Opener) -> None:
    files = list(FILES.iterdir())
    assert {path.name for path in files} == {"index.html", "icon.svg", "app.js", "app.css", "stream.js"}
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) <= 120 * 1024
    asked: list[str] = []
    tab = tabs(demo.address)
    tab.page.on("request", lambda request: asked.append(request.url))
    for view in ("", *VIEWS):
        tab.open(view)
    assert [url for url in asked if not url.startswith(demo.address)] == []


def test_every_view_is_reached_by_keyboard_and_has_an_address(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address)
    page = tab.open("")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    titles = page.locator("nav a").all_inner_texts()
    assert len(titles) == len(VIEWS) + 1
    for index in range(len(titles)):
        link = page.locator("nav a").nth(index)
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(f"nav a:nth-child({index + 1})[aria-current=page]")
        name = re.sub(r"\d+$", "", titles[index]).strip()
        expect(page.locator("main h1")).to_have_text(name)
        address = page.url
        page.goto(address)
        expect(page.locator("main h1")).to_have_text(name)


def test_an_explain_tree_opens_on_click_with_the_failing_branch_first(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address)
    page = tab.open("queue", ".table tbody tr")
    assert "3 gpu" in page.inner_text(".table tbody tr:first-child")
    page.click("text=you/first")
    page.wait_for_selector(".panel .tree")
    marks = page.locator(".panel .tree > li > ul > li > .line > b").all_inner_texts()
    assert marks[0] == "✗"
    assert "✗" not in marks[marks.index("✓") :]
    assert page.locator(".panel .binding").count() == 1
    assert "claim=you" in page.url
    page.keyboard.press("Escape")
    page.wait_for_selector(".panel", state="detached")


def test_a_fix_can_be_copied_and_tried(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address, permissions=["clipboard-read", "clipboard-write"])
    page = tab.open("queue?claim=you/first", ".panel .fix")
    fix = page.locator(".fix", has_text="raise spec.max")
    fix.locator("text=Copy the fix").click()
    fix.locator("text=Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("# raise spec.max.nvidia.com/gpu of ElasticQuota you/quota from 2 to 3")
    fix.locator("text=Try it in a plan").click()
    expect(page.locator("textarea").first).to_have_value(re.compile('nvidia.com/gpu: "3"'))


def test_yaml_of_an_object_is_copied(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address, permissions=["clipboard-read", "clipboard-write"])
    page = tab.open("nodes?node=train-1", ".panel")
    page.click(".panel >> text=Copy as YAML")
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("apiVersion: v1\nkind: Node\nmetadata:\n")
    assert "\n    pool: train\n" in copied


def test_the_filter_of_quotas_is_part_of_the_address(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address)
    page = tab.open("quotas", ".table tbody tr")
    page.fill(".filter", "safety")
    expect(page.locator(".table tbody th a")).to_have_count(3)  # with those above it
    assert page.locator(".table tbody th a").all_inner_texts() == ["lab", "applied", "safety"]
    assert "filter=safety" in page.url
    page.fill(".filter", "no such quota")
    page.wait_for_selector("text=No quota is called so.")


def test_search_finds_claims_quotas_and_nodes(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address)
    page = tab.open("")
    page.keyboard.press("/")
    page.fill("[role=combobox]", "train-1")
    page.wait_for_selector("[role=option]:has-text('node')")
    page.fill("[role=combobox]", "you first")
    page.wait_for_selector("[role=option]:has-text('you/first')")
    assert Axe().run(page).response["violations"] == []
    page.keyboard.press("Enter")
    page.wait_for_selector(".panel .story li")
    assert "claims?claim=you" in page.url


def test_the_tour_explains_the_first_visit_once(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address, tour=True)
    page = tab.open("", "dialog.tour")
    assert "An organisation at work" in page.inner_text("dialog.tour")
    for title in ("Quotas", "Queue", "History", "What-if and plan"):
        page.click("dialog.tour >> text=Next")
        expect(page.locator("main h1").first).to_have_text(title)
    page.click("dialog.tour >> text=Begin")
    page.wait_for_selector("dialog.tour", state="detached")
    page.reload()
    page.wait_for_selector("text=Tour")
    assert page.locator("dialog.tour").count() == 0
