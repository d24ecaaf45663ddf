"""The launcher as root, through a real sudo, with real accounts: what it does for the agent, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.launcher.launcher_site import SECRET, LauncherSite, can_launch, launcher_site

pytestmark = pytest.mark.skipif(not can_launch(), reason="needs root, sudo and the commands that make accounts")

STAND_IN = """#!/usr/bin/python3 -IS
import json, os, resource, signal, sys
print(json.dumps({
    "arguments": sys.argv[1:], "uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups(), "env": dict(os.environ),
    "folder": os.getcwd(), "script": sys.stdin.read(), "files": [f for f in os.listdir("/proc/self/fd") if int(f) > 2],
    "umask": os.umask(0), "caps": [l for l in open("/proc/self/status").read().split("\\n") if l.startswith("CapEff")],
}))
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[LauncherSite]:
    with launcher_site() as site:
        site.program("sbatch", STAND_IN)
        yield site


@pytest.fixture
def site(machine: LauncherSite) -> LauncherSite:
    machine.configure(
        submit=f"{machine.place}/sbatch --job-name=forestay-{{launch}} '--output={{folder}}/{{launch}}.log' 'two words'",
        pilot="/usr/bin/python3 pilot.pyz --enrolment-file {folder}/{launch}.secret --launch {launch} --work '/tmp/a b/{user}'",
    )
    return machine


@pytest.mark.parametrize("who", ["ann", "bob", "cleo"])
def test_the_command_runs_as_the_user_and_as_nobody_else(site: LauncherSite, who: str) -> None:
    ran = site.launch(site.submission(who))
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    name, uid, folder = site.users[who], site.uid(who), site.folder(who)
    assert seen["uids"] == [uid] * 3
    assert len(set(seen["gids"])) == 1
    assert sorted(seen["groups"]) == sorted(os.getgrouplist(name, seen["gids"][0]))
    assert 0 not in seen["groups"]
    assert seen["caps"] == ["CapEff:\t0000000000000000"]
    assert seen["arguments"] == ["--job-name=forestay-l1", f"--output={folder}/l1.log", "two words"]
    expected = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "USER": name, "LOGNAME": name, "SHELL": "/bin/sh"}
    ours = {"LANG": "C.UTF-8", "SLURM_CONF": "/etc/slurm/slurm.conf"}
    assert {key: value for key, value in seen["env"].items() if key != "LC_CTYPE"} == expected | ours
    assert seen["folder"] == str(folder)
    assert seen["umask"] == 0o077
    assert len(seen["files"]) == 1, "only the one by which they were listed"
    command = f"/usr/bin/python3 pilot.pyz --enrolment-file {folder}/l1.secret --launch l1 --work '/tmp/a b/{name}'"
    assert seen["script"] == f"#!/bin/sh\nexec {command}\n"
    about = (folder / "l1.secret").stat()
    assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (uid, 0o600)
    assert (folder / "l1.secret").read_text() == SECRET
    assert SECRET not in ran.stdout
    again = site.launch(site.submission(who, secret="fse-" + "0" * 64))
    assert again.returncode == 0, again.stderr
    assert (folder / "l1.secret").read_text() == "fse-" + "0" * 64


def test_it_cancels_as_the_user_and_only_what_was_launched(site: LauncherSite) -> None:
    request = {"act": "cancel", "user": site.users["ann"], "launch": "l1", "job": "4711"}
    ran = site.launch(request)
    assert (ran.returncode, ran.stdout) == (0, f"cancel l1 4711\n{site.users['ann']}\n"), ran.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "root"}, {"user": "daemon"}, {"user": "nobody"}, {"user": "0"}, {"user": "1000"}, {"user": "+0"}, {"user": "#0"},
        {"user": ""}, {"user": "ann\n"}, {"user": "../ann"}, {"user": "no-such-account"}, {"user": "root\x00ann"}, {"user": None},
        {"launch": "../../etc/cron.d/x"}, {"launch": "a/b"}, {"launch": ""}, {"launch": ".."}, {"launch": "l1 --uid=0"},
        {"launch": "{user}"}, {"launch": "l1\n"}, {"launch": "x" * 65}, {"launch": "-l1"}, {"launch": 1},
        {"size": "unknown"}, {"size": "launcher"}, {"size": "standard]"}, {"size": "standard\n"},
        {"secret": "hunter2"}, {"secret": "fse-" + "x" * 300}, {"secret": "fse-;touch /tmp/pwned;"}, {"secret": ["fse-"]},
        {"act": "shell"}, {"act": "cancel"}, {"act": ""}, {"uid": "0"}, {"command": "/bin/sh"},
    ],
    ids=repr,
)  # fmt: skip
def test_a_hostile_request_starts_nothing(site: LauncherSite, changes: dict[str, object]) -> None:
    ran = site.launch(site.submission("ann", **changes))
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("forestay-launch: refused: ")
    assert SECRET not in ran.stderr


@pytest.mark.parametrize("job", ["0 1", "-u root", "1;id", "4711_2", "", "1" * 21, "--me"])
def test_a_hostile_cancellation_starts_nothing(site: LauncherSite, job: str) -> None:
    ran = site.launch({"act": "cancel", "user": site.users["ann"], "launch": "l1", "job": job})
    assert (ran.returncode, ran.stdout) == (2, "")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"{}" * 3000, b'{"act": "submit"}', b"[" * 4000]
)
def test_what_is_no_request_starts_nothing(site: LauncherSite, text: bytes) -> None:
    ran = site.launch(text)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr


