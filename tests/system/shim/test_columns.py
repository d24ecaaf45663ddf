"""The shim before commands that say what a test lets them say: which words of a listing it changes, and how it waits."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

SHIM = Path(__file__).resolve().parents[3] / "shim" / "forestay-shim"

_STAND_IN = """#!/bin/sh
case " $* " in *" JobID:|"*) cat "$FOLDER/jobs" ;; *) cat "$FOLDER/listing" ;; esac
"""
_AWAY = """#!/bin/sh
echo call >>"$FOLDER/calls"
[ "$(wc -l <"$FOLDER/calls")" -gt 8 ] && { echo "Submitted batch job 12"; exit 0; }
echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)" >&2
exit 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shim, installed before a Slurm that only talks, while somebody watches job 12, which failed just now."""
    subprocess.run([SHIM, "--install", tmp_path / "bin"], check=True, stderr=subprocess.PIPE)
    (tmp_path / "slurm").mkdir()
    for name in ("squeue", "sacct", "scontrol"):
        (tmp_path / "slurm" / name).write_text(_STAND_IN)
    (tmp_path / "slurm" / "sbatch").write_text(_AWAY)
    (tmp_path / "slurm" / "sleep").write_text('#!/bin/sh\necho "$1" >>"$FOLDER/sleeps"\n')
    for file in (tmp_path / "slurm").iterdir():
        file.chmod(0o755)
    (tmp_path / "spool" / "new").mkdir(parents=True)
    (tmp_path / "spool" / "new" / "12.0.1").touch()
    now = int(time.time())
    (tmp_path / "spool" / "watch").write_text(f"{now + 600}\n{now - 600}\n180\n")
    (tmp_path / "jobs").write_text(f"12|12|N/A|N/A|{os.getuid()}|1|FAILED|{now}\n")
    return tmp_path


def call(folder: Path, *words: str, **more: str) -> str:
    environment = {
        "PATH": f"{folder / 'bin'}:{folder / 'slurm'}:{os.environ['PATH']}", "FOLDER": str(folder),
        "FORESTAY_SHIM_SPOOL": str(folder / "spool"), **more,
    }  # fmt: skip
    return subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


DEFAULT = "                12     debug {name:>8}      ada {state:>2}       0:10      1 n1\n"
LONG = "                12     debug {name:>8}      ada {state:>8}       0:10      1:00      1 n1\n"
SACCT = "12           {name:>10}      debug        lab          1 {state:>10}      1:0 \n"
HEADER = "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n------------ ---------- ---------- ---------- ---------- ---------- -------- \n"


@pytest.mark.finding("F-A10")
@pytest.mark.parametrize("name", ["TO", "OOM", "FAILED", "my OOM x", "a F|TO"])
@pytest.mark.parametrize(
    ("words", "line", "states"),
    [
        (("squeue",), DEFAULT, ("F", "R")),
        (("squeue", "-h"), DEFAULT, ("TO", "R")),
        (("squeue", "--noheader", "-l"), LONG, ("TIMEOUT", "RUNNING")),
        (("squeue", "-h", "-o", "%i %t %j"), "12 {state} {name}\n", ("F", "R")),
        (("squeue", "-h", "-o", "%j %i %t"), "{name} 12 {state}\n", ("OOM", "R")),
        (("squeue", "-ho", "%i %P %j %T %M"), "12 F {name} {state} 0:10\n", ("FAILED", "RUNNING")),
        (("squeue", "-h", "--format=%i;%u;%j;%T"), "12;OOM;{name};{state}\n", ("FAILED", "RUNNING")),
        (("squeue", "-h", "--format", "%.10i %.12j %.9T %R"), "        12 {name:>12} {state:>9} (TO)\n", ("FAILED", "RUNNING")),
        (("squeue", "-h", "-O", "JobID:8,Name:12,State:9"), "12      {name:<12}{state:<9}\n", ("FAILED", "RUNNING")),
        (("squeue", "-h", "-j", "12", "-o", "%j"), "{name}\n", ("", "")),
        (("sacct", "-X"), HEADER + SACCT, ("FAILED", "RUNNING")),
        (("sacct", "-n", "-j", "12"), SACCT, ("TIMEOUT", "RUNNING")),
        (("sacct", "-X", "-n"), SACCT, ("OUT_OF_ME+", "RUNNING")),
        (("squeue", "-h", "-l"), LONG, ("OUT_OF_M", "RUNNING")),
        (("sacct", "-n", "-j", "12", "-o", "State"), "{state:>10} \n", ("OUT_OF_ME+", "RUNNING")),
        (("sacct", "-X", "-n", "--format=JobID%4,JobName%10,State%10"), "12   {name:>10} {state:>10} \n", ("FAILED", "RUNNING")),
        (("sacct", "-n", "-j", "12", "-o", "JobName"), "{name:>10} \n", ("", "")),
        (("scontrol", "show", "job", "12"), "JobId=12 JobName={name}\n   JobState={state} Reason=TO\n   WorkDir=/data/FAILED\n", ("FAILED", "RUNNING")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_only_the_state_is_changed(
    folder: Path, name: str, words: tuple[str, ...], line: str, states: tuple[str, str]
) -> None:
    if "%" in " ".join(words) and ";" not in " ".join(words) and "|" in name:
        name = "TO"
    listed, shown = (line.format(name=name, state=state) for state in states)
    (folder / "listing").write_text(listed)
    widths = len(listed) == len(shown)
    seen = call(folder, *words)
    assert (seen if widths else " ".join(seen.split())) == (shown if widths else " ".join(shown.split()))


@pytest.mark.finding("F-A10")
@pytest.mark.parametrize("name", ["TO", "OOM", "FAILED", "my OOM"])
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("squeue", "-h", "-t", "all", "-o", "%i|%T"), "12|{state}\n"),
        (("squeue", "-h", "-o", "%j|%i|%T|%k"), "{name}|12|{state}|TO\n"),
        (("sacct", "-X", "-n", "-P", "-o", "JobIDRaw,JobName,State"), "12|{name}|{state}\n"),
        (("sacct", "-X", "-P", "--format=JobName,JobID,State%20,Comment"), "JobName|JobID|State|Comment\n{name}|12|{state}|FAILED\n"),
        (("sacct", "-j", "12", "--parsable2", "--noheader", "--format=State"), "{state}\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
@pytest.mark.parametrize("state", ["TIMEOUT", "OUT_OF_MEMORY"])
def test_only_the_state_is_changed_between_bars(
    folder: Path, name: str, words: tuple[str, ...], line: str, state: str
) -> None:
    (folder / "listing").write_text(line.format(name=name, state=state))
    assert call(folder, *words) == line.format(name=name, state="RUNNING")


def test_where_the_format_does_not_tell_where_the_state_is_it_is_still_hidden(folder: Path) -> None:
    (folder / "listing").write_text("12,FAILED,0:1\n")
    words = ("sacct", "-n", "-P", "--delimiter=,", "-o", "JobIDRaw,State,ExitCode")
    assert call(folder, *words) == "12,RUNNING,0:1\n"


def test_the_format_may_come_from_the_environment(folder: Path) -> None:
    (folder / "listing").write_text("FAILED 12 FAILED\n")
    assert call(folder, "squeue", SQUEUE_FORMAT="%j %i %T") == "FAILED 12 RUNNING\n"
    (folder / "listing").write_text("FAILED|12|FAILED\n")
    assert call(folder, "sacct", "-P", SACCT_FORMAT="jobname,jobid,state") == "FAILED|12|RUNNING\n"


def _calls_of(folder: Path, *programs: str) -> Path:
    """Programs that write down that they were called, in front of the real ones."""
    (folder / "counted").mkdir()
    for name in programs:
        (folder / "counted" / name).write_text(
            f'#!/bin/sh\necho "{name}{" $*" if name == "ls" else ""}" >>"$FOLDER/counts"\nexec {shutil.which(name)} "$@"\n'
        )
        (folder / "counted" / name).chmod(0o755)
    (folder / "counts").touch()
    return folder / "counts"


def _counted(folder: Path, *words: str) -> str:
    path = f"{folder / 'counted'}:{folder / 'bin'}:{folder / 'slurm'}:{os.environ['PATH']}"
    return call(folder, *words, PATH=path)


@pytest.mark.parametrize(
    ("left", "words", "listing", "programs"),
    [
        ("12", ("sacct", "-X", "-n", "-P", "-o", "JobID,State"), "12|COMPLETED\n", ""),
        ("12", ("squeue", "-h", "-o", "%i %T"), "12 RUNNING\n", ""),
        ("", ("sacct", "-X", "-n", "-P", "-o", "JobID,State"), "12|FAILED\n", ""),
        ("", ("sacct", "-X", "-n", "-P", "-o", "JobID,State"), "12|FAILED\n" * 2000, ""),
        ("7", ("sacct", "-X", "-n", "-P", "-o", "JobID,State"), "12|FAILED\n" * 900, "awk"),
        ("7", ("squeue", "-h", "-o", "%i %T"), "12 FAILED\n", "awk"),
        ("7", ("scontrol", "show", "job", "12"), "JobId=12 JobName=x\n   JobState=FAILED Reason=None\n", ""),
    ],
)
def test_a_listing_costs_no_question_unless_a_failed_job_left_word(
    folder: Path, left: str, words: tuple[str, ...], listing: str, programs: str
) -> None:
    (folder / "spool" / "new" / "12.0.1").unlink()
    if left:
        (folder / "spool" / "new" / f"{left}.0.1").touch()
    (folder / "listing").write_text(listing)
    counts = _calls_of(folder, "awk", "date", "ls")
    assert _counted(folder, *words) == listing
    called = [line.split()[0] for line in counts.read_text().splitlines()]
    if words[0] != "scontrol":  # it can give an element by a number of its own
        assert sorted(called) == programs.split()


def test_a_name_in_the_spool_is_no_line_of_a_listing(folder: Path) -> None:
    """The folder is open to all."""
    (folder / "spool" / "new" / "13.0.1\n12|FAILED").touch()
    (folder / "spool" / "new" / "12.0.1").unlink()
    (folder / "spool" / "new" / "12.0.2").touch()
    (folder / "listing").write_text("13|FAILED\n")
    counts = _calls_of(folder, "squeue")
    words = ("sacct", "-X", "-n", "-P", "-o", "JobID,State")
    assert _counted(folder, *words) == "13|FAILED\n"
    assert not counts.read_text(), "nothing that is listed as failed was recorded"


def test_an_element_may_be_asked_for_by_its_own_number_and_listed_without(folder: Path) -> None:
    (folder / "jobs").write_text(f"15|12|3|N/A|{os.getuid()}|1|FAILED|{int(time.time())}\n")
    (folder / "listing").write_text("FAILED\n")
    assert call(folder, "sacct", "-X", "-n", "-P", "-j", "15", "-o", "State") == "RUNNING\n"


def test_of_many_words_only_those_of_failed_jobs_are_looked_at(folder: Path) -> None:
    for job in range(1000, 1400):
        (folder / "spool" / "new" / f"{job}.0.1").touch()
    (folder / "listing").write_text("12|FAILED\n1000|COMPLETED\n")
    counts = _calls_of(folder, "ls")
    assert _counted(folder, "sacct", "-X", "-n", "-P", "-o", "JobID,State") == "12|RUNNING\n1000|COMPLETED\n"
    assert [line.split()[1:] for line in counts.read_text().splitlines()] == [["-f"], ["-lnqd", "12.0.1"]]


@pytest.mark.finding("F-A14")
def test_a_waiting_sbatch_waits_longer_each_time_and_not_as_others_do(folder: Path) -> None:
    waits: list[list[float]] = []
    for _ in range(3):
        for name in ("calls", "sleeps"):
            (folder / name).unlink(missing_ok=True)
        assert call(folder, "sbatch", "--wrap", "true") == "Submitted batch job 12\n"
        waits.append([float(text) for text in (folder / "sleeps").read_text().split()])
    for wait in waits:
        assert len(wait) == 8
        for place, seconds in enumerate(wait):
            longest = min(2**place, 8)
            assert longest / 2 <= seconds <= longest
    assert len({tuple(wait) for wait in waits}) == 3


_WAITED = """#!/bin/sh
echo "Submitted batch job 13"
exit 1
"""
_TOLD = """#!/bin/sh
echo call >>"$FOLDER/asked"
case $(wc -l <"$FOLDER/asked") in
  1) echo "JobId=13 JobState=OUT_OF_MEMORY ExitCode=0:125 DerivedExitCode=0:0" ;;
  2) echo "JobId=13 JobState=RUNNING ExitCode=0:0 DerivedExitCode=0:0" ;;
  *) rm -f "$FOLDER"/spool/new/13.0.*; echo "JobId=13 $LAST DerivedExitCode=0:0" ;;
