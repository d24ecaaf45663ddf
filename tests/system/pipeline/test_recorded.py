"""Failures and exceptions are answered as recorded: the same decisions, permits, audit entries and writes, in the same order for each."""

from __future__ import annotations

import pytest
from tests.system.pipeline.kept import WAYS, campaign_lines, differences, digests, kept_digests

FAILURES = 100
"""The whole campaign has 10,000: `just pipeline`."""


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_is_what_was_recorded(way: str) -> None:
    written = campaign_lines(failures=FAILURES, engine=WAYS[way])
    assert differences({way: kept_digests(FAILURES)[way]}, {way: digests(written)}) == [], (
        "compare with `just pipeline compare --failures 100 --lines FOLDER`"
    )
