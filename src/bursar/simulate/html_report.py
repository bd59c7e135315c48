"""The HTML report: one page without scripts and without anything to load, for one run or several beside each other.

Every text that comes from a trace or a manifest is escaped. A content security policy in the page forbids scripts and
loads, in case anything slips through.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bursar.objects.validation import show_duration
from bursar.simulate import comparison
from bursar.simulate.demand import HOUR, MILLI
from bursar.simulate.figures import Figures, TenantFigures, queue_over_time, use_over_time
from bursar.simulate.plots import Axis, bars, line_plot, number, share
from bursar.simulate.run import Run

_BUCKETS = 240
_TENANTS = 8  # that are shown one by one, those with the most GPU-hours
_QUANTILES = 200
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}h3{font-size:1rem;margin-bottom:.2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5rem 0}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #d8dee4}
th:first-child,td:first-child{text-align:left}
svg{width:100%;height:auto;font:11px system-ui,sans-serif}svg text{fill:#424a53}.grid{stroke:#e4e8ec}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;padding:0;margin:.2rem 0;font-size:.85rem}
.legend span{display:inline-block;width:.8rem;height:.8rem;margin-right:.35rem}
.note{color:#57606a;font-size:.9rem}.scroll{overflow-x:auto}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}svg text{fill:#9da7b1}.grid{stroke:#262d36}
th,td{border-color:#30363d}}
"""


def page(title: str, found: Sequence[tuple[Run, Figures]]) -> str:
    """The whole report."""
    runs = [run for run, _ in found]
    figures = [one for _, one in found]
    parts = [
        f"<h1>{escape(title)}</h1>",
        _notes(runs[0].demand.notes),
        _section("Side by side", _table(comparison.HEADINGS, comparison.rows(figures))),
        _section("GPUs in use", _over_time(runs, waiting=False)),
        _section("GPUs that waiting jobs ask for", _over_time(runs, waiting=True)),
        _section("How long jobs wait", _waits(figures)),
        *(_one(run, one) for run, one in found),
        _section("What the figures are", _notes(comparison.METHOD)),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>{body}"


def _notes(texts: Sequence[str]) -> str:
    return "".join(f'<p class="note">{escape(text)}</p>' for text in texts)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = _row("th", headings)
    body = "".join(_row("td", row) for row in rows)
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _row(tag: str, cells: Sequence[str]) -> str:
    inner = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def _edges(run: Run) -> list[int]:
    begin, end = (run.events[0][0], run.events[-1][0]) if run.events else (0, 1)
    return [begin + (end - begin) * step // _BUCKETS for step in range(_BUCKETS + 1)]


def _days(value: float) -> str:
    return show_duration(int(value) // 60_000 * 60_000)


def _over_time(runs: Sequence[Run], *, waiting: bool) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        edges = _edges(run)
        means = (queue_over_time if waiting else use_over_time)(run, edges)["all"]
        series[run.quotas.name] = [(edges[i], value / MILLI) for i, value in enumerate(means)]
    most = None
    if not waiting and runs and runs[0].demand.capacity:
        most = max(run.demand.capacity for run in runs) / MILLI
    return line_plot(series, Axis("time", _days), Axis("GPUs", number, most), steps=True)


def _waits(figures: Sequence[Figures]) -> str:
    """The part of the jobs that waits at most so long."""
    series = {one.name: _distribution(one.total.waits) for one in figures}
    return line_plot(series, Axis("wait in hours, at most", number), Axis("jobs", share, 1.0))


def _distribution(waits: Sequence[int]) -> list[tuple[float, float]]:
    if not waits:
        return []
    ranks = sorted({len(waits) * step // _QUANTILES for step in range(_QUANTILES)} | {len(waits) - 1})
    return [(waits[rank] / HOUR, (rank + 1) / len(waits)) for rank in ranks]


def _one(run: Run, figures: Figures) -> str:
    """All of one run."""
    parts = [
        f"<h2>{escape(figures.name)}</h2>",
        _table(comparison.TENANT_HEADINGS, comparison.tenant_rows(figures)),
        "<h3>How long the jobs of each tenant wait</h3>",
        line_plot(
            {one.name: _distribution(one.waits) for one in _largest(figures)},
            Axis("wait in hours, at most", number),
            Axis("jobs", share, 1.0),
        ),
        "<h3>Quota and use</h3>",
        *(_quota_plot(run, one.name) for one in _largest(figures)),
        "<h3>Evictions</h3>",
        bars([(one.name, float(one.evictions)) for one in figures.tenants if one.evictions], "evictions"),
        "<h3>Free GPUs that a pod of this demand cannot use, on average</h3>",
        line_plot(
            {figures.name: [(sample.at, sample.stranded) for sample in run.samples]},
            Axis("time", _days),
            Axis("of the free GPUs", share, 1.0),
        ),
    ]
    if figures.waiting:
        rows = [(reason, number(count)) for reason, count in figures.waiting.items()]
        parts += ["<h3>Why pods still wait in the end</h3>", _table(("REASON", "PODS"), rows)]
    return "".join(parts)


def _largest(figures: Figures) -> list[TenantFigures]:
    return sorted(figures.tenants, key=lambda one: (-one.used - one.waited, one.name))[:_TENANTS]


def _quota_plot(run: Run, tenant: str) -> str:
    edges = _edges(run)
    used = use_over_time(run, edges).get(tenant, [])
    series: dict[str, list[tuple[float, float]]] = {
        f"{tenant}: in use": [(edges[i], value / MILLI) for i, value in enumerate(used)]
    }
    for position, name in enumerate(("min", "max or runtime")):
        line = [(float(one.at), float(bound)) for one in run.samples
                if (bound := one.quotas.get(tenant, (None, None))[position]) is not None]  # fmt: skip
        if line:
            series[name] = line
    return line_plot(series, Axis("time", _days), Axis("GPUs", number), steps=True)
