"""Records that jobs keep of themselves: what a job sees is what it would see without, and what it wrote down is there for whoever looks after it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.servers import address
from tests.system.insertion.shell import install
from tests.system.shim.test_transparent import call, ended

from forestay.adapters.system.shim_spool import ShimSpool
from forestay.domain.sites.watched_job import PayloadRecord, WatchedJob

pytestmark = pytest.mark.live

SCRIPT = """#!/bin/bash -e
#SBATCH --job-name=named
#SBATCH --mem=300
trap 'echo asked to stop; exit 9' USR1
python3 - "$@" <<'P'
import os, sys
print("arguments", sys.argv[1:])
print("parent", open(f"/proc/{os.getppid()}/cmdline").read().split(chr(0))[:2])
print("files", sorted(set(os.listdir(f"/proc/{os.getppid()}/fd")) & {"0", "1", "2", "3", "4"}))
moving = ("NODE", "JOB", "TASK_PID", "TOPOLOGY", "HOST", "PATH", "SUBMIT", "SHIM", "OLDPWD")
print("environment", sorted(f"{k}={v}" for k, v in os.environ.items() if not any(one in k for one in moving)))
P
echo "line $LINENO, children: $(pgrep -c -P $$)" >&2
python3 -c 'import os, time; held = bytearray(90 * 2**20); [time.sleep(0.1) for _ in range(1200) if not os.path.exists("seen")]'
cat no-such-file
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """The shim, installed with a place for records; by a short name, for it stands in the first line of scripts."""
    address("SLURM_CONF")
    with TemporaryDirectory(prefix="fs") as name:
        place = Path(name)
        for value in ("records", "spool/new", "tmp"):
            (place / value).mkdir(parents=True)
        install(place / "bin", place / "records")
        yield place


def record(folder: Path, job: str) -> PayloadRecord | None:
    watched = WatchedJob(job, "", os.getuid(), str(folder), "", 0)
    return ShimSpool(folder / "spool", folder / "records").record(watched, 0)


def told(job: str, fields: str) -> str:
    return call(None, "sacct", "-X", "-n", "-P", "-j", job, "-o", fields).stdout.strip()


def accounted(job: str, fields: str) -> str:
    """The same, once the record is whole: a database that is behind knows an end before its job's name, and calls it an allocation."""
    give_up = time.monotonic() + 120
    while told(job, "JobName") == "allocation" and time.monotonic() < give_up:
        time.sleep(0.1)
    return told(job, fields)


@pytest.mark.parametrize("way", ["file", "input", "wrap"])
def test_a_job_sees_no_difference(folder: Path, way: str) -> None:
    """Exit code, output, arguments, environment, open files, children and name are as they were; the record is there besides."""
    script = SCRIPT.replace(" -e\n", "\n", 1) if way == "input" else SCRIPT
    (folder / "work.sh").write_text(script)
    (folder / "wrapped").write_text(script)
    (folder / "wrapped").chmod(0o755)
    jobs = {}
    for arm, through in (("bare", None), ("shim", folder)):
        out = ["--parsable", "-o", f"{folder}/{arm}.out", "-e", f"{folder}/{arm}.err", "-D", str(folder)]
        words = {"wrap": ["--wrap", "./wrapped a 'b  c'", "--mem=300"], "input": []}.get(
            way, [f"{folder}/work.sh", "a", "b  c"]
        )
        result = call(
            through, "sbatch", *out, *words, given_input=script if way == "input" else None, TMPDIR=str(folder / "tmp")
        )
        assert result.returncode == 0, result.stderr
        jobs[arm] = result.stdout.strip()
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        so_far = record(folder, jobs["shim"])
        if so_far is not None and so_far.peak_memory > 90 * 2**20:
            break
        time.sleep(0.1)
    (folder / "seen").touch()
    assert {ended(job) for job in jobs.values()} == {"FAILED"}
    bare, shim = (accounted(job, "JobName,ExitCode,ReqMem") for job in jobs.values())
    assert shim == bare
    for name in ("out", "err"):
        first, other = ((folder / f"{arm}.{name}").read_text() for arm in jobs)
        neutral = [
            text.replace(f"job{int(jobs[arm]):05d}", "JOB") for arm, text in zip(jobs, (first, other), strict=True)
        ]
        assert _without_nodes(neutral[1]) == _without_nodes(neutral[0])
    assert record(folder, jobs["bare"]) is None
    kept = record(folder, jobs["shim"])
    assert kept is not None
    assert kept.peak_memory > 90 * 2**20
    assert kept.host == os.uname().nodename
    assert kept.begun <= kept.seen <= time.time()
    assert "line 13, children: 0" in kept.tail
    assert not list((folder / "tmp").iterdir())


