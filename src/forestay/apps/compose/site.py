"""The parts of a site agent."""

from __future__ import annotations

import json
import os
import socket
from importlib.metadata import version
from pathlib import Path

import structlog

from forestay.adapters.htcondor.batch import HtcondorBatch
from forestay.adapters.httpx.site_api import HttpxSiteApi
from forestay.adapters.kubernetes.api import ApiServer, KubernetesApi
from forestay.adapters.kubernetes.batch import KubernetesBatch
from forestay.adapters.kubernetes.objects import CA_FILE, PROGRAM, WORK, PilotProgram, PodSettings, PodSize, PodVolume
from forestay.adapters.lsf.batch import LsfReader
from forestay.adapters.pbs.batch import PbsReader
from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.slurm.own_users import SECRET, OwnUsersSlurm
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.adapters.system.commands import PacedCommands, SystemCommands
from forestay.adapters.system.pilot_program import pilot_program
from forestay.adapters.system.pilot_spool import FolderPilotSpool
from forestay.apps.config.site_settings import SiteSettings, SizeTable
from forestay.domain.sites.batch import PilotJob
from forestay.domain.sites.fleet import size_and_owner
from forestay.domain.sites.launch import NAME
from forestay.domain.sites.pace import Pace
from forestay.ports.clock import Clock
from forestay.ports.commands import Commands
from forestay.ports.errors import Permanent, Transient
from forestay.ports.sites.batch import BatchReader, BatchSubmitter
from forestay.services.sites.site_agent import SiteAgent

log = structlog.get_logger()
BURST = 20.0
"""The largest burst of batch system commands after a pause."""


class SiteComponents:
    """One site agent, joined."""

    def __init__(self, settings: SiteSettings) -> None:
        self.settings = settings
        self.spool = FolderPilotSpool(settings.spool)
        self.api = HttpxSiteApi(
            settings.servers,
            site=settings.site,
            token_file=settings.token_file,
            ca_file=settings.ca_file,
            certificate=settings.certificate,
        )
        clock = SystemClock()
        pace = Pace(settings.pace.commands, BURST)
        self.kubernetes = _kubernetes(settings, clock, pace)
        reader = self.kubernetes or _reader(settings, PacedCommands(SystemCommands(), clock, pace))
        self._program = settings.users.program or self.spool.pilot(pilot_program())
        self._sizes = {size.name: size for size in settings.sizes}
        self.submitter = _submitter(settings, reader)
        self.agent = SiteAgent(
            self.api,
            submitter=self.submitter,
            reader=reader,
            spool=self.spool,
            clock=clock,
            ids=RandomIds(),
            policy=settings.policy,
            pilot_job=self.pilot_job,
            greeting=self._greeting(),
            on_event=lambda event, facts: log.info(event, **facts),
        )

    async def close(self) -> None:
        await self.api.close()
        if self.kubernetes is not None:
            await self.kubernetes.close()
        self.spool.close()

    def _greeting(self) -> dict[str, object]:
        settings = self.settings
        return {
            "agent": self.spool.agent(),
            "host": socket.gethostname(),
            "version": version("forestay"),
            "batch": settings.batch,
            "sizes": [
                {
                    "name": size.name,
                    "slots": size.slots,
                    "cpus": size.offers.cpus,
                    "memory": size.offers.memory,
                    "disk": size.offers.disk,
                    "gpus": size.offers.gpus,
                    "wall": size.offers.wall,
                    # A server of the last release does not know of it.
                    **({"nodes": size.offers.nodes} if size.offers.nodes > 1 else {}),
                }
                for size in settings.policy.sizes
            ],
        }

    def pilot_job(self, launch: str, size: str, secret: str) -> PilotJob:
        """The batch job that starts a launch's pilot."""
        name, owner = size_and_owner(size)
        wanted = self._sizes.get(name)
        if wanted is None:
            raise Permanent(f"size {name} is no longer in the settings")
        users = self.settings.own_users
        if users is not None:
            user = users.of(owner)
            if not user:
                raise Permanent(f"{owner or 'nobody'} is no longer in the settings as a Unix user")
            return PilotJob(NAME + launch, (), directory="/", environment=_handed(secret), user=user, size=name)
        if self.kubernetes is not None:
            return kubernetes_job(self.settings, wanted, launch, _handed(secret))
        return PilotJob(
            name=NAME + launch,
            command=pilot_command(self.settings, wanted, self._program, launch, secret),
            directory=str(self.spool.folder / "work"),
            nodes=wanted.nodes,
            cpus=wanted.cpus,
            memory=wanted.memory,
            wall=wanted.wall,
            queue=wanted.queue,
            account=wanted.account,
            output=str(self.spool.log(launch)),
            options=wanted.options,
        )


def kubernetes_job(settings: SiteSettings, size: SizeTable, launch: str, environment: dict[str, str]) -> PilotJob:
    """The batch job of a launch on Kubernetes: nothing of it is on a file system that it shares with the agent."""
    work = settings.pilot.work or f"{WORK}/pilot"
    command = pilot_command(settings, size, Path(PROGRAM), launch, "")
    return PilotJob(
        name=NAME + launch,
        command=(*command, *(() if settings.pilot.work else ("--work", work))),
        directory=WORK,
        environment=environment,
        cpus=size.cpus,
        memory=size.memory,
        wall=size.wall,
        queue=size.queue,
        options=size.options,
        size=size.name,
    )


