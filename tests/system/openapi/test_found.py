"""What requests made from the description have found, kept as it was found."""

from __future__ import annotations

import pytest
from tests.system.openapi.ground import Ground

pytestmark = pytest.mark.live


@pytest.mark.parametrize("cursor", ["0" * 400, "0" * 4000])
def test_a_cursor_that_only_looks_like_one_is_refused(there: Ground, cursor: str) -> None:
    """Temporal was asked with it, said that something went wrong, and the answer was 503."""
    with there.client("viewer") as ada:
        answer = ada.get("/v1/runs", params={"cursor": cursor, "name": "again"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["detail"] == "invalid cursor"
