"""What a batch adapter must offer to be put to the contract, and the rooms of those that are.

The tests know nothing of adapters. To test another one, write a `BatchRoom` for it and add it to `ROOMS`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Protocol

from tests import servers
from tests.kubernetes import Admin, SimulatedKubelet, Site

from forestay.adapters.htcondor.batch import HtcondorBatch
from forestay.adapters.kubernetes.api import ApiServer, KubernetesApi
from forestay.adapters.kubernetes.batch import KubernetesBatch
from forestay.adapters.kubernetes.objects import PilotProgram, PodSettings
from forestay.adapters.psij.batch import PsijSubmitter
from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.system.clock import SystemClock
from forestay.adapters.system.commands import SystemCommands
from forestay.domain.sites.batch import BatchId, BatchJob, BatchOutcome, PilotJob, SubmitRefused
from forestay.domain.sites.pace import Pace
from forestay.ports.commands import CommandResult
from forestay.ports.errors import Transient
from forestay.ports.sites.batch import BatchSystem

PATIENCE = 180.0


async def found(batch: BatchSystem, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
    """What the batch system finds once it can tell: a Slurm whose accounting lags behind says so, and not that there is nothing."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await batch.find(names)
        except Transient:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)


class BatchRoom(Protocol):
    """One batch system that really runs."""

    @property
    def commands(self) -> int:
        """So many commands of the batch system were run for the adapter."""
        ...

    @property
    def unique(self) -> bool:
        """Whether a name exists once: a second submission under it creates nothing."""
        ...

    @property
    def hold(self) -> tuple[str, ...]:
        """Options of its submit command that keep a job waiting."""
        ...

    @property
    def wrong(self) -> tuple[str, ...]:
        """Options that no scheduler takes."""
        ...

    def system(self) -> BatchSystem:
        """The adapter."""
        ...

    def without_scheduler(self, folder: Path) -> BatchSystem:
        """The adapter where the host answers and no scheduler listens."""
        ...


@dataclass(slots=True)
class Counted:
    """Real commands, counted, with their arguments."""

    inner: SystemCommands = field(default_factory=SystemCommands)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    async def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
        seconds: float = 30.0,
    ) -> CommandResult:
        self.asked.append(tuple(command))
        return await self.inner.run(command, environment=environment, stdin=stdin, seconds=seconds)


class SlurmRoom:
    """The Slurm of `scripts/servers`."""

    unique = False
    hold = ("--hold",)
    wrong = ("--partition=no-such-partition",)

    def __init__(self) -> None:
        self.conf = servers.slurm()
        self.counted = Counted()

    @property
    def commands(self) -> int:
        return len(self.counted.asked)

    def system(self) -> SlurmBatch:
        return SlurmBatch(self.counted, {**os.environ, "SLURM_CONF": self.conf})

    def without_scheduler(self, folder: Path) -> SlurmBatch:
        return SlurmBatch(SystemCommands(), {**os.environ, "SLURM_CONF": str(moved_slurm(self.conf, folder))})


@dataclass(slots=True)
class Joined:
    """What a site agent works with: PSI/J to submit and cancel, Slurm's own word on everything else."""

    submitter: PsijSubmitter
    reader: SlurmBatch

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        return await self.submitter.submit(job)

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        await self.submitter.cancel(jobs)

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        return await self.reader.find(names)

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        return await self.reader.outcome(jobs)


class PsijRoom:
    """The same Slurm through PSI/J."""

    unique = False
    hold = SlurmRoom.hold
    wrong = SlurmRoom.wrong

    def __init__(self) -> None:
        self.slurm = SlurmRoom()
        self.folder = Path(mkdtemp(prefix="forestay-psij-"))

    @property
    def commands(self) -> int:
        return self.slurm.commands

    def system(self) -> Joined:
        return self._joined(self.slurm.system(), self.slurm.conf)

    def without_scheduler(self, folder: Path) -> Joined:
        return self._joined(self.slurm.without_scheduler(folder), str(folder / "slurm.conf"))

    def _joined(self, slurm: SlurmBatch, conf: str) -> Joined:
        own = {**os.environ, "SLURM_CONF": conf}
        return Joined(PsijSubmitter("slurm", folder=self.folder, environment=own, refusal=slurm.refusal), slurm)


