"""Failures at submission, in the queue and while inputs are brought: each a real one, with what fixes it."""

from __future__ import annotations

import os
import signal
from typing import cast

from tests.system.chaos.processes import free_port
from tests.system.matrix.cut_wire import cut_wire
from tests.system.matrix.room import WORK, Plan, Room, nothing, waiting_for
from tests.system.matrix.scenario import DIGEST, GOOD, LATER, MIB, RESTAGE, person, scenario, too_small
from tests.system.matrix.site import until

from forestay.client.api.schemas import NewJob

# Submission


@scenario(
    "server lost",
    "submission",
    "kill -9 of the server before the call; another is started",
    "the client submits again with the same key",
)
def server_lost_at_submission(room: Room) -> Plan:
    room.host()
    if room.failing:
        room.site.lose_server()
    return Plan(room.spec(), meanwhile=room.site.start_server if room.failing else nothing, attempts=1)


@scenario(
    "network",
    "submission",
    "the connection from the submitter to the server is cut",
    "the client submits again with the same key",
)
def network_at_submission(room: Room) -> Plan:
    room.host()
    wire = room.closing.enter_context(cut_wire(room.site.server.url))
    room.reach(wire)
    if not room.failing:
        return Plan(room.spec(), attempts=1)
    wire.cut()

    def meanwhile() -> None:
        until(lambda: wire.refused, "a call that failed")
        wire.recover()

    return Plan(room.spec(), meanwhile=meanwhile, attempts=1)


# Queue


@scenario(
    "server lost",
    "queue",
    "kill -9 of the server while the job waits; another is started",
    "the job is in the store; the next server hands it out",
)
def server_lost_in_the_queue(room: Room) -> Plan:
    def meanwhile() -> None:
        room.measured()
        if room.failing:
            room.site.lose_server()
            room.site.start_server()
        room.host()

    return Plan(room.spec(), meanwhile=meanwhile, attempts=1)


@scenario(
    "host lost",
    "queue",
    "kill -9 of the only host while the job waits for it",
    "it waits for the next host (late binding)",
)
def host_lost_in_the_queue(room: Room) -> Plan:
    free = room.busy_host("first")

    def meanwhile() -> None:
        room.measured()
        if room.failing:
            room.hosts[0].started.kill()
            free()
            room.host("second")
        else:
            free()

    return Plan(room.spec(), meanwhile=meanwhile, attempts=1)


@scenario(
    "network",
    "queue",
    "the connection from the hosts to the server is cut while the job waits",
    "the host returns and asks for jobs again",
)
def network_in_the_queue(room: Room) -> Plan:
    room.host()
    wire = room.site.wire
    before = wire.refused
    if room.failing:
        wire.cut()

    def meanwhile() -> None:
        room.measured()
        if room.failing:
            until(lambda: wire.refused > before, "a call that failed")
            wire.recover()

    return Plan(room.spec(), meanwhile=meanwhile, attempts=1)


@scenario(
    "preempted",
    "queue",
    "SIGTERM to a host that holds the job ready behind another one",
    "returned before it started; another host takes it",
)
def preempted_in_the_queue(room: Room) -> Plan:
    gate = room.folder / "gate"
    first = room.host("first", batch="2")
    (other,) = room.operator.submit([cast(NewJob, {})], {"name": "in front", "command": waiting_for(gate)})
    until(lambda: room.operator.job(other["id"])["state"] == "running", "the other job")

    def meanwhile() -> None:
        room.state("running")
        if room.failing:
            room.host("second")
            os.kill(first.started.process.pid, signal.SIGTERM)
            room.state("completed")
        gate.touch()

    return Plan(room.spec(), meanwhile=meanwhile)


# Staging in


