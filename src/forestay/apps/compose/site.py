"""The parts of a site agent."""

from __future__ import annotations

import os
import socket
from importlib.metadata import version
from pathlib import Path

import structlog

from forestay.adapters.htcondor.batch import HtcondorBatch
from forestay.adapters.httpx.site_api import HttpxSiteApi
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
        commands = PacedCommands(SystemCommands(), clock, Pace(settings.pace.commands, BURST))
        reader = _reader(settings, commands)
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
            try:
                handed = {SECRET: Path(secret).read_text(encoding="ascii")}
            except OSError as error:
                raise Transient(f"the spool: {error.strerror} ({error.filename})") from error
            return PilotJob(NAME + launch, (), directory="/", environment=handed, user=user, size=name)
        return PilotJob(
            name=NAME + launch,
            command=pilot_command(self.settings, wanted, self._program, launch, secret),
            directory=str(self.spool.folder / "work"),
            cpus=wanted.cpus,
            memory=wanted.memory,
            wall=wanted.wall,
            queue=wanted.queue,
            account=wanted.account,
            output=str(self.spool.log(launch)),
            options=wanted.options,
        )


def pilot_command(settings: SiteSettings, size: SizeTable, program: Path, launch: str, secret: str) -> tuple[str, ...]:
    """The command of a launch's pilot, which finds its secret in a file."""
    pilot = settings.pilot
    options: list[tuple[str, object]] = [
        *(("--server", server) for server in settings.servers),
        ("--enrolment-file", secret),
        ("--launch", launch),
        ("--site", settings.site),
        ("--outputs", settings.outputs),
        ("--slots", size.slots or size.cpus),
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
        options.append(("--ca-file", settings.ca_file))
    if pilot.certificate:
        options.append(("--certificate", pilot.certificate))
    if pilot.work:
        options.append(("--work", pilot.work))
    words = [str(word) for option in options for word in option]
    return (pilot.python, str(program), *words, *pilot.arguments)


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
    if isinstance(reader, HtcondorBatch):
        return reader  # PSI/J does not support HTCondor
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
