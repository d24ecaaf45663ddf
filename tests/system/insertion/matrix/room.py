"""Where cells are tried: a real Slurm, a Forestay server and reconciler with the starter rules, and for each round a watcher and a folder for each arm."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.live.own_slurm import OwnSlurm
from tests.system.insertion.shell import install
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.formats.rules.rule_file import starter_rules

PROCESS, CGROUP = "process", "cgroup"
KINDS = {
    PROCESS: "memory limits by Slurm's own accounting, which ends the whole step (OverMemoryKill); three nodes",
    CGROUP: "memory limits by the kernel, which kills one process (task/cgroup), as production has it; one node",
}
PREEMPTION = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
FirstJobId={first}
PartitionName=urgent Nodes={nodes} MaxTime=INFINITE PriorityTier=10 State=UP
"""
PATIENCE = 420.0
"""Seconds that one arm may take."""


@dataclass(eq=False)
class Room:
    """What all rounds of one Slurm share."""

    kind: str
    slurm: OwnSlurm
    running: Processes
    folder: Path
    server: Started

    @property
    def nodes(self) -> list[str]:
        return ["n1"] if self.kind == CGROUP else ["n1", "n2", "n3"]

    async def server_back(self) -> None:
        self.server = await self.running.server(port=int(self.server.url.rpartition(":")[2]))

    def plain(self, *words: str) -> str:
        """Slurm's own word; empty while it does not answer."""
        done = subprocess.run(words, env=self.slurm.environment, text=True, capture_output=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""


@dataclass(eq=False)
class Arm:
    """One user who runs something, with or without Forestay."""

    room: Room
    folder: Path
    ours: bool
    spool: Path
    """Of the round."""
    asking: bool = False
    """Its jobs ask before they end (`forestay watcher --before-end`)."""
    environment: dict[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        front = f"{self.room.folder / ('asking' if self.asking else 'bin')}:" if self.ours else ""
        path = f"{front}{self.folder / 'programs'}:{os.environ['PATH']}"
        return {**self.room.slurm.environment, "PATH": path, "FORESTAY_SHIM_SPOOL": str(self.spool), **self.environment}

    async def run(self, *words: str, seconds: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """A command of the user's, to its end or until patience is over (exit code 124)."""
        process = await asyncio.create_subprocess_exec(
            *words, cwd=self.folder, env=self.settings(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            out, err = await asyncio.wait_for(process.communicate(), seconds)
        except TimeoutError:
            os.killpg(process.pid, 9)
            return subprocess.CompletedProcess(words, 124, "", f"not ended after {seconds:g} s")
        return subprocess.CompletedProcess(words, process.returncode or 0, out.decode(), err.decode())

    def program(self, text: str) -> None:
        """What the user's jobs call: `measure PART`."""
        place = self.folder / "programs" / "measure"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)

    def starts(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = defaultdict(list)
        for words in self._lines("starts"):
            found[words[0]].append(float(words[1]))
        return dict(found)

    def nodes(self) -> dict[str, str]:
        """Where each part began last."""
        return {words[0]: words[2] for words in self._lines("starts")}

    def ends(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for words in self._lines("ends"):
            found[words[0]] += 1
        return dict(found)

    def _lines(self, name: str) -> list[list[str]]:
        place = self.folder / name
        return [line.split() for line in place.read_text().splitlines()] if place.exists() else []

    def jobs(self) -> dict[str, str]:
        """The jobs that run in the folder of this user, with what Slurm itself says of them now."""
        return self._listed() or {}

    def _listed(self) -> dict[str, str] | None:
        words = ("squeue", "-h", "-t", "all", "--array", "-o", "%i|%T|%r|%Z")
        done = subprocess.run(words, env=self.room.slurm.environment, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            return None
        rows = [line.split("|") for line in done.stdout.splitlines()]
        return {row[0]: f"{row[1]} {row[2]}" for row in rows if f"{row[3]}/".startswith(f"{self.folder}/")}

    def is_over(self) -> bool:
        """Nothing more comes of any of them: none is in the queue with a chance to run, and nobody decides on one."""
        jobs = self._listed()
        if jobs is None:
            return False
        active = re.compile(r"(PENDING|RUNNING|CONFIGURING|COMPLETING|SUSPENDED|REQUEUED?|REQUEUE_HOLD|SIGNALING) ")
        # With nothing else under way, whoever waits for another waits in vain.
        if any(active.match(state) and not state.startswith("PENDING Dependency") for state in jobs.values()):
            return False
        words = [path.name.partition(".")[0] for path in (self.spool / "new").glob("*.0.*")] if self.ours else []
        stuck = {name for name, state in jobs.items() if state.startswith("PENDING Dependency")}
        return not any(re.split(r"[_+]", name)[0] in words for name in jobs.keys() - stuck)

    async def over(self, still: float = 6.0) -> None:
        """Wait until that has been so for some seconds; a late rerun would be seen."""
        since: float | None = None
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if await asyncio.to_thread(self.is_over):
                since = since or time.monotonic()
                if time.monotonic() > since + still:
                    return
            else:
                since = None
            await asyncio.sleep(1)


@dataclass(eq=False)
class Round:
    """Some ways of submission that meet one failure together, each in two arms."""

    room: Room
    folder: Path
    tenant: str
    arms: dict[tuple[str, bool], Arm] = field(default_factory=dict)
    asking: bool = False
    watcher: Started | None = None

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def arm(self, way: str, *, ours: bool) -> Arm:
        folder = self.folder / re.sub(r"[^a-z]+", "-", way.lower()).strip("-") / ("ours" if ours else "bare")
        folder.mkdir(parents=True)
        self.arms[way, ours] = arm = Arm(self.room, folder, ours, self.spool, self.asking)
        return arm

    async def watch(self) -> None:
        """Start a watcher, and wait until it has vouched for a while."""
        words = ["--act", "--every", "2"]
        if self.asking:
            words += ["--records", str(self.room.folder / "records"), "--before-end"]
        self.watcher = self.room.running.watcher(self.tenant, self.room.server, self.spool, *words)
        mark = self.spool / "watch"

        async def vouches() -> bool:
            lines = mark.read_text().split() if mark.exists() else []
            return len(lines) > 1 and float(lines[0]) > time.time() > float(lines[1]) + 1

        await until(vouches, "the watcher to vouch", 90)

    async def begun(self) -> None:
        """Wait until the first part of each arm runs, and the watcher has had time to look at it."""

        async def all_begun() -> bool:
            return all("1" in arm.starts() for arm in self.arms.values())

        await until(all_begun, "all arms to begin", 240)
        await asyncio.sleep(8)

    def go(self) -> None:
        for arm in self.arms.values():
            (arm.folder / "go").touch()

    async def incidents(self, arm: Arm) -> list[dict[str, Any]]:
        client = self.room.running.client(self.room.server, "viewer", tenant=self.tenant)
        every = (await client.get("/v1/incidents", params={"limit": 200})).json()["incidents"]
        jobs = arm.jobs()
        found = [record for record in every if record["task"].rpartition(":")[2] in jobs]
        return [{"id": record["id"], "cause": record["cause"], "state": record["state"]} for record in found]


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Room]:
    """All of it in this folder."""
    slurm = OwnSlurm(folder)
    slurm.order("stop")
    # Two that are started at once would take the same port.
    port = 20_000 + 1000 * list(KINDS).index(kind) + 20 * (os.getpid() % 40)
    slurm.start(
        "--port",
        str(port),
        "--silence",
        "9",
        "--cpus",
        "16",
        *(("--nodes", "1", "--cgroups") if kind == CGROUP else ()),
    )
    conf = folder / "slurm" / "etc" / "slurm.conf"
    nodes = "n1" if kind == CGROUP else "n[1-3]"
    # Two Slurms with control groups on one machine must not give two jobs one number.
    first = 10_000 + int(time.time()) % 50_000
    # All arms of a round run at the same time, on one node if there is no other.
    roomy = conf.read_text().replace("RealMemory=2000", "RealMemory=8000")
    conf.write_text(roomy + PREEMPTION.format(nodes=nodes, first=first))
    slurm.stop_controller()
    slurm.order("launch", "slurm", "ctld")
    text = re.sub(r"(?m)^MessageTimeout=.*$", "MessageTimeout=2", conf.read_text())
    slurm.conf.write_text(text)
    install(folder / "bin")
    install(folder / "asking", folder / "records")
    try:
        async with store_room("sqlite", folder) as url:
            domain = Domain(url, folder)
            settings = {"approvals": "off"}
            async with processes(domain, folder, **settings) as running:
                server = await running.server()
                running.reconciler()
                yield Room(kind, slurm, running, folder, server)
    finally:
        slurm.order("stop")


@asynccontextmanager
async def round_in(room: Room, name: str) -> AsyncIterator[Round]:
    """With the starter rules in force for a tenant of its own."""
    folder = room.folder / "rounds" / f"{name}-{uuid4().hex[:6]}"
    (folder / "spool" / "new").mkdir(parents=True)
    tenant = f"t-{uuid4().hex[:10]}"
    rules = folder / "rules.yaml"
    rules.write_text(re.sub(r"(?m)^    type:", "    state: active\n    type:", starter_rules()))
    token = room.running.domain.token("rule-author", "viewer", tenant=tenant)
    environment = {**os.environ, "FORESTAY_SERVER": room.server.url, "FORESTAY_TOKEN": token}
    words = [room.running.python, "-m", "forestay", "rules", "apply", "-f", str(rules), "--yes"]
    done = await asyncio.to_thread(
        subprocess.run, words, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    played = Round(room, folder, tenant)
    try:
        yield played
    finally:
        if played.watcher is not None and played.watcher.process.poll() is None:
            played.watcher.kill()
        left = {name: state for arm in played.arms.values() for name, state in arm.jobs().items()}
        queued = [name for name, state in left.items() if re.match("PENDING|RUNNING|SUSPENDED|CONFIG", state)]
        if queued:
            room.plain("scancel", *queued)
