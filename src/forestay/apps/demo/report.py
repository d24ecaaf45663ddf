"""The report of the demonstration: one HTML file with what each paper contributed and what was measured."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass

from forestay.apps.demo.act import Act, ActResult

TITLES = {
    "P0": "Design of a fault-tolerant job-flow manager for grid environments (SEKE 2008)",
    "P1": "Dynamic, extensible and context-aware exception handling for workflows",
    "P2": "Adaptive fault tolerance of workflow",
    "P3": "CMS workflow execution using intelligent job scheduling and data access strategies",
    "P4": "Efficient batch job management using Elasticsearch-based optimistic locking",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1f2b; background: #fff }
h1 { margin-bottom: 0 } h2 { margin: 2.5rem 0 0 } .paper { color: #5a6475; margin: 0 0 .5rem }
.good { color: #0b6b3a } .bad { color: #a3141e } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #dde1e8; vertical-align: top }
td.value { font-variant-numeric: tabular-nums; font-weight: 600 } td.source { color: #5a6475 }
.wide { overflow-x: auto } .diagram { width: 100%; min-width: 32rem; max-width: 47.5rem; font-size: 14px } .diagram text { text-anchor: middle; fill: currentColor }
.diagram rect { fill: #fff; stroke: currentColor } .diagram path[d*=Q] { fill: none; stroke: currentColor }
.diagram .taken path, .diagram .entered rect { stroke: #0b6b3a; stroke-width: 2.5 } .diagram .idle { opacity: .35 }
.diagram .taken text { paint-order: stroke; stroke: #fff; stroke-width: 4px }
@media (prefers-color-scheme: dark) { body { color: #e6e9ef; background: #14171d } .paper, td.source { color: #98a2b3 } td, th { border-color: #2c3340 }
.good { color: #5fcf95 } .bad { color: #ff8a8f } .diagram .taken path, .diagram .entered rect { stroke: #5fcf95 } .diagram .taken text { stroke: #14171d } .diagram rect { fill: #14171d } }
"""


@dataclass(frozen=True, slots=True)
class PlayedAct:
    """An act with what came of it."""

    act: Act
    result: ActResult
    seconds: float
    problem: str = ""
    """What came out otherwise than promised; empty: nothing."""


def report_page(played: Sequence[PlayedAct], *, version: str, machine: str) -> str:
    """The whole page; nothing in it is fetched from anywhere."""
    seconds = sum(entry.seconds for entry in played)
    good = sum(not entry.problem for entry in played)
    sections = "\n".join(_section(entry) for entry in played)
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Forestay: five papers, played</title><style>{STYLE}</style></head>
<body>
<h1>Five papers, played</h1>
<p>Forestay {_text(version)} played {good} of {len(played)} acts as promised in {seconds:.0f} seconds, on {_text(machine)}. Every figure was read from
where its row says when the act had ended; times depend on the machine.</p>
{sections}
<script type="application/json" id="figures">{_data(played)}</script>
</body>
</html>
"""


def _section(entry: PlayedAct) -> str:
    act = entry.act
    outcome = (
        f'<p class="bad">Not as promised: {_text(entry.problem)}</p>'
        if entry.problem
        else f'<p class="good">{_text(entry.result.summary)}.</p>'
    )
    rows = "\n".join(
        f'<tr><td>{_text(figure.name)}</td><td class="value">{_text(figure.value)}</td><td class="source">{_text(figure.source)}</td></tr>'
        for figure in entry.result.figures
    )
    return f"""<h2>{_text(act.paper)} {_text(act.title)}</h2>
<p class="paper">{_text(TITLES[act.paper])}</p>
<p>{_text(act.contributes)}</p>
{outcome}
<div class="wide">{entry.result.diagram}</div>
<table><thead><tr><th>measured</th><th>value</th><th>read from</th></tr></thead><tbody>
{rows}
<tr><td>seconds</td><td class="value">{entry.seconds:.1f}</td><td class="source">the demonstration's clock</td></tr>
</tbody></table>"""


def _data(played: Sequence[PlayedAct]) -> str:
    """The same for programs; as HTML wants it, no tag can begin in it."""
    acts = [
        {
            "paper": entry.act.paper,
            "problem": entry.problem,
            "seconds": round(entry.seconds, 1),
            "runs": entry.result.runs,
            "figures": [
                {"name": figure.name, "value": figure.value, "source": figure.source} for figure in entry.result.figures
            ],
        }
        for entry in played
    ]
    return json.dumps(acts).replace("<", "\\u003c")


def _text(value: object) -> str:
    return html.escape(f"{value:,}" if isinstance(value, int) else str(value))