class HtcondorRoom:
    """The HTCondor of `scripts/servers`."""

    unique = False
    hold = ("-append", "hold = true")
    wrong = ("-append", "universe = no-such-universe")

    def __init__(self) -> None:
        self.own = {**os.environ, "PATH": f"{servers.htcondor()}:{os.environ['PATH']}"}
        self.counted = Counted()

    @property
    def commands(self) -> int:
        return len(self.counted.asked)

    def system(self) -> HtcondorBatch:
        return HtcondorBatch(self.counted, environment=self.own)

    def without_scheduler(self, folder: Path) -> HtcondorBatch:
        """Its commands look for a collector where none is, and for a schedd that no file tells of."""
        files = ("_CONDOR_SCHEDD_ADDRESS_FILE", "_CONDOR_SCHEDD_DAEMON_AD_FILE", "_CONDOR_HISTORY")
        moved = {**dict.fromkeys(files, str(folder / "none")), "_CONDOR_COLLECTOR_HOST": f"127.0.0.1:{closed_port()}"}
        return HtcondorBatch(SystemCommands(), environment={**self.own, **moved})


@dataclass(slots=True)
class WithOutput:
    """The adapter for tests that read a job's output from a file: in Kubernetes it is the pod's log."""

    batch: KubernetesBatch

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        command = ("sh", "-c", 'exec "$@" >"$0" 2>&1', job.output or "/dev/null", *job.command)
        return await self.batch.submit(replace(job, command=command))

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        await self.batch.cancel(jobs)

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        return await self.batch.find(names)

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        return await self.batch.outcome(jobs)


class KubernetesRoom:
    """The Kubernetes of `scripts/servers`, whose nodes and kubelets are simulated, in a namespace of its own."""

    unique = True
    hold = ('{"spec": {"template": {"spec": {"nodeSelector": {"no-such": "node"}}}}}',)
    wrong = ('{"spec": {"template": {"spec": {"nodeSelector": {"no label!": "x"}}}}}',)

    def __init__(self) -> None:
        self.folder = Path(mkdtemp(prefix="forestay-kubernetes-"))
        self.admin = Admin()
        self.kubelet = SimulatedKubelet(self.admin)
        self.site: Site = self.admin.site(self.folder)
        self.settings = PodSettings("hall", self.site.namespace, "simulated/pilot:1", grace=5, queue_wait=600)
        self.apis: list[KubernetesApi] = []
        self.events: list[str] = []

    @property
    def commands(self) -> int:
        return sum(api.requests for api in self.apis)

    def api(self, address: str = "") -> KubernetesApi:
        cluster = ApiServer(address or self.admin.address, self.site.token, self.admin.ca)
        api = KubernetesApi(cluster, clock=SystemClock(), pace=Pace(100, 100))
        self.apis.append(api)
        return api

    def agent(self, *, patience: float = 600.0, address: str = "", **settings: object) -> KubernetesBatch:
        """The adapter of an agent that has just started, with other settings."""
        own = replace(self.settings, **settings)  # type: ignore[arg-type]
        program = PilotProgram(b"no pilot")
        on_event = lambda event, _facts: self.events.append(event)  # noqa: E731
        return KubernetesBatch(self.api(address), own, program, patience=patience, on_event=on_event)

    def system(self) -> WithOutput:
        return WithOutput(self.agent())

    def without_scheduler(self, folder: Path) -> WithOutput:
        return WithOutput(self.agent(address=f"https://127.0.0.1:{closed_port()}"))

    async def close(self) -> None:
        for api in self.apis:
            await api.close()
        await asyncio.to_thread(self.kubelet.stop)
        self.admin.delete(f"/api/v1/namespaces/{self.site.namespace}")
        self.admin.http.close()
        shutil.rmtree(self.folder)


def moved_slurm(conf: str, folder: Path, *, host: str = "127.0.0.1") -> Path:
    """A copy of Slurm's configuration whose controller and accounting are at ports where nobody listens."""
    text = Path(conf).read_text()
    for key in ("SlurmctldPort", "AccountingStoragePort"):
        text = re.sub(rf"(?m)^{key}=.*$", f"{key}={closed_port()}", text)
    text = re.sub(r"(?m)^(SlurmctldHost=[^(]*)\(.*\)$", rf"\1({host})", text)
    text = re.sub(r"(?m)^AccountingStorageHost=.*$", f"AccountingStorageHost={host}", text)
    text = re.sub(r"(?m)^MessageTimeout=.*$", "MessageTimeout=1", text)  # how long the commands go on trying
    path = folder / "slurm.conf"
    path.write_text(text)
    return path


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


ROOMS: dict[str, Callable[[], BatchRoom]] = {
    "slurm": SlurmRoom,
    "psij": PsijRoom,
    "htcondor": HtcondorRoom,
    "kubernetes": KubernetesRoom,
}
