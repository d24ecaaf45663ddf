"""Forms of Slurm's commands, bare and through the shim while a watcher acts: each must say the same, but for what is in `neutral`.

just shim-forms
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.system.insertion.shell import install

from forestay.adapters.system.shim_spool import ShimSpool

SCRIPT = "#!/bin/bash\n#SBATCH --mem=20\ntrue\n"


class Form(NamedTuple):
    """One call. JOB, ARRAY, DONE and FAILED in it stand for jobs; NEW, for one that is made for the call and for each arm."""

    words: tuple[str, ...]
    given_input: str | None = None

    def __str__(self) -> str:
        return " ".join(self.words) + (" <script" if self.given_input else "")


def forms() -> Iterator[Form]:
    """All of them, always in the same order."""
    yield from _sbatch()
    yield from _squeue()
    yield from _sacct()
    yield from _scontrol()
    yield from _scancel()


def _sbatch() -> Iterator[Form]:
    out = ("-H", "-o", "/dev/null")
    options: Sequence[tuple[str, ...]] = (
        (),
        ("--parsable",),
        ("-Q",),
        ("-J", "a name"),
        ("--job-name=named", "--comment", "mine"),
        ("--comment=mine", "-t", "5"),
        ("-n2", "-c", "1", "--mem=30"),
        ("-N", "1-2", "--export=NONE"),
        ("--array=1-3%2", "--parsable"),
        ("-d", "afterany:JOB"),
        ("--signal=B:USR1@30", "--open-mode", "append"),
        ("--no-requeue", "--nice"),
    )
    ways: Sequence[tuple[tuple[str, ...], str | None]] = (
        (("work.sh", "a", "b  c"), None),
        (("--wrap", "echo 'a  b'"), None),
        (("--wrap=true",), None),
        ((), SCRIPT),
    )
    for chosen, (way, given) in itertools.product(options, ways):
        yield Form(("sbatch", *out, *chosen, *way), given)
    for words in (
        ("--no-such-option",),
        ("-p", "nowhere", *out, "--wrap", "true"),
        ("missing.sh",),
        ("--mem=never", *out, "--wrap", "true"),
        ("-N", "99", *out, "--wrap", "true"),
        ("--array=x", *out, "--wrap", "true"),
        ("-d", "afterok:x", *out, "--wrap", "true"),
        ("--wrap", "true", "work.sh"),
        ("plain.txt",),
        ("--test-only", *out, "--wrap", "true"),
        ("--version",),
        ("--usage",),
    ):
        yield Form(("sbatch", *words))


def _squeue() -> Iterator[Form]:
    which: Sequence[tuple[str, ...]] = (
        ("-t", "all"),
        ("-j", "JOB"),
        ("--jobs=JOB,ARRAY", "-r"),
        ("--me", "--states=PD"),
        ("-u", "root,nobody", "-n", "wrap"),
    )
    formats: Sequence[tuple[str, ...]] = (
        (),
        ("-h",),
        ("-l", "-h"),
        ("-h", "-o", "%i|%T|%j"),
        ("--noheader", "--format=%.18i %.2t %R"),
        ("-o", "%A %F %K %t"),
        ("-O", "JobID,State,Name"),
        ("-h", "-O", "ArrayJobID:20,StateCompact:.5"),
        ("-s", "-h"),
    )
    for chosen, form in itertools.product(which, formats):
        yield Form(("squeue", *chosen, *form))
    for words in (
        ("-j", "999999999"),
        ("--no-such",),
        ("-u", "nobody", "-h"),
        ("-p", "none"),
        ("--start", "-h"),
        ("-V",),
    ):
        yield Form(("squeue", *words))


def _sacct() -> Iterator[Form]:
    which: Sequence[tuple[str, ...]] = (
        ("-j", "DONE"),
        ("-j", "FAILED,DONE"),
        ("--jobs=ARRAY", "-X"),
        ("-D", "-j", "FAILED"),
        ("-j", "JOB,DONE", "-s", "CD,F"),
    )
    formats: Sequence[tuple[str, ...]] = (
        (),
        ("-n", "-P"),
        ("-b",),
        ("-l", "-p"),
        ("-n", "-X", "-o", "State"),
        ("--noheader", "--parsable2", "--format=JobIDRaw,State,ExitCode,JobName"),
        ("-o", "jobid%20,state%10,end,nodelist"),
        ("-P", "--delimiter=;", "-o", "JobID,State"),
        ("-n", "-o", "state%-4,jobid"),
    )
    for chosen, form in itertools.product(which, formats):
        yield Form(("sacct", *chosen, *form))
    for words in (
        ("-j", "999999999", "-n"),
        ("--no-such",),
        ("-o", "nothing"),
        ("-e",),
        ("-V",),
        ("-S", "2001-01-01", "-E", "2001-01-02"),
    ):
        yield Form(("sacct", *words))


def _scontrol() -> Iterator[Form]:
    for target in ("JOB", "DONE", "FAILED", "ARRAY", "999999999", "x"):
        yield Form(("scontrol", "show", "job", target))
        yield Form(("scontrol", "-o", "show", "job", target))
    for words in (
        ("show", "nodes"),
        ("show", "partition", "main"),
        ("show", "hostnames", "n[1-3]"),
        ("-d", "show", "job", "JOB"),
        ("show",),
        ("no-such-command",),
        ("ping",),
        ("write", "batch_script", "JOB", "-"),
        ("hold", "999999999"),
        ("release", "NEW"),
        ("hold", "NEW"),
        ("update", "JobId=NEW", "Name=other"),
        ("update", "JobId=NEW", "NoSuch=1"),
        ("requeue", "NEW"),
        ("top", "NEW"),
        ("-V",),
    ):
        yield Form(("scontrol", *words))


def _scancel() -> Iterator[Form]:
    for words in (
        ("NEW",),
        ("-v", "NEW"),
        ("-Q", "NEW"),
        ("--state=RUNNING", "NEW"),
        ("-b", "NEW"),
        ("--full", "NEW"),
        ("-t", "PENDING", "NEW"),
        ("-n", "no-such-name"),
        ("999999999",),
        ("x",),
        ("--no-such",),
        ("-V",),
    ):
        yield Form(("scancel", *words))


def neutral(text: str, jobs: Sequence[str]) -> str:
    """Without what differs between two calls of the same command, and without the differences that docs/how-to/sbatch.md lists."""
    # Before the ids, which are small numbers on a new Slurm.
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\bNice=(\d+)", r"Nice=n\1", text)
    for job in jobs:
        text = re.sub(rf"\b{job}\b", "ID", text)
    text = re.sub(r"Job \d+ to start", "Job ID to start", text)
    # The scheduler may look at one of the two jobs before it is shown, and not at the other.
    text = re.sub(r" ?\b(EligibleTime|AccrueTime|LastSchedEval|Scheduler)=\S*", "", text)
    text = re.sub(r"(CPULoad|FreeMem|LastBusyTime|TRESUsage|AllocMem|CPUAlloc)=\S*", "", text)
    return re.sub(r"/usr/bin/(sbatch|squeue|sacct|scontrol|scancel)\b", r"\1", text)  # it names itself by its full path


class Room:
    """The shim before a Slurm, a watcher's promise, and jobs to ask about. None of them runs, so that nothing about them changes between two calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        install(folder / "bin")
        spool = ShimSpool(folder / "spool")
        spool.prepare()
        spool.vouch(3600, hide=100)
        (folder / "work.sh").write_text(SCRIPT)
        (folder / "plain.txt").write_text("no script\n")
        held = ("--hold", "-o", "/dev/null", "--wrap")
        self.jobs = {
            "JOB": self.bare("sbatch", "--parsable", *held, "true"),
            "ARRAY": self.bare("sbatch", "--parsable", "--array=0-2", *held, "true"),
            "DONE": self.bare("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true"),
            "FAILED": self.bare("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "exit 3"),
        }
        for name, state in (("DONE", "COMPLETED"), ("FAILED", "FAILED")):
            deadline = time.monotonic() + 120
            # The whole record: what slurmdbd has of a job that just ended comes in parts.
            while time.monotonic() < deadline:
                known = self.bare("sacct", "-n", "-P", "-j", self.jobs[name], "-o", "State,JobName").split("\n")
                if known == [f"{state}|wrap", f"{state}|batch"]:
                    break
                time.sleep(0.2)

    def call(
        self, words: Sequence[str], given_input: str | None = None, *, shim: bool
    ) -> subprocess.CompletedProcess[str]:
        known = dict(os.environ)
        if shim:
            known |= {
                "PATH": f"{self.folder / 'bin'}:{known['PATH']}",
                "FORESTAY_SHIM_SPOOL": str(self.folder / "spool"),
            }
        return subprocess.run(
            words,
            input=given_input or "",
            env=known,
            cwd=self.folder,
            text=True,
            capture_output=True,
            check=False,
            timeout=90,
        )

    def bare(self, *words: str) -> str:
        return self.call(words, shim=False).stdout.strip()

    def difference(self, form: Form) -> str:
        """What a form says otherwise through the shim; empty if nothing."""
        results = []
        for shim in (False, True):
            jobs = dict(self.jobs)
            if any("NEW" in word for word in form.words):
                jobs["NEW"] = self.bare("sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "true")
            words = list(form.words)
            for name, job in jobs.items():
                words = [word.replace(name, job) for word in words]
            result = self.call(words, form.given_input, shim=shim)
            made = (
                re.findall(r"^(?:Submitted batch job )?(\d+)$", result.stdout, re.MULTILINE)
                if words[0] == "sbatch"
                else []
            )
            shown = [self.bare("scontrol", "show", "job", job) for job in made]
            state = (
                [self.bare("squeue", "-h", "-t", "all", "-j", jobs["NEW"], "-o", "%T %j %r")] if "NEW" in jobs else []
            )
            for job in (*made, *([jobs["NEW"]] if "NEW" in jobs else [])):
                self.bare("scancel", job)
            known = [*made, *([jobs["NEW"]] if "NEW" in jobs else [])]
            parts = (str(result.returncode), result.stdout, result.stderr, *map(_described, shown), *state)
            results.append(neutral("\n".join(parts), known))
        if results[0] == results[1]:
            return ""
        lines = [text.splitlines() for text in results]
        return "\n".join(
            [
                *(f"- {line}" for line in lines[0] if line not in lines[1]),
                *(f"+ {line}" for line in lines[1] if line not in lines[0]),
            ]
        )

    def close(self) -> None:
        self.bare("scancel", self.jobs["JOB"], self.jobs["ARRAY"])


def _described(text: str) -> str:
    """A job as scontrol shows it, without the mark in its comment by which a submission is found again, and without what Slurm counts."""
    text = re.sub(r" ?forestay-submit:\S+", "", text)
    text = re.sub(r"\n\s*Comment=\s*(?=\n)", "", text)
    return re.sub(r"(Priority|JobId|ArrayJobId|WorkDir)=\S*", "", text)


def main() -> int:
    every = list(forms())
    with TemporaryDirectory(prefix="forms") as name:
        room = Room(Path(name))
        try:
            different = {form: why for form in every if (why := room.difference(form))}
        finally:
            room.close()
    for form, why in different.items():
        sys.stdout.write(f"{form}\n{why}\n\n")
    sys.stdout.write(f"{len(every) - len(different)} of {len(every)} forms are equal through the shim\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
