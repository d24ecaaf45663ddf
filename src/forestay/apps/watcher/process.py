"""The watcher process: recovers users' own Slurm jobs that went through the shim."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.slurm.steering import SlurmSteering
from forestay.adapters.system.clock import SystemClock
from forestay.adapters.system.commands import PacedCommands, SystemCommands
from forestay.adapters.system.shim_spool import ShimSpool
from forestay.apps.compose.exception_service import RemoteExceptionService
from forestay.client import AsyncForestayClient, Patience
from forestay.domain.sites.pace import Pace
from forestay.services.insertion.batch_job_recovery import BatchJobRecovery

log = structlog.get_logger()

SPOOL = Path("/var/spool/forestay/shim")


class WatcherSettings(NamedTuple):
    """How one watcher works."""

    spool: Path = SPOOL
    engine: str = "slurm"
    """The name under which the jobs are reported."""
    acting: bool = False
    hold: bool = False
    every: float = 5.0
    """Seconds between polls."""
    pace: float = 5.0
    """The most Slurm commands per second."""
    records: Path | None = None
    """The folder in which jobs write records of themselves, if they do."""
    before_end: bool = False
    """Failed jobs with records ask for a decision before they end."""
    patience: int = 10
    """Seconds for which they wait for an answer."""
    override_no_requeue: bool = False
    """Also recover jobs that Slurm may not requeue, whatever their users chose."""
    decide_within: float = 120.0
    """Seconds in which a failed job must be decided on; it is shown as running meanwhile."""


def make_watcher(
    settings: WatcherSettings, client: AsyncForestayClient, environment: Mapping[str, str] = os.environ
) -> BatchJobRecovery:
    """The service, wired."""
    spool = ShimSpool(settings.spool, settings.records, settings.before_end and settings.acting, settings.patience)
    spool.prepare()
    clock = SystemClock()
    commands = PacedCommands(SystemCommands(), clock, Pace(settings.pace, max(1, int(4 * settings.pace))))
    slurm = SlurmBatch(commands, environment)
    return BatchJobRecovery(
        spool,
        slurm,
        SlurmSteering(slurm),
        RemoteExceptionService(client, settings.engine),
        clock,
        acting=settings.acting,
        hold=settings.hold,
        every=settings.every,
        override_no_requeue=settings.override_no_requeue,
        decide_within=settings.decide_within,
        troubled=lambda text: log.warning("watcher", trouble=text),
    )


async def run_watcher(settings: WatcherSettings, *, server: str, token: str) -> None:
    """Until it is stopped."""
    async with AsyncForestayClient(server, token, patience=Patience(seconds=10.0)) as client:
        recovery = make_watcher(settings, client)
        log.info("watching", spool=str(settings.spool), acting=settings.acting)
        await recovery.run()
