"""The page at ``/``: what answers here, and how to ask it.

It is the same for everybody and says nothing about the cluster. It loads nothing, and no script can run in it.
"""

from __future__ import annotations

PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_COMMANDS = {
    "bursar top": "who uses how much",
    "bursar get queue": "which pods wait, and why",
    "bursar explain NAMESPACE/POD": "what would let this one start",
}
_LINKS = {
    "api/v1": "the API, in JSON",
    "openapi.json": "its description, for programs",
    "metrics": "metrics for Prometheus",
    "readyz": "whether changes are taken",
}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0 1rem;color:#1b1f24;"
    "background:#fff}pre{background:#f3f4f6;padding:.8rem 1rem;border-radius:6px;overflow-x:auto}"
    "li{margin:.2rem 0}@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#15181c}"
    "pre{background:#22272e}a{color:#7cb7ff}}"
)


def _page() -> str:
    width = max(map(len, _COMMANDS))
    commands = "\n".join(f"{command:<{width}}   # {about}" for command, about in _COMMANDS.items())
    links = "\n".join(f'<li><a href="{path}">/{path}</a>: {about}</li>' for path, about in _LINKS.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Bursar</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Bursar</h1>
<p>Quotas for shared GPU clusters. This server decides which pods may use which GPUs now, says why, and keeps a journal
that proves it.</p>
<p>Three commands to begin with, in a terminal:</p>
<pre>export BURSAR_SERVER=<em>the address of this page</em>
{commands}</pre>
<p>A server with tokens wants one: <code>export BURSAR_TOKEN=&hellip;</code></p>
<ul>
{links}
</ul>
</body>
</html>
"""


FIRST_PAGE = _page()
