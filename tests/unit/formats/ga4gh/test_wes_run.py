"""Requests and states of the Workflow Execution Service."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.apps.server.flows.run_routes import RunState
from forestay.formats.ga4gh.wes_run import (
    ENDED,
    OBJECTS,
    RUN_STATES,
    TEXTS,
    WesRunState,
    read_request,
    request_from_json,
    state_of,
    with_places,
)

GOOD = {"workflow_type": "FORESTAY", "workflow_type_version": "1", "workflow_url": "flow.yaml"}
OVER = {"finished", "completed", "forced_complete", "failed", "removed", "undone", "terminated", "broken"}


def test_every_state_of_a_run_is_one_of_a_run() -> None:
    assert set(RUN_STATES) == set(get_args(RunState))
    for run in RUN_STATES:
        for cancelled in (False, True):
            state = state_of(run, cancelled=cancelled)
            assert state is not WesRunState.UNKNOWN
            assert (state in ENDED) == (run in OVER), run
    assert state_of("something new") is WesRunState.UNKNOWN


@pytest.mark.parametrize("run", ["suspended", "held", "asking", "stopping", "compensating"])
def test_a_run_that_is_held_or_undone_runs_to_its_client(run: str) -> None:
    """A client that knows QUEUED, INITIALIZING and RUNNING alone as not ended goes on waiting."""
    assert state_of(run) is WesRunState.RUNNING
    assert state_of(run, cancelled=True) is WesRunState.CANCELING


def test_the_states_that_clients_do_not_understand_are_not_there() -> None:
    assert not {"PAUSED", "PREEMPTED"} & {state.value for state in WesRunState}


def test_a_request_is_read_and_written_again() -> None:
    fields = GOOD | {"workflow_params": '{"a": [1, {"b": null}]}', "tags": '{"t": "1"}', "workflow_engine": "forestay"}
    request, wrong = read_request(fields)
    assert wrong == ()
    assert request is not None
    assert request_from_json(request.as_json()) == request
    assert request.params == {"a": [1, {"b": None}]}


def test_everything_wrong_is_said_at_once() -> None:
    fields = {"workflow_params": "[", "tags": '{"a": 1}', "workflow_engine_version": "1", "other": "x"}
    request, wrong = read_request(fields)
    assert request is None
    assert {error.at for error in wrong} == {*GOOD, "workflow_params", "tags.a", "workflow_engine", "other"}


@given(st.dictionaries(st.sampled_from([*TEXTS, *OBJECTS, "other"]), st.text(max_size=50)))
def test_any_form_is_a_request_or_has_something_wrong(fields: dict[str, str]) -> None:
    request, wrong = read_request(fields)
    assert (request is None) == bool(wrong)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", "b/c", "other"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(_JSON)
def test_only_names_of_attachments_are_replaced(value: object) -> None:
    entry = with_places(value, {"a": "/at/a", "b/c": "/at/b/c"})
    back = json.dumps(entry).replace('"/at/a"', '"a"').replace('"/at/b/c"', '"b/c"')
    keys_alone = with_places(value, {})
    assert json.loads(back) == json.loads(json.dumps(keys_alone))
    assert keys_alone == json.loads(json.dumps(value))
