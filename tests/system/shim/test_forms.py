"""A sample of the forms that `just shim-forms` compares."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.servers import address
from tests.system.shim.forms import Form, Room, forms, neutral

pytestmark = pytest.mark.live

EVERY = list(forms())


def test_there_are_two_hundred_and_no_two_are_the_same() -> None:
    assert len(set(EVERY)) == len(EVERY) >= 200


def test_a_sample_is_equal(tmp_path: Path) -> None:
    address("SLURM_CONF")
    room = Room(tmp_path)
    try:
        assert {str(form): why for form in EVERY[::9] if (why := room.difference(form))} == {}
    finally:
        room.close()


def test_a_difference_is_seen(tmp_path: Path) -> None:
    address("SLURM_CONF")
    room = Room(tmp_path)
    try:
        (tmp_path / "bin" / "squeue").unlink()
        (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\necho something else\n")
        (tmp_path / "bin" / "squeue").chmod(0o755)
        assert "+ something else" in room.difference(Form(("squeue", "-j", "JOB")))
    finally:
        room.close()


def test_ids_and_times_are_no_difference() -> None:
    assert neutral("job 12 at 2026-11-17T21:00:00 of 123", ["12"]) == "job ID at TIME of 123"
