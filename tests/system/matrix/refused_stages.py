"""Calls that are refused: nothing comes to be of them, and the submitter is told at once what is wrong."""

from __future__ import annotations

from tests.system.matrix.room import Plan, Room
from tests.system.matrix.scenario import scenario

from forestay.client.api.schemas import SpecificationJson


@scenario(
    "no right",
    "submission",
    "the submitter's token does not allow submission",
    "refused, no job is created; submitted again after permission is granted",
)
def no_right_to_submit(room: Room) -> Plan:
    room.host()
    if room.failing:
        room.speak_as("viewer")

    def again() -> SpecificationJson:
        room.speak_as("submitter")
        return room.spec()

    return Plan(room.spec(), attempts=1, again=again)


@scenario(
    "bad input",
    "submission",
    "the specification names outputs outside the job's folder and an input from nowhere",
    "refused with every error and its position, no job is created; submitted again, corrected",
)
def bad_specification(room: Room) -> Plan:
    room.host()
    wrong = room.spec(outputs=["../made"], inputs=[{"name": "x", "source": "nowhere"}])
    return Plan(wrong if room.failing else room.spec(), attempts=1, again=room.spec)
