"""What a script of Nextflow does before it tells Nextflow of its end: it asks a watcher, if one promised to answer."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ASK = Path(__file__).resolve().parents[3] / "shim" / "forestay-ask"
TASK = """#!/bin/bash
### name: 'part (1)'
on_exit() {{
    exit_status=${{nxf_main_ret:=$?}}
    printf -- $exit_status > {work}/.exitcode
    exit $exit_status
}}
trap on_exit EXIT
trap 'set +e' TERM INT USR2
nxf_main_ret=137
"""
ARRAY = """#!/bin/bash
### array:
###   work-dirs:
###   - {work}
### ...
/bin/bash -ue {work}/array/.command.sh
"""
ELEMENTS = """#!/bin/bash -ue
array=( {work} )
export nxf_array_task_dir=${{array[SLURM_ARRAY_TASK_ID]}}
bash $nxf_array_task_dir/.command.run 2>&1 > $nxf_array_task_dir/.command.log
"""
WARNED = """
on_exit() {{
    exit_status=${{nxf_main_ret:=$?}}
    printf -- $exit_status > {folder}/.exitcode
    exit $exit_status
}}
nxf_kill() {{
    declare -a children
    while read P PP;do
        children[$PP]+=" $P"
    done < <(ps -e -o pid= -o ppid=)

    kill_all() {{
        [[ $1 != $$ ]] && kill $1 2>/dev/null || true
        for i in ${{children[$1]:=}}; do kill_all $i; done
    }}

    kill_all $1
}}
on_term() {{
    set +e
    [[ "$pid" ]] && nxf_kill $pid
}}
nxf_launch() {{
    /bin/bash -ue {folder}/.command.sh
}}
nxf_main() {{
    trap on_exit EXIT
    trap on_term TERM INT USR2
    trap '' USR1
    set +e
    (set -o pipefail; (nxf_launch | tee {folder}/.command.out) 3>&1 1>&2 2>&3 | tee {folder}/.command.err) &
    pid=$!
    wait $pid || nxf_main_ret=$?
}}
nxf_main
"""
"""How Nextflow runs a task, and the script that picks the task of an element."""

pytestmark = pytest.mark.finding("F-A3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The program, installed beside records for which a watcher vouches, and a task of Nextflow that fails with 137."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "forestay-ask").write_bytes(ASK.read_bytes())
    (tmp_path / "bin" / "forestay-ask").chmod(0o755)
    (tmp_path / "bin" / "scontrol").write_text('#!/bin/sh\ncat "${0%/*}/state"\n')
    (tmp_path / "bin" / "scontrol").chmod(0o755)
    say(tmp_path)
    (tmp_path / "records" / "asks").mkdir(parents=True)
    (tmp_path / "bin" / "records").symlink_to(tmp_path / "records")
    (tmp_path / "records" / "watch").write_text(f"{int(time.time()) + 600}\n")
    work = tmp_path / "work"
    (work / "array").mkdir(parents=True)
    (work / ".command.run").write_text(TASK.format(work=work))
    (work / "array" / ".command.sh").write_text(ELEMENTS.format(work=work))
    (work / "array" / ".command.run").write_text(ARRAY.format(work=work))
    return tmp_path


def say(folder: Path, state: str = "RUNNING", *, restarts: int = 0, time_run: str = "00:00:05") -> None:
    """What Slurm says of the job from now on."""
    line = f"JobId=12 JobName=nf-part JobState={state} Reason=None Requeue=1 Restarts={restarts} RunTime={time_run} x=1"
    (folder / "bin" / "state").write_text(line)


@contextmanager
def start(folder: Path, script: str = ".command.run", **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """As the shim submits it; ended at last, whatever it waits for."""
    place = folder / "work" / script
    patched = subprocess.run([folder / "bin" / "forestay-ask", "--patch", place], stdout=subprocess.PIPE, check=True)
    (folder / "submitted").write_bytes(patched.stdout)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "12", **more}
    with subprocess.Popen(["bash", folder / "submitted"], env=environment, start_new_session=True) as job:
        try:
            yield job
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)


def question(folder: Path, name: str = "12.0") -> Path:
    file = folder / "records" / "asks" / name
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, "it does not ask"
        time.sleep(0.02)
    return file


@pytest.mark.parametrize(
    ("script", "more", "name"),
    [
        pytest.param(".command.run", {"SLURM_RESTART_COUNT": "2"}, "12.2", id="task"),
        pytest.param("array/.command.run", {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}, "7_0.0", id="element"),
    ],
)  # fmt: skip
def test_nextflow_hears_nothing_before_the_watcher_has_answered(
    folder: Path, script: str, more: dict[str, str], name: str
) -> None:
    with start(folder, script, **more) as job:
        file = question(folder, name)
        while not file.read_text().endswith("\n"):
            time.sleep(0.02)
        assert file.read_text().split()[:3] == ["1", "137", "0"]
        assert not (folder / "work" / ".exitcode").exists()
        file.unlink()
        assert job.wait(60) == 137
    assert (folder / "work" / ".exitcode").read_text() == "137"
    assert not list((folder / "records" / "asks").iterdir())


@pytest.mark.parametrize("state", ["PENDING", "CANCELLED"])
def test_of_a_job_that_is_queued_again_nextflow_hears_nothing_and_of_a_cancelled_one_as_ever(
    folder: Path, state: str
) -> None:
    with start(folder) as job:
        question(folder)
        say(folder, state, restarts=1)
        os.killpg(job.pid, signal.SIGTERM)
        job.wait(60)
    assert (folder / "work" / ".exitcode").exists() == (state == "CANCELLED")


def test_an_answer_that_is_faster_than_the_question_counts(folder: Path) -> None:
    """The watcher reads the question and has the job requeued before the program that wrote it has ended: the signal ends that one too."""
    (folder / "bin" / "dd").write_text('#!/bin/sh\ncat > "${1#of=}"\nexec sleep 60\n')
    (folder / "bin" / "dd").chmod(0o755)
    with start(folder) as job:
        file = question(folder)
        while not file.read_text().endswith("\n"):
            time.sleep(0.02)
        say(folder, "PENDING", restarts=1)
        os.killpg(job.pid, signal.SIGTERM)
        job.wait(60)
    assert not (folder / "work" / ".exitcode").exists()


@pytest.mark.parametrize("promise", ["", "2000000000\n"])
@pytest.mark.parametrize(
    ("state", "restarts", "time_run", "hears"),
    [
        ("COMPLETING", 3, "00:00:00", False),  # Slurm ends its processes before it queues the job again
        ("PENDING", 3, "00:00:00", False),  # its node is given up
        ("RUNNING", 3, "00:00:07", False),  # and it runs elsewhere
        ("COMPLETING", 3, "00:00:07", True),  # cancelled on its way to the queue
        ("CANCELLED", 3, "00:00:07", True),
    ],
)
def test_of_an_attempt_after_which_slurm_itself_runs_the_job_again_nextflow_hears_nothing(
    folder: Path, state: str, restarts: int, time_run: str, hears: bool, promise: str
) -> None:
    (folder / "records" / "watch").write_text(promise)
    say(folder, state, restarts=restarts, time_run=time_run)
    with start(folder, SLURM_RESTART_COUNT="2") as job:
        if hears and promise:
            question(folder, "12.2").unlink()
        assert job.wait(60) == (137 if hears else -9)
    assert (folder / "work" / ".exitcode").exists() == hears
    assert not list((folder / "records" / "asks").iterdir())


def test_of_a_task_that_fails_in_its_third_start_nextflow_hears(folder: Path) -> None:
    (folder / "records" / "watch").unlink()
    say(folder, restarts=2)
    with start(folder, SLURM_RESTART_COUNT="2") as job:
        assert job.wait(60) == 137
    assert (folder / "work" / ".exitcode").read_text() == "137"


def test_slurm_is_asked_again_if_the_question_met_a_signal(folder: Path) -> None:
    """Slurm signals every process of the job, also one that just asks it."""
    say(folder, "COMPLETING", restarts=1, time_run="00:00:00")
    first = 'mkdir "${0%/*}/asked" 2>/dev/null && kill -TERM $$\n'
    (folder / "bin" / "scontrol").write_text(f'#!/bin/sh\n{first}cat "${{0%/*}}/state"\n')
    with start(folder) as job:
        assert job.wait(60) == -9
    assert not (folder / "work" / ".exitcode").exists()


@pytest.mark.parametrize("program", ["exit 1", "exit 127", "echo Invalid job id specified"])
def test_without_a_word_of_slurm_nextflow_hears_of_it(folder: Path, program: str) -> None:
    (folder / "records" / "watch").unlink()
    (folder / "bin" / "scontrol").write_text(f"#!/bin/sh\n{program}\n")
    with start(folder) as job:
        assert job.wait(60) == 137
    assert (folder / "work" / ".exitcode").read_text() == "137"


@pytest.mark.parametrize("promise", ["", "0\n", "x\n"])
def test_without_a_promise_it_does_not_ask(folder: Path, promise: str) -> None:
    (folder / "records" / "watch").write_text(promise)
    with start(folder) as job:
        assert job.wait(60) == 137
    assert (folder / "work" / ".exitcode").read_text() == "137"


@pytest.mark.finding("F-A7")
@pytest.mark.parametrize("name", ["12.0", "12.0.warned"])
@pytest.mark.parametrize("trick", ["pipe", "link", "folder"])
def test_what_another_user_put_in_its_place_neither_holds_a_job_up_nor_is_written_through(
    folder: Path, trick: str, name: str
) -> None:
    """The folder is open to all, and the names of the files can be guessed."""
    victim = folder / "victim"
    victim.write_text("mine")
    place = folder / "records" / "asks" / name
    if trick == "pipe":
        os.mkfifo(place)
    elif trick == "link":
        place.symlink_to(victim)
    else:
        place.mkdir()
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "12"}
    subprocess.run([folder / "bin" / "forestay-ask", "--warn"], env=environment, timeout=60, check=False)
    with start(folder) as job:
        if name != "12.0":
            question(folder).unlink()
        assert job.wait(60) == 137
    assert (folder / "work" / ".exitcode").read_text() == "137"
    assert victim.read_text() == "mine"


@pytest.mark.finding("F-A7")
@pytest.mark.parametrize("taken", ["watcher", "another user", "pipe"])
def test_who_took_the_question_and_does_not_answer_holds_the_job_up_for_a_bounded_time(
    folder: Path, taken: str
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    place = folder / "records" / "asks" / "12.0.taken"
    if taken == "pipe":
        os.mkfifo(place)
    else:
        place.touch()
    if taken != "watcher":
        os.chown(place, 65534, 65534)
    # Three clocks ahead of each other, so that nobody has to wait: each look at the time is ten seconds later than the one before.
    clock = folder / "bin" / "date"
    clock.write_text('#!/bin/sh\necho . >>"${0%/*}/looks"\necho $((1000 + 10 * $(wc -l <"${0%/*}/looks")))\n')
    clock.chmod(0o755)
    (folder / "records" / "watch").write_text("9999999999\n")
    with start(folder) as job:
        assert job.wait(60) == 137
    looks = len((folder / "bin" / "looks").read_text().splitlines())
    assert (looks > 7) == (taken == "watcher"), "a minute more for the watcher"
    assert not (folder / "records" / "asks" / "12.0").exists()


def test_a_script_that_is_not_nextflows_stays_as_it_is(folder: Path) -> None:
    script = folder / "run.sh"
    script.write_bytes(b"#!/bin/sh\nprintf -- $exit_status > out\nbash /x/.command.sh\n\xff")
    done = subprocess.run([folder / "bin" / "forestay-ask", "--patch", script], stdout=subprocess.PIPE, check=True)
    assert done.stdout == script.read_bytes()


@pytest.mark.parametrize("watched", [True, False])
def test_an_element_asks_with_the_signal_by_which_slurm_warned_its_array_of_the_time_limit(
    folder: Path, watched: bool
) -> None:
    """Nextflow ends everything below the script of the array with TERM, and lets the job end while an element still asks."""
    work = folder / "work"
    (work / ".command.sh").write_text(f"touch {work}/begun\nsleep 300\n")
    (work / ".command.run").write_text("#!/bin/bash\n" + WARNED.format(folder=work))
    array = "#!/bin/bash\n### array:\n###   work-dirs:\n###   - x\n### ...\n" + WARNED.format(folder=work / "array")
    (work / "array" / ".command.run").write_text(array)
    if not watched:
        (folder / "records" / "watch").unlink()
    with start(folder, "array/.command.run", SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="0") as job:
        deadline = time.monotonic() + 60
        while not (work / "begun").exists():
            assert time.monotonic() < deadline, "it does not begin"
            time.sleep(0.02)
        job.send_signal(signal.SIGUSR2)
        if watched:
            file = question(folder, "7_0.0")
            while not file.read_text().endswith("\n"):
                time.sleep(0.02)
            assert file.read_text().split()[:3] == ["1", "140", "0"]
            assert job.poll() is None
            assert not (work / ".exitcode").exists()
            file.unlink()
        assert job.wait(60) == 140
    assert (work / ".exitcode").read_text() == "143", "as without us"