def _handed(secret: str) -> dict[str, str]:
    """The environment of a pilot that gets its secret there."""
    try:
        return {SECRET: Path(secret).read_text(encoding="ascii")}
    except OSError as error:
        raise Transient(f"the spool: {error.strerror} ({error.filename})") from error


def pilot_command(settings: SiteSettings, size: SizeTable, program: Path, launch: str, secret: str) -> tuple[str, ...]:
    """The command of a launch's pilot, which finds its secret in a file; empty: in its environment."""
    pilot = settings.pilot
    options: list[tuple[str, object]] = [
        *(("--server", server) for server in settings.servers),
        *([("--enrolment-file", secret)] if secret else []),
        ("--launch", launch),
        ("--site", settings.site),
        ("--outputs", settings.outputs),
        ("--slots", size.at_once),
        ("--cpus", size.cpus),
        ("--memory", size.memory),
        ("--gpus", size.gpus),
        ("--time-left", size.wall),
        ("--time-margin", pilot.time_margin),
        ("--idle-exit", pilot.idle_exit),
    ]
    if size.disk is not None:
        options.append(("--disk", size.disk))
    if settings.ca_file is not None:
        options.append(("--ca-file", settings.ca_file if settings.kubernetes is None else CA_FILE))
    if pilot.certificate:
        options.append(("--certificate", pilot.certificate))
    if size.nodes > 1 and settings.nodes is not None:
        options.append(("--nodes", size.nodes))
        options += [("--nodes-launcher", json.dumps(settings.nodes.launcher))]
        options.append(("--work", settings.nodes.work))
    elif pilot.work:
        options.append(("--work", pilot.work))
    words = [str(word) for option in options for word in option]
    return (pilot.python, str(program), *words, *pilot.arguments)


def _kubernetes(settings: SiteSettings, clock: Clock, pace: Pace) -> KubernetesBatch | None:
    """The Kubernetes of the site, if it is one."""
    table = settings.kubernetes
    if table is None:
        return None
    try:
        authorities = settings.ca_file.read_bytes() if settings.ca_file is not None else b""
    except OSError as error:
        raise Permanent(f"{settings.ca_file} cannot be read: {error.strerror}") from error
    cluster = ApiServer(table.address or _own_cluster(), table.token_file, table.ca_file)
    volumes = [PodVolume(str(each.path), each.claim or "", each.secret or "", each.read_only) for each in table.volumes]
    pods = PodSettings(
        site=settings.site,
        namespace=table.namespace,
        image=table.image,
        user=table.user,
        group=table.group,
        pull_secrets=table.pull_secrets,
        service_account=table.service_account or "",
        node_selector=table.node_selector,
        tolerations=tuple(
            {name: value for name, value in each.model_dump().items() if value} for each in table.tolerations
        ),
        priority_class=table.priority_class or "",
        gpu_resource=table.gpu_resource,
        volumes=tuple(volumes),
        grace=table.grace,
        queue_wait=settings.queue_wait,
        keep_finished=table.keep_finished,
        sizes={size.name: PodSize(size.image, size.gpus, size.disk) for size in settings.sizes},
    )
    return KubernetesBatch(
        KubernetesApi(cluster, clock=clock, pace=pace),
        pods,
        PilotProgram(pilot_program(), authorities),
        patience=table.start_patience,
        on_event=lambda event, facts: log.warning(event, **facts),
    )


def _own_cluster() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise Permanent(
            "the agent does not run in a cluster: set kubernetes.address, kubernetes.token_file and kubernetes.ca_file"
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _reader(settings: SiteSettings, commands: Commands) -> BatchReader:
    """The reader of job states: the batch system's own commands."""
    if settings.batch == "htcondor":
        return HtcondorBatch(commands)
    if settings.batch == "pbs":
        return PbsReader(commands)
    if settings.batch == "lsf":
        return LsfReader(commands)
    return SlurmBatch(commands, dict(os.environ))


def _submitter(settings: SiteSettings, reader: BatchReader) -> BatchSubmitter:
    if settings.own_users is not None and isinstance(reader, SlurmBatch):
        return OwnUsersSlurm(reader, settings.users.launcher)
    if isinstance(reader, HtcondorBatch | KubernetesBatch):
        return reader  # PSI/J does not support these
    try:
        from forestay.adapters.psij.batch import PsijSubmitter, refused
    except ModuleNotFoundError as error:
        raise Permanent(
            f"a site agent submits through PSI/J, which is not installed ({error.name} is missing): pip install 'forestay[site]'"
        ) from error
    return PsijSubmitter(
        settings.batch,
        folder=settings.spool / "psij",
        environment=dict(os.environ),
        refusal=reader.refusal if isinstance(reader, SlurmBatch) else refused,
    )
