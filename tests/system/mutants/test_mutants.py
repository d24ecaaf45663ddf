"""The faults that are put into files, and the page that says which of them no test noticed."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from tests.system.mutants import page as pages
from tests.system.mutants.__main__ import ROOT, noticed, sample
from tests.system.mutants.operators import Mutant, mutants, mutated
from tests.system.mutants.page import KEPT, PAGE, Outcome, page, read
from tests.system.mutants.targets import TARGETS, UNIT

SOURCE = """
from __future__ import annotations
LIMIT = 3

@dataclass(frozen=True)
class Bucket:
    \"\"\"Of tokens.\"\"\"
    size: int = 5

def take(held: int, wanted: int = 1, *, force: bool = False) -> int | None:
    \"\"\"What is left.\"\"\"
    logger.info("asked for %s", 7)
    if held < wanted and not force:
        raise ValueError(held)
    note(held)
    return held - wanted
"""


def changes() -> list[tuple[str, str, str]]:
    return [(mutant.operator, mutant.before, mutant.after) for mutant in mutants("a.py", SOURCE)]


def test_each_kind_of_fault_is_found() -> None:
    assert ("compare", "held < wanted", "held <= wanted") in changes()
    assert ("and-or", "held < wanted and (not force)", "held < wanted or not force") in changes()
    assert ("not", "not force", "force") in changes()
    assert ("arithmetic", "held - wanted", "held + wanted") in changes()
    assert ("leave out", "raise ValueError(held)", "pass") in changes()
    assert ("leave out", "note(held)", "pass") in changes()
    assert ("return", "return held - wanted", "return None") in changes()


def test_what_is_no_behaviour_is_left_alone() -> None:
    """Types, docstrings, decorators, logging, and what a module does when it is imported."""
    assert not any(
        word in text
        for _, text, _ in changes()
        for word in ("logger", "LIMIT", "Bucket", "int", "frozen", "What is left")
    )


@pytest.mark.parametrize("mutant", mutants("a.py", SOURCE), ids=lambda mutant: f"{mutant.number} {mutant.operator}")
def test_every_fault_is_another_program_that_can_be_read(mutant: Mutant) -> None:
    changed = mutated(SOURCE, mutant.number)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE))


def test_only_the_named_functions_are_taken() -> None:
    other = SOURCE + "\ndef other(a: int) -> int:\n    return a + 1\n"
    found = mutants("a.py", other, frozenset({"other"}))
    assert {mutant.line for mutant in found} == {other.splitlines().index("    return a + 1") + 1}
    assert mutated(other, found[0].number) != mutated(SOURCE, 0)


def test_the_sample_is_seeded_and_takes_every_promise() -> None:
    chosen = sample(ROOT, 7, 66)
    assert [mutant.name for _, mutant in chosen] == [mutant.name for _, mutant in sample(ROOT, 7, 66)]
    assert [mutant.name for _, mutant in chosen] != [mutant.name for _, mutant in sample(ROOT, 8, 66)]
    promises = [target.promise for target, _ in chosen]
    assert {promises.count(promise) for promise in set(promises)} == {6}
    assert set(promises) == {target.promise for target in TARGETS}


def test_every_target_and_its_tests_are_there() -> None:
    for target in TARGETS:
        source = (ROOT / target.file).read_text()
        assert mutants(target.file, source, target.functions), target.file
        assert all((ROOT / UNIT / name).exists() for name in (*target.near, *target.far)), target.file


def test_a_fault_is_noticed_by_the_test_that_fails(tmp_path: Path) -> None:
    """The whole way: pytest in a folder, with a test that fails and one that does not."""
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    (folder / "test_good.py").write_text("def test_it(): pass\n")
    bad = "import pytest\n@pytest.mark.parametrize('a', [1])\ndef test_it(a): assert False\n"
    (folder / "test_bad.py").write_text(bad)
    assert noticed(tmp_path, ["test_good.py"])[0] == "passed"
    assert noticed(tmp_path, ["test_good.py", "test_bad.py"])[0] == "tests/unit/test_bad.py::test_it"


def test_the_page_is_what_was_kept() -> None:
    assert PAGE.read_text() == page(list(read().values())), "run `just mutants --page`"


def test_survivors_are_listed_and_what_is_no_fault_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome(line: int, by: str) -> Outcome:
        return Outcome("claims", "src/a.py", line, "compare", f"a < {line}", f"a <= {line}", by, 1.0)

    monkeypatch.setattr(pages, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(pages, "EQUIVALENTS", tmp_path / "same.json")
    outcomes = [outcome(1, "test_a.py::test_it"), outcome(2, ""), outcome(3, "")]
    pages.write({each.name: each for each in outcomes}, "abc", 400)
    (tmp_path / "same.json").write_text(json.dumps({"src/a.py: a < 3 -> a <= 3": "never equal"}))
    text = page(outcomes)
    assert (
        "3 of 400 in the sample were tried: 1 are no fault, and of the other 2 the tests noticed **1, 50.0 %** (goal 92 %: missed)"
        in text
    )
    assert "| `a.py:2` | `a < 2` | `a <= 2` |" in text
    assert "| `a.py:3` | `a < 3` → `a <= 3` | never equal |" in text
    assert "| claims | `a` | 3 | 1 | 1 | 1 |" in text


def test_kept_equivalents_are_in_the_sources() -> None:
    for name in pages.equivalents():
        file = name.partition(": ")[0]
        source = (ROOT / file).read_text()
        assert name in {f"{file}: {mutant.before} -> {mutant.after}" for mutant in mutants(file, source)}, name


def test_what_was_kept_is_of_these_promises() -> None:
    assert KEPT.exists()
    assert {outcome.promise for outcome in read().values()} <= {target.promise for target in TARGETS}
