"""Retry policies, budgets and answers by cause: tables of the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.incidents.dispatcher import Dispatcher, RoutedFailure, check_dispatcher, read_way
from forestay.domain.exceptions.incidents.retry_policy import (
    DEFAULT_POLICY,
    MAX_LEVELS,
    MAX_TRIES,
    MAX_WAIT,
    AfterLastLevel,
    Budgets,
    LevelledRetryPolicy,
    RetryLevel,
)
from forestay.domain.playbooks.playbook_check import NAME
from forestay.formats.text.document_fields import duration_of

MAX_RETRY_POLICIES = 100


def _seconds(value: object) -> object:
    return duration_of(value) if isinstance(value, str) else value


class _RetryTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LevelTable(_RetryTable):
    """The number of tries on one level, each after a wait."""

    wait: Annotated[int, BeforeValidator(_seconds), Field(ge=0, le=MAX_WAIT)] = 0
    """Seconds, or a text such as `10 min`."""
    tries: Annotated[int, Field(ge=1, le=MAX_TRIES)] = 1


class RetryPolicyTable(_RetryTable):
    """The levels, and what follows the last: `rollback`, `hold` or `fail`."""

    levels: Annotated[tuple[LevelTable, ...], Field(min_length=1, max_length=MAX_LEVELS)]
    then: AfterLastLevel = AfterLastLevel.ROLLBACK


class BudgetsTable(_RetryTable):
    """Maximum number of retries of a job by retry policies."""

    user: Annotated[int, Field(ge=0, le=MAX_TRIES * MAX_LEVELS)] = 10
    """For all causes charged to the user together."""
    infrastructure: Annotated[int, Field(ge=0, le=MAX_TRIES * MAX_LEVELS)] = 50
    """For all other causes together."""
    causes: dict[Cause, Annotated[int, Field(ge=0, le=MAX_TRIES * MAX_LEVELS)]] = Field(default_factory=dict)
    """For single causes."""

    @property
    def budgets(self) -> Budgets:
        return Budgets(self.user, self.infrastructure, {cause.value: most for cause, most in self.causes.items()})


def retry_policies_of(tables: Mapping[str, RetryPolicyTable]) -> Mapping[str, LevelledRetryPolicy]:
    """All retry policies by name, always including the default. `ValueError` for an invalid name."""
    wrong = [name for name in tables if not NAME.fullmatch(name)]
    if wrong or len(tables) > MAX_RETRY_POLICIES:
        raise ValueError(
            f"{wrong[0]!r} is not a valid name of a retry policy"
            if wrong
            else f"at most {MAX_RETRY_POLICIES} retry policies are allowed"
        )
    retry_policies = {
        name: LevelledRetryPolicy(
            name, tuple(RetryLevel(level.wait, level.tries) for level in table.levels), table.then
        )
        for name, table in tables.items()
    }
    return {DEFAULT_POLICY.name: DEFAULT_POLICY, **retry_policies}


def dispatcher_of(ways: Mapping[str, str], retry_policies: Mapping[str, LevelledRetryPolicy]) -> Dispatcher:
    """The routes of failures without a rule, by cause. `ValueError` lists everything that is invalid."""
    read: dict[str, RoutedFailure] = {}
    wrong: list[str] = []
    for cause, text in ways.items():
        sent = read_way(text)
        if sent is None:
            wrong.append(f"{cause}: {text!r} is none of own, retry [NAME], rollback, hold, fail, dispatch [RETRY]")
        else:
            read[cause] = sent
    dispatcher = Dispatcher(read)
    wrong += [f"{cause}: {words}" for cause, words in check_dispatcher(dispatcher, frozenset(retry_policies))]
    if wrong:
        raise ValueError("; ".join(wrong))
    return dispatcher
