"""Write docs/reference/failure-matrix.md and its picture from failure-matrix.json, which `just matrix` has measured.

``--check`` writes nothing; exit code 1 says that the page or the picture is not what the figures say.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from html import escape
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

PLACE = Path(__file__).resolve().parent.parent / "docs" / "reference"
FIGURES = PLACE / "failure-matrix.json"
PAGE = PLACE / "failure-matrix.md"
PICTURE = PLACE / "failure-matrix.svg"

RECOVERED, FAILED, NEVER, NOT_YET = "recovered", "failed well", "never", "not yet"
COLOURS = {RECOVERED: "#2f8f5b", FAILED: "#3b74b8", NEVER: "#e3e3e3", NOT_YET: "#ffffff"}
GLYPHS = {RECOVERED: "●", FAILED: "■", NEVER: "·", NOT_YET: "○"}
MEANING = {
    RECOVERED: "a real failure was injected, and the job completed",
    FAILED: "a real failure was injected, and the job was correctly failed at once; its submitter was notified",
    NOT_YET: "possible, but not shown yet",
    NEVER: "not possible; the reason is below",
}
SIDE, GAP, LEFT, TOP = 13, 2, 118, 58
WIDE = 4 * (SIDE + GAP) + 26


def kinds(figures: dict[str, Any]) -> dict[tuple[str, str, str], str]:
    """What is known of each cell."""
    recovered = {
        (cell["failure"], cell["stage"], cell["submission"]): RECOVERED if cell["state"] == "completed" else FAILED
        for cell in figures["cells"]
    }
    recovered |= {(entry["failure"], entry["stage"], entry["submission"]): entry["kind"] for entry in figures["empty"]}
    return recovered


def picture(figures: dict[str, Any]) -> str:
    """The matrix at one look: failures down, stages across, the four submission patterns in each."""
    known = kinds(figures)
    width = LEFT + WIDE * len(figures["stages"]) + 10
    height = TOP + (SIDE + 9) * len(figures["failures"]) + 62
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="Failure matrix">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<g font-family="sans-serif" font-size="11" fill="#222222">',
    ]
    for column, stage in enumerate(figures["stages"]):
        x = LEFT + column * WIDE
        lines.append(f'<text x="{x}" y="26" font-weight="bold">{escape(stage)}</text>')
        for place, way in enumerate(figures["submissions"]):
            letter = way[0].upper()
            lines.append(f'<text x="{x + place * (SIDE + GAP) + 3}" y="44" font-size="9">{letter}</text>')
    for row, failure in enumerate(figures["failures"]):
        y = TOP + row * (SIDE + 9)
        lines.append(f'<text x="8" y="{y + 11}">{escape(failure)}</text>')
        for column, stage in enumerate(figures["stages"]):
            for place, way in enumerate(figures["submissions"]):
                x = LEFT + column * WIDE + place * (SIDE + GAP)
                kind = known[failure, stage, way]
                edge = ' stroke="#b0533f" stroke-dasharray="2 2"' if kind == NOT_YET else ""
                title = escape(f"{failure}, {stage}, {way}: {kind}")
                lines.append(
                    f'<rect x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" rx="2" fill="{COLOURS[kind]}"{edge}><title>{title}</title></rect>'
                )
    y, x = height - 44, 8
    for kind in (RECOVERED, FAILED, NOT_YET, NEVER):
        edge = ' stroke="#b0533f" stroke-dasharray="2 2"' if kind == NOT_YET else ""
        lines.append(f'<rect x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" rx="2" fill="{COLOURS[kind]}"{edge}/>')
        lines.append(f'<text x="{x + SIDE + 5}" y="{y + 11}">{kind}</text>')
        x += 110
    words = ", ".join(f"{way[0].upper()} {way}" for way in figures["submissions"])
    lines.append(f'<text x="8" y="{y + 33}" fill="#666666">{escape(words)}</text>')
    return "\n".join([*lines, "</g>", "</svg>"]) + "\n"


def page(figures: dict[str, Any]) -> str:
    """The page."""
    known = kinds(figures)
    count = {kind: sum(name == kind for name in known.values()) for kind in MEANING}
    shown, can = count[RECOVERED] + count[FAILED], count[RECOVERED] + count[FAILED] + count[NOT_YET]
    parts = [
        "# The failure matrix",
        "",
        "<!-- Written by scripts/failure_matrix.py from failure-matrix.json; `just matrix` measures again. -->",
        "",
        "What happens to a job when something fails: every class of failure, at every stage of a job, for each of the four ways to submit one. Each filled square is a real failure,",
        "injected into a real server, reconciler or pilot (killed processes, cut connections, full and read-only disks, out-of-memory kills), that was recovered by a rule or by the default",
        "policy and reported to the submitter in its own way. This is the evaluation that the first [paper](../explanation/papers.md) asks for.",
        "",
        f"**{shown} of {can} possible cells are shown; {count[NOT_YET]} are not shown yet; {count[NEVER]} are not possible.**",
        "",
        "![The failure matrix: failures down, stages across, four squares for the four submission patterns](failure-matrix.svg)",
        "",
        "The four marks of a cell are the ways to submit: " + ", ".join(figures["submissions"]) + ".",
        "",
        *(f"- {GLYPHS[kind]} {words}" for kind, words in MEANING.items()),
        "",
        "| failure | " + " | ".join(figures["stages"]) + " |",
        "| --- |" + " :-: |" * len(figures["stages"]),
    ]
    for failure in figures["failures"]:
        marks = [
            "".join(GLYPHS[known[failure, stage, way]] for way in figures["submissions"]) for stage in figures["stages"]
        ]
        parts.append(f"| {failure} | " + " | ".join(marks) + " |")
    parts += [*_costs(figures), *_scenarios(figures), *_empty(figures), *_again(figures)]
    return "\n".join(parts) + "\n"


def _costs(figures: dict[str, Any]) -> Iterable[str]:
    by: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cell in figures["cells"]:
        by[cell["recovered"]].append(cell)
    yield from (
        "",
        "## What each pattern costs",
        "",
        "The additional cost of an execution with the failure compared with the same one without it, as the submitter sees it: wall time from the request to the result, attempts, and core-seconds of all attempts from claim to completion.",
        "The job runs for 0.2 s, so the figures are almost entirely the cost of the pattern itself: detecting, deciding, waiting if a rule requires it, and starting what was killed. Negative figures are noise. Work lost with a host is not included.",
        "",
        "| recovered by | cells | extra wall, median | maximum | extra attempts | extra core-seconds, median |",
        "| --- | --: | --: | --: | --: | --: |",
    )
    for recovered, cells in sorted(by.items(), key=lambda pair: median(cell["extra_wall"] for cell in pair[1])):
        wall = [cell["extra_wall"] for cell in cells]
        attempts = sorted({cell["extra_attempts"] for cell in cells})
        core = median(cell["extra_core_seconds"] for cell in cells)
        tries = str(attempts[0]) if len(attempts) == 1 else f"{attempts[0]} to {attempts[-1]}"
        yield f"| {recovered} | {len(cells)} | {median(wall):.2f} s | {max(wall):.2f} s | {tries} | {core:.2f} |"


def _scenarios(figures: dict[str, Any]) -> Iterable[str]:
    by: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for cell in figures["cells"]:
        by[cell["stage"], cell["failure"]][cell["submission"]] = cell
    yield from ("", "## All failures shown")
    for stage in figures["stages"]:
        if not any(at == stage for at, _ in by):
            continue
        ways = figures["submissions"]
        yield from (
            "",
            f"### {stage[0].upper()}{stage[1:]}",
            "",
            "| failure | injected | recovered by | cause | extra wall: " + ", ".join(ways) + " |",
            "| --- | --- | --- | --- | --- |",
        )
        for (at, failure), cells in by.items():
            if at == stage:
                first = next(iter(cells.values()))
                causes = ", ".join(
                    f"`{cause}`" for cause in sorted({cause for cell in cells.values() for cause in cell["causes"]})
                )
                wall = ", ".join(f"{cells[way]['extra_wall']:.2f}" if way in cells else "–" for way in ways)
                yield f"| {failure} | {first['injected']} | {first['recovered']} | {causes or 'no failure'} | {wall} |"


def _empty(figures: dict[str, Any]) -> Iterable[str]:
    for kind, heading in ((NOT_YET, "Not shown yet"), (NEVER, "Not possible")):
        reasons: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
        for entry in figures["empty"]:
            if entry["kind"] == kind:
                reasons[entry["why"]][entry["failure"], entry["stage"]].append(entry["submission"])
        if not reasons:
            continue
        yield from ("", f"## {heading}", "", "| cells | why |", "| --- | --- |")
        for why, places in reasons.items():
            stages: dict[str, list[str]] = defaultdict(list)
            for (failure, stage), ways in places.items():
                some = "" if len(ways) == len(figures["submissions"]) else f" ({', '.join(ways)})"
                stages[stage + some].append(failure)
            cells = [stage + ": " + ", ".join(some) for stage, some in stages.items()]
            yield f"| {'; '.join(cells)} | {why} |"


def _again(figures: dict[str, Any]) -> Iterable[str]:
    yield from (
        "",
        "## Run it again",
        "",
        "`just matrix` runs every cell twice, with and without its failure, on real processes over SQLite, and writes the figures and this page. It needs Linux, `unshare`, and for out-of-memory kills the permission to create a",
        f"control group. A small part of it runs with every change. These figures were measured on {figures['cores']} cores with other work; a cell takes a few seconds.",
    )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(words)
    figures = json.loads(FIGURES.read_text())
    wanted = {PAGE: page(figures), PICTURE: picture(figures)}
    if args.check:
        old = [place.name for place, text in wanted.items() if not place.exists() or place.read_text() != text]
        if old:
            print(f"{', '.join(old)}: not what the figures say; run scripts/failure_matrix.py", file=sys.stderr)
        return 1 if old else 0
    for place, text in wanted.items():
        place.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
