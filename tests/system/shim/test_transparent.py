"""The shim before a real Slurm: what a user or an engine sees of sbatch is what Slurm said, whatever becomes of the word that is left."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.servers import address

pytestmark = pytest.mark.live

SHIM = Path(__file__).resolve().parents[3] / "shim" / "forestay-shim"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shim, installed."""
    address("SLURM_CONF")
    subprocess.run([SHIM, "--install", tmp_path / "bin"], check=True, stderr=subprocess.PIPE)
    for name in ("new", "gone"):
        (tmp_path / "spool" / name).mkdir(parents=True)
    return tmp_path


def call(
    folder: Path | None, *words: str, given_input: str | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """A command, through the shim if a folder is given."""
    known = dict(os.environ) | more
    if folder is not None:
        path = f"{folder / 'bin'}:{folder / 'programs'}:{known['PATH']}"
        known |= {"PATH": path, "FORESTAY_SHIM_SPOOL": str(folder / "spool")}
    return subprocess.run(
        words, input=given_input, capture_output=True, text=True, env=known, cwd=folder, check=False, timeout=90
    )


def words_left(folder: Path) -> dict[str, list[str]]:
    """What the shim left, by job."""
    files = sorted((folder / "spool" / "new").iterdir())
    return {file.name.partition(".")[0]: file.read_bytes().decode().split("\0")[:-1] for file in files}


def ended(job: str) -> str:
    """The state that Slurm itself tells once the job has ended."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        stdout = call(None, "sacct", "-X", "-n", "-P", "-j", job, "-o", "State").stdout.strip()
        if stdout and stdout not in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED"):
            return stdout
        time.sleep(0.1)
    raise AssertionError(f"job {job} has not ended")


HELD = ("--hold", "-o", "/dev/null", "--wrap", "true")


@pytest.mark.parametrize(
    "words",
    [
        ("sbatch", *HELD),
        ("sbatch", "--parsable", *HELD),
        ("sbatch", "--quiet", *HELD),
        ("sbatch", "--no-such-option"),
        ("sbatch", "-p", "nowhere", *HELD),
        ("sbatch", "no-such-script.sh"),
        ("sbatch", "--version"),
    ],
    ids=lambda words: " ".join(words[1:3]),
)
def test_says_what_slurm_says(folder: Path, words: tuple[str, ...]) -> None:
    bare, through = call(None, *words), call(folder, *words)
    jobs = [text.strip().rpartition(" ")[2] for text in (bare.stdout, through.stdout)]
    for job in jobs:
        if job.isdigit():
            call(None, "scancel", job)
    assert through.returncode == bare.returncode
    assert through.stdout.replace(jobs[1], "N") == bare.stdout.replace(jobs[0], "N")
    # A complaint about an option names the command as it was called, which is by its whole path.
    assert through.stderr.replace("/usr/bin/sbatch:", "sbatch:") == bare.stderr


def test_leaves_word_of_what_was_queued(folder: Path) -> None:
    result = call(folder, "sbatch", *HELD, FORESTAY_RUN="run 7")
    job = result.stdout.split()[-1]
    call(None, "scancel", job)
    assert words_left(folder) == {job: ["1", job, "", str(folder), "run 7"]}
    (file,) = (folder / "spool" / "new").iterdir()
    assert file.stat().st_uid == os.getuid()
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_script_may_come_on_standard_input(folder: Path) -> None:
    result = call(folder, "sbatch", "--parsable", "-o", "out", given_input="#!/bin/sh\necho given\nexit 4\n")
    assert ended(result.stdout.strip()) == "FAILED"
    assert (folder / "out").read_text() == "given\n"


def test_waiting_tells_the_job_at_once_and_its_exit_code_at_the_end(folder: Path) -> None:
    known = dict(os.environ) | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "FORESTAY_SHIM_SPOOL": str(folder / "spool"),
    }
    go = folder / "go"
    work = f"until [ -e {go} ]; do sleep 0.1; done; exit 7"
    with subprocess.Popen(
        ["sbatch", "--wait", "-o", "/dev/null", "--wrap", work], stdout=subprocess.PIPE, text=True, env=known
    ) as waiting:
        try:
            assert waiting.stdout is not None
            assert waiting.stdout.readline().startswith("Submitted batch job ")
            assert waiting.poll() is None
        finally:
            go.touch()
        assert waiting.wait(60) == 7
    assert len(words_left(folder)) == 1


@pytest.mark.parametrize("spool", ["missing", "a-file", "full"])
def test_fails_open(folder: Path, spool: str) -> None:
    """Nobody hears of the job; the user sees no difference."""
    place = folder / "spool"
    (place / "new").rmdir()
    if spool == "a-file":
        (place / "new").write_text("")
    elif spool == "full":
        (place / "new").symlink_to("/dev/full")
    result = call(folder, "sbatch", *HELD)
    assert (result.returncode, result.stderr) == (0, "")
    call(None, "scancel", result.stdout.split()[-1])


@pytest.mark.finding("F-A13")
@pytest.mark.parametrize(("options", "kept"), [((), "1\n"), (("--open-mode=append",), "of an earlier job\n0\n1\n")])
def test_the_output_of_the_first_attempt_is_kept_only_in_append_mode(
    folder: Path, options: tuple[str, ...], kept: str
) -> None:
    """Slurm's own behaviour, which the shim leaves alone: in append mode a file of an earlier job is continued instead of replaced."""
    (folder / "out").write_text("of an earlier job\n")
    work = 'echo "${SLURM_RESTART_COUNT:-0}"'
    job = call(folder, "sbatch", "--parsable", *options, "-o", "out", "--wrap", work).stdout.strip()
    assert ended(job) == "COMPLETED"
    # As the watcher does it: a plain requeue would wait for two minutes.
    for words in (("requeuehold", job), ("update", f"JobId={job}", "StartTime=now+3"), ("release", job)):
        assert call(None, "scontrol", *words).returncode == 0
    deadline = time.monotonic() + 180
    while (folder / "out").read_text() != kept and time.monotonic() < deadline:
        time.sleep(0.2)
    assert (folder / "out").read_text() == kept


def test_off_is_off(folder: Path) -> None:
    result = call(folder, "sbatch", *HELD, FORESTAY_SHIM="off")
    call(None, "scancel", result.stdout.split()[-1])
    assert result.returncode == 0
    assert not words_left(folder)


def test_two_copies_do_not_call_each_other(folder: Path) -> None:
    subprocess.run([SHIM, "--install", folder / "more"], check=True, stderr=subprocess.PIPE)
    result = call(folder, "sbatch", "--version", PATH=f"{folder / 'more'}:{os.environ['PATH']}")
    assert result.stdout.startswith("slurm")


def test_without_slurm_it_says_what_to_do(folder: Path) -> None:
    result = subprocess.run(
        [folder / "bin" / "sbatch"], env={"PATH": str(folder / "bin")}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 127
    assert "FORESTAY_SHIM_REAL" in result.stderr


def test_what_goes_on_for_ever_is_shown_as_it_comes(folder: Path) -> None:
    (folder / "spool" / "watch").write_text(f"{int(time.time()) + 600}\n")
    result = call(folder, "timeout", "3.5", "stdbuf", "-oL", "squeue", "-i", "1", "-o", "looked %i")
    assert result.stdout.count("looked") >= 2


def test_a_job_that_is_decided_on_has_not_ended(folder: Path) -> None:
    """Only recorded jobs, only while a watcher acts, and only failed ones."""
    bad, good = (
        call(folder, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", text).stdout.strip()
        for text in ("exit 3", "true")
    )
    foreign = call(None, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "exit 3").stdout.strip()
    jobs = [bad, good, foreign]
    assert [ended(job) for job in jobs] == ["FAILED", "COMPLETED", "FAILED"]

    def told() -> list[str]:
        lists = ",".join(jobs)
        rows = call(folder, "sacct", "-X", "-n", "-P", "-j", lists, "-o", "JobIDRaw,State").stdout.splitlines()
        short = call(folder, "squeue", "-h", "-t", "all", "-j", lists, "-o", "%i %t").stdout.splitlines()
        wide = call(folder, "sacct", "-X", "-n", "-j", lists, "-o", "JobID,JobName,State").stdout.splitlines()
        shown = call(folder, "scontrol", "show", "job", bad).stdout
        state = next(word for word in shown.split() if word.startswith("JobState="))
        return [*sorted(rows), *sorted(short), *[row.split()[2] for row in sorted(wide)], state]

    bare = [f"{bad}|FAILED", f"{good}|COMPLETED", f"{foreign}|FAILED"]
    bare += [f"{bad} F", f"{good} CD", f"{foreign} F", "FAILED", "COMPLETED", "FAILED", "JobState=FAILED"]
    watch = folder / "spool" / "watch"
    assert told() == bare
    watch.write_text(f"{int(time.time()) + 600}\n")
    seen = told()
    assert seen[0] == f"{bad}|RUNNING"
    assert seen[3] == f"{bad} R"
    assert (seen[6], seen[9]) == ("RUNNING", "JobState=RUNNING")
    # Asked for one by its name, Slurm may tell its state alone.
    for words in (("-j", bad), (f"--jobs={bad}",), (f"-j{bad}",)):
        assert call(folder, "sacct", "-X", "-n", "-P", "-o", "State", *words).stdout == "RUNNING\n"
    assert call(folder, "sacct", "-X", "-n", "-P", "-o", "State", "-j", foreign).stdout == "FAILED\n"
    # Snakemake's plugin asks every cluster.
    for words in (("--clusters", "all"), ("--clusters=all",), ("-M", "all"), ("-Mall",)):
        rows = call(folder, "sacct", *words, "-X", "-n", "-P", "-j", ",".join(jobs), "-o", "JobIDRaw,State").stdout
        assert sorted(rows.splitlines()) == [f"{bad}|RUNNING", f"{good}|COMPLETED", f"{foreign}|FAILED"], words
    assert "FAILED" in call(folder, "sacct", "-X", "-n", "-P", "-o", "State", "-j", f"{bad},{foreign}").stdout
    assert [name for place, name in enumerate(seen) if place not in (0, 3, 6, 9)] == [
        name for place, name in enumerate(bare) if place not in (0, 3, 6, 9)
    ]
    for stale in (f"{int(time.time()) - 1}\n", "soon\n", ""):
        watch.write_text(stale)
        assert told() == bare


@pytest.mark.finding("F-A4")
@pytest.mark.finding("F-A5")
def test_a_job_is_hidden_only_if_it_ended_while_somebody_vouched_and_for_a_bounded_time(folder: Path) -> None:
    job = call(folder, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "exit 3").stdout.strip()
    assert ended(job) == "FAILED"
    end = int(call(None, "sacct", "-X", "-n", "-P", "-j", job, "-o", "End", SLURM_TIME_FORMAT="%s").stdout)
    until = int(time.time()) + 600
    for since, longest, state in (
        ("0", 600, "RUNNING"),
        (f"{end}.000", 600, "RUNNING"),
        (f"{end}.001", 600, "FAILED"),
        ("0", 0, "FAILED"),
    ):
        (folder / "spool" / "watch").write_text(f"{until}\n{since}\n{longest}\n")
        assert call(folder, "sacct", "-X", "-n", "-P", "-j", job, "-o", "State").stdout == f"{state}\n", (
            since,
            longest,
        )
        assert call(folder, "squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout == f"{state}\n"


@pytest.mark.finding("F-A7")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file of another user")
@pytest.mark.parametrize("trick", ["owner", "symbolic link", "hard link", "line break"])
def test_a_word_that_is_not_of_the_jobs_user_changes_no_listing(folder: Path, trick: str) -> None:
    (folder / "spool" / "watch").write_text(f"{int(time.time()) + 600}\n")
    job = call(None, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "exit 3").stdout.strip()
    assert ended(job) == "FAILED"
    word = folder / "spool" / "new" / f"{job}.0.1"
    other = folder / "spool" / "other"
    other.write_text("")
    if trick == "owner":
        word.write_text("")
        os.chown(word, 65534, 65534)
    elif trick == "symbolic link":
        word.symlink_to(other)
    elif trick == "hard link":
        word.hardlink_to(other)
    else:
        word.write_text("")
        os.chown(word, 65534, 65534)
        forged = word.with_name(f"x\n-rw-r----- 1 {os.getuid()} 0 0 Jan 1 00:00 {job}.0.2")
        forged.write_text("")
        os.chown(forged, 65534, 65534)
    for words in (
        ("sacct", "-X", "-j", job, "-o", "JobID,State"),
        ("squeue", "-t", "all", "-j", job),
        ("scontrol", "show", "job", job),
    ):
        assert call(folder, *words).stdout == call(None, *words).stdout, words


def test_a_job_of_a_named_cluster_leaves_no_word_and_is_never_hidden(folder: Path) -> None:
    """Its id may be that of another job here."""
    cluster = call(None, "scontrol", "show", "config").stdout.partition("ClusterName")[2].split()[1]
    (folder / "spool" / "watch").write_text(f"{int(time.time()) + 600}\n")
    words = ("-o", "/dev/null", "--wrap", "exit 3")
    job = call(folder, "sbatch", "-M", cluster, "--parsable", *words).stdout.strip().partition(";")[0]
    assert not words_left(folder)
    assert ended(job) == "FAILED"
    (folder / "spool" / "new" / f"{job}.other.1").write_text("")
    assert call(folder, "sacct", "-X", "-n", "-P", "-j", job, "-o", "State").stdout == "FAILED\n"


@pytest.mark.parametrize("twin", [False, True])
def test_a_job_whose_id_another_cluster_has_too_is_not_hidden_among_all_clusters(folder: Path, twin: bool) -> None:
    """Which of them a line is about, nobody can tell. The accounting of a second cluster stands in for one here."""
    job = call(folder, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "exit 3").stdout.strip()
    assert ended(job) == "FAILED"
    (folder / "spool" / "watch").write_text(f"{int(time.time()) + 600}\n")
    real = folder / "real"
    real.mkdir()
    for name in ("squeue", "sacct"):
        found = call(None, "which", name).stdout.strip()
        more = f"\ncase $* in *Cluster*) echo '{job}|elsewhere' ;; esac" if twin and name == "sacct" else ""
        (real / name).write_text(f'#!/bin/sh\n{found} "$@"{more}\n')
        (real / name).chmod(0o755)
    words = ("sacct", "--clusters=all", "-X", "-n", "-P", "-j", job, "-o", "JobIDRaw,State")
    expected = "FAILED" if twin else "RUNNING"
    assert call(folder, *words, FORESTAY_SHIM_REAL=str(real)).stdout == f"{job}|{expected}\n"


ARRAY = "#!/bin/sh\n#SBATCH --array=0-3\n#SBATCH --no-requeue\nexit 3\n"
HETEROGENEOUS = "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nexit 3\n"


@pytest.mark.finding("F-A1")
@pytest.mark.parametrize("script", [ARRAY, HETEROGENEOUS], ids=["array", "heterogeneous"])
def test_what_cannot_be_run_again_is_shown_as_slurm_shows_it(folder: Path, script: str) -> None:
    (folder / "spool" / "watch").write_text(f"{int(time.time()) + 600}\n")
    job = call(folder, "sbatch", "--parsable", "-o", "/dev/null", given_input=script).stdout.strip()
    assert set(ended_elements(job)) == {"FAILED"}
    for words in (
        ("squeue", "-t", "all", "-j", job),
        ("squeue", "-t", "all", "-j", job, "--array"),
        ("squeue", "-h", "-t", "all", "-j", job, "-o", "%A %t"),
        ("squeue", "-h", "-t", "all", "-j", job, "-o", "%T"),
        ("squeue", "-h", "-t", "all", "-j", job, "-O", "JobID,State"),
        ("sacct", "-X", "-j", job, "-o", "JobID,State,ExitCode"),
        ("sacct", "-X", "-n", "-P", "-j", job, "-o", "JobIDRaw,State"),
        ("sacct", "-X", "-n", "-P", "-j", job, "-o", "State"),
        ("scontrol", "show", "job", job),
        ("scontrol", "-o", "show", "job", job),
    ):
        assert call(folder, *words).stdout == call(None, *words).stdout, words
    assert job in words_left(folder)


@pytest.mark.finding("F-A1")
@pytest.mark.parametrize("awk", ["gawk", "mawk"])
def test_of_an_array_only_the_elements_that_are_decided_on_are_hidden(folder: Path, awk: str) -> None:
    """Two of three that ended failed, four run, three wait together in one line. In whatever form they are listed, nothing else is changed. Distributions have
    different awks."""
    program = shutil.which(awk)
    if program is None:
        pytest.skip(f"{awk} is not installed")
    (folder / "programs").mkdir()
    (folder / "programs" / "awk").symlink_to(program)
    (folder / "spool" / "watch").write_text(f"{int(time.time()) + 600}\n")
    script = (
        f"#!/bin/sh\n#SBATCH --array=0-9%4\n[ $SLURM_ARRAY_TASK_ID -gt 2 ] || exit $SLURM_ARRAY_TASK_ID\n"
        f"until [ -e {folder}/go ]; do sleep 0.2; done\n"
    )
    job = call(folder, "sbatch", "--parsable", "-J", "sort", "-o", "/dev/null", given_input=script).stdout.strip()
    try:
        _until_states(job, ["COMPLETED", "FAILED", "FAILED", "PENDING", *["RUNNING"] * 4])
        rows = call(None, "sacct", "-X", "-n", "-P", "-j", job, "-o", "JobID,JobIDRaw").stdout.split()
        own = dict(row.split("|") for row in rows if "[" not in row)
        forms = (
            ("squeue", "-t", "all", "-j", job, "-o", "%.18i %.9P %.8j %.8u %.15T %.6D"),
            ("squeue", "-h", "-t", "all", "-j", job, "-o", "%i|%t"),
            ("squeue", "-h", "-t", "all", "--array", "-j", job, "-o", "%i %T"),
            ("squeue", "-h", "-t", "all", "-j", job, "-O", "JobID,State"),
            ("sacct", "-j", job, "-o", "JobID%20,Partition,State,ExitCode"),
            ("sacct", "-X", "-n", "-P", "-j", job, "-o", "JobIDRaw,State"),
            ("sacct", "-M", "all", "-X", "-n", "-P", "-j", job, "-o", "JobIDRaw,State"),
            ("scontrol", "show", "job", job),
            ("scontrol", "-o", "show", "job", job),
        )
        one_state = [("sacct", "-X", "-n", "-P", "-j", f"{job}_{k}", "-o", "State") for k in (0, 1, 2)]
        one_state += [("sacct", "-X", "-n", "-P", "-j", own[f"{job}_{k}"], "-o", "State") for k in (0, 1, 2)]
        both = (
            ("squeue", "-h", "-t", "all", "-j", job, "-o", "%T"),
            ("squeue", "-h", "-t", "all", "-j", job, "-o", "%F %T"),
            ("sacct", "-X", "-n", "-P", "-j", job, "-o", "State"),
        )
        for settled, hidden in (("", {"1", "2"}), ("2\n", {"1"}), ("2\n1\n", set())):
            (folder / "spool" / "settled").mkdir(exist_ok=True)
            (folder / "spool" / "settled" / job).write_text(settled)
            for words in forms:
                through, bare = call(folder, *words).stdout, call(None, *words).stdout
                names = {name for k in hidden for name in (f"{job}_{k}", own[f"{job}_{k}"])}
                assert _hide(through, set()) == _hide(bare, names), (settled, words)
                assert ("FAILED" in through or "|F" in through) is (len(hidden) < 2), (settled, words)
            states = [call(folder, *words).stdout.strip() for words in one_state]
            assert states == ["COMPLETED", *("RUNNING" if k in hidden else "FAILED" for k in ("1", "2"))] * 2
            # Lines that do not say which element they are of are changed only if that is right for each that failed.
            for words in both:
                bare = call(None, *words).stdout
                expected = bare.replace("FAILED", "RUNNING") if len(hidden) == 2 else bare
                assert call(folder, *words).stdout == expected, (settled, words)
    finally:
        call(None, "scancel", job)


def _hide(text: str, names: set[str]) -> str:
    """What Slurm printed, without what moves by itself and without the width of columns, with the states of some elements replaced."""
    lines, hidden = [], False
    for line in text.splitlines():
        words = re.sub(r"\b(RunTime|LastSchedEval|Scheduler|AccrueTime)=\S*", "", line).replace("|", " | ").split()
        first = words[0].partition(".")[0].removeprefix("JobId=") if words else ""
        if first.isdigit() or "_" in first:
            hidden = first in names
        states = {"FAILED": "RUNNING", "F": "R", "JobState=FAILED": "JobState=RUNNING"} if hidden else {}
        lines.append(" ".join(states.get(word, word) for word in words))
    return "\n".join(lines)


def _until_states(job: str, wanted: list[str]) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        queue = sorted(call(None, "squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.split())
        accounted = call(None, "sacct", "-X", "-n", "-j", job, "-o", "State").stdout.split()
        if queue == sorted(wanted) and sorted(accounted) == queue:
            return
        time.sleep(0.1)
    raise AssertionError(f"{job}: {queue}, {accounted}")


def ended_elements(job: str) -> list[str]:
    """The states of all parts of a job, once all have ended."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        states = call(None, "squeue", "-h", "-t", "all", "--array", "-j", job, "-o", "%T").stdout.split()
        accounted = call(None, "sacct", "-X", "-n", "-j", job, "-o", "State").stdout.split()
        if (
            states
            and not set(states) & {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}
            and sorted(accounted) == sorted(states)
        ):
            return states
        time.sleep(0.1)
    raise AssertionError(f"job {job} has not ended")
