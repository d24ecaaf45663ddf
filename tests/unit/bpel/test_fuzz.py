"""A short run of the fuzzer; `just fuzz-xml SECONDS` is the long one."""

from __future__ import annotations

from tests.unit.bpel.fuzz import fuzz


def test_nothing_breaks_a_reader() -> None:
    counts, broken = fuzz(4, seed=8)
    assert broken == []
    assert len([name for name in counts if name.endswith(("read", "refused", "changed"))]) >= 6, counts
