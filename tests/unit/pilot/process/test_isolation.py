"""What a payload can see and use of the machine and of its pilot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripts.build_pilot import build
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer, until

from forestay_pilot.process.payload import Surroundings
from forestay_pilot.process.payload_cgroup import (
    PayloadCgroup,
    check_parent,
    find_parent,
    leaf_of,
    make_payload_cgroup,
    ready_parent,
)

StartPilot = Callable[..., RunningPilot]
SPY = """
import json, os
needles = [word[::-1].encode() for word in NEEDLES]
found, tried = [], 0
for name in os.listdir('/proc'):
    if not name.isdigit() or int(name) == os.getpid():
        continue
    for what in ('environ', 'cmdline', 'mem'):
        try:
            with open(f'/proc/{name}/{what}', 'rb') as source:
                if what == 'mem':
                    found.append(f'{name} mem can be read') if int(name) in FAMILY() else None
                    continue
                text = source.read()
        except OSError:
            tried += 1
            continue
        found += [f'{name} {what}' for needle in needles if needle in text]
    try:
        found += [f'{name} fd {one}' for one in os.listdir(f'/proc/{name}/fd') if int(name) in FAMILY()]
    except OSError:
        tried += 1
own = sorted(os.readlink(f'/proc/self/fd/{one}').split(':')[0] for one in os.listdir('/proc/self/fd') if int(one) > 2 and os.path.lexists(f'/proc/self/fd/{one}'))
names = sorted(name for name in os.environ if not name.startswith('FORESTAY_'))
print(json.dumps({'found': found, 'tried': tried, 'own': own, 'names': names}))
"""
FAMILY = """
def FAMILY():
    pids, at = [], os.getppid()
    while at > 1 and len(pids) < 2:
        pids.append(at)
        with open(f'/proc/{at}/stat') as source:
            at = int(source.read().rpartition(')')[2].split()[1])
    return pids
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach as well."""
    folder = Path(tempfile.mkdtemp(prefix="forestay-isolation-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def test_no_payload_sees_the_token(server: FakeServer, open_folder: Path) -> None:
    """It looks through all of /proc. The pilot runs as an ordinary user: nothing can be hidden from root."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("there is no Python of the system that another user could run")
    program = open_folder / "pilot.pyz"
    build(program)
    needles = [word[::-1] for word in (ENROL_TOKEN, "pilot-token-")]
    spy = f"import os\nNEEDLES = {needles!r}\n{FAMILY}{SPY}"
    claim = server.submit(python, "-c", spy)
    done = subprocess.run(
        [
            *(python, str(program), "--server", server.url, "--max-jobs", "1"),
            *("--outputs", str(open_folder / "out"), "--work", str(open_folder / "work")),
        ],
        env={"PATH": "/usr/bin:/bin", "FORESTAY_ENROLMENT": ENROL_TOKEN, "SECRET_OF_THE_PILOT": "x"},
        user=65534 if os.getuid() == 0 else None,
        group=65534 if os.getuid() == 0 else None,
        extra_groups=[] if os.getuid() == 0 else None,
        cwd=open_folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    end = server.end_of(claim)
    assert end["outcome"] == "ok", end["log_tail"]
    seen = json.loads(end["log_tail"].splitlines()[-1])
    assert seen["found"] == []
    assert seen["tried"] >= 4, "it met closed doors: the guard's and the pilot's at the least"
    assert [entry for entry in seen["own"] if entry in ("socket", "pipe")] == []
    assert set(seen["names"]) <= {"PATH", "HOME", "LC_CTYPE"}


def memory_group() -> str:
    """A folder of control groups in which this process may make others; empty where there is none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        if "memory" in kinds.split(","):
            folder = f"/sys/fs/cgroup/memory{path.rstrip('/')}"
            if os.access(folder, os.W_OK) and not check_parent(folder):
                return folder
    return find_parent()


@pytest.fixture
def group() -> str:
    group = memory_group()
    if not group:
        pytest.skip("this process may make no control groups")
    return group


def test_a_payload_is_kept_to_its_memory(server: FakeServer, pilot: StartPilot, group: str) -> None:
    """In a group of its own: what it used and that it was killed for memory is known for sure, and the group is gone afterwards."""
    modest = server.submit(sys.executable, "-c", "held = bytearray(30 << 20)", resources={"memory": 200 << 20})
    greedy = server.submit(
        sys.executable, "-c", "held = [bytearray(10 << 20) for _ in range(90)]", resources={"memory": 100 << 20}
    )
    pilot(slots=2, surroundings=Surroundings(grace=1.0, groups=group))
    good, bad = server.end_of(modest), server.end_of(greedy)
    assert good["outcome"] == "ok", good["log_tail"]
    assert 30 << 20 < good["peak_memory"] < 200 << 20
    assert (bad["outcome"], bad["signal"]) == ("failure", 9)
    assert bad["oom_kills"] >= 1
    assert bad["peak_memory"] <= 100 << 20
    until(
        lambda: not any(Path(leaf_of(group, record["claim"])).exists() for record in (modest, greedy)),
        "the groups to go",
    )


def test_nothing_escapes_from_a_group(server: FakeServer, pilot: StartPilot, group: str, tmp_path: Path) -> None:
    script = f"setsid env -i sleep 300 & echo $! > {tmp_path}/pid; sleep 0.1"
    claim = server.submit("sh", "-c", script)
    pilot(surroundings=Surroundings(grace=1.0, groups=group))
    assert server.end_of(claim)["outcome"] == "ok"
    until(lambda: not Path(leaf_of(group, claim["claim"])).exists(), "the group to go")


def test_a_delegated_group_is_made_ready(tmp_path: Path) -> None:
    """Version 2, on a picture of its files: the pilot moves one down, and asks for the controllers."""
    own = tmp_path / "root" / "job_7"
    own.mkdir(parents=True)
    (tmp_path / "proc").write_text("0::/job_7\n")
    files = {"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "", "cgroup.procs": f"{os.getpid()}\n"}
    for name, text in files.items():
        (own / name).write_text(text)

    def found() -> str:
        return find_parent(proc=str(tmp_path / "proc"), root=str(tmp_path / "root"))

    assert found() == "", "the picture has no file to move the pilot to"
    assert not (own / "forestay-pilot").exists()
    (own / "cgroup.subtree_control").write_text("memory pids")
    assert found() == str(own), "another pilot made it ready"
    assert ready_parent(proc=str(tmp_path / "proc"), root=str(tmp_path / "root")) == str(own)
    (own / "cgroup.subtree_control").write_text("")
    (own / "cgroup.controllers").write_text("cpu")
    assert found() == ""


def test_limits_in_version_2(tmp_path: Path) -> None:
    for name in ("cgroup.events", "memory.max", "memory.oom.group", "pids.max"):
        (tmp_path / name).touch()
    (tmp_path / "memory.peak").write_text("4096\n")
    (tmp_path / "memory.events").write_text("oom 1\noom_kill 2\n")
    leaf = PayloadCgroup(str(tmp_path))
    leaf.limit(1 << 30)
    assert (tmp_path / "memory.max").read_text() == str(1 << 30)
    assert (tmp_path / "memory.oom.group").read_text() == "1"
    assert (leaf.peak(), leaf.oom_kills()) == (4096, 2)


def test_no_group_is_no_trouble(tmp_path: Path) -> None:
    assert make_payload_cgroup("", memory=1) is None
    assert make_payload_cgroup(str(tmp_path / "missing" / "leaf"), memory=1) is None
    assert "no control group" in check_parent(str(tmp_path / "missing"))
