"""All failures of the matrix, in the order of the stages."""

from __future__ import annotations

from tests.system.matrix import (
    batch_stages,
    early_stages,
    host_stages,
    late_stages,
    refused_stages,
    staging_stages,  # each adds its own to the list
)
from tests.system.matrix.scenario import SCENARIOS, Scenario

__all__ = [
    "SCENARIOS",
    "Scenario",
    "batch_stages",
    "early_stages",
    "host_stages",
    "late_stages",
    "refused_stages",
    "staging_stages",
]