esac
"""


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("JobState=COMPLETED ExitCode=0:0", 0),
        ("JobState=FAILED ExitCode=7:0", 7),
        ("JobState=FAILED ExitCode=0:9", 1),
        ("JobState=PREEMPTED ExitCode=0:0", 1),
        ("JobState=NODE_FAIL ExitCode=0:0", 1),
    ],
)
def test_sbatch_that_waits_for_a_job_waits_until_it_is_settled(folder: Path, last: str, code: int) -> None:
    for name, text in (("sbatch", _WAITED), ("scontrol", _TOLD)):
        (folder / "slurm" / name).write_text(text)
        (folder / "slurm" / name).chmod(0o755)
    if code:
        with pytest.raises(subprocess.CalledProcessError) as ended:
            call(folder, "sbatch", "--wait", "--wrap", "true", LAST=last)
        assert ended.value.returncode == code
    else:
        assert call(folder, "sbatch", "--wait", "--wrap", "true", LAST=last) == "Submitted batch job 13\n"
    assert len((folder / "asked").read_text().split()) == 3


_FORGOTTEN = """#!/bin/sh
rm -f "$FOLDER"/spool/new/13.0.*
echo "slurm_load_jobs error: Invalid job id specified" >&2
exit 1
"""


@pytest.mark.parametrize(
    ("kept", "code"),
    [
        ("COMPLETED|0:0", 0),
        ("COMPLETED|0:0\nFAILED|7:0\nFAILED|3:0", 7),
        ("COMPLETED|0:0\nTIMEOUT|0:0", 1),
        ("CANCELLED by 1000|0:0", 1),
        ("CANCELLED by 1000|3:0", 3),
        ("OUT_OF_MEMORY|0:125", 1),
    ],
)
def test_sbatch_that_waits_learns_the_end_of_a_job_that_slurm_has_forgotten(folder: Path, kept: str, code: int) -> None:
    accounting = f"#!/bin/sh\nprintf '%b\\n' '{kept}'\n"
    for name, text in (("sbatch", _WAITED), ("scontrol", _FORGOTTEN), ("sacct", accounting)):
        (folder / "slurm" / name).write_text(text)
        (folder / "slurm" / name).chmod(0o755)
    if code:
        with pytest.raises(subprocess.CalledProcessError) as ended:
            call(folder, "sbatch", "--wait", "--wrap", "true")
        assert ended.value.returncode == code
    else:
        assert call(folder, "sbatch", "--wait", "--wrap", "true") == "Submitted batch job 13\n"


def test_sbatch_that_waits_says_what_slurm_says_while_nobody_watches(folder: Path) -> None:
    (folder / "spool" / "watch").unlink()
    (folder / "slurm" / "sbatch").write_text(_WAITED)
    with pytest.raises(subprocess.CalledProcessError) as ended:
        call(folder, "sbatch", "-W", "--wrap", "true")
    assert ended.value.returncode == 1
    assert not (folder / "asked").exists()


@pytest.mark.parametrize(
    ("allowed", "watched", "given"), [("allow", True, "--requeue"), ("allow", False, ""), ("", True, "")]
)
def test_a_job_that_may_be_requeued_is_submitted_so_while_somebody_watches(
    folder: Path, allowed: str, watched: bool, given: str
) -> None:
    (folder / "slurm" / "sbatch").write_text('#!/bin/sh\necho "$*" >"$FOLDER/given"\necho "Submitted batch job 14"\n')
    if not watched:
        (folder / "spool" / "watch").unlink()
    call(folder, "sbatch", "--comment=x", "run.sh", FORESTAY_REQUEUE=allowed)
    words = (folder / "given").read_text().split()
    assert [word for word in words if word == "--requeue"] == ([given] if given else [])
    assert words[-1] == "run.sh"
