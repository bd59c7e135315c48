"""Names and messages of others are text: markup, very long ones, right-to-left, emoji.

The server refuses most of such names. So that a page does not depend on it, the answers are changed on their way.
"""

from __future__ import annotations

import json

from playwright.sync_api import Route

from tests.dashboard.conftest import Opener
from tests.server.live import Live, pod

MARKUP = "<img src=x onerror=window.bad=1><script>window.bad=1</script>"
LONG = "x" * 3000
MIXED = "\u202egnp.exe \u05d0\u05d1\u05d2 🧨🚀"
REPLACED = {"vision": MARKUP, "train-1": LONG, "quota": MIXED, "L40S": MARKUP, "pool": MIXED, "runs": MARKUP}
VIEWS = ("", "quotas", "queue", "claims", "nodes", "history", "plan", "reports")


def hostile(route: Route) -> None:
    """The answer, with other names and with markup in its messages."""
    if "/events" in route.request.url:
        route.continue_()
        return
    answer = route.fetch()
    body = answer.text()
    for name, bad in REPLACED.items():
        body = body.replace(f'"{name}"', json.dumps(bad)).replace(f'"{name}/', f'"{json.dumps(bad)[1:-1]}/')
    body = body.replace('"message":"', f'"message":"{json.dumps(MARKUP)[1:-1]}')
    route.fulfill(response=answer, body=body)


def test_hostile_text_is_shown_as_text(own_demo: Live, tabs: Opener) -> None:
    own_demo.give(pod("vision", "too-large", 99))
    for width in (1280, 390):
        tab = tabs(own_demo.address, viewport={"width": width, "height": 800})
        page = tab.page
        page.route("**/api/v1/**", hostile)
        for view in (*VIEWS, f"claims?claim={MARKUP}", f"queue?filter={MARKUP}", f"nodes?node={LONG}"):
            tab.open(view)
            page.wait_for_timeout(400)
            assert page.evaluate("window.bad") is None
            assert page.evaluate("document.querySelectorAll('#app img[src=x], #app script').length") == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view[:40]
        tab.open("claims?namespace=vision", ".table tbody tr")
        assert MARKUP in tab.text(".table")
        tab.open("nodes", ".gpu")
        assert LONG in page.inner_text(".table")
        assert MARKUP in page.inner_text(".gpu")
        tab.open("quotas", ".table tbody tr")
        assert MIXED in page.inner_text(".table")
        tab.errors[:] = [one for one in tab.errors if "404" not in one and "400" not in one]  # nothing has such a name
