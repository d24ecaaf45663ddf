"""What a campaign came to, as a result of a benchmark: `python -m tests.system.chaos.kept_report FOLDER`, for one that ran earlier. With `--judge` the auditor looks at
what it left once more, as when a rule of his was wrong.

`just chaos SIZE` does it by itself. The result is bench/results/chaos_SIZE.json; a small campaign proves only that campaigns run, and is kept apart like any smoke run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import keep
from tests.system.chaos.audit import Audit
from tests.system.chaos.evidence import gather


def figures_of(report: dict[str, Any]) -> dict[str, Any]:
    """The figures of a report: counts of what must be none, of what was done, and the times of recovery."""
    verdict, faults = report["verdict"], report["faults"]
    return {
        "jobs": verdict["jobs"],
        "seed": report["seed"],
        "seconds": report["seconds"],
        "kills": sum(many for name, many in faults.items() if name.startswith("kill ")),
        "faults": faults,
        "lost": len(verdict["lost"]) + len(verdict["unfinished"]),
        "duplicates": sum(len(verdict[name]) for name in ("unnoticed", "unpublished", "key_duplicates")),
        "unrecorded": len(verdict["unrecorded"]),
        "payloads killed": len(verdict["killed"]) + len(verdict["killed_in_outage"]),
        "false orphans": len(verdict["false_orphans"]),
        "odd": len(verdict["odd"]),
        "starts": verdict["starts"],
        "extra runs": verdict["extra_attempts"],
        "late ends": {"adopted": verdict["adopted"], "superseded": verdict["superseded"]},
        "death to release, seconds": _times(verdict["deaths"]),
        "silence to release, leases": _times(verdict["silences"]),
        "lease": report["size"]["lease"],
        "limits": {"death": report["size"]["death_limit"], "silence": report["size"]["silence_limit"]},
        "complaints": report["complaints"],
    }


def _times(each: list[float]) -> dict[str, float] | None:
    return {"median": median(each), "most": max(each), "measured": len(each)} if each else None


def keep_report(folder: Path, *, commit: str = "") -> Path:
    """Keep the figures of the report in a folder. A report of an older campaign does not say of which commit it was, nor its load."""
    path = folder / "report.json"
    report = json.loads(path.read_text())
    ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(path.stat().st_mtime))
    known = {
        "at": report.get("at", ended),
        "command": report.get("command", ""),
        "commit": report.get("commit", "") or commit,
        "load": report.get("load"),
    }
    name = report["size"]["name"]
    return keep(f"chaos_{name}", [], figures_of(report), known, smoke=name == "small")


def judge_again(folder: Path) -> None:
    """Write the report anew."""
    path = folder / "report.json"
    report = json.loads(path.read_text())
    size = report["size"]
    verdict = Audit(gather(folder), size["lease"]).judge()
    complaints = verdict.complaints(death_limit=size["death_limit"], silence_limit=size["silence_limit"])
    report |= {"complaints": complaints, "verdict": asdict(verdict)}
    report.setdefault("at", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(path.stat().st_mtime)))
    path.write_text(json.dumps(report, indent=1) + "\n")
    for complaint in complaints:
        sys.stderr.write(f"WRONG: {complaint}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commit", default="", help="what was tried, where the report does not say")
    parser.add_argument("--judge", action="store_true", help="have the auditor look again")
    asked = parser.parse_args()
    if asked.judge:
        judge_again(asked.folder)
    sys.stdout.write(f"{keep_report(asked.folder, commit=asked.commit)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
