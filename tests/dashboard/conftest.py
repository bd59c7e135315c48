"""A real Chromium, and servers for it to look at.

Every page fails its test if the browser wrote an error into its console, or the page threw one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from bursar.server.demo import beats, organisation
from tests.server.live import Live, ManualClock, live, node, quota

BEATS = 60
PATIENCE = 60_000  # milliseconds
ADMIN_TOKEN = "0123456789abcdef-admin"  # noqa: S105 of a server that lives for a test
VIEWER_TOKEN = "0123456789abcdef-viewer"  # noqa: S105


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tools"))
    import ensure_browser

    found = ensure_browser.path()
    if found is None:
        pytest.fail("there is no Chromium: run `make browser`, or name one in BURSAR_CHROMIUM")
    expect.set_options(timeout=PATIENCE)  # never wait_for_function: it evaluates a text, which the pages forbid
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Tab:
    """One page of the dashboard of a server."""

    page: Page
    address: str
    errors: list[str] = field(default_factory=list)

    def open(self, view: str = "", ready: str = "main h1:not(.hidden)") -> Page:
        self.page.goto(f"{self.address}/{view}")
        self.page.wait_for_selector(ready)
        return self.page

    def text(self, selector: str = "main") -> str:
        return self.page.inner_text(selector)


Opener = Callable[..., Tab]


@contextmanager
def opener(browser: Browser) -> Iterator[Opener]:
    contexts: list[BrowserContext] = []
    tabs: list[Tab] = []

    def make(address: str, *, context: BrowserContext | None = None, tour: bool = False, **options: Any) -> Tab:  # noqa: ANN401
        if context is None:
            context = browser.new_context(viewport=options.pop("viewport", {"width": 1280, "height": 800}), **options)
            contexts.append(context)
            if not tour:
                context.add_init_script("try { localStorage.setItem('bursar-tour-seen', 'yes') } catch {}")
        tab = Tab(context.new_page(), address)
        tab.page.on("console", lambda message: tab.errors.append(message.text) if message.type == "error" else None)
        tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
        tab.page.set_default_timeout(PATIENCE)
        tabs.append(tab)
        return tab

    try:
        yield make
    finally:
        for context in contexts:
            context.close()
    for tab in tabs:
        assert tab.errors == []


@pytest.fixture
def tabs(browser: Browser) -> Iterator[Opener]:
    with opener(browser) as found:
        yield found


@contextmanager
def demo_server(folder: Path, **options: Any) -> Iterator[Live]:  # noqa: ANN401 of the server
    """The demo organisation after two minutes, at rest: time passes only when a test says so."""
    clock = ManualClock()
    with live(folder / "demo.db", clock=clock, demo=True, **options) as found:
        found.service.apply(organisation())
        for pods, _ in zip(beats(), range(BEATS), strict=False):
            clock.now += 2000
            if pods:
                found.service.apply(pods)
        yield found


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One for tests that only look."""
    with demo_server(tmp_path_factory.mktemp("demo")) as found:
        yield found


@pytest.fixture
def own_demo(tmp_path: Path) -> Iterator[Live]:
    """One for a test that changes something."""
    with demo_server(tmp_path) as found:
        yield found


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Live]:
    """A server with one node of four GPUs and two teams that are sure of two each."""
    with live(tmp_path / "bed.db") as found:
        found.give(node("n1"), quota("a", 2), quota("b", 2))
        yield found


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"admin {ADMIN_TOKEN} ada\nviewer {VIEWER_TOKEN} vic\n")
    path.chmod(0o600)
    return path
