"""Signing in: the token goes into a cookie that no script reads; a viewer changes nothing; no other page can."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import ADMIN_TOKEN, VIEWER_TOKEN, Opener, Tab, demo_server
from tests.server.live import Live, pod, text

KEPT = "JSON.stringify([{...localStorage}, {...sessionStorage}, location.href, document.body.outerHTML])"


@pytest.fixture
def guarded(tmp_path: Path, tokens: Path) -> Iterator[Live]:
    with demo_server(tmp_path, tokens=tokens) as found:
        yield found


def sign_in(tab: Tab, token: str) -> None:
    tab.open("quotas", ".login")
    tab.page.fill("input[name=token]", token)
    tab.page.click("text=Sign in")
    tab.page.wait_for_selector(".table tbody tr")


def test_a_wrong_token_is_refused_in_words(guarded: Live, tabs: Opener) -> None:
    tab = tabs(guarded.address)
    page = tab.open("", ".login")
    page.fill("input[name=token]", "wrong")
    page.click("text=Sign in")
    page.wait_for_selector("text=this token is not known")
    assert page.locator("nav").count() == 0
    tab.errors[:] = [one for one in tab.errors if "401" not in one]


def test_the_token_is_where_no_script_can_read_it(guarded: Live, tabs: Opener) -> None:
    tab = tabs(guarded.address)
    sign_in(tab, ADMIN_TOKEN)
    page = tab.page
    page.wait_for_selector(".connection.live")
    assert page.evaluate("document.cookie") == ""
    kept = page.evaluate(KEPT)
    assert ADMIN_TOKEN not in kept
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert ADMIN_TOKEN not in cookie["value"]
    page.reload()
    page.wait_for_selector(".table tbody tr")  # still signed in
    page.click("text=Sign out")
    page.wait_for_selector(".login")
    assert page.context.cookies() == []


def test_a_viewer_sees_no_apply_and_cannot(guarded: Live, tabs: Opener) -> None:
    tab = tabs(guarded.address)
    sign_in(tab, VIEWER_TOKEN)
    page = tab.open("plan?kind=ElasticQuota.n8s.nebuly.ai&key=you/quota", ".editor textarea")
    expect(page.locator("textarea").first).to_have_value(re.compile("ElasticQuota"))
    page.wait_for_selector(".changes li")
    assert "Your token may only read." in tab.text()
    assert page.locator("main button >> text=/^(Apply|Undo)$/").count() == 0
    page.click("text=Show what would happen")
    page.wait_for_selector(".outcome li")
    status = page.evaluate(
        """async () => {
          const {csrf} = await (await fetch('session')).json();
          const headers = {'Content-Type': 'application/json', 'X-Bursar-CSRF': csrf};
          const body = JSON.stringify({objects: ['Pod/you/first']});
          return (await fetch('api/v1/delete', {method: 'POST', headers, body})).status;
        }"""
    )
    assert status == 403
    tab.errors[:] = [one for one in tab.errors if "403" not in one]


def test_an_admin_sees_apply(guarded: Live, tabs: Opener) -> None:
    tab = tabs(guarded.address)
    sign_in(tab, ADMIN_TOKEN)
    tab.open("plan").wait_for_selector("main button >> text=/^Apply$/")


def test_a_session_ends_with_its_token(guarded: Live, tabs: Opener, tokens: Path) -> None:
    tab = tabs(guarded.address)
    sign_in(tab, VIEWER_TOKEN)
    tokens.write_text(f"admin {ADMIN_TOKEN} ada\n")
    tab.page.reload()
    tab.page.wait_for_selector(".login")


def cookie_of(server: Live, token: str) -> str:
    status, headers, _ = server.raw(
        "POST", "/login", json.dumps({"token": token}).encode(), Content_Type="application/json"
    )
    assert status == 204
    return headers["set-cookie"].partition(";")[0]


def test_a_cookie_alone_changes_nothing(guarded: Live) -> None:
    cookie = cookie_of(guarded, ADMIN_TOKEN)
    body = text(pod("you", "forged"))
    given = {"Cookie": cookie, "Content_Type": "application/json"}
    status, _, answer = guarded.raw("POST", "/api/v1/apply", body, **given)
    assert (status, b"x-bursar-csrf" in answer) == (403, True)
    assert guarded.raw("POST", "/api/v1/apply", body, **given, X_Bursar_CSRF="guessed")[0] == 403
    word = json.loads(guarded.raw("GET", "/session", Cookie=cookie)[2])["csrf"]
    assert guarded.raw("POST", "/api/v1/apply", body, **given, X_Bursar_CSRF=word)[0] == 200
    assert guarded.raw("GET", "/api/v1/queue", Cookie=cookie)[0] == 200
    guarded.raw("POST", "/logout", b"", Cookie=cookie)
    assert guarded.raw("GET", "/api/v1/queue", Cookie=cookie)[0] == 401


@pytest.mark.parametrize("path", ["/login", "/logout", "/api/v1/changes/1/undo", "/api/v1/backup"])
@pytest.mark.parametrize("header", [{"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}])
def test_requests_of_other_pages_are_refused(demo: Live, path: str, header: dict[str, str]) -> None:
    assert demo.raw("POST", path, b'{"token": "x"}', Content_Type="application/json", **header)[0] == 403


def test_a_page_of_another_origin_can_neither_read_nor_change(own_demo: Live, tabs: Opener) -> None:
    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>other</title><h1>other</h1>")

        def log_message(self, *_: object) -> None:
            return

    other = HTTPServer(("127.0.0.1", 0), Evil)
    Thread(target=other.serve_forever, daemon=True).start()
    try:
        before = own_demo.position()
        tab = tabs(f"http://127.0.0.1:{other.server_address[1]}")
        page = tab.open("", "h1")
        tried = page.evaluate(
            """async (address) => {
              const found = [];
              const post = {method: 'POST', mode: 'no-cors'};
              for (const path of ['changes/1/undo', 'backup']) await fetch(`${address}/api/v1/${path}`, post);
              try { await (await fetch(`${address}/api/v1/queue`)).text(); found.push('read'); } catch {}
              return found;
            }""",
            own_demo.address,
        )
        assert tried == []
        assert own_demo.position() == before
        tab.errors.clear()  # the browser says that it refuses
    finally:
        other.shutdown()
        other.server_close()


def test_pages_carry_a_strict_policy(demo: Live) -> None:
    for path in ("/", "/queue", "/app.js", "/stream.js"):
        status, headers, _ = demo.raw("GET", path)
        policy = headers["content-security-policy"]
        assert status == 200
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_a_file_that_the_browser_has_is_not_sent_again(demo: Live) -> None:
    _, headers, content = demo.raw("GET", "/app.js", Accept_Encoding="gzip")
    assert headers["content-encoding"] == "gzip"
    assert len(content) < 80_000
    status, _, content = demo.raw("GET", "/app.js", If_None_Match=headers["etag"])
    assert (status, content) == (304, b"")
