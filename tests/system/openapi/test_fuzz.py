"""A few cases for every operation of the description; `just openapi-fuzz` sends ten thousand and more."""

from __future__ import annotations

import asyncio
import json

import pytest
from scripts import openapi
from tests.system.openapi.campaign import campaign
from tests.system.openapi.ground import Ground

pytestmark = pytest.mark.live
MOST_SECONDS = 25.0


async def test_no_answer_is_a_server_error_or_one_that_is_not_described(there: Ground) -> None:
    api = json.loads(openapi.described())
    outcome = await asyncio.to_thread(campaign, there, api, cases=500, most_seconds=MOST_SECONDS)
    assert outcome.broken == {}
    assert outcome.server_errors == 0
    assert outcome.cases > 0
    assert outcome.reached, "some must get past the door"
    assert "Traceback" not in there.log
