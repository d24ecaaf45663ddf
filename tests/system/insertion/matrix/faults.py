"""The failures of the insertion matrix. Each is what the user's program does, and what happens around it once every arm has begun."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from tests.system.insertion.matrix.room import Round
from tests.system.insertion.programs import NODE
from tests.unit.apps.server.running import until

GREEDY = """python3 -c "
import time
wanted = bytearray({bytes})
time.sleep(8)
{more}" """
END = "open('{folder}/ends', 'a').write('1\\n'); print(1)"
GATE = "while [ ! -e {folder}/go ]; do sleep 0.3; done\n"
PART = 'if [ "$1" = 1 ]; then {command} || exit $?; fi'
ONE = PART.format(command=GREEDY)
"""One process of the first part wants more memory than the job asked for."""
WHOLE = f'if [ "$1" = 1 ]; then exec {GREEDY}; fi'.replace("{more}", END)


class Fault(NamedTuple):
    """One of them."""

    body: str = GATE
    """What the user's program does before its end; `{folder}`, `{bytes}` and `{more}` are filled in."""
    strike: Callable[[Round], Awaitable[None]] | None = None
    """What happens around it, once all arms have begun."""
    minutes: int = 5
    """The time limit of each job."""
    requeue: bool = True
    """Whether the jobs may be requeued by Slurm."""
    watched: bool = True
    """Whether a watcher works from the beginning."""

    def program(self, folder: Path, megabytes: int) -> str:
        body = (
            self.body.replace("{folder}", str(folder)).replace("{more}", "").replace("{bytes}", f"{megabytes * 2**20}")
        )
        return f"""#!/bin/sh
{NODE}
echo "$1 $(date +%s.%N) ${{node:-?}}" >>{folder}/starts
{body}
echo "$1" >>{folder}/ends
echo "$1"
"""


async def _node_lost(played: Round) -> None:
    slurm = played.room.slurm
    struck = sorted({arm.nodes()["1"] for arm in played.arms.values()})
    for name in struck:
        await asyncio.to_thread(slurm.lose_power, int(name[1:]))
        slurm.slurm("scontrol", "update", f"nodename={name}", "state=down", "reason=power lost")
    played.go()
    await asyncio.sleep(20)
    for name in struck:
        await asyncio.to_thread(slurm.order, "launch", "slurm", f"d{name[1:]}")


async def _preempted(played: Round) -> None:
    room = played.room
    words = (
        "-p",
        "urgent",
        "-N",
        str(len(room.nodes)),
        "--exclusive",
        "--mem=0",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 3",
    )
    job = room.plain("sbatch", "--parsable", *words)

    async def over() -> bool:
        state = await asyncio.to_thread(room.plain, "squeue", "-h", "-t", "all", "-j", job, "-o", "%T")
        return state == "COMPLETED"

    await until(over, "the urgent job to end", 120)
    played.go()


async def _controller_dead(played: Round) -> None:
    slurm = played.room.slurm
    await asyncio.to_thread(slurm.saved)
    await asyncio.to_thread(slurm.order, "kill9", "slurm", "ctld")
    played.go()
    await asyncio.sleep(60)
    await asyncio.to_thread(slurm.order, "launch", "slurm", "ctld")


async def _controller_hung(played: Round) -> None:
    pid = played.room.slurm.pid("ctld")
    os.kill(pid, signal.SIGSTOP)
    played.go()
    await asyncio.sleep(45)
    os.kill(pid, signal.SIGCONT)


async def _server_away(played: Round) -> None:
    played.room.server.kill()
    played.go()
    await asyncio.sleep(40)
    await played.room.server_back()


async def _store_away(played: Round) -> None:
    place = played.room.running.domain.store.removeprefix("sqlite:///")
    with sqlite3.connect(place, isolation_level=None, timeout=30) as lock:
        lock.execute("BEGIN IMMEDIATE")  # whoever writes waits in vain
        played.go()
        await asyncio.sleep(45)
        lock.execute("ROLLBACK")
    lock.close()


async def _watcher_killed(played: Round) -> None:
    assert played.watcher is not None
    played.watcher.kill()
    played.go()
    await asyncio.sleep(20)
    await played.watch()


async def _watcher_late(played: Round) -> None:
    played.go()
    await asyncio.sleep(30)
    await played.watch()


FAULTS = {
    "memory, the whole script": Fault(WHOLE),
    "memory, one process": Fault(ONE),
    "memory, an srun step": Fault(PART.format(command=f"srun -n1 {GREEDY}")),
    "time limit": Fault(PART.format(command="sleep 100"), minutes=1),
    "node lost": Fault(strike=_node_lost),
    "preemption": Fault(strike=_preempted),
    "preemption with --no-requeue": Fault(strike=_preempted, requeue=False),
    "slurmctld dead for 60 s": Fault(strike=_controller_dead),
    "slurmctld hung for 45 s": Fault(strike=_controller_hung),
    "memory while the server is away": Fault(GATE + ONE, _server_away),
    "memory while the store is away": Fault(GATE + ONE, _store_away),
    "memory while the watcher is killed": Fault(GATE + ONE, _watcher_killed),
    "memory before the watcher is started": Fault(GATE + ONE, _watcher_late, watched=False),
}
