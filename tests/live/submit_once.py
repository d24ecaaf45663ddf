"""Submits one pilot job to the Slurm of the environment and prints what came of it: run in a network namespace by a test."""

from __future__ import annotations

import asyncio
import os
import sys

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.system.commands import SystemCommands
from forestay.domain.sites.batch import PilotJob, SubmitRefused


async def main(name: str) -> None:
    answer = await SlurmBatch(SystemCommands(), os.environ).submit(PilotJob(name, ("true",), "/"))
    print(answer.why if isinstance(answer, SubmitRefused) else f"queued as {answer}")  # noqa: T201


asyncio.run(main(sys.argv[1]))
