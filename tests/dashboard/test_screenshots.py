"""The pictures of the documentation are pages of the demo. ``make screenshots`` keeps them in docs/images."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import Opener
from tests.server.live import Live

FOLDER = Path("docs/images")
LARGEST = 150_000  # bytes
SIZE = (1140, 660)
PICTURES = {
    "overview": ("", ".alerts li"),
    "quotas": ("quotas?resource=nvidia.com/gpu", ".flow path"),
    "queue": ("queue?claim=you/first", ".panel .fix"),
    "claims": ("claims?phase=Evicted&claim={evicted}", ".panel .story .bad"),
    "nodes": ("nodes", ".gpus .gpu"),
    "history": ("history?range=-10m", ".chart canvas"),
    "plan": ("plan?kind=ElasticQuota.n8s.nebuly.ai&key=you/quota&field=spec.max.nvidia.com/gpu&value=3", ".changes li"),
    "reports": ("reports?range=-10m", ".table tbody tr"),
    "dark": ("quotas?quota=vision/quota", ".panel .tree"),
}


def prepared(page: Page, name: str) -> None:
    if name == "plan":
        expect(page.locator("textarea").first).to_have_value(re.compile("gpu: 3"))
        page.click("text=Show what would happen")
        page.wait_for_selector(".outcome >> text=starts")
    page.wait_for_selector(".connection.live")
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")


@pytest.mark.parametrize("name", PICTURES)
def test_the_documentation_has_a_picture_of_each_page(
    demo: Live, tabs: Opener, repository: Path, tmp_path: Path, name: str
) -> None:
    view, ready = PICTURES[name]
    scheme = "dark" if name == "dark" else "light"
    tab = tabs(demo.address, viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme=scheme)
    evicted = max(demo.client.claims(phase="Evicted").items, key=lambda row: (row.decided_at, row.name))
    page = tab.open(view.format(evicted=f"{evicted.namespace}/{evicted.name}"), ready)
    prepared(page, name)
    folder = repository / FOLDER if os.environ.get("BURSAR_SCREENSHOTS") else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", animations="disabled")
    kept = (repository / FOLDER / f"{name}.png").read_bytes()
    assert struct.unpack(">II", kept[16:24]) == SIZE
    assert max(len(kept), (folder / f"{name}.png").stat().st_size) < LARGEST


def test_every_picture_is_shown(repository: Path) -> None:
    shown = re.findall(r"\]\(images/(\w+)\.png\)", (repository / "docs/dashboard.md").read_text())
    assert sorted(shown) == sorted(PICTURES) == sorted(path.stem for path in (repository / FOLDER).iterdir())
    assert "(docs/images/overview.png)" in (repository / "README.md").read_text()
