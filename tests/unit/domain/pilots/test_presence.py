"""How many pilots there were at times past."""

from __future__ import annotations

from tests.contract.examples import pilot

from forestay.domain.pilots.pilot import PilotState
from forestay.domain.pilots.presence import presence

ENDS = [10, 20, 30]


def test_a_pilot_counts_from_its_registration_until_it_left() -> None:
    past = presence(
        [
            pilot("early", registered=1, slots=2),
            pilot("between", registered=10, state=PilotState.GONE, changed=25, slots=3),
            pilot("short", registered=11, state=PilotState.SILENT, changed=19),
            pilot("later", registered=31),
            pilot("elsewhere", registered=25, site="other"),
        ],
        ENDS,
    )
    assert past["site"].pilots == [2, 2, 1]
    assert past["site"].slots == [5, 5, 2]
    assert past["site"].cpus == [8, 8, 4]
    assert past["other"].pilots == [0, 0, 1]


def test_without_pilots_there_is_nothing() -> None:
    assert presence([], ENDS) == {}
