"""A report on the cost of failures as one self-contained HTML page without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MEANINGS = {
    "memory": "needed more memory than it was allowed",
    "time": "reached its time limit",
    "node": "the machine failed or was lost",
    "network": "a connection between machines failed",
    "scheduler": "the batch system itself failed",
    "disk": "no space, no quota, or a file system that cannot be written",
    "data-missing": "an input was not there",
    "data-corrupt": "an input was broken",
    "transfer": "copying data failed",
    "bad-input": "options or parameters that cannot work",
    "code": "an error of the program or its environment",
    "output-missing": "ended without its outputs",
    "cleanup": "clearing up after the work failed",
    "policy": "a limit, an account, a licence or permissions",
    "preempted": "had to make room for other jobs",
    "unknown": "nothing that was recorded says why",
}
COLOURS = ("#3b6fb6", "#c7622b", "#4f8a3d", "#8a4fa3", "#b08a1e", "#7a7f87")
"""The colours of the five most expensive causes, and of all others."""

STYLE = """
:root{--ink:#1d2430;--soft:#5a6472;--line:#d7dde5;--back:#fff;--card:#f5f7fa;--bar:#3b6fb6}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#a3adba;--line:#394250;--back:#14181f;--card:#1d232d;--bar:#7fa8de}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:62rem;padding:1.2rem;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;margin:.2em 0}h2{font-size:1.15rem;margin:1.8em 0 .4em}
p.soft,td.soft,caption,small{color:var(--soft)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.7rem;padding:0;list-style:none}
.figures li{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem}
.figures b{display:block;font-size:1.35rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.93rem}
th,td{text-align:left;padding:.35rem .6rem .35rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{vertical-align:bottom}th:first-child,td:first-child{min-width:11rem}
th.n,td.n{text-align:right;font-variant-numeric:tabular-nums}td.n{white-space:nowrap}th.n{overflow-wrap:normal}
td.bar{min-width:6rem;width:18%}td.bar span{display:block;height:.7rem;margin-top:.4rem;background:var(--bar);border-radius:.2rem}
code{font:.85em ui-monospace,monospace;background:var(--card);padding:.05rem .25rem;white-space:pre-wrap}
svg{width:100%;height:9.5rem;display:block;border-bottom:1px solid var(--line)}
.ends{display:flex;justify-content:space-between;margin:.1rem 0;color:var(--soft);font-size:.85rem}
.key{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.88rem}
.key i{display:inline-block;width:.75rem;height:.75rem;border-radius:.15rem;margin-right:.35rem}
@media (max-width:40rem){body{padding:.8rem;font-size:15px}td.bar,th.bar{display:none}}
"""


def loss_page(report: dict[str, Any], made: str) -> str:
    """The page. ``made``: when and by what."""
    failed, total = report["failed"], report["core_hours"]
    share = failed["core_hours"] / total if total else 0.0
    period = f"{report['from']} to {report['to']}" if report["from"] else "no ended jobs"
    figures = [
        (f"{report['attempts']:,}", "attempts that ended"),
        (hours(total), "core-hours used"),
        (f"{failed['attempts']:,}", "failed attempts"),
        (hours(failed["core_hours"]), f"core-hours lost, {share:.1%} of all"),
        (hours(report["cancelled"]["core_hours"]), f"core-hours of {report['cancelled']['attempts']:,} cancelled jobs, not counted as lost"),
    ]  # fmt: skip
    sources = ", ".join(f"{name} ({count:,})" for name, count in sorted(report["sources"].items()))
    parts = [
        "<h1>What failures cost</h1>",
        f'<p class="soft">{escape(period)}; {escape(sources or "nothing was found")}. {escape(made)}</p>',
        '<ul class="figures">'
        + "".join(f"<li><b>{escape(figure)}</b>{escape(words)}</li>" for figure, words in figures)
        + "</ul>",
    ]
    if failed["attempts"]:
        parts += [_chart(report), _causes(report), _rules(report)]
        parts.append(_places("By owner", "Owner", report["owners"], report["owners_in_all"]))
        parts.append(_places("By host", "Host", report["hosts"], report["hosts_in_all"]))
    parts.append(_reading(report))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="color-scheme" content="light dark"><title>What failures cost</title>'
        f"<style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def hours(value: float) -> str:
    """Core-hours with significant digits only."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def between(low: float, high: float) -> str:
    """An interval."""
    first, last = (f"{value:,.0f}" if value >= 10 else f"{value:.2g}" for value in (low, high))
    return first if first == last else f"{first} to {last}"


def _table(title: str, headings: Sequence[tuple[str, str]], rows: Iterable[str]) -> str:
    """A heading and its table, which scrolls by itself where it is too wide; by the keyboard too."""
    heads = "".join(f'<th class="{kind}">{escape(name)}</th>' for name, kind in headings)
    return (
        f'<h2>{escape(title)}</h2><div class="wide" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _bar(value: float, most: float) -> str:
    return f'<td class="bar"><span style="width:{100 * value / most if most else 0:.1f}%"></span></td>'


def _chart(report: dict[str, Any]) -> str:
    """Core-hours lost by day, in the colours of the most expensive causes."""
    days = report["days"]
    if len(days) < 2:
        return ""
    first = [row["cause"] for row in report["causes"]][: len(COLOURS) - 1]
    most = max(sum(by.values()) for by in days.values()) or 1.0
    width, height, step = 720.0, 150.0, 720.0 / len(days)
    bars = []
    for place, (day, by) in enumerate(days.items()):
        left, top = place * step, height
        for cause in sorted(by, key=lambda name: first.index(name) if name in first else len(first)):
            high = by[cause] / most * height
            top -= high
            colour = COLOURS[first.index(cause)] if cause in first else COLOURS[-1]
            bars.append(
                f'<rect x="{left + 1:.1f}" y="{top:.1f}" width="{max(1.0, step - 2):.1f}" height="{high:.1f}" fill="{colour}"><title>{escape(day)}: {escape(cause)}, {hours(by[cause])} core-hours</title></rect>'
            )
    names = list(days)
    key = "".join(
        f'<li><i style="background:{COLOURS[place]}"></i>{escape(cause)}</li>' for place, cause in enumerate(first)
    )
    if len(report["causes"]) > len(first):
        key += f'<li><i style="background:{COLOURS[-1]}"></i>other causes</li>'
    return (
        f'<h2>Core-hours lost by day</h2><p class="ends"><span>at most {hours(most)} a day</span></p>'
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" preserveAspectRatio="none" role="img" aria-label="Core-hours lost by day">{"".join(bars)}</svg>'
        f'<p class="ends"><span>{names[0]}</span><span>{names[-1]}</span></p><ul class="key">{key}</ul>'
    )


def _causes(report: dict[str, Any]) -> str:
    most = max((row["core_hours"] for row in report["causes"]), default=0.0)
    rows = []
    for row in report["causes"]:
        advice = f"<br><small>{escape(row['advice'])}</small>" if row["advice"] else ""
        shown = next((example for example in row["examples"] if example["lines"]), None)
        lines = (
            f"<br><code>{escape(' '.join(shown['lines'])[:220])}</code> <small>{escape(shown['job'])}</small>"
            if shown
            else ""
        )
        rows.append(
            f'<tr><td><b>{escape(row["cause"])}</b> {escape(MEANINGS.get(row["cause"], ""))}{advice}{lines}</td><td class="n">{row["failures"]:,}</td>'
            f'<td class="n">{hours(row["core_hours"])}</td>{_bar(row["core_hours"], most)}<td class="n">{row["confidence"]:.0%}</td></tr>'
        )
    headings = (("Cause", ""), ("Failures", "n"), ("Core-hours", "n"), ("", "bar"), ("Confidence", "n"))
    return _table("By cause", headings, rows)


def _rules(report: dict[str, Any]) -> str:
    rows = []
    for row in report["rules"]:
        seen = f"{row['succeeded']:,} of {row['run_again']:,}" if row["run_again"] else "none was run again"
        rows.append(
            f'<tr><td><b>{escape(row["rule"])}</b><br><small>{escape(row["description"])}</small></td><td class="n">{row["failures"]:,}</td>'
            f'<td class="n">{hours(row["core_hours"])}</td><td class="n">{seen}</td><td class="n">{between(*row["recovered"])}</td>'
            f'<td class="n">{between(*row["wasted_core_hours"])}</td></tr>'
        )
    headings = (
        ("Rule", ""), ("Would retry", "n"), ("Core-hours lost", "n"), ("Succeeded when run again", "n"), ("Recovered (95 %)", "n"),
        ("Core-hours of retries that fail", "n"),
    )  # fmt: skip
    return _table("What the starter rules would have done", headings, rows)


def _places(title: str, what: str, rows: Sequence[dict[str, Any]], count: int) -> str:
    most = max((row["core_hours"] for row in rows), default=0.0)
    lines = [
        f'<tr><td>{escape(row["name"])}</td><td class="n">{row["failures"]:,}</td><td class="n">{hours(row["core_hours"])}</td>{_bar(row["core_hours"], most)}</tr>'
        for row in rows
    ]
    more = f'<p class="soft">{len(rows)} of {count:,}.</p>' if count > len(rows) else ""
    return _table(title, ((what, ""), ("Failures", "n"), ("Core-hours", "n"), ("", "bar")), lines) + more


def _reading(report: dict[str, Any]) -> str:
    redacted = " Names, job ids and lines of logs are left out." if report["names_redacted"] else ""
    return (
        "<h2>How to read this</h2><p>Core-hours lost are the cores that failed attempts held, times the time for which they held them. Causes come from what was recorded "
        "(state, exit code, reason, memory, time) and from the ends of logs that are still there, by the patterns of Forestay; the confidence says how often such "
        "findings were right on labelled failures. Of a job on several hosts each host has its share.</p><p>Whether a retry would have succeeded is not known. "
        "What is known is how the same work ended when somebody ran it again: a restart, or a later job of the same owner and name within a week. The interval of "
        "95 % from these is applied to all failures that the rule would have answered; jobs of one owner and name count as one observation. Where nothing was run again, everything is possible. The rules that come "
        f"with Forestay only observe until somebody promotes them.{redacted} This page was made on your machine; nothing was sent anywhere.</p>"
    )
