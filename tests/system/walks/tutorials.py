"""The tutorials as they stand in the docs: what is typed, what is saved, and what must be seen."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).resolve().parents[3] / "docs" / "tutorials"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
FIRST_RULE, SHADOW, SNAKEMAKE, SAMPLES = "first-rule", "shadow", "snakemake", "samples"
MAY_FAIL = {"forestay wait $(cat parse)": 8, "forestay rules replay --since 14d": 1}
"""What is meant to fail in `shadow`, and says so by its exit code."""


def typed(page: str) -> list[str]:
    """What the page says is to be typed, behind the installation and the start of everything."""
    blocks = BLOCK.findall((PAGES / f"{page}.md").read_text())
    lines = [line.removeprefix("$ ") for kind, text in blocks if kind == "console" for line in text.splitlines()]
    assert lines[0].startswith('pip install "$(echo dist/forestay-*.whl)[server,flows]"'), page
    assert lines[1] == ("forestay dev --flows ." if page == SAMPLES else "forestay dev")
    return lines[2:]


def saved(page: str) -> dict[str, str]:
    """What the page says is to be saved."""
    blocks = BLOCK.findall((PAGES / f"{page}.md").read_text())
    return {text.splitlines()[0].removeprefix("# "): text for kind, text in blocks if kind != "console"}


def after(shown: str, command: str) -> str:
    """What was shown between a command and the next."""
    _, text, rest = shown.partition(f"$ {command}")
    assert text, f"{command} was not typed"
    return rest.partition("\n$ ")[0]


def judge_first_rule(shown: str) -> None:
    assert len(re.findall(r"^ *[123] .*unknown", after(shown, "forestay inbox --wait"), re.MULTILINE)) == 1, "one group"
    assert "zorp: table 4 is being rebuilt" in after(shown, "forestay explain")
    assert "(shadow)" in after(shown, "forestay rules show")
    assert "no wrong decisions" in after(shown, "forestay rules replay")
    assert after(shown, "forestay wait $(forestay jobs").count(" completed") == 3
    assert "Retrying (rule " in after(shown, "forestay story")


def judge_shadow(shown: str) -> None:
    assert after(shown, "forestay rules show").count("(shadow)") == 2
    assert "wrong decisions 4" in after(shown, "forestay rules replay")
    last = shown.rpartition("$ forestay rules show")[2]
    assert "(shadow)" not in last.partition("\n$ ")[0]
    assert "cannot parse" in last.partition("\n$ ")[0]
    assert re.search(r"^ *1 ", after(shown, "forestay inbox --wait"), re.MULTILINE)


def judge_snakemake(shown: str) -> None:
    assert "exit status 13" in after(shown, "forestay explain")
    assert after(shown, "cat counted.txt").strip() == "3"


def judge_samples(shown: str) -> None:
    """One bad sample, one that needs more memory and one flaky download: 199 of 200 each time."""
    for command in ("forestay run samples.yaml", "forestay run all_samples"):
        seen = after(shown, command)
        assert re.search(r"^[0-9a-f-]{36} completed\nsamples: 199$", seen, re.MULTILINE), seen
        assert re.search(r"^Recovered: align, cause memory; resubmit, by rule ", seen, re.MULTILINE)
        assert re.search(r"^Recovered: \w+, cause transfer; retry, by default policy", seen, re.MULTILINE)
        assert re.search(r"^Job align\[13\] failed: .*\n  \| align: reads.txt:7: malformed record$", seen, re.MULTILINE)
    program = after(shown, "python program.py").splitlines()
    assert "199 samples" in program
    assert "sample 13: malformed record in line 7" in program
