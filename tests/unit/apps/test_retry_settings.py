"""Retry policies, budgets and ways in the settings file and in the environment, with everything that is wrong told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forestay.apps.config.settings import load
from forestay.domain.exceptions.incidents.dispatcher import FailureRoute, RoutedFailure
from forestay.domain.exceptions.incidents.retry_policy import DEFAULT_POLICY, AfterLastLevel, RetryLevel
from forestay.ports.errors import Permanent

FILE = """
[retry_policies.patient]
levels = [{ wait = 0 }, { wait = "10 min", tries = 3 }]
then = "hold"

[retry_policies.default]
levels = [{ wait = 5 }]

[budgets]
user = 4
causes = { memory = 1 }

[unanswered]
"*" = "dispatch"
network = "retry patient"
"""


@pytest.mark.ledger("P2-07")
def test_levels_waits_and_limits_are_configuration(tmp_path: Path) -> None:
    assert load({}).retry_policy_table == {"default": DEFAULT_POLICY}
    (tmp_path / "forestay.toml").write_text(FILE)
    settings = load({"FORESTAY_CONFIG": str(tmp_path / "forestay.toml")})
    patient, scenario = settings.retry_policy_table["patient"], settings.retry_policy_table["default"]
    assert (patient.levels, patient.then) == ((RetryLevel(0), RetryLevel(600, 3)), AfterLastLevel.HOLD)
    assert (scenario.levels, scenario.then) == ((RetryLevel(5),), AfterLastLevel.ROLLBACK)
    assert (settings.budgets.budgets.user, settings.budgets.budgets.causes) == (4, {"memory": 1})
    assert settings.dispatcher.ways == {
        "*": RoutedFailure(FailureRoute.DISPATCH),
        "network": RoutedFailure(FailureRoute.RETRY, "patient"),
    }
    environment = {
        "FORESTAY_UNANSWERED": json.dumps({"disk": "hold"}),
        "FORESTAY_CONFIG": str(tmp_path / "forestay.toml"),
    }
    assert load(environment).dispatcher.ways == {"disk": RoutedFailure(FailureRoute.HOLD)}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retry_policies", {"short": {"levels": []}}, "retry_policies.short.levels"),
        ("retry_policies", {"short": {"levels": [{"wait": "soon"}]}}, "retry_policies.short.levels.0.wait"),
        (
            "retry_policies",
            {"short": {"levels": [{"wait": 1, "tries": 0}], "then": "pray"}},
            "retry_policies.short.then",
        ),
        ("retry_policies", {"no name": {"levels": [{}]}}, "is not a valid name of a retry policy"),
        ("budgets", {"causes": {"weather": 1}}, "budgets.causes.weather"),
        (
            "unanswered",
            {"memory": "retry tall", "weather": "hold"},
            "there is no retry policy 'tall'; weather: there is no such cause",
        ),
        ("unanswered", {"memory": "climb"}, "'climb' is none of own, retry"),
    ],
)
def test_everything_that_is_wrong_is_told(name: str, value: object, text: str) -> None:
    with pytest.raises(Permanent, match="invalid settings") as refused:
        load({f"FORESTAY_{name.upper()}": json.dumps(value)})
    assert text in str(refused.value)
    with pytest.raises(Permanent, match="is not valid JSON"):
        load({f"FORESTAY_{name.upper()}": "{"})
