"""Cursors of lists of runs: what was not given out is refused, and never asked of Temporal."""

from __future__ import annotations

import pytest

from forestay.adapters.temporal.flow_engine import run_cursor, run_token
from forestay.ports.errors import Permanent


@pytest.mark.parametrize("token", [b"x", b"", bytes(range(256)) * 8])
def test_a_cursor_gives_back_the_token(token: bytes) -> None:
    assert run_token(run_cursor(token)) == token
    assert run_token(None) is None


@pytest.mark.parametrize(
    "cursor", ["", "0" * 400, "0" * 4000, "x", "é", "=" * 99, "bnVsbA==", run_cursor(b"token")[:-4] + "AAAA"]
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(Permanent, match="invalid cursor"):
        run_token(cursor)
