"""Values of JSON that a store or another reader would refuse are refused at the door."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.apps.server.http.schemas import INT64, storable


@pytest.mark.parametrize("value", [None, True, 0, INT64, -INT64, 1.5e217, "9" * 40, [{"a": [INT64]}], {}])
def test_what_every_store_has_is_taken(value: Any) -> None:
    assert storable(value) == value


@pytest.mark.parametrize("value", [INT64 + 1, -22152680934974672896, [{"a": [2**64]}], {"a": {"b": 2**63}}])
def test_a_number_beyond_64_bits_is_refused_wherever_it_is(value: Any) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        storable(value)
