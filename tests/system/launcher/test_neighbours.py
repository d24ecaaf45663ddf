"""Two users of one machine whose real pilots the launcher started: a job of one attacks the other's pilot, files, secret and memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.system.launcher.launcher_site import SECRET, LauncherSite, can_launch, launcher_site
from tests.unit.pilot import fake_server
from tests.unit.pilot.fake_server import FakeServer, until

from forestay.adapters.system.pilot_program import pilot_program

pytestmark = pytest.mark.skipif(not can_launch(), reason="needs root, sudo and the commands that make accounts")

RUN = """#!/bin/sh
cat > "$1/$2.sh"
setsid /bin/sh "$1/$2.sh" > "$1/$2.log" 2>&1 &
echo $!
"""
ATTACK = """
import ctypes, glob, os, subprocess, sys
victim, folder, place = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def attempt(what, act):
    try:
        got = act()
    except (OSError, subprocess.SubprocessError) as error:
        print("refused", what, type(error).__name__)
    else:
        # Of a process that has just ended the kernel opens the files, which are empty.
        print("GOT" if got != b"" else "refused", what)
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *values):
    if getattr(libc, name)(*values) < 0:
        raise OSError(ctypes.get_errno(), name)
print("as", os.getuid())
def of_victim(path):
    try:
        return "Uid:\\t%d" % int(sys.argv[4]) in open(path + "/status").read()
    except OSError:
        return False
family = [victim] + [int(path.split("/")[2]) for path in glob.glob("/proc/[0-9]*") if of_victim(path)]
print("family", len(set(family)))
for pid in dict.fromkeys(family):
    for name in ("environ", "mem", "maps", "auxv", "stack", "fd/0", "fd/3"):
        attempt(f"/proc/{name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    for name in ("cwd", "exe", "fd"):
        attempt(f"/proc/{name}", lambda: os.listdir(f"/proc/{pid}/{name}/."))
    attempt("a signal", lambda: os.kill(pid, 15))
    attempt("ptrace", lambda: call("ptrace", 16, pid, None, None))
for name in ("", "/l1.secret", "/l1.log", "/l1.sh", "/work", "/out"):
    attempt(f"reading {name}", lambda: open(folder + name).read() if os.path.isfile(folder + name) else os.listdir(folder + name))
attempt("writing into the folder", lambda: open(folder + "/x", "w"))
attempt("a link into the folder", lambda: os.symlink("/etc/passwd", folder + "/l9.secret"))
attempt("removing the folder", lambda: os.rename(folder, folder + "2"))
for name in ("pilot.pyz", "launch.conf", "forestay-launch", "run"):
    attempt(f"changing {name}", lambda: open(f"{place}/{name}", "a"))
attempt("sudo", lambda: subprocess.run(["sudo", "-n", f"{place}/forestay-launch"], input=b"{}", check=True, capture_output=True))
attempt("the launcher", lambda: subprocess.run([f"{place}/forestay-launch"], input=b"{}", check=True, capture_output=True))
attempt("another user", lambda: os.setuid(int(sys.argv[4])))
print("done")
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[LauncherSite]:
    monkeypatch.setattr(fake_server, "ENROL_TOKEN", SECRET)
    with launcher_site() as site:
        (site.place / "pilot.pyz").write_bytes(pilot_program())
        site.program("run", RUN)
        site.program("attack.py", ATTACK)
        yield site
        for pid in site.pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


@pytest.fixture
def desks() -> Iterator[dict[str, FakeServer]]:
    """A server for each user, so that each pilot's requests are told apart."""
    made = {who: FakeServer() for who in ("ann", "bob")}
    yield made
    for server in made.values():
        server.stop()


def start(site: LauncherSite, who: str) -> int:
    ran = site.launch(site.submission(who, size=who))
    assert ran.returncode == 0, ran.stderr
    pid = int(ran.stdout)
    site.pids.append(pid)
    return pid


def test_a_users_job_reaches_nothing_of_another_users_pilot(
    machine: LauncherSite, desks: dict[str, FakeServer]
) -> None:
    sizes = "".join(
        f"\n[size {who}]\nsubmit = {machine.place}/run {{folder}} {{launch}}\n"
        f"pilot = /usr/bin/python3 {machine.place}/pilot.pyz --server {server.url} --enrolment-file {{folder}}/{{launch}}.secret "
        "--launch {launch} --outputs {folder}/out --work {folder}/work --claim-wait 1 --grace 1 --no-devices\n"
        for who, server in desks.items()
    )
    machine.configure(submit="/bin/true", more=sizes)
    pids = {who: start(machine, who) for who in desks}
    folder = machine.folder("ann")
    slow = desks["ann"].submit(
        "/bin/sh", "-c", f"echo private > {folder}/diary; while ! test -e {folder}/go; do sleep 0.1; done; id -u"
    )
    until(lambda: (folder / "diary").exists(), "ann's job")
    assert not (folder / "l1.secret").exists(), "her pilot has used it, and removed it"
    (folder / "l1.secret").write_text(SECRET)  # as if she had kept a copy
    (folder / "l1.secret").chmod(0o600)
    os.chown(folder / "l1.secret", machine.uid("ann"), -1)
    attack = desks["bob"].submit(
        "/usr/bin/python3",
        f"{machine.place}/attack.py",
        str(pids["ann"]),
        str(folder),
        str(machine.place),
        str(machine.uid("ann")),
    )
    words = desks["bob"].end_of(attack)["log_tail"]
    assert words.startswith(f"as {machine.uid('bob')}\n"), words
    assert words.endswith("done\n"), words
    assert "GOT" not in words, words
    assert words.count("refused") > 30
    assert SECRET not in words
    (folder / "go").touch()
    end = desks["ann"].end_of(slow)
    assert (end["outcome"], end["log_tail"]) == ("ok", f"{machine.uid('ann')}\n"), "her job and her pilot never noticed"
    for who, pid in pids.items():
        process = Path(f"/proc/{pid}")
        assert SECRET not in (process / "cmdline").read_text()
        lines = (process / "status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert set(status["Uid"].split()) == {str(machine.uid(who))}
        assert "0" not in status["Groups"].split()
