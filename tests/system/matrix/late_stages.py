"""Failures while a job runs, when its outputs are kept, when its folder is cleared and when its submitter is told."""

from __future__ import annotations

import gzip
import os
import signal
import sys

from tests.system.matrix.cut_wire import cut_wire
from tests.system.matrix.room import WORK, Plan, Room, nothing
from tests.system.matrix.scenario import (
    FAIL,
    GOOD,
    LATER,
    MIB,
    SAME,
    at_the_end,
    changed,
    gated,
    has_begun,
    needing,
    person,
    scenario,
    too_small,
    while_it_runs,
)
from tests.system.matrix.site import until

# Execution


@scenario("host lost", "execution", "kill -9 of the host", "released; another host takes it")
def host_lost(room: Room) -> Plan:
    began, gate = room.folder / "began", room.folder / "gate"
    first = room.host("first")
    if not room.failing:
        gate.touch()

    def meanwhile() -> None:
        until(began.exists, "its start")
        if room.failing:
            room.host("second")
            gate.touch()
            first.started.kill()

    return Plan(room.spec(f"touch {began}; test -e {gate} || exec sleep 600; {WORK}"), meanwhile=meanwhile)


@scenario(
    "preempted",
    "execution",
    "SIGTERM to the host, twice: it stops its jobs and exits",
    "released; another host takes it",
)
def preempted(room: Room) -> Plan:
    began, gate = room.folder / "began", room.folder / "gate"
    first = room.host("first")
    if not room.failing:
        gate.touch()

    def meanwhile() -> None:
        until(began.exists, "its start")
        if room.failing:
            room.host("second")
            gate.touch()
            pilot = first.started.process
            os.kill(pilot.pid, signal.SIGTERM)
            until(lambda: "draining" in first.log.read_text(), "the first signal to be seen")
            os.kill(pilot.pid, signal.SIGTERM)

    return Plan(room.spec(f"touch {began}; test -e {gate} || exec sleep 600; {WORK}"), meanwhile=meanwhile)


@scenario(
    "network",
    "execution",
    "the connection from the host to the server is cut while it runs",
    "the payload continues; its completion is accepted",
)
def network_while_it_runs(room: Room) -> Plan:
    return while_it_runs(room, room.site.wire.cut, room.site.wire.recover)


@scenario(
    "server lost",
    "execution",
    "kill -9 of the server while it runs; another is started",
    "the payload continues; its completion is accepted",
)
def server_lost_while_it_runs(room: Room) -> Plan:
    return while_it_runs(room, room.site.lose_server, room.site.start_server)


@scenario("memory", "execution", "the kernel kills it: out of memory", "re-submit with more memory, by a rule")
def memory(room: Room) -> Plan:
    room.rule("memory", changed("memory", to=1 << 30))
    free = room.busy_host("large", memory=str(4 << 30))
    if room.failing:
        group = room.site.memory_group(192 * MIB)
        assert group is not None, "no control group for memory can be made here"
        room.host("small", group=group, memory=str(192 * MIB), disk=str(MIB))

        def meanwhile() -> None:
            room.incident()
            free()
    else:
        meanwhile = free
    hungry = [sys.executable, "-c", "import time; bytearray(400 << 20); time.sleep(0.2); open('made', 'w')"]
    return Plan(room.spec(hungry), needing(memory=128 * MIB), meanwhile=meanwhile, cause="memory")


@scenario("disk", "execution", "the host's scratch disk is full", "re-submit with more disk, by a rule")
def disk(room: Room) -> Plan:
    return too_small(room, "WORK", "dd if=/dev/zero of=scratch bs=64k count=32 && rm scratch && " + WORK)


@scenario("time", "execution", "it needs 1.5 s and has 1 s", "re-submit with more time, by a rule")
def time(room: Room) -> Plan:
    room.rule("time", changed("wall", factor=20, at_most=60))
    room.host()
    limit = 1 if room.failing else 20
    return Plan(room.spec("sleep 1.5; echo done > made", resources={"wall": limit}), cause="time")


@scenario(
    "data missing",
    "execution",
    "a shared file is missing until the failure is detected",
    "re-submit after a wait, by a rule",
)
def data_missing(room: Room) -> Plan:
    shared = room.folder / "shared"
    room.rule("data-missing", LATER)
    room.host()

    def meanwhile() -> None:
        room.incident()
        shared.touch()

    if not room.failing:
        shared.touch()
    return Plan(
        room.spec(f"cat {shared} && {WORK}"), meanwhile=meanwhile if room.failing else nothing, cause="data-missing"
    )


@scenario(
    "data corrupt",
    "execution",
    "a shared file is damaged until a person replaces it",
    "held; a person fixes the problem and continues the job",
)
def data_corrupt(room: Room) -> Plan:
    shared = room.folder / "shared.gz"
    good = gzip.compress(b"x" * 1000)
    shared.write_bytes(good[:-8] + bytes(4) + good[-4:] if room.failing else good)
    room.host()

    def meanwhile() -> None:
        person(room, lambda: shared.write_bytes(good))

    return Plan(
        room.spec(f"gzip -t {shared} && {WORK}", when_exhausted="hold"), meanwhile=meanwhile, cause="data-corrupt"
    )


@scenario(
    "transfer",
    "execution",
    "a service that the program calls returns 503 once",
    "retried by the job's own retry policy",
)
def transfer(room: Room) -> Plan:
    path = f"/{room.tenant}"
    room.site.web.files[path] = GOOD
    room.site.web.failures[path] = [503] if room.failing else []
    room.host()
    asks = f"import time, urllib.request; urllib.request.urlopen('{room.site.web.url(path)}'); time.sleep(0.2); open('made', 'w')"
    return Plan(room.spec([sys.executable, "-c", asks], max_attempts=2), cause="*")


