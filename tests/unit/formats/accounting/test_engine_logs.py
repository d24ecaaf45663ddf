"""What HTCondor, Nextflow and Snakemake recorded, in the forms in which they write it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from forestay.domain.exceptions.evidence.past_attempt import PastState
from forestay.formats.accounting.condor_history import read_condor_history
from forestay.formats.accounting.lookback import PastCauses, find_files, read_file
from forestay.formats.accounting.nextflow import duration, read_log_file, read_trace
from forestay.formats.accounting.past_log import LogPath, read_tail
from forestay.formats.accounting.snakemake import read_snakemake
from forestay.formats.rules.pack_folder import shipped_packs

ME = pwd.getpwuid(os.getuid()).pw_name
CONDOR = """[
{
  "ClusterId": 7, "ProcId": 0, "Owner": "ann", "JobStatus": 4, "ExitBySignal": false, "ExitCode": 0,
  "RemoteWallClockTime": 1800.0, "RequestCpus": 4, "LastRemoteHost": "slot1@n1", "CompletionDate": 1793000000, "QDate": 1792990000
}
,
{
  "ClusterId": 8, "ProcId": 3, "Owner": "ben", "JobStatus": 3, "RemoteWallClockTime": 3600.0, "RequestCpus": 2, "RequestMemory": 1024,
  "LastHoldReason": "Error from slot1@n2: Job has gone over cgroup memory limit of 1024 megabytes. Peak usage: 1030 megabytes.",
  "LastHoldReasonCode": 34, "LastHoldReasonSubCode": 102, "RemoveReason": "via condor_rm (by user ben)",
  "LastRemoteHost": "slot1@n2", "EnteredCurrentStatus": 1793000100, "NumJobStarts": 1
}
,
{ "ClusterId": 9, "ProcId": 0, "Owner": "ben", "JobStatus": 3, "RemoteWallClockTime": 60.0, "RemoveReason": "via condor_rm (by user ben)" }
,
{ "ClusterId": 10, "ProcId": 0, "Owner": "cy", "JobStatus": 4, "ExitBySignal": true, "ExitSignal": 11, "RemoteWallClockTime": 360.0, "RequestCpus": 1 }
]
"""


@pytest.fixture(scope="module")
def causes() -> PastCauses:
    return PastCauses(shipped_packs().classifier())


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_history_of_htcondor_is_read_piece_by_piece(size: int, causes: PastCauses) -> None:
    chunks = [CONDOR[at : at + size] for at in range(0, len(CONDOR), size)]
    good, held, removed, crashed = read_condor_history(chunks)
    assert (good.state, good.core_hours, good.hosts) == (PastState.SUCCEEDED, 2.0, ("n1",))
    assert (held.id, held.state, held.owner, held.core_hours) == ("8.3", PastState.FAILED, "ben", 2.0)
    assert held.evidence is not None
    assert str(causes.of(held.evidence).cause) == "memory"
    assert removed.state is PastState.CANCELLED
    assert crashed.evidence is not None
    assert str(causes.of(crashed.evidence).cause) == "code"


TRACE = """task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\tpeak_rss\tcpus\tmemory\tworkdir\tattempt
1\t7f/a1b2c3\t4711\talign (1)\tCOMPLETED\t0\t2026-11-10 10:00:00.000\t30m 10s\t30m\t99%\t1.2 GB\t4\t2 GB\t/w/7f/a1\t1
2\t8f/a1b2c3\t4712\talign (2)\tFAILED\t137\t2026-11-10 10:00:00.000\t1h 1m\t1h\t99%\t1.99 GB\t4\t2 GB\t{folder}\t1
3\t9f/a1b2c3\t-\talign (3)\tCACHED\t0\t2026-11-10 10:00:00.000\t1h\t1h\t-\t-\t4\t-\t-\t1
4\taf/a1b2c3\t4713\talign (4)\tABORTED\t-\t2026-11-10 10:00:00.000\t1m\t1m\t-\t-\t1\t-\t-\t1
"""


def test_a_trace_of_nextflow(causes: PastCauses) -> None:
    good, failed, aborted = read_trace(TRACE.splitlines(), "ann")
    assert (good.state, good.core_hours, good.owner) == (PastState.SUCCEEDED, 2.0, "ann")
    assert (failed.state, failed.core_hours, failed.name) == (PastState.FAILED, 4.0, "align (2)")
    assert aborted.state is PastState.CANCELLED
    assert failed.evidence is not None
    assert str(causes.of(failed.evidence).cause) == "memory"
    assert (duration("1d 2h 3m 4.5s"), duration("250ms"), duration("90000")) == (93784.5, 0.25, 90.0)


def test_the_log_of_a_task_in_its_folder_says_more(tmp_path: Path) -> None:
    (tmp_path / ".command.err").write_text(
        "dd: error writing '/scratch/x': No space left on device\npassword=hunter2\n"
    )
    trace = tmp_path / "trace.txt"
    trace.write_text(TRACE.format(folder=tmp_path).replace("2026-11-10", "2020-11-10"))
    assert find_files(tmp_path) == [trace]
    failed = list(read_file(trace))[1]
    assert failed.evidence is not None
    assert "No space left" in failed.evidence.log_tail[0]
    assert "hunter2" not in "".join(failed.evidence.log_tail)
    unread = list(read_file(trace, logs=False))[1]
    assert unread.evidence is not None
    assert unread.evidence.log_tail == ()


NEXTFLOW = """Nov-18 10:00:00.000 [main] DEBUG nextflow.cli.Launcher - $> nextflow run main.nf
Nov-18 10:00:01.000 [Task submitter] INFO  nextflow.Session - [7f/a1b2c3] Submitted process > align (1)
Nov-18 10:00:01.500 [Task submitter] INFO  nextflow.Session - [8f/a1b2c3] Submitted process > align (2)
Nov-18 10:10:01.000 [Task monitor] DEBUG n.processor.TaskPollingMonitor - Task completed > TaskHandler[id: 1; name: align (1); status: COMPLETED; exit: 0; error: -; workDir: /w/7f/a1b2c3d4e5f6]
Nov-18 10:20:01.500 [Task monitor] DEBUG n.processor.TaskPollingMonitor - Task completed > TaskHandler[jobId: 12; id: 2; name: align (2); status: COMPLETED; exit: 139; error: -; workDir: /w/8f/a1b2c3d4e5f6 started: 1]
"""


def test_a_log_of_nextflow() -> None:
    good, failed = read_log_file(NEXTFLOW.splitlines(), "ann", 2026)
    assert (good.state, good.seconds) == (PastState.SUCCEEDED, 600.0)
    assert (failed.state, failed.seconds, failed.name) == (PastState.FAILED, 1200.0, "align (2)")
    assert failed.evidence is not None
    assert failed.evidence.exit_code == 139


SNAKEMAKE = """Building DAG of jobs...
Using shell: /usr/bin/bash
[Wed Nov 18 10:00:00 2026]
rule align:
    input: a.fq
    output: a.bam
    log: a.log
    jobid: 3
    threads: 4
    resources: mem_mb=1000, mem_mib=954
