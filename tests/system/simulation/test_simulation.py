"""The claim protocol under random schedules, at a size for every day; `just sim` is the full one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sizes import examples
from tests.system.simulation.campaign import Campaign, kept_seeds, run_campaign
from tests.system.simulation.world import run_schedule

SCHEDULES = max(70, examples(150))
"""Fewer do not meet every kind of fault."""


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return run_campaign(range(SCHEDULES), jobs=os.cpu_count() or 1)


@pytest.mark.parametrize("seed", kept_seeds())
def test_a_schedule_that_failed_once_holds_now(seed: int) -> None:
    assert run_schedule(seed).violations == []


@pytest.mark.ledger("P4-02", "P4-03", "P4-14")
def test_no_promise_is_broken(campaign: Campaign) -> None:
    broken = {report.seed: report.violations for report in campaign.failed}
    assert not broken, "again: python -m tests.system.simulation --seed SEED"
    assert campaign.schedules == SCHEDULES


def test_every_fault_really_happened(campaign: Campaign) -> None:
    assert campaign.missing == []
    assert campaign.tally["extra attempt"] > 0
    assert campaign.tally["end superseded"] > 0
    assert campaign.tally["end held"] > 0


def test_the_naive_protocol_is_caught_under_the_same_schedules(campaign: Campaign) -> None:
    assert campaign.naive[""] >= SCHEDULES // 30
    for kind in ("I2 start without a claim", "I6 start not in the story", "end told committed does not exist"):
        assert campaign.naive[kind] > 0, kind


def test_a_schedule_is_the_same_wherever_it_is_run() -> None:
    """Also under another order of sets and dictionaries: a seed that fails must fail again."""
    digests = {_digest(hash_seed) for hash_seed in ("1", "2")}
    assert len(digests) == 1


def _digest(hash_seed: str) -> str:
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [sys.executable, "-m", "tests.system.simulation", "--seed", "25"],
        cwd=root,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.splitlines()[-1]
