"""The table of the hostile campaign names only tests that there are, and its page is of this table."""

from __future__ import annotations

import pytest
from tests.system.hostile.__main__ import PAGE, kept, page
from tests.system.hostile.table import TRIES, Try
from tests.system.named_tests import is_there

EVERY = [trial for group in TRIES.values() for trial in group]


@pytest.mark.parametrize("trial", EVERY, ids=lambda trial: trial.what)
def test_what_a_try_names_is_there(trial: Try) -> None:
    for test in trial.tests:
        assert is_there(test), test


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(kept()), "run `just hostile --page`"
