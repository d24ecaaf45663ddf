"""Changes to a run's data: its parameters, and the values that each change replaced."""

from __future__ import annotations

from collections.abc import Mapping

from forestay.domain.flows.execution.flow_run import FlowRun
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import size_of

MAX_DATA = 65_536
"""Bytes of a run's parameters, as at its start; and of the values that changes replaced."""
MAX_FORMER = 100
"""The most changes of a run's parameters whose replaced values are kept."""


def data_refusal(run: FlowRun, changes: Mapping[str, object]) -> str:
    """Why a run's data cannot be changed in this way; empty: it can."""
    if run.plan.grown:
        return "the parameters of a running Python flow cannot be changed"
    unknown = sorted(changes.keys() - run.params.keys())
    if unknown or not changes:
        return f"the run has no parameter {', '.join(unknown)}" if unknown else "nothing would change"
    if size_of({**run.params, **changes}) > MAX_DATA:
        return f"the parameters of the run would be larger than {MAX_DATA} bytes"
    return ""


def set_data(update: RunUpdate, changes: Mapping[str, object]) -> None:
    """Change a run's data; the change has passed `data_refusal`."""
    run = update.run
    former = [*run.former, {name: run.params[name] for name in changes}]
    dropped = run.dropped
    while len(former) > MAX_FORMER or size_of(former) > MAX_DATA:
        del former[0]
        dropped += 1
    update.set(params={**run.params, **changes}, former=tuple(former), dropped=dropped)
