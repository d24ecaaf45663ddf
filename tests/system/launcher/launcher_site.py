"""A machine with the launcher installed: three users whose jobs may run, one who may not, and a site agent's account with the sudo rule."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "deploy/launcher/forestay_launch.py"
SUDOERS = ROOT / "deploy/launcher/forestay-launch.sudoers"
SYSTEM_PYTHON = "/usr/bin/python3"
SECRET = "fse-" + "5ec7e7" * 10
CONFIGURATION = """
[launcher]
group = {group}
folder = {place}/users/{{user}}

[environment]
SLURM_CONF = /etc/slurm/slurm.conf

[size standard]
submit = {submit}
pilot = {pilot}

[cancel]
command = {place}/echo cancel {{launch}} {{job}}
"""


def can_launch() -> bool:
    """Whether this machine allows all of it: accounts are made and removed, and sudo is installed."""
    needed = ("useradd", "userdel", "groupadd", "sudo")
    return os.geteuid() == 0 and all(map(shutil.which, needed)) and os.path.exists(SYSTEM_PYTHON)


@dataclass(eq=False)
class LauncherSite:
    """The installed launcher and the accounts; all of it is removed in the end."""

    place: Path
    group: str
    users: dict[str, str]
    """Accounts by what they are in the test: ann, bob, cleo; mallory, who is in no group; agent."""
    pids: list[int] = field(default_factory=list)

    @property
    def launcher(self) -> Path:
        return self.place / "forestay-launch"

    def uid(self, who: str) -> int:
        return pwd.getpwnam(self.users[who]).pw_uid

    def folder(self, who: str) -> Path:
        return self.place / "users" / self.users[who]

    def configure(self, *, submit: str, pilot: str = "/bin/true", more: str = "") -> None:
        text = CONFIGURATION.format(group=self.group, place=self.place, submit=submit, pilot=pilot) + more
        (self.place / "launch.conf").write_text(text)
        (self.place / "launch.conf").chmod(0o644)

    def submission(self, who: str, **changes: object) -> dict[str, object]:
        user = self.users.get(who, who)
        return {"act": "submit", "user": user, "size": "standard", "launch": "l1", "secret": SECRET} | changes

    def launch(self, request: object, *, arguments: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """What the site agent does: sudo, with the request on the standard input, and an environment that is to come to nothing."""
        text = request if isinstance(request, bytes) else json.dumps(request).encode()
        hostile = {
            "PATH": f"{self.place}/evil:/usr/bin:/bin",
            "PYTHONPATH": f"{self.place}/evil",
            "LD_PRELOAD": "/nowhere.so",
        }
        return self.run_as("agent", ["/usr/bin/sudo", "-n", str(self.launcher), *arguments], text, hostile)

    def run_as(
        self, who: str, command: Sequence[str], text: bytes = b"", environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        account = pwd.getpwnam(self.users[who])
        ran = subprocess.run(
            command,
            input=text,
            capture_output=True,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=os.getgrouplist(account.pw_name, account.pw_gid),
            env={"PATH": "/usr/bin:/bin"} | (environment or {}),
            cwd="/",
            timeout=60,
            check=False,
        )
        return subprocess.CompletedProcess(command, ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def program(self, name: str, text: str) -> Path:
        """A program that everybody can run and only root can change."""
        path = self.place / name
        path.write_text(text)
        path.chmod(0o755)
        return path


@contextmanager
def launcher_site() -> Iterator[LauncherSite]:
    """Make the accounts, install the launcher, and remove both."""
    mark = f"fst{secrets.token_hex(3)}"
    place = Path(tempfile.mkdtemp(prefix="launcher-"))
    place.chmod(0o755)
    names = {who: f"{mark}-{who}" for who in ("ann", "bob", "cleo", "mallory", "agent")}
    site = LauncherSite(place, mark, names)
    rule = Path("/etc/sudoers.d") / mark
    try:
        _ran("groupadd", mark)
        for who, name in names.items():
            groups = ["--groups", mark] if who in ("ann", "bob", "cleo") else []
            _ran(
                "useradd", "--no-create-home", "--home-dir", str(place / "users" / name), "--user-group", *groups, name
            )
        (place / "users").mkdir(mode=0o755)
        for who in ("ann", "bob", "cleo", "mallory"):
            site.folder(who).mkdir(mode=0o700)
            os.chown(site.folder(who), site.uid(who), pwd.getpwnam(names[who]).pw_gid)
        source = SOURCE.read_text()
        assert source.count('"/etc/forestay/launch.conf"') == 1
        site.program("forestay-launch", source.replace("/etc/forestay/launch.conf", str(place / "launch.conf")))
        site.program("echo", '#!/bin/sh\necho "$@"\nid -un\n')
        allowed = SUDOERS.read_text().replace("/usr/libexec/forestay-launch", str(site.launcher))
        rule.write_text(allowed.replace("forestay-site", names["agent"]))
        rule.chmod(0o440)
        _ran("visudo", "-c", "-q", "-f", str(rule))
        yield site
    finally:
        rule.unlink(missing_ok=True)
        for name in names.values():
            subprocess.run(["userdel", "--force", name], capture_output=True, check=False)
        subprocess.run(["groupdel", mark], capture_output=True, check=False)
        shutil.rmtree(place, ignore_errors=True)


def _ran(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
