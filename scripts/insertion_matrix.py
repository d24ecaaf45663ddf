"""Write docs/reference/insertion-matrix.md from insertion-matrix.json, which `just insertion-matrix` has measured.

``--check`` writes nothing; exit code 1 says that the page is not what the results say.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

PLACE = Path(__file__).resolve().parent.parent / "docs" / "reference"
RESULTS = PLACE / "insertion-matrix.json"
PAGE = PLACE / "insertion-matrix.md"
Key = tuple[str, str, str, str]
Cells = dict[Key, dict[str, Any]]
MEANING = {
    "unseen": "the user's command, job or flow succeeded, and nothing that the user's tools print showed a failure",
    "seen": "it succeeded, but a failed state or an error was shown on the way",
    "not recovered": "it failed, exactly as without Forestay",
    "harm": "worse than without Forestay: it succeeds without and not with it, something that had succeeded ran again, or something ran again after its user was told of a failure",
}


def page(results: dict[str, Any]) -> str:
    """The page."""
    skipped = {(entry["engine"], entry["way"], entry["what"]) for entry in results["skipped"]}
    cells: Cells = {(cell["engine"], cell["way"], cell["failure"], cell["slurm"]): cell for cell in results["cells"]}
    possible = {
        (way["engine"], way["way"], failure, kind)
        for way in results["ways"]
        for failure in results["failures"]
        for kind in results["slurms"]
        if not any((way["engine"], way["way"], what) in skipped for what in (failure, kind))
    }
    count = Counter(cell["verdict"] for cell in cells.values())
    worse = sum(cell["bare"]["good"] and not cell["ours"]["good"] for cell in cells.values())
    better = sum(cell["ours"]["good"] and not cell["bare"]["good"] for cell in cells.values())
    parts = [
        "# The insertion matrix",
        "",
        "<!-- Written by scripts/insertion_matrix.py from insertion-matrix.json; `just insertion-matrix` measures again. -->",
        "",
        "What users of plain `sbatch`, Snakemake and Nextflow see when something fails, with Forestay in front of Slurm (the [shim and a watcher that acts](../how-to/sbatch.md), with the starter rules) and without it. In each cell two users submit the same",
        "jobs to one real Slurm at the same time, one through the shim and one not, and meet the same failure. The flows allow no retry of their own.",
        "",
        f"**{len(cells)} of {len(possible)} cells are measured: "
        + ", ".join(f"{count[word]} {word}" for word in MEANING)
        + ".** "
        f"In {better} cells the work fails without Forestay and succeeds with it; in {worse} it is the other way round.",
        "",
        *(f"- **{word}**: {text}" for word, text in MEANING.items()),
        "",
        "Two kinds of Slurm:",
        "",
        *(f"- *{kind}*: {text}" for kind, text in results["slurms"].items()),
    ]
    for engine in dict.fromkeys(way["engine"] for way in results["ways"]):
        parts += _table(results, cells, possible, engine)
    parts += _evidence(cells)
    if results["skipped"]:
        parts += ["", "## Not possible", "", "| cells | why |", "| --- | --- |"]
        parts += [
            f"| {entry['engine']}, {entry['way']}, {entry['what']} | {entry['why']} |" for entry in results["skipped"]
        ]
    parts += [
        "",
        "## Run it again",
        "",
        "`just insertion-matrix` measures all cells as root, both kinds of Slurm side by side; `--only sbatch/array` (a part of `engine/way/failure/kind`) measures some, and `--resume` only those that are missing. Results are kept in `insertion-matrix.json` as they come.",
    ]
    return "\n".join(parts) + "\n"


def _table(results: dict[str, Any], cells: Cells, possible: set[Key], engine: str) -> Iterable[str]:
    ways = [way["way"] for way in results["ways"] if way["engine"] == engine]
    yield from ("", f"## {engine}", "", "Each field: " + " / ".join(results["slurms"]) + ".", "")
    yield "| failure | " + " | ".join(f"`{way}`" if way.startswith("-") else way for way in ways) + " |"
    yield "| --- |" + " --- |" * len(ways)
    for failure in results["failures"]:
        fields = []
        for way in ways:
            keys = [(engine, way, failure, kind) for kind in results["slurms"]]
            words = [cells.get(key, {}).get("verdict", "?") if key in possible else "–" for key in keys]
            words = ["**harm**" if word == "harm" else word for word in words]
            fields.append(words[0] if len(set(words)) == 1 else " / ".join(words))
        yield f"| {failure} | " + " | ".join(fields) + " |"


def _arm(met: dict[str, Any]) -> str:
    starts = " ".join(f"{part}×{count}" for part, count in met["starts"].items())
    alarms = f"; shown: {', '.join(met['alarms'])}" if met["alarms"] else ""
    return (
        f"{'well' if met['good'] else 'failed'}: {met['told']}{alarms}; starts {starts or 'none'}; {met['seconds']} s"
    )


def _evidence(cells: Cells) -> Iterable[str]:
    yield from ("", "## Evidence", "", "For each cell: how it ended for its user, failed states and errors that were shown on the way, how often each part of the work was started, and the time.", "")  # fmt: skip
    yield from ("| cell | result | without Forestay | with Forestay | incidents |", "| --- | --- | --- | --- | --- |")
    for cell in cells.values():
        incidents = ", ".join(f"`{entry['id'][:8]}` {entry['cause']}, {entry['state']}" for entry in cell["incidents"])
        why = f": {'; '.join(cell['harms'])}" if cell["harms"] else ""
        name = f"{cell['engine']}, {cell['way']}, {cell['failure']}, {cell['slurm']}"
        yield f"| {name} | {cell['verdict']}{why} | {_arm(cell['bare'])} | {_arm(cell['ours'])} | {incidents or 'none'} |"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(words)
    text = page(json.loads(RESULTS.read_text()))
    if args.check:
        good = PAGE.exists() and PAGE.read_text() == text
        if not good:
            print(f"{PAGE.name}: not what the results say; run scripts/insertion_matrix.py", file=sys.stderr)
        return 0 if good else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
