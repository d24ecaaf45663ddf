"""The program that stays the parent of a job's script: inside the job everything is as without it, and a script that failed has not ended for Slurm while it asks."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.servers import address
from tests.system.insertion.shell import install
from tests.system.shim.test_payload import accounted, told
from tests.system.shim.test_transparent import call, ended

from forestay.adapters.system.shim_spool import ShimSpool

pytestmark = [pytest.mark.live, pytest.mark.finding("F-A2")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """The shim, installed with records, and a watcher's promise; by a short name, for it stands in the first line of scripts."""
    address("SLURM_CONF")
    with TemporaryDirectory(prefix="fs") as name:
        place = Path(name)
        install(place / "bin", place / "records")
        spool = spool_of(place)
        spool.prepare()
        spool.vouch(600, hide=100)
        yield place


def spool_of(folder: Path) -> ShimSpool:
    return ShimSpool(folder / "spool", folder / "records", before_end=True)


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def submit(folder: Path, arm: str, script: str, *words: str) -> str:
    """A job in a folder of its own, bare or through the shim."""
    place = folder / arm
    place.mkdir(exist_ok=True)
    (place / "work.sh").write_text(script)
    through = folder if arm == "shim" else None
    out = ["--parsable", "-o", f"{place}/out", "-D", str(place)]
    result = call(through, "sbatch", *out, *words, f"{place}/work.sh", "a", "b  c")
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def decline(folder: Path, job: str, seconds: float = 60) -> None:
    """Answer that nothing comes of it, as the watcher does."""
    wait_for(lambda: job in spool_of(folder).questions({job: os.getuid()}), seconds)
    (folder / "records" / "asks" / f"{job}.0").unlink()


def asks_or_ended(folder: Path, job: str) -> bool:
    """A job that ended well, or that Slurm ended, does not ask."""
    return job in spool_of(folder).questions({job: os.getuid()}) or told(job, "State") not in ("", "PENDING", "RUNNING")


def both(folder: Path, script: str, *words: str, act: Callable[[Path, str], None] | None = None) -> dict[str, str]:
    """How a script ends and what it printed, bare and through the shim; both must be the same."""
    seen = {}
    for arm in ("bare", "shim"):
        job = submit(folder, arm, script, *words)
        if act is not None:
            act(folder / arm, job)
        if arm == "shim":
            wait_for(partial(asks_or_ended, folder, job))
            (folder / "records" / "asks" / f"{job}.0").unlink(missing_ok=True)
        state = ended(job)
        seen[arm] = f"{state} {accounted(job, 'ExitCode,JobName')}\n{(folder / arm / 'out').read_text()}"
    # Processes that are signalled together write in any order; Slurm's own line names job and time.
    neutral = {
        arm: sorted(line.replace(f"{folder}/{arm}", "FOLDER") for line in text.split("\n") if "*** JOB" not in line)
        for arm, text in seen.items()
    }
    more, less = (sorted(set(neutral[a]) - set(neutral[b])) for a, b in (("shim", "bare"), ("bare", "shim")))
    assert (more, less) == ([], [])
    assert neutral["shim"] == neutral["bare"]
    return seen


def ready(place: Path) -> None:
    wait_for((place / "ready").exists)


SLOW = pytest.mark.slow
"""Seconds each; `just insertion` runs them."""


@pytest.mark.parametrize("code", [3, *(pytest.param(code, marks=SLOW) for code in (0, 137, 255))])
def test_exit_codes(folder: Path, code: int) -> None:
    both(folder, f"#!/bin/sh\nexit {code}\n")


@pytest.mark.parametrize("signal", ["KILL", *(pytest.param(name, marks=SLOW) for name in ("TERM", "SEGV", "USR1"))])
def test_an_end_by_a_signal(folder: Path, signal: str) -> None:
    seen = both(folder, f"#!/bin/sh\nkill -{signal} $$\nsleep 5\n")["shim"]
    assert "FAILED 0:" in seen


