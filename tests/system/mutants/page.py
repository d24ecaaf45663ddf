"""The kept outcomes of mutants, and the page of the docs that says which of them no test noticed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
KEPT = Path(__file__).with_name("outcomes.json")
EQUIVALENTS = Path(__file__).with_name("equivalents.json")
PAGE = ROOT / "docs" / "reference" / "mutants.md"
GOAL = 0.92


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault."""

    promise: str
    file: str
    line: int
    operator: str
    before: str
    after: str
    by: str
    """The test that noticed it; empty: none did."""
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.operator} {self.before} -> {self.after}"


def read() -> dict[str, Outcome]:
    outcomes = [Outcome(**fields) for fields in json.loads(KEPT.read_text())["outcomes"]]
    return {outcome.name: outcome for outcome in outcomes}


def write(outcomes: dict[str, Outcome], commit: str, sampled: int) -> None:
    kept = {"commit": commit, "sampled": sampled, "outcomes": [asdict(outcome) for outcome in list(outcomes.values())]}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")


def equivalents() -> dict[str, str]:
    """Changes that are no fault, by their text in the file, with the reason."""
    kept: dict[str, str] = json.loads(EQUIVALENTS.read_text()) if EQUIVALENTS.exists() else {}
    return kept


def key(outcome: Outcome) -> str:
    """Without the line, which moves."""
    return f"{outcome.file}: {outcome.before} -> {outcome.after}"


def page(outcomes: Sequence[Outcome]) -> str:
    kept = json.loads(KEPT.read_text())
    same = equivalents()
    real = [outcome for outcome in outcomes if outcome.by or key(outcome) not in same]
    killed = sum(bool(outcome.by) for outcome in real)
    share = killed / max(1, len(real))
    lines = [
        "# Mutants",
        "",
        "<!-- Written by tests/system/mutants; `just mutants` writes it again. -->",
        "",
        (
            "Do the tests notice when the code that keeps the promises is wrong? `just mutants` puts small faults into it, one at a time: a comparison the other way round, a condition negated, a call left out, a number off by one. The tests of the "
            "changed file run; if none fails, nobody would have noticed. The sample is seeded, takes each promise in turn, and is run in clones of one commit. Tests on real servers do not run here, so a survivor may be noticed by one of them."
        ),
        "",
        (
            f"With the sources of commit {kept['commit']}, {len(outcomes)} of {kept['sampled']} in the sample were tried: {len(outcomes) - len(real)} are no fault, and of the other {len(real)} the tests noticed **{killed}, {100 * share:.1f} %** "
            f"(goal {100 * GOAL:.0f} %: {'reached' if share >= GOAL and len(outcomes) == kept['sampled'] else 'reached by those that were tried' if share >= GOAL else 'missed'})."
        ),
        "",
        "| promise | files | tried | noticed | no fault | survived |",
        "| --- | --- | --: | --: | --: | --: |",
    ]
    for promise in dict.fromkeys(outcome.promise for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.promise == promise]
        files = ", ".join(f"`{Path(file).stem}`" for file in sorted({outcome.file for outcome in own}))
        noticed, none = (
            sum(bool(outcome.by) for outcome in own),
            sum(not outcome.by and key(outcome) in same for outcome in own),
        )
        lines.append(f"| {promise} | {files} | {len(own)} | {noticed} | {none} | {len(own) - noticed - none} |")
    lines += ["", "## Survivors", ""]
    survivors = sorted(
        (outcome for outcome in real if not outcome.by), key=lambda outcome: (outcome.file, outcome.line)
    )
    if survivors:
        lines += ["| where | what it says | what it said with the fault |", "| --- | --- | --- |"]
    lines += [
        f"| `{outcome.file.removeprefix('src/')}:{outcome.line}` | {_code(outcome.before)} | {_code(outcome.after)} |"
        for outcome in survivors
    ]
    lines += ["", "## No faults", "", "With these changes the code does the same.", ""]
    none_at_all = [outcome for outcome in outcomes if not outcome.by and key(outcome) in same]
    if none_at_all:
        lines += ["| where | change | why it is none |", "| --- | --- | --- |"]
    lines += [
        f"| `{outcome.file.removeprefix('src/')}:{outcome.line}` | {_code(outcome.before)} → {_code(outcome.after)} | {same[key(outcome)]} |"
        for outcome in sorted(none_at_all, key=lambda outcome: (outcome.file, outcome.line))
    ]
    return "\n".join(lines).rstrip() + "\n"


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"
