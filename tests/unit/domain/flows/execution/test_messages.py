"""Events and commands survive being carried as JSON."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.flows.generated import PARAMS, fates, flows
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import CloseQuestion, QuestionOutcome, RunOutcome, StartShard, WorkOrder
from forestay.domain.flows.definition.flow import Flow
from forestay.domain.flows.events import JobsEnded, VerbKind
from forestay.domain.flows.execution.messages import (
    Message,
    as_plain,
    command_from_plain,
    event_from_plain,
    from_plain,
)

TEXT = st.text(max_size=8)
COUNT = st.integers(0, 10_000)
JSON = st.none() | st.booleans() | COUNT | TEXT | st.lists(COUNT, max_size=2)
MAPS = st.dictionaries(TEXT, JSON, max_size=2)
ORDERS = st.builds(
    WorkOrder, TEXT, TEXT, TEXT, st.booleans(), st.lists(COUNT, max_size=2).map(tuple),
    st.dictionaries(TEXT, TEXT, max_size=1), MAPS, MAPS,
)  # fmt: skip
BY_NAME = {
    "order": ORDERS,
    "kind": st.sampled_from(VerbKind),
    "outcome": st.sampled_from(RunOutcome),
    "verb": MAPS,
    "holders": st.lists(TEXT, max_size=2).map(tuple),
    "works": st.lists(TEXT, max_size=2).map(tuple),
    "result": JSON,
}
BY_TYPE = {
    "int": COUNT,
    "str": TEXT,
    "bool": st.booleans(),
    "object": JSON,
    "int | None": st.none() | COUNT,
    "Mapping[str, object]": MAPS,
    "Mapping[str, object] | None": st.none() | MAPS,
    "tuple[str, ...]": st.lists(TEXT, max_size=2).map(tuple),
}


def messages() -> st.SearchStrategy[Any]:
    return st.one_of([message_of(kind) for kind in get_args(Message)])


def message_of(kind: type) -> st.SearchStrategy[Any]:
    made = {}
    for name, dataclass_field in kind.__dataclass_fields__.items():  # type: ignore[attr-defined]
        if (
            name in BY_NAME
            and not (name == "kind" and dataclass_field.type == "str")
            and not (name == "verb" and dataclass_field.type == "str")
        ):
            made[name] = BY_NAME[name]
        else:
            made[name] = BY_TYPE[str(dataclass_field.type)]
    if kind is CloseQuestion:
        made["outcome"] = st.sampled_from(QuestionOutcome)
    return st.builds(kind, **made)


@given(messages())
def test_every_message_is_read_back_as_it_was(message: Message) -> None:
    assert from_plain(json.loads(json.dumps(as_plain(message)))) == message


@settings(max_examples=examples(50))
@given(flows(), st.integers(0, 2**32), PARAMS)
def test_what_a_run_says_and_hears_is_read_back(flow: Flow, seed: int, params: dict[str, object]) -> None:
    world = World(flow, seed=seed, fate=fates(seed, 20), params=params).run_out()
    for command in world.commands:
        assert command_from_plain(json.loads(json.dumps(as_plain(command)))) == command
    for event in world.sent:
        assert event_from_plain(json.loads(json.dumps(as_plain(event)))) == event


def test_a_full_batch_is_small() -> None:
    assert len(json.dumps(as_plain(JobsEnded(1, "a@1", well=(1 << 5000) - 1)))) < 1400
    order = WorkOrder("a@1", "a", "a", sizes=(1_000_000,))
    assert len(json.dumps(as_plain(StartShard(order, 3, 15_000, 5000)))) < 200


@pytest.mark.parametrize("data", [{}, {"type": "Nothing"}, {"type": "WorkOrder"}])
def test_what_is_no_message_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a message"):
        from_plain(data)
