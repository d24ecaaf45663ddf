"""The formal model stands for code that exists, and the docs show what the checker found. `just model` runs the checker."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest
from tests.system.model.__main__ import KEPT
from tests.system.model.tlc import Checked, configuration, read_trace, read_value
from tests.system.model.variants import BAD, CHECKS, IN_GATE, INVARIANTS, PROTOCOL_FULL, SMALL, Variant
from tests.system.model.words import ACTIONS, trace

HERE = Path(__file__).parent
MODULES = {path.stem: path.read_text() for path in HERE.glob("*.tla")}
PAGE = KEPT.parent / "model.md"

NAMED = [(module, name) for module, text in MODULES.items() for name in re.findall(r"@stands-for ([\w.]+) +\*\)", text)]


def test_every_line_that_names_code_is_understood() -> None:
    assert len(NAMED) == sum(text.count("(* @stands-for") for text in MODULES.values()) > 20
    assert {module for module, _ in NAMED} == set(CHECKS)


@pytest.mark.parametrize(("module", "name"), NAMED, ids=lambda value: value)
def test_what_the_model_stands_for_exists(module: str, name: str) -> None:
    """A renamed function is renamed in the model too: somebody then reads both."""
    parts = name.split(".")
    first_class = next((place for place, part in enumerate(parts) if part[0].isupper()), len(parts) - 1)
    package = import_module(".".join(parts[:first_class]))
    assert callable(reduce(getattr, parts[first_class:], package)), f"{module}.tla names {name}"


@pytest.mark.parametrize("module", CHECKS)
def test_checks_and_invariants_are_those_of_the_module(module: str) -> None:
    text = MODULES[module]
    constants = text.partition("CONSTANTS")[2].partition("VARIABLES")[0].partition("known-bad variant")[2]
    plain = re.sub(r"\\\*.*", "", constants)
    assert set(re.findall(r"\b[A-Z]\w+\b", plain)) == set(CHECKS[module])
    for name in INVARIANTS[module]:
        assert re.search(rf"^{name} ==", text, re.MULTILINE)


def test_each_check_is_missing_in_a_variant_that_breaks() -> None:
    """A check without which nothing breaks would be no part of the protocol, or the model could not see what it is for."""
    missing = {check for variant in BAD for check in variant.without}
    assert missing == {check for checks in CHECKS.values() for check in checks}


def test_the_bounds_are_those_that_the_page_tells() -> None:
    sizes = [dict(variant.bound.sizes) for variant in PROTOCOL_FULL]
    assert {"Pilots": 3, "Jobs": 2, "Tries": 1, "Faults": 2} in sizes
    assert {variant.name for variant in BAD} >= IN_GATE


@pytest.mark.parametrize("variant", BAD, ids=lambda variant: variant.name)
def test_the_docs_keep_a_trace_of_each_bad_variant(variant: Variant) -> None:
    kept = (KEPT / f"{variant.name}.txt").read_text()
    assert kept.rstrip().endswith(f"Broken: {variant.breaks}.")
    assert f"model/{variant.name}.txt" in PAGE.read_text(), "the page shows it"


def test_no_other_trace_is_kept() -> None:
    assert {path.stem for path in KEPT.glob("*.txt")} == {variant.name for variant in BAD} | {"results"}


def test_the_kept_results_have_every_variant_and_no_surprise() -> None:
    kept = (KEPT / "results.txt").read_text()
    assert "UNEXPECTED" not in kept
    for variant in (*PROTOCOL_FULL, *BAD):
        assert re.search(rf"^{variant.name} +{re.escape(str(variant.bound))} ", kept, re.MULTILINE)


def test_every_action_has_words() -> None:
    for module, text in MODULES.items():
        actions = set(
            re.findall(r"\b([A-Z]\w+)(?:\(\w|$| \\/)", text.partition("\nNext ==")[2].partition("Spec ==")[0])
        )
        assert actions <= ACTIONS.keys(), module
        assert len(actions) > 5


def test_a_value_of_tla_is_read() -> None:
    text = '( j1 :> [state |-> "running", claim |-> <<p1, 1>>, at |-> -1, overlap |-> FALSE] @@ j2 :> {b, a} )'
    assert read_value(text) == {
        "j1": {"state": "running", "claim": ("p1", 1), "at": -1, "overlap": False},
        "j2": ("a", "b"),
    }
    with pytest.raises(ValueError, match="not understood"):
        read_value("1 2")


PRINTED = """
Error: Invariant NothingBroken is violated.
State 1: <Initial predicate>
/\\ lease = (p1 :> TRUE)
/\\ left = 1
/\\ broken = ""

State 2: <Lapse line 1, col 1 to line 2, col 2 of module Claims>
/\\ lease = (p1 :> FALSE)
/\\ left = 0
/\\ broken = "it"

2 states generated
"""


def test_a_trace_tells_what_changed_and_what_broke() -> None:
    variant = Variant("bad", SMALL, ("LeaseIsChecked",), "it")
    checked = Checked(variant, 2, 2, 0.1, "NothingBroken", tuple(read_trace(PRINTED)))
    assert checked.as_expected
    assert checked.verdict == "broken after 1 steps: it"
    lines = trace(checked).splitlines()
    assert lines[2:] == [f"1. {ACTIONS['Lapse']} (Lapse)", "     lease p1 = no", "", "Broken: it."]


def test_a_promise_that_breaks_in_the_protocol_is_no_success() -> None:
    checked = Checked(Variant("protocol", SMALL), 2, 2, 0.1, "NothingBroken", tuple(read_trace(PRINTED)))
    assert not checked.as_expected
    assert checked.verdict.startswith("UNEXPECTED")
    assert not Checked(BAD[0], 2, 2, 0.1, "", ()).as_expected, "a bad variant must be found"


def test_a_configuration_switches_checks_off() -> None:
    lines = configuration(BAD[0]).splitlines()
    assert "  ClaimsCheckVersion = FALSE" in lines
    assert "  ReleasesCheckVersion = TRUE" in lines
    assert "  Pilots = {p1, p2}" in lines