def test_an_account_outside_the_group_is_refused(site: LauncherSite) -> None:
    ran = site.launch(site.submission("mallory"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"is not in the group {site.group}" in ran.stderr
    ran = site.launch(site.submission("agent"))
    assert (ran.returncode, ran.stdout) == (2, "")


def test_a_system_account_is_refused_in_the_group_too_and_the_limit_is_not_lowered(site: LauncherSite) -> None:
    name = f"{site.group}-sys"
    subprocess.run(
        ["useradd", "--system", "--no-create-home", "--groups", site.group, name], check=True, capture_output=True
    )
    try:
        configuration = site.place / "launch.conf"
        configuration.write_text(configuration.read_text().replace("[launcher]", "[launcher]\nleast_uid = 0"))
        for user in (name, "root"):
            ran = site.launch(site.submission("ann", user=user))
            assert (ran.returncode, ran.stdout) == (2, "")
            assert "is an account of the system" in ran.stderr
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)


def test_sudo_allows_the_agent_the_launcher_without_arguments_and_nothing_else(site: LauncherSite) -> None:
    request = json.dumps(site.submission("ann")).encode()
    link = site.place / "users" / site.users["mallory"] / "launch"
    link.unlink(missing_ok=True)
    link.symlink_to(site.launcher)
    link.parent.chmod(0o755)
    program = str(site.launcher)
    for command in (
        [program, "--help"], [program, ""], [program, "-c", "id"], [str(link)], ["/bin/sh", program], ["/usr/bin/id"],
        ["-u", f"#{site.uid('ann')}", program], ["-E", program], ["PYTHONINSPECT=1", program],
    ):  # fmt: skip
        ran = site.run_as("agent", ["/usr/bin/sudo", "-n", *command], request)
        assert ran.returncode == 1, (command, ran.stdout, ran.stderr)
        assert ran.stdout == ""
    for who in ("ann", "bob", "mallory"):
        ran = site.run_as(who, ["/usr/bin/sudo", "-n", program], request)
        assert (ran.returncode, ran.stdout) == (1, ""), who
        for direct in (program, str(link)):
            ran = site.run_as(who, [direct], request)
            assert (ran.returncode, ran.stdout) == (2, ""), who
            assert "started as root" in ran.stderr
    assert site.run_as("mallory", ["/usr/bin/python3", program], request).returncode == 2


@pytest.mark.parametrize("wrong", ["writable", "another's", "link", "folder", "missing", "relative"])
def test_a_configuration_that_others_could_have_written_is_refused(site: LauncherSite, wrong: str) -> None:
    place, aside = site.place / "launch.conf", site.place / "aside.conf"
    try:
        if wrong == "writable":
            place.chmod(0o664)
        elif wrong == "another's":
            os.chown(place, site.uid("mallory"), 0)
        elif wrong == "link":
            place.rename(aside)
            place.symlink_to(aside)
        elif wrong == "folder":
            place.unlink()
            place.mkdir()
        elif wrong == "missing":
            place.unlink()
        else:
            site.configure(submit="sbatch --parsable")
        ran = site.launch(site.submission("ann"))
        assert (ran.returncode, ran.stdout) == (2, ""), ran.stdout
        assert "Traceback" not in ran.stderr
    finally:
        if place.is_dir():
            place.rmdir()
        place.unlink(missing_ok=True)
        aside.unlink(missing_ok=True)


def test_a_users_own_links_reach_nothing_that_the_user_could_not(site: LauncherSite) -> None:
    """The folder is entered as the user: a link in it leads nowhere that the user could not have gone alone."""
    ann, bob = site.folder("ann"), site.folder("bob")
    (bob / "l2.secret").write_text("bob's")
    (bob / "l2.secret").chmod(0o600)
    os.chown(bob / "l2.secret", site.uid("bob"), -1)
    shadow = Path("/etc/shadow").stat()
    for target in (bob / "l2.secret", Path("/etc/shadow"), Path("/etc/cron.d/l2")):
        (ann / "l2.secret").unlink(missing_ok=True)
        (ann / "l2.secret").symlink_to(target)
        ran = site.launch(site.submission("ann", launch="l2"))
        assert ran.returncode == 0, ran.stderr
        assert not (ann / "l2.secret").is_symlink()
    assert (bob / "l2.secret").read_text() == "bob's"
    assert Path("/etc/shadow").stat().st_mtime_ns == shadow.st_mtime_ns
    assert not Path("/etc/cron.d/l2").exists()
    aside = ann.with_name("aside")
    ann.rename(aside)
    try:
        ann.symlink_to(bob)
        assert site.launch(site.submission("ann", launch="l3")).returncode == 2
        ann.unlink()
        shutil.copytree(bob, ann)
        os.chown(ann, site.uid("bob"), -1)
        ann.chmod(0o777)
        ran = site.launch(site.submission("ann", launch="l3"))
        assert (ran.returncode, ran.stdout) == (2, ""), "a folder that another user made is not used"
        shutil.rmtree(ann)
    finally:
        if ann.is_symlink():
            ann.unlink()
        aside.rename(ann)
    assert not (bob / "l3.secret").exists()


def test_what_is_old_in_the_folder_is_removed_and_nothing_else(site: LauncherSite) -> None:
    folder = site.folder("cleo")
    for name in ("0a1b.log", "0a1b.secret", "thesis.tex", "young.log"):
        (folder / name).write_text("")
        os.chown(folder / name, site.uid("cleo"), -1)
        if name != "young.log":
            os.utime(folder / name, (0, 0))
    assert site.launch(site.submission("cleo", launch="l9")).returncode == 0
    left = {path.name for path in folder.iterdir()} - {"l1.secret"}
    assert left == {"thesis.tex", "young.log", "l9.secret"}
