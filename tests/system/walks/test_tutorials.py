"""The tutorials, typed as they stand there: what a new user reads is what a test has run."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.system.insertion.snakemake_room import snakemake as snakemake
from tests.system.walks.first_ten_minutes import start_dev, type_in

pytestmark = pytest.mark.slow
PAGES = Path(__file__).resolve().parents[3] / "docs" / "tutorials"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def typed(page: str) -> list[str]:
    """What the page says is to be typed, behind the installation and the start of everything."""
    blocks = BLOCK.findall((PAGES / f"{page}.md").read_text())
    lines = [line.removeprefix("$ ") for kind, text in blocks if kind == "console" for line in text.splitlines()]
    assert lines[0].startswith("pip install dist/forestay-*.whl"), page
    assert lines[1] == "forestay dev"
    return lines[2:]


@contextmanager
def dev(programs: Path, folder: Path) -> Iterator[dict[str, str]]:
    """`forestay dev` with a home of its own; the environment for its user's commands."""
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_STATE_HOME": f"{folder}/state",
        "XDG_CONFIG_HOME": f"{folder}/config",
        "LANG": "C.UTF-8",
        # Nothing here runs a run.
        "FORESTAY_TEMPORAL_PROGRAM": "none",
    }
    process = start_dev(programs, environment, folder / "dev.log")
    try:
        yield environment
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, (folder / "dev.log").read_text()


def run(page: str, programs: Path, folder: Path, may_fail: dict[str, int] | None = None) -> str:
    work = folder / "work"
    work.mkdir()
    for kind, text in BLOCK.findall((PAGES / f"{page}.md").read_text()):
        if kind != "console":
            name = text.splitlines()[0].removeprefix("# ")
            (work / name).write_text(text)
    with dev(programs, folder) as environment:
        return type_in(typed(page), environment, work, may_fail or {})


def after(shown: str, command: str) -> str:
    """What was shown between a command and the next."""
    _, text, rest = shown.partition(f"$ {command}")
    assert text, f"{command} was not typed"
    return rest.partition("\n$ ")[0]


def test_your_first_rule(tmp_path: Path) -> None:
    shown = run("first-rule", Path(sys.executable).parent, tmp_path)
    assert len(re.findall(r"^ *[123] unknown ", after(shown, "forestay inbox --wait"), re.MULTILINE)) == 1, "one group"
    assert "quux: all 5 seats are taken" in after(shown, "forestay explain")
    assert "(shadow)" in after(shown, "forestay rules show")
    assert "no wrong decisions" in after(shown, "forestay rules replay")
    assert after(shown, "forestay wait $(forestay jobs").count(" completed") == 3
    assert "Retrying (playbook" in after(shown, "forestay story")


def test_shadow_for_two_weeks_then_the_report(tmp_path: Path) -> None:
    shown = run(
        "shadow",
        Path(sys.executable).parent,
        tmp_path,
        {"forestay wait $(cat parse)": 8, "forestay rules replay --since 14d": 1},
    )
    assert after(shown, "forestay rules show").count("(shadow)") == 2
    report = after(shown, "forestay rules replay")
    assert "16 incidents" in report
    assert "wrong decisions 4" in report
    last = shown.rpartition("$ forestay rules show")[2]
    assert "(shadow)" not in last.partition("\n$ ")[0]
    assert "cannot parse" in last.partition("\n$ ")[0]
    assert re.search(r"^ *1 ", after(shown, "forestay inbox --wait"), re.MULTILINE)


def test_forestay_in_front_of_your_snakemake(tmp_path: Path, snakemake: Path) -> None:
    shown = run("snakemake", snakemake.parent, tmp_path)
    assert "exit status 7" in after(shown, "forestay explain")
    assert after(shown, "cat counted.txt").strip() == "3"
