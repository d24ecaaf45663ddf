"""Every pattern that comes with Forestay is tried on its own fixtures, beside all others."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from tests.unit.packs.shipped import classifier, pattern_names

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.evidence.evidence import Evidence, Scheduler
from forestay.formats.rules.pack_folder import shipped_packs
from forestay.formats.rules.pack_yaml import PackPattern, failed_fixtures


@cache
def patterns() -> dict[str, PackPattern]:
    return {entry.pattern.name: entry for entry in shipped_packs().patterns}


def test_nothing_is_wrong_with_any_pack() -> None:
    assert [f"{file}:{problem}" for file, problem in shipped_packs().problems] == []


def test_every_name_stands_once() -> None:
    names = Counter(entry.pattern.name for entry in shipped_packs().patterns)
    assert [name for name, times in names.items() if times > 1] == []


def test_every_pattern_is_tried() -> None:
    assert sorted(pattern_names()) == sorted(patterns())


@pytest.mark.parametrize("name", pattern_names())
def test_a_pattern_on_its_fixtures(name: str) -> None:
    entry = patterns()[name]
    assert entry.fixtures.matches
    assert entry.fixtures.passes
    assert failed_fixtures(entry, classifier()) == []


def test_what_slurm_itself_calls_out_of_memory_is_that_for_sure() -> None:
    """Rules act on what is sure. Kubernetes says OutOfmemory, too, of a node that has no room for a pod."""
    log = "slurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=59528.batch."
    seen = Evidence(
        scheduler=Scheduler.SLURM,
        scheduler_state="OUT_OF_MEMORY",
        scheduler_reason="OutOfMemory",
        signal=125,
        log_tail=(log,),
    )
    finding = classifier().classify(seen)
    assert finding.cause is Cause.MEMORY
    assert finding.confidence >= 0.9
