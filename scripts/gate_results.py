"""What a run of the gate left behind: seconds, processor time and result of every tier, test file and test.

Results are kept outside the checkout, since the gate runs in clones that are thrown away.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "table.json"
KEPT_RUNS = 20


@dataclass(frozen=True, slots=True)
class TierResult:
    """One tier of one run."""

    name: str
    seconds: float
    cpu: float
    """Processor time of the tier's own processes; servers that it only talks to are not in it."""
    result: str

    @property
    def passed(self) -> bool:
        return self.result.startswith("passed")


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test of one run."""

    id: str
    file: str
    seconds: float
    cpu: float
    result: str


@dataclass(frozen=True, slots=True)
class FileTimes:
    """All tests of one file in one tier."""

    seconds: float
    cpu: float
    tests: int


@dataclass(frozen=True, slots=True)
class Table:
    """One run: which commit, how long, how busy."""

    commit: str
    began: str
    seconds: float
    busy: float
    """Share of the machine's processors that was in use, by any process."""
    tiers: list[TierResult]
    files: dict[str, FileTimes] = field(default_factory=dict)
    """By `tier: file`."""


def results_folder() -> Path:
    """Where the runs are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "forestay" / "gate"


def tables(folder: Path) -> list[Path]:
    """The tables of runs that came to their end, oldest first."""
    return sorted(folder.glob(f"*/{TABLE}"))


def forget_old_runs(folder: Path) -> None:
    """Keep the newest runs only."""
    for path in sorted(folder.glob("*/"))[:-KEPT_RUNS]:
        shutil.rmtree(path, ignore_errors=True)


def read_tests(junit: Path) -> Iterator[TestResult]:
    """The tests of one JUnit file, which pytest wrote for us."""
    for record in ElementTree.parse(junit).getroot().iter("testcase"):  # noqa: S314 - our own file
        outcome = next((child.tag for child in record if child.tag in ("failure", "error", "skipped")), "passed")
        properties = {entry.get("name"): entry.get("value") for entry in record.iter("property")}
        identifier = properties.get("id") or f"{record.get('classname')}.{record.get('name')}"
        cpu = float(properties.get("cpu") or 0)
        yield TestResult(identifier, identifier.partition("::")[0], float(record.get("time") or 0), cpu, outcome)


def file_times(tier: str, tests: Iterator[TestResult]) -> dict[str, FileTimes]:
    """The tests of a tier, added up by file."""
    sums: dict[str, list[TestResult]] = defaultdict(list)
    for test in tests:
        sums[f"{tier}: {test.file}"].append(test)
    return {
        name: FileTimes(
            round(sum(test.seconds for test in group), 2), round(sum(test.cpu for test in group), 2), len(group)
        )
        for name, group in sums.items()
    }


def save_table(path: Path, table: Table) -> None:
    path.write_text(json.dumps(asdict(table), indent=1) + "\n")


def load_table(path: Path) -> Table:
    plain = json.loads(path.read_text())
    tiers = [TierResult(**tier) for tier in plain.pop("tiers")]
    files = {name: FileTimes(**times) for name, times in plain.pop("files").items()}
    return Table(**plain, tiers=tiers, files=files)