[Wed Nov 18 10:00:00 2026]
localrule index:
    output: b.idx
    jobid: 4
[Wed Nov 18 10:15:00 2026]
Finished jobid: 4 (Rule: index)
1 of 3 steps (33%) done
[Wed Nov 18 10:30:00 2026]
Error in rule align:
    message: None
    jobid: 3
    input: a.fq
    log: {log} (check log file(s) for error details)
    shell:
        bwa mem a.fq > a.bam
        (command exited with non-zero exit code)

Trying to restart job 3.
[Wed Nov 18 10:30:00 2026]
rule align:
    jobid: 3
    threads: 4
[Wed Nov 18 11:00:00 2026]
Finished job 3.
Shutting down, this might take some time.
"""


def test_a_log_of_snakemake(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("Traceback (most recent call last):\nModuleNotFoundError: No module named 'pysam'\n")
    index, failed, again = read_snakemake(
        SNAKEMAKE.format(log=log).splitlines(), ME, read_log=lambda paths, _: paths[0].path
    )
    assert (index.state, index.seconds, index.cores) == (PastState.SUCCEEDED, 900.0, 1.0)
    assert (failed.state, failed.core_hours, failed.name, failed.attempt) == (PastState.FAILED, 2.0, "align", 1)
    assert (again.state, again.core_hours, again.attempt) == (PastState.SUCCEEDED, 2.0, 2)
    assert failed.evidence is not None
    assert failed.evidence.log_tail == (str(log),)
    assert failed.evidence.memory_limit == 1000 << 20


def test_only_files_of_the_owner_that_were_written_meanwhile_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("hello\nexport API_TOKEN=abcdef\n")
    os.utime(log, (1000, 1000))
    assert read_tail([LogPath(str(log), 990, 1010)], ME).startswith("hello\nexport API_TOKEN=[redacted]")
    assert read_tail([LogPath(str(log), 1100, 1200)], ME) == ""  # before it began
    assert read_tail([LogPath(str(log), None, -9000)], ME) == ""  # long after it ended
    other = next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid != os.getuid())
    assert read_tail([LogPath(str(log), None, None)], other) == ""
    assert read_tail([LogPath(str(log), None, None)], "nobody-of-that-name") == ""
    link = tmp_path / "link"
    link.symlink_to(log)
    assert read_tail([LogPath(str(link), None, None)], ME) == ""
    os.mkfifo(tmp_path / "pipe")
    assert read_tail([LogPath(str(tmp_path / "pipe"), None, None)], ME) == ""
