"""Secrets between owners: a real server and real pilots, each a process of its own, and a job that wants what is another's."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
from tests.unit.apps.server.asks import read, submit_one
from tests.unit.apps.server.processes import Processes, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay_pilot.job_secrets.secret_files import MEMORY

VALUE = "the-value-that-only-ann-may-have"
LINES = "-----BEGIN KEY-----\nfirst-line-of-the-key\nsecond-line-of-the-key\n-----END KEY-----\n"
THIEF = """
import os
needle = bytes(reversed(b'{reversed}'))
for name in filter(str.isdigit, os.listdir('/proc')):
    try:
        if needle in open(f'/proc/{{name}}/cmdline', 'rb').read():
            print('found on a command line')
    except OSError:
        pass
print('looked')
"""


async def _ended(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    async def over() -> bool:
        return (await read(client, job))["state"] in ("completed", "failed")

    await until(over, "the end of the job", patience=60)
    return await read(client, job)


async def _log(client: httpx.AsyncClient, job: str) -> str:
    """The last lines that the servers keep."""
    answer = await client.get(f"/v1/jobs/{job}/log")
    assert answer.status_code == 200, answer.text
    return answer.text


def _everything(*folders: Path) -> dict[Path, bytes]:
    """What is in any file of the store, the servers' logs, the work folders, the outputs, and in memory."""
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path: path.read_bytes() for path in paths if path.stat().st_uid == os.getuid()}


async def test_the_secret_of_an_owner_is_in_nothing_that_others_see(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir(mode=0o700)
    for name, value in {"db": VALUE, "key": LINES}.items():
        (site / name).write_text(value)
        (site / name).chmod(0o600)
    file = tmp_path / "secrets.json"
    file.write_text(json.dumps({"folder": str(site), "owners": {"ann": ["file:*"], "bob": ["file:of-bob"]}}))
    file.chmod(0o600)
    domain = tmp_path / "domain"
    domain.mkdir()
    async with (
        store_room("sqlite", domain) as url,
        processes(Domain(url, domain), domain, lease=60, free_tries="") as running,
    ):
        server = await running.server()
        running.pilot("physics", server, host="plain")
        running.pilot("physics", server, host="able", secrets=str(file), slots=2)
        ann, bob = (_person(running, server.url, name) for name in ("ann", "bob"))
        async with ann, bob:
            script = (
                'test ${#DB} = 32 && echo known; echo $DB; cat $KEY; printf %s $DB | base64; printf "ann:$DB" | base64 -w0;'
                " echo; env | grep DB; touch here; while [ ! -e go ]; do sleep 0.05; done; exit 3"
            )
            secrets = {"DB": "file:db", "KEY": {"file": "key", "as": "file"}}
            victim = await submit_one(ann, command=["sh", "-c", script], secrets=secrets)
            here = await _file(domain, "here")
            thief = tmp_path / "thief.py"
            thief.write_text(THIEF.format(reversed=VALUE[::-1]))
            stolen = await submit_one(bob, command=["sh", "-c", "echo $DB"], secrets={"DB": "file:db"})
            looked = await submit_one(bob, command=[sys.executable, str(thief)])
            refused = await _ended(bob, stolen)
            assert (refused["state"], refused["last"]["reason"]) == ("failed", "secret-failed")
            assert (refused["last"]["error"], refused["last"]["host"]) == ("not-allowed", "able")
            assert (await _ended(bob, looked))["state"] == "completed"
            assert (await _log(bob, looked)).strip() == "looked"
            (here.parent / "go").touch()
            ended = await _ended(ann, victim)
            assert (ended["last"]["reason"], ended["last"]["host"]) == ("exit", "able")
            kept = await _log(ann, victim)
            assert "known" in kept
            assert kept.count("[secret DB]") == 4, kept
            assert kept.count("[secret KEY]") == 4, kept
            incidents = (await ann.get("/v1/incidents")).text
            assert VALUE not in incidents
    needles = [VALUE.encode(), b"first-line-of-the-key", b"dGhlLXZhbHVlLXRoYXQtb25seS1hbm4tbWF5LWhhdm"]
    for path, content in _everything(domain, Path(MEMORY)).items():
        for needle in needles:
            assert needle not in content, path


def _person(running: Processes, url: str, subject: str) -> httpx.AsyncClient:
    token = running.domain.token("submitter", tenant="physics", subject=subject)
    return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30)


async def _file(folder: Path, name: str) -> Path:
    found: list[Path] = []

    async def there() -> bool:
        found[:] = await asyncio.to_thread(lambda: list(folder.glob(f"work-*/pilot-*/jobs/*/{name}")))
        return bool(found)

    await until(there, f"{name} of a job", patience=60)
    return found[0]
