"""Hosts that are broken in themselves, and hosts whose account may not do what a job needs."""

from __future__ import annotations

from tests.system.matrix.room import WORK, Plan, Room
from tests.system.matrix.scenario import FAIL, one_host_broken, person, scenario

ELSEWHERE = "kept away from that host and re-submitted, by a rule; another host takes it"


@scenario("host broken", "staging in", "the host's scratch is lost before it begins the job", ELSEWHERE)
def scratch_lost(room: Room) -> Plan:
    meanwhile = one_host_broken(room)
    if room.failing:
        room.hosts[-1].jobs.rmdir()
    return Plan(room.spec(), meanwhile=meanwhile, cause="node")


@scenario(
    "host broken", "execution", "the site's software gives input/output errors on this host, by the kernel", ELSEWHERE
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
    "the account of the host may not read a shared file until a person has asked",
    "held; a person mends it and lets it go on",
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
    "force-fail, by a rule: tries that are left are not spent",
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