@scenario("host lost", "staging in", "kill -9 of the host while it reads an input", "released; another host takes it")
def host_lost_at_staging(room: Room) -> Plan:
    source = room.folder / "source"
    os.mkfifo(source)  # whoever reads it waits
    good = room.folder / "good"
    good.write_bytes(GOOD)
    first = room.host("first")
    if not room.failing:
        good.replace(source)

    def meanwhile() -> None:
        if room.failing:
            room.state("running")
            room.host("second")
            good.replace(source)
            first.started.kill()

    return Plan(room.spec(inputs=[{"name": "x", "source": str(source)}]), meanwhile=meanwhile)


@scenario(
    "network",
    "staging in",
    "the input's server refuses connections until the failure is detected",
    "re-submit after a wait, by a rule",
)
def network_at_staging(room: Room) -> Plan:
    port, path = free_port(), f"/{room.tenant}"
    room.site.web.files[path] = GOOD
    room.rule("network", LATER)
    room.host()

    def listen() -> None:
        room.closing.enter_context(cut_wire(room.site.web.url(""), port))

    def meanwhile() -> None:
        room.incident()
        listen()

    if not room.failing:
        listen()
    fields = {"name": "x", "source": f"http://127.0.0.1:{port}{path}", "sha256": DIGEST}
    return Plan(room.spec(inputs=[fields]), meanwhile=meanwhile if room.failing else nothing, cause="network")


@scenario(
    "transfer",
    "staging in",
    "the input's server returns 503 three times",
    "re-stage, same source and parameters, by a rule",
)
def transfer_at_staging(room: Room) -> Plan:
    path = f"/{room.tenant}"
    room.site.web.files[path] = GOOD
    room.site.web.failures[path] = [503] * 3 if room.failing else []
    room.rule("transfer", RESTAGE)
    room.host()
    return Plan(room.spec(inputs=[{"name": "x", "source": room.site.web.url(path)}]), cause="transfer")


@scenario(
    "data missing",
    "staging in",
    "the input is missing until the failure is detected",
    "re-submit after a wait, by a rule",
)
def data_missing_at_staging(room: Room) -> Plan:
    source = room.folder / "source"
    room.rule("data-missing", LATER)
    room.host()

    def make() -> None:
        source.write_bytes(GOOD)

    def meanwhile() -> None:
        room.incident()
        make()

    if not room.failing:
        make()
    plan = room.spec(inputs=[{"name": "x", "source": str(source)}])
    return Plan(plan, meanwhile=meanwhile if room.failing else nothing, cause="data-missing")


@scenario(
    "data corrupt",
    "staging in",
    "the first replica has another digest",
    "re-stage, same source and parameters, by a rule",
)
def data_corrupt_at_staging(room: Room) -> Plan:
    path = f"/{room.tenant}"
    room.site.web.files[path] = GOOD
    room.site.web.failures[path] = [b"evil"] if room.failing else []
    room.rule("data-corrupt", RESTAGE)
    room.host()
    fields = {"name": "x", "source": room.site.web.url(path), "sha256": DIGEST}
    return Plan(room.spec(inputs=[fields]), cause="data-corrupt")


@scenario(
    "disk", "staging in", "the host's scratch disk has no space for the input", "re-submit with more disk, by a rule"
)
def disk_at_staging(room: Room) -> Plan:
    large = room.folder / "large"
    large.write_bytes(b"\0" * MIB)
    return too_small(room, "WORK", WORK, inputs=[{"name": "x", "source": str(large)}])


@scenario(
    "no right",
    "staging in",
    "the input's server returns 403 until permission is granted",
    "held; a person fixes the problem and continues the job",
)
def no_right_at_staging(room: Room) -> Plan:
    path = f"/{room.tenant}"
    room.site.web.files[path] = GOOD
    room.site.web.failures[path] = [403] if room.failing else []
    room.host()
    spec = room.spec(inputs=[{"name": "x", "source": room.site.web.url(path)}], when_exhausted="hold")
    return Plan(spec, meanwhile=lambda: person(room), cause="policy")
