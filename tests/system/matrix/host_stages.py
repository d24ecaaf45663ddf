"""Hosts that are broken in themselves, and hosts whose account may not do what a job needs."""

from __future__ import annotations

from tests.system.matrix.room import WORK, Plan, Room
from tests.system.matrix.scenario import FAIL, one_host_broken, person, scenario

ELSEWHERE = "resubmitted with that host excluded, by a rule; another host takes it"


@scenario("host broken", "staging in", "the host's scratch disk is lost before it starts the job", ELSEWHERE)
def scratch_lost(room: Room) -> Plan:
    meanwhile = one_host_broken(room)
    if room.failing:
        room.hosts[-1].jobs.rmdir()
    return Plan(room.spec(), meanwhile=meanwhile, cause="node")


@scenario(
    "host broken", "execution", "the kernel reports input/output errors for the site's software on this host", ELSEWHERE
)
def software_unreadable(room: Room) -> Plan:
    software = room.folder / "cvmfs" / "tools.example.org" / "setup.sh"
    software.parent.mkdir(parents=True)
    software.write_text("true\n")
    # The kernel answers EIO to whoever reads the memory of a process where nothing is mapped.
    meanwhile = one_host_broken(room, prepare=f"mount --bind /proc/$$/mem {software}")
    return Plan(room.spec(f"cat {software} > setup && . ./setup && {WORK}"), meanwhile=meanwhile, cause="node")


@scenario(
    "no right",
    "execution",
    "the host's account may not read a shared file until permission is granted",
    "held; a person fixes the problem and continues the job",
)
def shared_file_closed(room: Room) -> Plan:
    shared = room.folder / "shared"
    shared.write_text("good")
    shared.chmod(0o000 if room.failing else 0o644)
    room.host(unprivileged=True)
    spec = room.spec(f"cat {shared} && {WORK}", when_exhausted="hold")
    return Plan(spec, meanwhile=lambda: person(room, lambda: shared.chmod(0o644)), cause="policy")


@scenario(
    "bad input",
    "staging in",
    "a folder is named as an input",
    "force-fail by a rule; remaining retries are not used",
)
def folder_as_input(room: Room) -> Plan:
    source = room.folder / "source"
    if room.failing:
        source.mkdir()
    else:
        source.write_text("good")
    room.rule("bad-input", FAIL)
    room.host()
    spec = room.spec(inputs=[{"name": "x", "source": str(source)}], max_attempts=3)
    return Plan(spec, state="failed" if room.failing else "completed", attempts=1, cause="bad-input")
