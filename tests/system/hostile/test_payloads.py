"""Payloads that turn against the pilot that runs them: a real pilot, and a job after them that must run there as if nothing had happened."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import httpx
import pytest
from tests.small_disk import small_disk
from tests.unit.apps.server.asks import read, submit_one
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until

NO_PTRACE = '#!/bin/sh\nexec setpriv --bounding-set=-all --inh-caps=-all "{python}" "$@"\n'
"""As any user but root has it: the pilot and its payloads are of one user, who may trace his own processes."""
SPY = """
import ctypes, json, os, sys

PTRACE_ATTACH = 16
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def parent(process):
    with open(f"/proc/{process}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def tried(act, process):
    try:
        act(process)
    except OSError as error:
        return type(error).__name__
    return "possible"


def attach(process):
    if libc.ptrace(PTRACE_ATTACH, process, None, None):
        raise OSError(ctypes.get_errno(), "refused")


TRIES = {
    "ptrace": attach,
    "memory": lambda process: open(f"/proc/{process}/mem", "rb").close(),
    "environment": lambda process: open(f"/proc/{process}/environ", "rb").read(),
    "open files": lambda process: os.readlink(f"/proc/{process}/fd/0"),
}
guard = os.getppid()
found = {
    f"{name} of the {who}": tried(act, process)
    for who, process in (("guard", guard), ("pilot", parent(guard)))
    for name, act in TRIES.items()
}
found["ptrace of its own child"] = "refused"
child = os.fork()
if not child:
    os.execvp("sleep", ["sleep", "60"])
found["ptrace of its own child"] = tried(attach, child)
os.kill(child, 9)
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


async def _state(client: httpx.AsyncClient, job: str, state: str) -> None:
    async def reached() -> bool:
        return bool((await read(client, job))["state"] == state)

    await until(reached, f"the job to be {state}")


async def test_a_payload_that_fills_the_disk_fails_and_the_next_job_runs(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    """The pilot keeps its own notes on that disk too; it takes no job with less than 64 MiB free."""
    place = tmp_path / "small"
    place.mkdir()
    with small_disk(place, 128):
        async with processes(own_domain, tmp_path) as running:
            server = await running.server()
            ada = running.client(server, "submitter", "viewer", tenant=tenant)
            pilot = running.pilot(tenant, server, work=str(place))
            full = await submit_one(ada, command=["sh", "-c", "cat /dev/zero > fill || exit 7"], max_attempts=1)
            await _state(ada, full, "failed")
            last = (await read(ada, full))["last"]
            assert last["exit_code"] == 7, "its own end is told, though nothing could be written"
            await _state(ada, await submit_one(ada, command=["true"]), "completed")
            assert pilot.process.poll() is None
            (incident,) = (await ada.get("/v1/incidents", params={"job": full})).json()["incidents"]
            assert incident["cause"] == "disk"


async def test_a_payload_cannot_look_into_its_pilot(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    """Neither by tracing it nor by its files in /proc, where its token is; it may still trace what it started itself."""
    if os.getuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("root may trace everything, and setpriv is not here")
    python, spy, found = tmp_path / "python", tmp_path / "spy.py", tmp_path / "found.json"
    python.write_text(NO_PTRACE.format(python=sys.executable))
    python.chmod(0o755)
    spy.write_text(SPY)
    async with processes(own_domain, tmp_path) as running:
        server = await running.server()
        ada = running.client(server, "submitter", "viewer", tenant=tenant)
        running.python = str(python) if os.getuid() == 0 else running.python
        running.pilot(tenant, server)
        await _state(ada, await submit_one(ada, command=[sys.executable, str(spy), str(found)]), "completed")
    results = json.loads(found.read_text())
    assert results.pop("ptrace of its own child") == "possible", "a debugger still works"
    assert set(results.values()) == {"PermissionError"}, results
