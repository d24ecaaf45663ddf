"""A Slurm that tests of engines may take apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.live.own_slurm import OwnSlurm

SILENCE = 9
"""Seconds after which it gives up a node that does not answer."""


@pytest.fixture(scope="session")
def fragile_slurm() -> Iterator[OwnSlurm]:
    """Not in pytest's folders, which another run may clear away."""
    with TemporaryDirectory(prefix="fs-slurm-", ignore_cleanup_errors=True) as folder:
        slurm = OwnSlurm(Path(folder))
        try:
            slurm.start("--silence", str(SILENCE))
            yield slurm
        finally:
            slurm.order("stop")
