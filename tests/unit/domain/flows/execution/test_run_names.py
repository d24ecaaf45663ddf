"""Names are UUIDs of version 5: the same for ever, whatever makes them."""

from __future__ import annotations

from uuid import UUID, uuid5

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.flows.execution.run_names import job_of, run_keyed, run_of
from forestay.domain.jobs.job_document import instance_of

SPACE = UUID("6b1f7c52-2b56-5d0e-9a3e-0f6c1c8c1a77")
texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, texts, st.integers(0, 1 << 40))
def test_names_are_those_of_the_standard_library(run: str, work: str, index: int) -> None:
    assert job_of(run, work, index) == str(uuid5(SPACE, f"job:{run}:{work}:{index}"))
    assert run_of(run, work, index) == str(uuid5(SPACE, f"run:{run}:{work}:{index}"))
    assert run_keyed(run, "ada", work) == str(uuid5(SPACE, f"key:{run}:ada:{work}"))


def test_a_round_tells_its_instance_and_a_compensation_its_own_name() -> None:
    assert instance_of("count@3") == ("count", 3)
    assert instance_of("outer@2/1/inner@1") == ("outer@2/1/inner", 1)
    assert instance_of("count@1!2.4") == ("!2", 0)
