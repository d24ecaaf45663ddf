"""Pilots as jobs of the users for whom they run, on a real Slurm: submitted, accounted and cancelled as theirs, and closed to each other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests import servers
from tests.system.launcher.launcher_site import SECRET, LauncherSite, can_launch, launcher_site
from tests.unit.apps.server.running import until

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.slurm.own_users import SECRET as SECRET_VARIABLE
from forestay.adapters.slurm.own_users import OwnUsersSlurm
from forestay.adapters.system.commands import SystemCommands
from forestay.apps.config.site_settings import read_site
from forestay.apps.site.launcher_configuration import launcher_configuration
from forestay.domain.sites.batch import OVER, BatchState, PilotJob, SubmitRefused

pytestmark = [
    pytest.mark.live,
    pytest.mark.pair,
    pytest.mark.skipif(not can_launch(), reason="needs root, sudo and the commands that make accounts"),
]
USERS = ("ann", "bob", "cleo")
PATIENCE = 120.0
# Stands for the pilot: it says who it is, reads its own secret, tries those of the others, and waits for the end of the test.
STAND_IN = """#!/bin/sh
id -un
while [ "$1" != --enrolment-file ]; do shift; done
cat "$2" && echo
for user in {place}/users/*; do
  [ "$user" = "$(dirname "$2")" ] && continue
  (ls "$user" || cat "$user/${{user##*/}}.secret" || touch "$user/x") >/dev/null 2>&1 && echo "GOT $user"
done
for pid in $(pgrep -f forestay-stand-in); do
  [ "$(stat -c %U /proc/$pid 2>/dev/null)" = "$(id -un)" ] && continue
  (cat /proc/$pid/environ || kill -9 $pid) >/dev/null 2>&1 && echo "GOT $pid"
done
echo tried
exec sleep 300
"""


@pytest.fixture
def machine() -> Iterator[LauncherSite]:
    servers.slurm()
    with launcher_site() as site:
        program = site.program("forestay-stand-in", STAND_IN.format(place=site.place))
        size = {"name": "standard", "cpus": 2, "memory": "200 MiB", "wall": "10 min"}
        settings = {
            "site": "hall", "servers": ["http://127.0.0.1:9"], "token_file": "/t", "spool": "/s", "outputs": "/o", "max_pilots": 3,
            "pilot": {"python": "/bin/sh"}, "sizes": [size],
            "users": {"run_as": "submitter", "group": site.group, "folder": f"{site.place}/users/{{user}}", "program": str(program)},
        }  # fmt: skip
        environment = {"SLURM_CONF": os.environ["SLURM_CONF"]}
        (site.place / "launch.conf").write_text(launcher_configuration(read_site(settings, "site"), environment))
        (site.place / "launch.conf").chmod(0o644)
        accounts = ",".join(site.users[who] for who in USERS)
        output_of("sacctmgr", "-i", "add", "user", accounts, "Account=pilots")
        try:
            yield site
        finally:
            for who in USERS:
                output_of("scancel", f"--user={site.users[who]}")
            subprocess.run(["sacctmgr", "-i", "delete", "user", accounts], capture_output=True, check=False)


async def test_three_users_have_pilots_files_and_accounting_of_their_own(machine: LauncherSite) -> None:
    slurm = SlurmBatch(SystemCommands(), dict(os.environ))
    batch = OwnUsersSlurm(slurm, ["/usr/bin/sudo", "-n", str(machine.launcher)])
    await batch.check()
    jobs: dict[str, str] = {}
    for who in USERS:
        secret = {SECRET_VARIABLE: f"{SECRET}{who}"}
        answer = await batch.submit(
            PilotJob(f"forestay-{machine.users[who]}", (), "/", secret, user=machine.users[who], size="standard")
        )
        assert isinstance(answer, str), answer
        jobs[who] = answer
    for user in ("root", machine.users["mallory"]):
        secret = {SECRET_VARIABLE: SECRET}
        refusal = await batch.submit(PilotJob("forestay-x-l1", (), "/", secret, user=user, size="standard"))
        assert isinstance(refusal, SubmitRefused), refusal
        assert "forestay-launch: refused" in refusal.words

    def words(who: str) -> str:
        log = machine.folder(who) / f"{machine.users[who]}.log"
        return log.read_text() if log.exists() else ""

    await until(_all(lambda: all(words(who).endswith("tried\n") for who in USERS)), "the pilots", PATIENCE)
    for who in USERS:
        assert words(who) == f"{machine.users[who]}\n{SECRET}{who}\ntried\n", "nothing that is another's"
        shown = output_of("scontrol", "show", "job", jobs[who])
        assert f"UserId={machine.users[who]}({machine.uid(who)})" in shown
        assert "Requeue=0" in shown
        assert SECRET not in output_of("scontrol", "write", "batch_script", jobs[who], "-")
    found = await slurm.find([f"forestay-{machine.users[who]}" for who in USERS])
    assert {name: [job.id for job in same] for name, same in found.items()} == {
        f"forestay-{machine.users[who]}": [jobs[who]] for who in USERS
    }
    await batch.cancel([jobs["ann"]])
    await until(_over(slurm, jobs["ann"]), "the end of ann's", PATIENCE)
    others = await slurm.outcome([jobs["bob"], jobs["cleo"]])
    assert {outcome.state for outcome in others.values()} == {BatchState.RUNNING}, "they never noticed"
    await batch.cancel(list(jobs.values()))
    for who in USERS:
        await until(_over(slurm, jobs[who]), f"the end of {who}'s", PATIENCE)
    rows = output_of("sacct", "-n", "-X", "-P", "--format=JobID,User", f"--jobs={','.join(jobs.values())}").split()
    assert sorted(rows) == sorted(f"{jobs[who]}|{machine.users[who]}" for who in USERS), "the accounting is the users'"


def output_of(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def _all(look: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        return look()

    return there


def _over(slurm: SlurmBatch, job: str) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        return (await slurm.outcome([job]))[job].state in OVER

    return there
