"""Collected failures in logs as pilots send them: 400 lines of ordinary output, an error that the program survived, consequences behind the failure.

The collected failures are excerpts of about three lines, and a classifier that is right on excerpts may be wrong on logs. Everything is made by a seed. There are two folds, by the
repository of a failure; each has ordinary lines, survived errors and consequences in its own words. Constants of the classifier are chosen on the fold `tune`; figures and floors are those
of `report`. The patterns were written with both, so the excerpts themselves are unseen in neither.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from forestay.domain.exceptions.causes.cause import SURE, CauseFinding
from forestay.domain.exceptions.evidence.evidence import MOST_LINES, Evidence, bounded_lines
from forestay.formats.rules.evidence_json import read_evidence

FOLDER = Path(__file__).parent


class Fold(StrEnum):
    TUNE = "tune"
    REPORT = "report"


class Surroundings(StrEnum):
    """What stands around the excerpt of a failure."""

    EXCERPT = "the excerpt alone"
    ORDINARY = "behind ordinary output"
    RECOVERED_20 = "a survived error 20 lines earlier"
    RECOVERED_3 = "a survived error 3 lines earlier"
    CONSEQUENCES = "with later consequences"


ORDINARY: Mapping[Fold, Sequence[str]] = {
    Fold.TUNE: (
        "2026-03-01 10:{m:02}:{s:02},123 INFO  [main] block {n} of 4000 written",
        "Epoch {n}/5000 loss=0.{n} acc=0.{m} lr=0.001 time=12.{s}s",
        "[M::mem_process_seqs] Processed {n} reads in 12.9 CPU sec, 1.6 real sec",
        "INFO  2026-03-01 10:{m:02}:{s:02} ProgressMeter - chr1:{n}   1.2   40000   33333.3",
        "Loading table {n} from cache",
        "[3a/1b{n}] process > ALIGN (S{m})   [{s}%] {s} of 100",
        "Solving system, residual {n}e-09, converged in {m} iterations",
        "checkpoint saved to /scratch/run/ckpt_{n}.pt",
        "Finished sample S{n}: 120345 reads, 98.{m}% mapped",
        "[2026-03-01 10:{m:02}:{s:02}] step {n} of 20000, T=300.{m} K, E=-1234.{s}",
        "Memory usage: {m}.4 GB of 64 GB, peak {s}.1 GB",
        "tile {n}: wrote 512 rows",
        "Reading frame {n}",
        "Rank {m} of 64 ready",
        " {n}  {m}.{s}  0.{n}  -{s}.{m}",
        "==> stage {m} begins",
        "DEBUG {n} queue length {m}",
        "chr{m}\t{n}\tPASS",
    ),
    Fold.REPORT: (
        "10:{m:02}:{s:02} | INFO | reader: chunk {n} done ({m} MB/s)",
        "iteration {n}: objective {m}.{s}e-03, step 0.{m}",
        "Processed {n} reads ({m} reads/sec)",
        "Copying part {n} ... done",
        "sample_{n}\t{m}\t{s}\t0.{n}",
        "Timing for main: time 2026-03-01_10:{m:02}:{s:02} on domain   1:    {m}.{s} elapsed seconds",
        "[{n}] generated {m} candidates, kept {s}",
        "Energy after {n} steps: -{m}.{s} Ha",
        "-- writing plot {n} of 900",
        "{m}%|####      | {n}/90000 [00:{s:02}<10:{m:02}, {m}.{s}it/s]",
        "I0301 10:{m:02}:{s:02}.{n} 4221 trainer.cc:88] step {n}",
        "Merged cluster {n} into {m}",
        "using seed {n}",
        "model saved (version {n})",
        "   {n}    {m}.{s}    {s}.{m}",
        "GET /v1/blocks/{n} 200 {m} ms",
        "queue: {m} waiting, {s} active",
        "Alignment of read group {n} finished",
    ),
}

RECOVERED: Mapping[Fold, Mapping[str, str]] = {
    Fold.TUNE: {
        "missing file": "Traceback (most recent call last):\n  File \"/sw/t/cache.py\", line 61, in load\n    handle = open(name)\nFileNotFoundError: [Errno 2] No such file or directory: '/home/u1/.cache/t/index.json'",
        "refused": "ConnectionRefusedError: [Errno 111] Connection refused",
        "no space": "OSError: [Errno 28] No space left on device: '/dev/shm/t-cache'",
        "memory": "numpy.core._exceptions.MemoryError: Unable to allocate 11.2 GiB for an array with shape (40000, 37500)",
        "import": "ModuleNotFoundError: No module named 'cupy'",
        "permission": "PermissionError: [Errno 13] Permission denied: '/var/cache/fontconfig'",
        "name": "socket.gaierror: [Errno -2] Name or service not known",
        "busy service": "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://stats.example.org/ping",
        "damaged": "zlib.error: Error -3 while decompressing data: incorrect header check",
        "crashed child": "/sw/t/run.sh: line 14:  2211 Segmentation fault      (core dumped) probe --gpu",
        "bug": "Traceback (most recent call last):\n  File \"/sw/t/hooks.py\", line 17, in call\n    hook(state['batch'])\nKeyError: 'batch'",
        "stale mount": "OSError: [Errno 116] Stale file handle: '/proj/ref/lock'",
        "timeout": "TimeoutError: [Errno 110] Connection timed out",
        "killed child": "/sw/t/run.sh: line 9:  2231 Killed                  ./helper --index",
        "device": "RuntimeError: CUDA error: no CUDA-capable device is detected",
        "value": "ValueError: invalid literal for int() with base 10: 'n/a'",
    },
    Fold.REPORT: {
        "missing file": "cat: /home/u1/.site.conf: No such file or directory",
        "refused": "curl: (7) Failed to connect to mirror1.example.org port 443: Connection refused",
        "no space": "cp: error writing '/tmp/cache/idx.2': No space left on device",
        "memory": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity)",
        "import": "ImportError: libmkl_rt.so.2: cannot open shared object file: No such file or directory",
        "permission": "mkdir: cannot create directory '/var/lib/tool': Permission denied",
        "name": "curl: (6) Could not resolve host: telemetry.example.org",
        "busy service": "ERROR 503: Service Unavailable.",
        "damaged": "gzip: part_07.gz: unexpected end of file",
        "crashed child": "*** Process received signal ***\nSignal: Segmentation fault (11)\nSignal code: Address not mapped (1)",
        "bug": "Traceback (most recent call last):\n  File \"/sw/p/metrics.py\", line 9, in <module>\n    x = np.int(3)\nAttributeError: module 'numpy' has no attribute 'int'",
        "stale mount": "ls: cannot access '/mnt/ref': Transport endpoint is not connected",
        "timeout": "ssh: connect to host gw2 port 22: Connection timed out",
        "killed child": "sh: line 1: 90221 Killed  scan --all",
        "device": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
        "value": "error: unrecognized option '--quiet-mode'",
    },
}

CONSEQUENCES: Mapping[Fold, Mapping[str, str]] = {
    Fold.TUNE: {
        "missing result": "Traceback (most recent call last):\n  File \"/sw/t/report.py\", line 12, in main\n    rows = open('result.tsv')\nFileNotFoundError: [Errno 2] No such file or directory: 'result.tsv'",
        "task ended": "srun: error: cn042: task 0: Exited with exit code 1",
        "Snakemake": "[Sun Mar  1 10:09:12 2026]\nError in rule align:\n    jobid: 4\n    output: out/a.bam\nShutting down, this might take some time.\nExiting because a job execution failed. Look above for error message",
        "copy": "cp: cannot stat 'out/a.bam': No such file or directory",
        "make": "make: *** [Makefile:12: out/a.bam] Error 1",
        "called process": "subprocess.CalledProcessError: Command '['bash', 'run.sh']' returned non-zero exit status 1.",
        "empty": "pandas.errors.EmptyDataError: No columns to parse from file",
        "index": "IndexError: list index out of range",
        "abort": "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 1.",
        "tar": "tar: out: Cannot stat: No such file or directory\ntar: Exiting with failure status due to previous errors",
    },
    Fold.REPORT: {
        "missing result": 'Error in file(file, "rt") : cannot open the connection\nExecution halted',
        "task ended": "slurmstepd: error: *** STEP 77.0 ON cn7 CANCELLED AT 2026-03-01T10:09:12 ***\nsrun: error: cn7: tasks 1-3: Killed",
        "Nextflow": "Error executing process > 'ALIGN (1)'\n\nCaused by:\n  Process `ALIGN (1)` terminated with an error exit status (1)",
        "copy": "mv: cannot stat 'tmp/out.vcf': No such file or directory",
        "make": "ninja: build stopped: subcommand failed.",
        "called process": "RuntimeError: command 'bash step2.sh' failed with exit status 1",
        "empty": 'samtools index: failed to open "out.bam": No such file or directory',
        "type": "TypeError: 'NoneType' object is not subscriptable",
        "abort": "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0",
        "list": "ls: cannot access 'results/*.csv': No such file or directory",
    },
}


def collected() -> Iterable[dict[str, Any]]:
    """Every collected failure, with what was expected of it."""
    for file in sorted(FOLDER.glob("unseen_*.jsonl")):
        yield from (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip())


def fair() -> list[LongLog]:
    """The failures of the fair set, as they are; its card says what they are for."""
    lines = (FOLDER / "fair_2026.jsonl").read_text(encoding="utf-8").splitlines()
    return [_log(json.loads(line)) for line in lines]


def _log(record: Mapping[str, Any], kind: str = "") -> LongLog:
    plain = {name: value for name, value in record.items() if name not in ("expect", "source")}
    return LongLog(read_evidence(plain), record["expect"], record["source"], kind)


def fold_of(record: Mapping[str, Any]) -> Fold:
    """The fold of a failure: all of one repository are in the same."""
    repository = str(record["source"]).split("#")[0]
    return Fold.TUNE if zlib.crc32(repository.encode()) % 2 else Fold.REPORT


@dataclass(frozen=True, slots=True)
class LongLog:
    """A failure in its surroundings."""

    evidence: Evidence
    expected: Mapping[str, Any]
    source: str
    kind: str = ""
    """Of the survived error or the consequence."""

    @property
    def causes(self) -> Sequence[str]:
        """Those that count as right, the best first."""
        return self.expected.get("causes") or [self.expected["cause"], *self.expected.get("also", [])]

    @property
    def retries(self) -> Sequence[str]:
        """Those that count as right."""
        return self.expected.get("retries") or [self.expected["retry"]]

    def harmed_by(self, finding: CauseFinding) -> bool:
        """Whether the advised retry would only fail again. Where no harm is labelled, a right cause does none."""
        if "harmful" in self.expected:
            return finding.retry in self.expected["harmful"]
        return finding.cause not in self.causes and is_harmful(self.expected["retry"], finding.retry)


def long_logs(fold: Fold, surroundings: Surroundings, seed: int, *, every: int = 1) -> list[LongLog]:
    """The failures of a fold that left a log, or some of them, each in such surroundings; of equal seeds, the same."""
    logs = []
    records = [record for record in collected() if fold_of(record) is fold and isinstance(record.get("log_tail"), str)]
    for record in records[::every]:
        if surroundings is Surroundings.CONSEQUENCES and record["expect"]["cause"] == "unknown":
            # Behind a failure that says nothing, the consequence is all that is known.
            continue
        chance = random.Random(f"{seed} {surroundings} {record['source']}")
        lines, kind = _surrounded(list(bounded_lines(record["log_tail"])), fold, surroundings, chance)
        logs.append(_log({**record, "log_tail": "\n".join(lines)}, kind))
    return logs


def _surrounded(
    excerpt: list[str], fold: Fold, surroundings: Surroundings, chance: random.Random
) -> tuple[list[str], str]:
    before: list[str] = []
    behind: list[str] = []
    kind = ""
    if surroundings is Surroundings.EXCERPT:
        return excerpt, kind
    if surroundings in (Surroundings.RECOVERED_3, Surroundings.RECOVERED_20):
        kind = chance.choice(sorted(RECOVERED[fold]))
        between = 3 if surroundings is Surroundings.RECOVERED_3 else 20
        before = [*RECOVERED[fold][kind].split("\n"), *(_ordinary(fold, chance) for _ in range(between))]
    elif surroundings is Surroundings.CONSEQUENCES:
        kind = chance.choice(sorted(CONSEQUENCES[fold]))
        behind = CONSEQUENCES[fold][kind].split("\n")
    rest = [*before, *excerpt, *behind]
    return [*(_ordinary(fold, chance) for _ in range(MOST_LINES - len(rest))), *rest], kind


def _ordinary(fold: Fold, chance: random.Random) -> str:
    line = chance.choice(ORDINARY[fold])
    return line.format(n=chance.randrange(1000, 10**6), m=chance.randrange(60), s=chance.randrange(60))


@dataclass(frozen=True, slots=True)
class Share:
    """A share of all, with its interval by Wilson at 95 %."""

    of: int
    all: int

    @property
    def value(self) -> float:
        return self.of / self.all if self.all else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        if not self.all:
            return 0.0, 1.0
        deviations = 1.96
        shift = deviations**2 / self.all
        middle = self.value + shift / 2
        half = deviations * (self.value * (1 - self.value) / self.all + shift / (4 * self.all)) ** 0.5
        return max(0.0, (middle - half) / (1 + shift)), min(1.0, (middle + half) / (1 + shift))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:5.1f} % ({100 * low:.1f} to {100 * high:.1f})"


@dataclass(frozen=True, slots=True)
class Score:
    """How the answers stand to what was expected."""

    accepted: Share
    best: Share
    """The first of the accepted causes."""
    sure_and_wrong: Share
    retry: Share
    """An acceptable retry."""
    harmful: Share
    """A retry that would only fail again."""
    acts: Share
    """Answers that are sure enough to act on."""
    acts_wrongly: Share
    """The wrong ones of those."""
    wrong: tuple[str, ...]
    wrong_retries: tuple[str, ...]


def scored(logs: Sequence[LongLog], classify: Callable[[Evidence], CauseFinding]) -> Score:
    """Ask for the cause of each."""
    accepted = best = sure = retry = harmful = acts = 0
    wrong = []
    wrong_retries = []
    for log in logs:
        finding = classify(log.evidence)
        answer = f"({finding.confidence}, {finding.retry}, {finding.pattern})"
        best += finding.cause == log.causes[0]
        acts += finding.confidence >= SURE
        harmful += log.harmed_by(finding)
        if finding.cause in log.causes:
            accepted += 1
        else:
            sure += finding.confidence >= SURE
            wrong.append(f"{log.source} [{log.kind}]: {log.causes[0]}, not {finding.cause} {answer}")
        if finding.retry in log.retries:
            retry += 1
        else:
            harm = "harmful" if log.harmed_by(finding) else "harmless"
            wrong_retries.append(f"{log.source} [{harm}]: {' or '.join(log.retries)}; {finding.cause} {answer}")
    count = len(logs)
    return Score(
        accepted=Share(accepted, count),
        best=Share(best, count),
        sure_and_wrong=Share(sure, count),
        retry=Share(retry, count),
        harmful=Share(harmful, count),
        acts=Share(acts, count),
        acts_wrongly=Share(sure, acts),
        wrong=tuple(wrong),
        wrong_retries=tuple(wrong_retries),
    )


def is_harmful(expected: str, verdict: str) -> bool:
    """Whether a retry is advised that fails for sure: a person has to fix something, or it needs other resources and gets the same."""
    if expected == "no":
        return verdict != "no"
    return expected == "changed" and verdict in ("same", "elsewhere")
