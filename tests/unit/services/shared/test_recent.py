"""A memory with a bound."""

from __future__ import annotations

import pytest

from forestay.services.shared.recent import Recent


@pytest.mark.finding("F-E")
def test_the_oldest_entry_goes() -> None:
    recent = Recent[str, int](3)
    for number, name in enumerate("abcad"):
        recent[name] = number
    assert dict(recent) == {"c": 2, "a": 3, "d": 4}
    assert recent.get("b") is None
