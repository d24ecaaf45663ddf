"""The tutorials, typed as they stand there: what a new user reads is what a test has run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.servers import address
from tests.system.insertion.snakemake_room import snakemake as snakemake
from tests.system.walks import tutorials
from tests.system.walks.first_ten_minutes import start_dev, type_in

pytestmark = pytest.mark.slow


@contextmanager
def dev(programs: Path, folder: Path, *options: str, temporal: str = "none") -> Iterator[dict[str, str]]:
    """`forestay dev` with a home of its own; the environment for its user's commands."""
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_STATE_HOME": f"{folder}/state",
        "XDG_CONFIG_HOME": f"{folder}/config",
        "LANG": "C.UTF-8",
        "FORESTAY_TEMPORAL_PROGRAM": temporal,
    }
    process = start_dev(programs, environment, folder / "dev.log", *options)
    try:
        yield environment
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, (folder / "dev.log").read_text()


def run(page: str, programs: Path, folder: Path, judge: Callable[[str], None]) -> None:
    work = folder / "work"
    work.mkdir()
    for name, text in tutorials.saved(page).items():
        (work / name).write_text(text)
    may_fail = tutorials.MAY_FAIL if page == tutorials.SHADOW else {}
    with dev(programs, folder) as environment:
        judge(type_in(tutorials.typed(page), environment, work, may_fail))


def test_your_first_rule(tmp_path: Path) -> None:
    run(tutorials.FIRST_RULE, Path(sys.executable).parent, tmp_path, tutorials.judge_first_rule)


def test_shadow_for_two_weeks_then_the_report(tmp_path: Path) -> None:
    run(tutorials.SHADOW, Path(sys.executable).parent, tmp_path, tutorials.judge_shadow)


def test_forestay_in_front_of_your_snakemake(tmp_path: Path, snakemake: Path) -> None:
    run(tutorials.SNAKEMAKE, snakemake.parent, tmp_path, tutorials.judge_snakemake)


@pytest.mark.finding("F-D1", "F-D3")
def test_two_hundred_samples(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name, text in tutorials.saved(tutorials.SAMPLES).items():
        (work / name).write_text(text)
    programs, temporal = Path(sys.executable).parent, address("FORESTAY_TEST_TEMPORAL_PROGRAM")
    with dev(programs, tmp_path, "--flows", str(work), temporal=temporal) as environment:
        tutorials.judge_samples(type_in(tutorials.typed(tutorials.SAMPLES), environment, work, {}))
