"""Ladders, budgets and ways in the settings file and in the environment, with everything that is wrong told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forestay.apps.config.settings import load
from forestay.domain.exceptions.incidents.dispatcher import FailureRoute, RoutedFailure
from forestay.domain.exceptions.incidents.ladder import HOUSE, AfterLastLevel, RetryLevel
from forestay.ports.errors import Permanent

FILE = """
[ladders.patient]
levels = [{ wait = 0 }, { wait = "10 min", tries = 3 }]
then = "hold"

[ladders.house]
levels = [{ wait = 5 }]

[budgets]
user = 4
causes = { memory = 1 }

[unanswered]
"*" = "dispatch"
network = "ladder patient"
"""


@pytest.mark.ledger("P2-07")
def test_levels_waits_and_limits_are_configuration(tmp_path: Path) -> None:
    assert load({}).ladder_book == {"house": HOUSE}
    (tmp_path / "forestay.toml").write_text(FILE)
    settings = load({"FORESTAY_CONFIG": str(tmp_path / "forestay.toml")})
    patient, house = settings.ladder_book["patient"], settings.ladder_book["house"]
    assert (patient.levels, patient.then) == ((RetryLevel(0), RetryLevel(600, 3)), AfterLastLevel.HOLD)
    assert (house.levels, house.then) == ((RetryLevel(5),), AfterLastLevel.ROLLBACK)
    assert (settings.budgets.budgets.user, settings.budgets.budgets.causes) == (4, {"memory": 1})
    assert settings.dispatcher.ways == {
        "*": RoutedFailure(FailureRoute.DISPATCH),
        "network": RoutedFailure(FailureRoute.LADDER, "patient"),
    }
    told = {"FORESTAY_UNANSWERED": json.dumps({"disk": "hold"}), "FORESTAY_CONFIG": str(tmp_path / "forestay.toml")}
    assert load(told).dispatcher.ways == {"disk": RoutedFailure(FailureRoute.HOLD)}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ladders", {"short": {"levels": []}}, "ladders.short.levels"),
        ("ladders", {"short": {"levels": [{"wait": "soon"}]}}, "ladders.short.levels.0.wait"),
        ("ladders", {"short": {"levels": [{"wait": 1, "tries": 0}], "then": "pray"}}, "ladders.short.then"),
        ("ladders", {"no name": {"levels": [{}]}}, "is not a valid name of a retry policy"),
        ("budgets", {"causes": {"weather": 1}}, "budgets.causes.weather"),
        (
            "unanswered",
            {"memory": "ladder tall", "weather": "hold"},
            "there is no retry policy 'tall'; weather: there is no such cause",
        ),
        ("unanswered", {"memory": "climb"}, "'climb' is none of own, ladder"),
    ],
)
def test_everything_that_is_wrong_is_told(name: str, value: object, said: str) -> None:
    with pytest.raises(Permanent, match="invalid settings") as refused:
        load({f"FORESTAY_{name.upper()}": json.dumps(value)})
    assert said in str(refused.value)
    with pytest.raises(Permanent, match="is not valid JSON"):
        load({f"FORESTAY_{name.upper()}": "{"})
