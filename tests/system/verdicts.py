"""Runs tests by their names, and says how each ended: for tables that name the tests which show something."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.harness import commit

ROOT = Path(__file__).parents[2]


def run_tests(tests: Iterable[str], *options: str) -> dict[str, dict[str, Any]]:
    """Every test (`file::name`) once, one after the other, with all its parameters."""
    names = sorted(set(tests))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "verdicts.xml"
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={place}"]
        words += ["-o", "junit_family=xunit1", *options, *names]  # the newer one has no place for what a test measured
        subprocess.run(words, cwd=ROOT, check=False, stdout=sys.stderr)
        runs = list(ET.parse(place).iter("testcase"))  # noqa: S314 - pytest has just written it
    return {name: _verdict(name, runs) for name in names}


def _verdict(name: str, runs: Iterable[ET.Element]) -> dict[str, Any]:
    path, _, test = name.partition("::")
    module = path.removesuffix(".py").replace("/", ".")
    of = [run for run in runs if run.get("classname") == module and str(run.get("name")).split("[")[0] == test]
    bad = [run for run in of if run.find("failure") is not None or run.find("error") is not None]
    left_out = [run for run in of if run.find("skipped") is not None]
    verdict = "not run" if len(of) == len(left_out) else "failed" if bad else "passed"
    values = [str(word.get("value")) for run in of for word in run.iter("property") if word.get("name") == "figures"]
    words = "; ".join(values) or f"{len(of) - len(left_out)} runs"
    return record(verdict, sum(float(run.get("time") or 0) for run in of), words)


def record(verdict: str, seconds: float, words: str) -> dict[str, Any]:
    """What is kept of one test or campaign."""
    return {
        "verdict": verdict, "seconds": round(seconds, 1), "figures": words, "day": time.strftime("%Y-%m-%d"), "commit": commit(),
    }  # fmt: skip