@scenario(
    "bad input",
    "execution",
    "the program rejects its arguments",
    "force-fail by a rule; remaining retries are not used",
)
def bad_input(room: Room) -> Plan:
    room.rule("bad-input", FAIL)
    room.host()
    parser = "import argparse; p = argparse.ArgumentParser(); p.add_argument('--n', type=int); p.parse_args(); open('made', 'w')"
    words = [sys.executable, "-c", parser, "--n", "many" if room.failing else "1"]
    state = "failed" if room.failing else "completed"
    return Plan(room.spec(words, max_attempts=3), state=state, attempts=1, cause="bad-input")


@scenario("code", "execution", "the program crashes once (SIGSEGV)", "retried by the job's own retry policy")
def code(room: Room) -> Plan:
    mark = room.folder / "mark"
    room.host()
    crash = f"test -e {mark} || {{ touch {mark}; kill -SEGV $$; }}; " if room.failing else ""
    return Plan(room.spec(crash + WORK, max_attempts=2), cause="code")


# Staging out


@scenario(
    "host lost",
    "staging out",
    "kill -9 of the host after the job has finished, before the server is informed",
    "the next pilot on the same disk sends the completion",
)
def host_lost_at_the_end(room: Room) -> Plan:
    gate = room.folder / "gate"
    first = room.host("first")
    if not room.failing:
        gate.touch()

    def meanwhile() -> None:
        has_begun(gate)
        if room.failing:
            room.site.wire.cut()
            gate.touch()
            room.spooled(first)
            first.started.kill()
            room.site.wire.recover()
            room.host("heir", work=first.work, outputs=first.outputs)

    return Plan(room.spec(gated(gate)), meanwhile=meanwhile, attempts=1, twice=True)


@scenario(
    "network",
    "staging out",
    "the connection to the server is cut when the job finishes",
    "the completion is kept and sent later",
)
def network_at_the_end(room: Room) -> Plan:
    return at_the_end(room, room.site.wire.cut, room.site.wire.recover)


@scenario(
    "server lost",
    "staging out",
    "kill -9 of the server when the job ends; another is started",
    "the completion is kept and sent later",
)
def server_lost_at_the_end(room: Room) -> Plan:
    return at_the_end(room, room.site.lose_server, room.site.start_server)


@scenario("disk", "staging out", "there is no space for the outputs", "re-submit with more disk, by a rule")
def disk_at_the_end(room: Room) -> Plan:
    return too_small(room, "OUTPUTS", "sleep 0.2; dd if=/dev/zero of=made bs=64k count=32 2> /dev/null")


@scenario(
    "output missing",
    "staging out",
    "the program exits successfully without outputs, once",
    "re-submit, same requirements, by a rule",
)
def output_missing(room: Room) -> Plan:
    mark = room.folder / "mark"
    room.rule("output-missing", SAME)
    room.host()
    document = f"test -e {mark} || {{ touch {mark}; exit 0; }}; " if room.failing else ""
    return Plan(room.spec(document + WORK), cause="output-missing")


@scenario(
    "host broken",
    "staging out",
    "the working folder is missing when the job has finished",
    "retried by the default policy, not charged to the job",
)
def scratch_gone(room: Room) -> Plan:
    mark = room.folder / "mark"
    room.host()
    wipe = f'; test -e {mark} || {{ touch {mark}; rm -rf "$FORESTAY_OUTPUTS"; }}' if room.failing else ""
    return Plan(room.spec(WORK + wipe), cause="node")


# Cleanup


@scenario(
    "cleanup",
    "cleanup",
    "something is still mounted in the working folder",
    "the result is unchanged; an incident and an alert",
)
def cleanup(room: Room) -> Plan:
    room.host(prepare="true")
    left = "; mkdir busy; mount -t tmpfs tmpfs busy" if room.failing else ""
    return Plan(room.spec(WORK + left), attempts=1, cause="cleanup")


# Telling the submitter


@scenario(
    "network", "reporting", "the connection to the submitter is cut when the job finishes", "the submitter polls again; the callback is sent again",
    skips=("fire and forget",),
)  # fmt: skip
def network_at_telling(room: Room) -> Plan:
    gate = room.folder / "gate"
    room.host()
    wire = room.closing.enter_context(cut_wire(room.site.server.url))
    room.reach(wire)
    if not room.failing:
        gate.touch()
    else:
        room.site.desk.refusals["next"] = 1

    def meanwhile() -> None:
        has_begun(gate)
        if room.failing:
            wire.cut()
            gate.touch()
            room.state("completed")
            wire.recover()

    return Plan(room.spec(gated(gate)), meanwhile=meanwhile, attempts=1)


@scenario(
    "server lost",
    "reporting",
    "kill -9 of the server and the reconciler when the job has finished; others are started",
    "the store has the result; the next processes send it",
)
def server_lost_at_telling(room: Room) -> Plan:
    gate = room.folder / "gate"
    room.host()
    wire = room.closing.enter_context(cut_wire(room.site.server.url))
    room.reach(wire)
    if not room.failing:
        gate.touch()

    def meanwhile() -> None:
        has_begun(gate)
        if room.failing:
            wire.cut()  # else the submitter may be told before anyone is lost
            room.site.lose_reconciler()
            gate.touch()
            room.state("failed")
            room.site.lose_server()
            room.site.start_server()
            room.site.start_reconciler()
            wire.recover()

    return Plan(room.spec(gated(gate) + "; exit 5"), meanwhile=meanwhile, attempts=1, state="failed", cause="*")
