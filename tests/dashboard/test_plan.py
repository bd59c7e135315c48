"""Changes on paper, applied with the caller's rights, and undone; and the moments of the past."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.dashboard.conftest import Opener
from tests.server.live import Live

REFUSED = """apiVersion: n8s.nebuly.ai/v1alpha1
kind: ElasticQuota
metadata: {namespace: a, name: q}
spec: {max: {cpu: -1}}
"""
QUOTA = "plan?kind=ElasticQuota.n8s.nebuly.ai&key=you/quota"


def test_a_quota_is_planned_applied_and_undone(own_demo: Live, tabs: Opener) -> None:
    tab = tabs(own_demo.address)
    page = tab.open(QUOTA, ".editor textarea")
    expect(page.locator("textarea").first).to_have_value(re.compile("max:"))
    apply = page.locator("main button >> text=/^Apply$/")
    assert apply.is_disabled()
    page.fill("textarea", re.sub(r"(max:\n +nvidia.com/gpu: )2", r"\g<1>3", page.input_value("textarea")))
    page.click("text=Show what would happen")
    page.wait_for_selector(".outcome >> text=starts")
    assert "you/first" in page.inner_text(".outcome")
    assert own_demo.client.claim("you", "first").phase == "Pending"  # only on paper
    apply.click()
    page.wait_for_selector(".applied")
    assert own_demo.client.claim("you", "first").phase == "Running"
    page.click(".applied >> text=Undo")
    page.wait_for_selector("[role=alertdialog]")
    assert own_demo.client.object("ElasticQuota.n8s.nebuly.ai", "you/quota")["spec"]["max"] == {"nvidia.com/gpu": 3}
    page.click("[role=alertdialog] >> text=/^Undo change/")
    page.wait_for_selector(".changes >> text=/undo of/")
    assert own_demo.client.object("ElasticQuota.n8s.nebuly.ai", "you/quota")["spec"]["max"] == {"nvidia.com/gpu": 2}


def test_what_was_edited_after_the_look_is_looked_at_again(own_demo: Live, tabs: Opener) -> None:
    page = tabs(own_demo.address).open(QUOTA, ".editor textarea")
    expect(page.locator("textarea").first).to_have_value(re.compile("max:"))
    page.click("text=Show what would happen")
    apply = page.locator("main button:not([disabled]) >> text=/^Apply$/")
    apply.wait_for()
    page.fill("textarea", page.input_value("textarea") + "# more\n")
    assert apply.count() == 0


def test_pods_are_tried(own_demo: Live, tabs: Opener) -> None:
    page = tabs(own_demo.address).open("plan?mode=pods", ".editor textarea")
    page.click("text=Show what would happen")
    page.wait_for_selector(".outcome >> text=starts now")
    assert "you/try-1" in page.inner_text(".outcome")
    page.fill("textarea", page.input_value("textarea").replace("gpu: 1", "gpu: 99"))
    page.click("text=Show what would happen")
    page.wait_for_selector(".outcome >> text=never as things are")


def test_a_manifest_that_is_refused_is_explained(own_demo: Live, tabs: Opener) -> None:
    tab = tabs(own_demo.address)
    page = tab.open("plan", ".editor textarea")
    page.fill("textarea", REFUSED)
    page.click("text=Show what would happen")
    page.wait_for_selector(".failure >> text=spec.max")
    tab.errors[:] = [one for one in tab.errors if "422" not in one]


def test_the_slider_shows_everything_as_it_was(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address)
    page = tab.open("history", ".timebar input")
    page.evaluate(
        """() => {
          const slider = document.querySelector('.timebar input');
          slider.value = String((Number(slider.min) + Number(slider.max)) / 2);
          slider.dispatchEvent(new Event('input', {bubbles: true}));
        }"""
    )
    page.wait_for_selector(".banner.past >> text=Everything here is as it was")
    at = re.findall(r"at=([^&]+)", page.url)[0]
    for view in ("quotas", "queue", "claims", "nodes", ""):
        page.click(f"nav a[href^='{view or './'}?']")
        page.wait_for_selector(".table tbody tr")
        assert f"at={at}" in page.url
    then = {f"{row.namespace}/{row.name}" for row in demo.client.claims(at=at.replace("%3A", ":")).items}
    page.click("nav a[href^='claims']")
    page.wait_for_selector(".table tbody tr th a")
    assert set(page.locator(".table tbody tr th a").all_inner_texts()) <= then
    assert page.locator(".connection.past").count() == 1
    page.goto(f"{demo.address}/plan?at={at}")
    page.wait_for_selector("text=This is the past")
    assert page.locator("main button >> text=/^Apply$/").count() == 0
    page.click(".banner.past >> text=Back to the present")
    page.wait_for_selector(".banner.past", state="detached")
    assert "at=" not in page.url


def test_a_decision_leads_to_its_moment(demo: Live, tabs: Opener) -> None:
    page = tabs(demo.address).open("history", ".decisions li")
    page.click(".decisions li:nth-child(3) > a")
    page.wait_for_selector(".banner.past >> text=after record")
    assert re.search(r"at=\d+", page.url)


def test_a_click_into_a_chart_leads_to_that_moment(demo: Live, tabs: Opener) -> None:
    page = tabs(demo.address).open("history?range=-10m", ".chart canvas")
    box = page.locator(".chart .u-over").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 0.97, box["y"] + 40)
    page.wait_for_selector(".banner.past")
    assert "at=20" in page.url


def test_a_moment_that_is_unknown_is_said(demo: Live, tabs: Opener) -> None:
    tab = tabs(demo.address)
    page = tab.open("queue?at=99999999", ".failure")
    assert "there is no record 99999999" in page.inner_text(".failure")
    tab.errors[:] = [one for one in tab.errors if "400" not in one]


def test_reports_are_exported_as_csv(demo: Live, tabs: Opener) -> None:
    page = tabs(demo.address).open("reports", ".table tbody tr")
    with page.expect_download() as waiting:
        page.click("text=Export CSV")
    lines = waiting.value.path().read_text().splitlines()
    assert lines[0] == "team,resource,used hours,waited hours,from,to"
    hours = {tuple(line.split(",")[:2]): float(line.split(",")[2]) for line in lines[1:]}
    assert hours["vision", "nvidia.com/gpu"] > 0