LOOKS = """#!/bin/bash -e
#SBATCH --job-name=named
f() { :; }
python3 - "$@" <<'P'
import os, resource, signal, sys
parent = os.getppid()
print("arguments", sys.argv[1:])
print("script", open(f"/proc/{parent}/cmdline").read().split(chr(0))[:2])
print("files", sorted(os.listdir(f"/proc/{parent}/fd")))
moving = ("NODE", "JOB", "TOPOLOGY", "HOST", "PATH", "SUBMIT", "SHIM", "FORESTAY_SHIM", "TASK_PID", "PWD", "PROLOG")
print(*(f"{k}={v!r}" for k, v in os.environ.items() if not any(part in k for part in moving)), sep="\\n")
print("is the task", os.environ["SLURM_TASK_PID"] == str(parent))
print("leads a group", os.getpgid(parent) == parent)
names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
print("limits", [(name, resource.getrlimit(getattr(resource, name))) for name in names])
print("signals", [line.split() for line in open(f"/proc/{parent}/status") if line.startswith(("SigBlk", "SigIgn"))])
print("umask, nice", oct(os.umask(0)), os.nice(0))
print("oom", open("/proc/self/oom_score_adj").read())
P
echo "line $LINENO, zero ${0##*/}, children $(pgrep -c -P $$)"
exit 4
"""


FUNCTION = "BASH_FUNC_exported%%"
"""How bash exports a function, `module` for example."""


def test_what_a_script_sees(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FUNCTION, "() {  :; }")
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")  # as of a laptop whose language the node does not have
    seen = both(folder, LOOKS)["shim"]
    assert FUNCTION in seen
    assert "is the task True\nleads a group True" in seen


