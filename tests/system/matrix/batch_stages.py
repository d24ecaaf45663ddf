"""Failures of the batch system that pilots come through: a real Slurm, killed, closed, or ending a pilot."""

from __future__ import annotations

import asyncio
import atexit
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from tests.live.own_slurm import OwnSlurm
from tests.system.matrix.room import WORK, Plan, Room
from tests.system.matrix.scenario import scenario
from tests.system.matrix.site import until

from forestay.adapters.private_file import write_private
from forestay.domain.sites.batch import BatchId, PilotJob, SubmitRefusal, SubmitRefused


@cache
def own_slurm() -> OwnSlurm:
    """One Slurm for all cells, stopped with the process."""
    folder = TemporaryDirectory(prefix="forestay-slurm-", ignore_cleanup_errors=True)
    slurm = OwnSlurm(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(slurm.order, "stop")
    slurm.start()
    return slurm


def batch_pilot(room: Room, name: str) -> BatchId | SubmitRefused:
    """Submit a pilot to Slurm, under the name of a host."""
    place = room.folder / f"batch-{name}-{uuid4().hex[:6]}"
    place.mkdir()
    write_private(place / "enrol", room.site.running.domain.token("enrol", tenant=room.tenant, subject="enroller"))
    words = [
        sys.executable,
        "-m",
        "forestay_pilot",
        "--server",
        room.site.wire.url,
        "--token-file",
        str(place / "enrol"),
    ]
    words += ["--host", name, "--outputs", str(room.folder / f"out-{name}"), "--work", str(place / "work")]
    words += ["--cpus", "8", "--grace", "1", "--time-left", "1800", "--space", "0"]
    job = PilotJob(f"forestay-{uuid4().hex[:12]}", tuple(words), str(place), output=str(place / "log"), wall=1800)
    slurm = own_slurm()
    answer = asyncio.run(slurm.batch().submit(job))
    if isinstance(answer, str):
        room.closing.callback(slurm.slurm, "scancel", "--quiet", answer)
    return answer


def batch_host(room: Room, name: str = "sound") -> BatchId:
    """A pilot in Slurm that is there and ready."""
    job = batch_pilot(room, name)
    assert isinstance(job, str), job
    until(lambda: [pilot for pilot in room.operator.pilots(state="alive") if pilot["host"] == name], f"host {name}")
    return job


@scenario(
    "batch system",
    "submission",
    "slurmctld is killed when the job's pilot is to be submitted; it is started again",
    "recognised as scheduler down; the job waits, and its pilot is submitted when the scheduler responds",
)
def scheduler_down(room: Room) -> Plan:
    if room.failing:
        own_slurm().order("kill9", "slurm", "ctld")
    else:
        batch_host(room)

    def meanwhile() -> None:
        room.measured()
        if room.failing:
            try:
                refused = batch_pilot(room, "early")
                assert isinstance(refused, SubmitRefused), refused
                assert refused.why is SubmitRefusal.SCHEDULER_DOWN
            finally:
                own_slurm().order("launch", "slurm", "ctld")
            batch_host(room)

    return Plan(room.spec(), meanwhile=meanwhile, attempts=1)


@scenario(
    "batch system",
    "queue",
    "the partition is down: the job's pilot is queued and not started; then it is up again",
    "the job waits; its pilot takes it when Slurm starts it",
)
def partition_down(room: Room) -> Plan:
    slurm = own_slurm()
    if room.failing:
        slurm.slurm("scontrol", "update", "partitionname=main", "state=down")
        room.closing.callback(slurm.slurm, "scontrol", "update", "partitionname=main", "state=up")
    else:
        batch_host(room)

    def meanwhile() -> None:
        room.measured()
        if room.failing:
            job = batch_pilot(room, "sound")
            assert isinstance(job, str), job
            until(
                lambda: "PartitionDown" in slurm.slurm("squeue", "-h", "-j", job, "-o", "%r"), "Slurm to hold it back"
            )
            slurm.slurm("scontrol", "update", "partitionname=main", "state=up")

    return Plan(room.spec(), meanwhile=meanwhile, attempts=1)


@scenario(
    "batch system",
    "execution",
    "Slurm ends the pilot's batch job while it runs",
    "released; another pilot takes it",
)
def pilot_cancelled(room: Room) -> Plan:
    began, gate = room.folder / "began", room.folder / "gate"
    first = batch_host(room, "first")
    if not room.failing:
        gate.touch()

    def meanwhile() -> None:
        until(began.exists, "its start")
        if room.failing:
            batch_host(room, "second")
            gate.touch()
            own_slurm().slurm("scancel", first)

    return Plan(room.spec(f"touch {began}; test -e {gate} || exec sleep 600; {WORK}"), meanwhile=meanwhile)
