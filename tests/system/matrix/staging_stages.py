"""Failures on the way of files to and from storage elements, and of those who carry them: each a real one, with what fixes it."""

from __future__ import annotations

import os
import signal

from tests.system.matrix.room import Plan, Room
from tests.system.matrix.scenario import GOOD, RESTAGE, person, scenario
from tests.system.matrix.site import ELEMENT_SITE, until
from tests.unit.pilot.storage_server import Failure


@scenario(
    "preempted",
    "staging in",
    "SIGTERM to the host, twice, while it reads an input",
    "returned; another host takes it",
)
def preempted_at_staging(room: Room) -> Plan:
    storage = room.site.element
    (storage.folder / room.tenant).write_bytes(GOOD)
    first = room.host("first")
    if room.failing:
        storage.failures = [Failure(delay=3.0)]

    def meanwhile() -> None:
        if room.failing:
            until(lambda: any(room.tenant in path for _, path, _ in storage.asked), "the input to be asked for")
            room.host("second")
            os.kill(first.started.process.pid, signal.SIGTERM)
            until(lambda: "draining" in first.log.read_text(), "the first signal to be seen")
            os.kill(first.started.process.pid, signal.SIGTERM)

    return Plan(room.spec(inputs=[{"name": "x", "source": f"{storage.url}/{room.tenant}"}]), meanwhile=meanwhile)


@scenario(
    "server lost",
    "staging in",
    "kill -9 of the server while an input is transferred; another is started",
    "the pilot continues the transfer; its reports wait",
)
def server_lost_at_staging(room: Room) -> Plan:
    storage = room.site.element
    (storage.folder / room.tenant).write_bytes(GOOD)
    room.host()
    if room.failing:
        storage.failures = [Failure(delay=2.0)]

    def meanwhile() -> None:
        room.state("running", "completed")
        if room.failing:
            until(lambda: any(room.tenant in path for _, path, _ in storage.asked), "the input to be asked for")
            room.site.lose_server()
            room.site.start_server()

    fields = {"name": "x", "source": f"{storage.url}/{room.tenant}"}
    return Plan(room.spec(inputs=[fields]), meanwhile=meanwhile, attempts=1, twice=True)


@scenario(
    "transfer",
    "staging out",
    "the storage element returns 503 for every try of the first attempt",
    "re-stage, same source and parameters, by a rule",
)
def transfer_at_staging_out(room: Room) -> Plan:
    room.rule("transfer", RESTAGE)
    room.host(site=ELEMENT_SITE)
    storage = room.site.element
    if room.failing:
        storage.failures = [Failure(status=503)] * 100

    def meanwhile() -> None:
        if room.failing:
            room.incident()
            storage.failures = []

    return Plan(room.spec(), meanwhile=meanwhile, attempts=2, twice=True, cause="transfer")


@scenario(
    "no right",
    "staging out",
    "the storage element returns 403 until permission is granted",
    "held; a person fixes the problem and continues the job",
)
def no_right_at_staging_out(room: Room) -> Plan:
    room.host(site=ELEMENT_SITE)
    if room.failing:
        room.site.element.failures = [Failure(status=403)]
    return Plan(room.spec(when_exhausted="hold"), meanwhile=lambda: person(room), cause="policy")