SLEEPS = """#!/bin/bash
for name in HUP INT QUIT USR1 USR2 TERM CONT; do trap "echo script $name" $name; done
bash -c 'for name in HUP INT QUIT USR1 USR2 TERM; do trap "echo child $name" $name; done; touch ready; until [ -e go ]; do sleep 0.1; done' 2>/dev/null &
until [ -e go ]; do sleep 0.1; done 2>/dev/null
wait; wait
exit 5
"""


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("--batch", "--signal=USR1"), ["script USR1"]),
        pytest.param(("--batch", "--signal=TERM"), ["script TERM"], marks=SLOW),
        pytest.param(("--batch", "--signal=INT"), ["script INT"], marks=SLOW),
        pytest.param(("--full", "--signal=USR2"), ["child USR2", "script USR2"], marks=SLOW),
        (("--full", "--signal=TERM"), ["child TERM", "script TERM"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_signal_reaches_the_script_once(folder: Path, words: tuple[str, ...], lines: list[str]) -> None:
    def act(place: Path, job: str) -> None:
        ready(place)
        call(None, "scancel", *words, job)
        wait_for(lambda: set(lines) <= set((place / "out").read_text().split("\n")))
        time.sleep(1)  # a second one would come within half of it
        (place / "go").touch()

    seen = both(folder, SLEEPS, act=act)["shim"]
    told_lines = [line for line in seen.split("\n") if line.startswith(("script", "child"))]
    assert sorted(told_lines) == lines


def test_its_user_cancels_it(folder: Path) -> None:
    """Slurm sweeps through the job with CONT and TERM; whoever asks nothing ends at once."""

    def act(place: Path, job: str) -> None:
        ready(place)
        call(None, "scancel", job)
        wait_for(lambda: "script TERM" in (place / "out").read_text())
        (place / "go").touch()

    script = SLEEPS.replace(" CONT; do trap", "; do trap")
    seen = both(folder, script, act=act)["shim"]
    assert seen.startswith("CANCELLED")
    assert seen.count("script TERM") == 1
    assert not list((folder / "records" / "asks").iterdir())


@SLOW
def test_a_group_of_its_own_can_be_signalled(folder: Path) -> None:
    both(folder, "#!/bin/bash\ntrap 'echo asked; exit 6' TERM\nsleep 60 & kill -TERM -- -$$\nwait\n")


@SLOW
def test_standard_input_and_what_is_left_in_the_background(folder: Path) -> None:
    both(folder, "#!/bin/sh\nwc -c\n(sleep 300; echo never) &\nexit 2\n")


@SLOW
def test_an_interpreter_that_is_missing(folder: Path) -> None:
    for arm in ("bare", "shim"):
        job = submit(folder, arm, "#!/no/such/interpreter\ntrue\n")
        if arm == "shim":
            decline(folder, job)
        assert (ended(job), told(job, "ExitCode")) == ("FAILED", "2:0")
        assert "execve(): bad interpreter(/no/such/interpreter)" in (folder / arm / "out").read_text()


@SLOW
def test_the_memory_that_is_added_is_little(folder: Path) -> None:
    job = submit(folder, "shim", "#!/bin/sh\necho $PPID >parent\nuntil [ -e go ]; do sleep 0.1; done\n")
    parent = folder / "shim" / "parent"
    wait_for(lambda: parent.exists() and parent.read_text())
    children = call(None, "pgrep", "-P", parent.read_text().strip()).stdout.split()
    sizes = {}
    for pid in (parent.read_text().strip(), *children):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        sizes[pid] = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    (folder / "shim" / "go").touch()
    assert ended(job) == "COMPLETED"
    assert len(sizes) == 4  # this program, the script, the two that tell signals apart
    assert sum(sizes.values()) < 12_000, sizes


def test_a_job_that_asks_has_not_ended_for_slurm(folder: Path) -> None:
    """It is requeued by whoever decides, and nobody who waits for it sees the failure."""
    script = '#!/bin/sh\necho "try ${SLURM_RESTART_COUNT:-0}"\n[ "${SLURM_RESTART_COUNT:-0}" = 1 ] || exit 3\n'
    job = submit(folder, "shim", script, "--open-mode=append")
    after = submit(folder, "bare", "#!/bin/sh\ntrue\n", f"--dependency=afterok:{job}")
    never = submit(folder, "bare", "#!/bin/sh\ntrue\n", f"--dependency=afternotok:{job}", "--kill-on-invalid-dep=yes")
    wait_for(lambda: job in spool_of(folder).questions({job: os.getuid()}))
    assert call(None, "squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "RUNNING"
    question = spool_of(folder).questions({job: os.getuid()})[job]
    assert (question.restarts, question.exit_code, question.signal) == (0, 3, None)
    call(None, "scontrol", "requeuehold", job)
    wait_for(lambda: call(None, "squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "PENDING")
    call(None, "scontrol", "update", f"JobId={job}", "StartTime=now+2")
    call(None, "scontrol", "release", job)
    assert (ended(job), ended(after)) == ("COMPLETED", "COMPLETED")
    wait_for(lambda: told(never, "State").startswith("CANCELLED"))
    assert (folder / "shim" / "out").read_text().endswith("try 1\n")


@SLOW
def test_nobody_who_answers_costs_ten_seconds_and_nothing_else(folder: Path) -> None:
    job = submit(folder, "shim", "#!/bin/sh\ntouch ready\nexit 3\n")
    ready(folder / "shim")
    begun = time.monotonic()
    assert ended(job) == "FAILED"
    assert told(job, "ExitCode") == "3:0"
    assert time.monotonic() - begun > 8


@pytest.mark.parametrize(
    "promise", ["none", *(pytest.param(name, marks=SLOW) for name in ("over", "a link", "of another user"))]
)
def test_without_a_promise_of_the_watcher_it_does_not_stay(folder: Path, promise: str) -> None:
    watch = folder / "records" / "watch"
    watch.unlink()
    later = f"{int(time.time()) + 600}\n10\n"
    if promise == "over":
        watch.write_text(f"{int(time.time()) - 1}\n10\n")
    elif promise == "a link":
        (folder / "other").write_text(later)
        watch.symlink_to(folder / "other")
    elif promise == "of another user":
        if os.getuid() != 0:
            pytest.skip("only root can give a file away")
        watch.write_text(later)
        os.chown(watch, 65534, 65534)
    job = submit(folder, "shim", "#!/bin/sh\ncat /proc/$PPID/comm\nexit 3\n")
    assert ended(job) == "FAILED"
    assert (folder / "shim" / "out").read_text().startswith("slurmstepd")


def test_the_programs_are_perl_and_shell_that_parse() -> None:
    shim = Path(__file__).parents[3] / "shim"
    ran = subprocess.run(
        ["/usr/bin/perl", "-wc", shim / "forestay-payload"], check=True, capture_output=True, text=True
    )
    assert ran.stderr.splitlines() == [f"{shim}/forestay-payload syntax OK"]
    subprocess.run(["/bin/sh", "-n", shim / "forestay-record"], check=True, capture_output=True)