def _without_nodes(text: str) -> str:
    return "\n".join("/".join(part for part in line.split("/") if part not in {f"n{i}" for i in range(1, 11)}) for line in text.splitlines())  # fmt: skip


def test_a_signal_for_the_batch_script_reaches_it_once(folder: Path) -> None:
    (folder / "work.sh").write_text(
        "#!/bin/bash\ntrap 'echo once; exit 9' USR1\ntouch ready\nwhile :; do sleep 0.1; done\n"
    )
    job = call(folder, "sbatch", "--parsable", "-o", "out", "-D", str(folder), "work.sh").stdout.strip()
    deadline = time.monotonic() + 30
    while not (folder / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    call(None, "scancel", "--batch", f"--signal={signal.SIGUSR1}", job)
    assert ended(job) == "FAILED"
    assert told(job, "ExitCode") == "9:0"
    assert (folder / "out").read_text() == "once\n"


@pytest.mark.parametrize(
    "words",
    [
        ("--no-such-option", "value", "work.sh"),
        ("no-such-script.sh",),
        ("--wrap", "true", "work.sh"),
        ("plain.txt",),
    ],
    ids=" ".join,
)
def test_what_it_does_not_understand_it_leaves_alone(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "plain.txt").write_text("no script at all\n")
    (folder / "work.sh").write_text("#!/bin/sh\ntrue\n")
    bare, through = (
        subprocess.run(
            ["sbatch", *words],
            cwd=folder,
            env=os.environ | ({"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"} if shim else {}),
            capture_output=True,
            text=True,
            check=False,
        )
        for shim in (False, True)
    )
    assert through.returncode == bare.returncode != 0
    assert through.stdout == bare.stdout
    assert through.stderr.replace("/usr/bin/sbatch:", "sbatch:") == bare.stderr


def test_who_wants_no_record_has_none(folder: Path) -> None:
    result = call(folder, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 1", FORESTAY_SHIM_RECORD="off")
    assert ended(result.stdout.strip()) == "COMPLETED"
    assert record(folder, result.stdout.strip()) is None


def test_records_that_cannot_be_written_change_nothing(folder: Path) -> None:
    (folder / "records").rmdir()
    (folder / "records").write_text("")
    result = call(folder, "sbatch", "--parsable", "-o", f"{folder}/out", "--wrap", "echo done")
    assert ended(result.stdout.strip()) == "COMPLETED"
    assert (folder / "out").read_text() == "done\n"


def test_a_record_of_somebody_else_is_not_read(folder: Path) -> None:
    text = "1\njob=7\ntry=0\nhost=h\nnode=n\nbegun=1\nseen=2\npeak=3\n\nlast"
    (folder / "records" / "7.0").write_text(text)
    spool = ShimSpool(folder / "spool", folder / "records")
    mine = WatchedJob("7", "", os.getuid(), "/", "", 0)
    assert spool.record(mine, 0) == PayloadRecord("h", 1, 2, 3, None, None, "last")
    assert spool.record(mine._replace(owner=os.getuid() + 1), 0) is None
    assert spool.record(mine, 1) is None
    for broken in ("2" + text[1:], text.replace("peak=3", "peak=x"), text.replace("job=7", "job=8"), ""):
        (folder / "records" / "7.0").write_text(broken)
        assert spool.record(mine, 0) is None
    (folder / "records" / "7.0").write_text(text)
    spool.settle(mine)
    assert not list((folder / "records").iterdir())
