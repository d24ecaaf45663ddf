"""The pilot's clocks."""

from __future__ import annotations

import importlib
import time

import pytest

from forestay_pilot import clock


def test_a_python_that_does_not_name_the_steady_clock_reads_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was built on an old system, as some of Python 3.9 are."""
    expected = clock.steady()
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    try:
        importlib.reload(clock)
        assert expected <= clock.steady() < expected + 60
    finally:
        monkeypatch.undo()
        importlib.reload(clock)
