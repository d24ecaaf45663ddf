"""`forestay init --for own-jobs`: its checklist, followed on a real Slurm by a user without rights, ends with a job that was recovered."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers import address
from tests.system.insertion.shell import recovered
from tests.unit.apps.server.exceptions.test_engines import add_rule
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer, until

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.pair]

BIN = Path(sys.executable).parent


async def test_a_user_gets_from_the_checklist_to_a_recovered_job(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    address("SLURM_CONF")
    await add_rule(local, tenant, {"action": "resubmit", "how": "same"}, condition='cause != "memory"', cause="program")
    folder, mark = tmp_path / "forestay", tmp_path / "failed-once"
    user = local.domain.token("submitter", "rule-author", tenant=tenant, subject="root")
    environment = os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "FORESTAY_SERVER": local.url,
        "FORESTAY_TOKEN": user,
    }

    def sh(text: str) -> str:
        ran = subprocess.run(
            ["/bin/sh", "-euc", text], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    sh(f"forestay init {folder} --for own-jobs --act")
    blocks = re.findall(r"```sh\n(.*?)```", (folder / "CHECKLIST.md").read_text(), re.S)
    _, watch, enter, look, rules, remove = ["\n".join(map(str.strip, block.splitlines())) for block in blocks]
    with subprocess.Popen(["/bin/sh", "-c", f"exec {watch}"], env=environment, cwd=tmp_path) as watcher:  # noqa: ASYNC220
        try:

            async def vouches() -> bool:
                return (folder / "spool" / "watch").exists()

            await until(vouches, "the watcher to act", 120)
            assert "a watcher acts" in await asyncio.to_thread(sh, enter)
            # A job that ends in the second in which the watcher began may have been seen as failed, and is left alone.
            script = f"test -e {mark} || {{ touch {mark}; sleep 2; exit 1; }}"
            job = await asyncio.to_thread(
                sh, f". {folder}/env.sh\nsbatch --parsable -o {tmp_path}/out-%j --wrap '{script}'"
            )

            async def completed() -> bool:
                return "COMPLETED" in await asyncio.to_thread(sh, f"sacct -X -n -P -j {job} -o State")

            await until(completed, f"job {job} to be recovered", 200)
            await recovered(local, tenant, job)
            await asyncio.to_thread(sh, look)
            assert "starter-memory" in await asyncio.to_thread(sh, rules)
        finally:
            watcher.send_signal(signal.SIGTERM)
    sh(remove)
    assert not folder.exists()
