"""What several live tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.live.own_slurm import OwnSlurm


@pytest.fixture(scope="session")
def own_slurm() -> Iterator[OwnSlurm]:
    """A Slurm that these tests may kill; not in pytest's folders, which another run may clear away."""
    with TemporaryDirectory(prefix="forestay-slurm-", ignore_cleanup_errors=True) as folder:
        slurm = OwnSlurm(Path(folder))
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.order("stop")
