"""Cursors of lists of cases: what was not given out is refused, and never asked of Temporal."""

from __future__ import annotations

import pytest

from forestay.adapters.temporal.flow_engine import case_cursor, case_token
from forestay.ports.errors import Permanent


@pytest.mark.parametrize("token", [b"x", b"", bytes(range(256)) * 8])
def test_a_cursor_gives_back_the_token(token: bytes) -> None:
    assert case_token(case_cursor(token)) == token
    assert case_token(None) is None


@pytest.mark.parametrize(
    "cursor", ["", "0" * 400, "0" * 4000, "x", "é", "=" * 99, "bnVsbA==", case_cursor(b"token")[:-4] + "AAAA"]
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(Permanent, match="invalid cursor"):
        case_token(cursor)
