"""Which jobs wait in vain for one that failed, by Slurm's words."""

from __future__ import annotations

import pytest

from forestay.adapters.slurm.steering import is_given_up, read_elements, without_array
from forestay.domain.sites.watched_job import ArrayReading


@pytest.mark.parametrize(
    ("dependent", "wanted", "job", "given_up"),
    [
        ("20", "afterok:12(failed)", "12", True),
        ("20", "afterany:9(unfulfilled),afterok:12(failed)", "12", True),
        ("20", "afterok:12(unfulfilled)", "12", False),
        ("20", "afterok:112(failed)", "12", False),
        ("20", "afterok:12_2(failed)", "12_2", True),
        ("20", "afterok:12_2(failed)", "12_22", False),
        ("20", "afterok:12_*(failed)", "12_2", False),
        ("20_2", "aftercorr:12_*(failed)", "12_2", True),
        ("20_3", "aftercorr:12_*(failed)", "12_2", False),
    ],
)
def test_who_waits_in_vain(dependent: str, wanted: str, job: str, given_up: bool) -> None:
    assert is_given_up(dependent, wanted, job) is given_up


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ("afterok:12_*(failed)", ""),
        ("afterok:12_*(failed),afterany:9_*(unfulfilled)", "afterany:9"),
        ("afterok:12_*(failed)?afterok:9(failed)", ""),
        ("afterok:9(failed),afterany:12_*(unfulfilled)", "afterok:9(failed),afterany:12_*(unfulfilled)"),
    ],
)
def test_what_is_left_to_wait_for(wanted: str, left: str) -> None:
    assert without_array(wanted, "12") == left


def test_an_array_is_stuck_only_if_nothing_of_it_can_start() -> None:
    never = "12|0-3|0|DependencyNeverSatisfied|PENDING\n"
    assert read_elements(["12"], never, "") == {"12": ArrayReading(frozenset(), frozenset(), True, True)}
    assert not read_elements(["12"], f"{never}12|4|0|None|RUNNING\n", "")["12"].stuck
    failed = "12|4|0|NonZeroExitCode|FAILED\n12|5|1|None|PENDING\n13|1|0|None|FAILED\n"
    assert read_elements(["12"], failed, "12_4\n12_5\n12_6\n12_[7-9]\n") == {
        "12": ArrayReading(frozenset({"12_4", "12_6"}), frozenset({"12_5"}), True, False)
    }
    assert read_elements(["12"], "", "") == {"12": ArrayReading(frozenset(), frozenset(), False, False)}
