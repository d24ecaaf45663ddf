"""Values of JSON that a store or another reader would refuse are refused at the door."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import RunningServer

from forestay.apps.server.http.schemas import INT64, storable


@pytest.mark.parametrize("value", [None, True, 0, INT64, -INT64, 1.5e217, "9" * 40, [{"a": [INT64]}], {}])
def test_what_every_store_has_is_taken(value: Any) -> None:
    assert storable(value) == value


@pytest.mark.parametrize("value", [INT64 + 1, -22152680934974672896, [{"a": [2**64]}], {"a": {"b": 2**63}}])
def test_a_number_beyond_64_bits_is_refused_wherever_it_is(value: Any) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        storable(value)


@pytest.mark.parametrize("value", ["\ud800", [{"a": ["\udfff"]}], {"\ud800": 1}])
def test_half_of_a_surrogate_pair_is_refused_wherever_it_is(value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        storable(value)


@pytest.mark.parametrize(
    "data", ['{"a": "\\ud800"}', '{"a": {"\\ud800": 1}}', '{"\\ud800": 1}', '{"a": 18446744073709551616}']
)
async def test_an_event_that_cannot_be_stored_is_refused(local: RunningServer, tenant: str, data: str) -> None:
    client = local.person("submitter", tenant=tenant)
    headers = {"Content-Type": "application/json"}
    answer = await client.post("/v1/external-events", content=f'{{"event": "M", "data": {data}}}', headers=headers)
    problem(answer, 422)
