"""Past attempts from Snakemake's own logs, `.snakemake/log/*.snakemake.log`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from forestay.domain.exceptions.evidence.past_attempt import PastAttempt, PastState
from forestay.formats.accounting.past_log import LogPath
from forestay.formats.rules.evidence_json import read_evidence, read_size

_STAMP = re.compile(r"\[([A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4})\]")
_BEGINS = re.compile(r"(?:local)?(?:rule|checkpoint) (\S+):$")
_FAILS = re.compile(r"Error in (?:rule|checkpoint) (\S+):$")
_FIELD = re.compile(r"    (\w+): (.*)$")
_DONE = re.compile(r"Finished job(?:id:)? (\d+)[. (]")
_MEMORY = re.compile(r"\bmem_mb=(\d+)")
_LOG_END = re.compile(r" \(check log file\(s\) for error details\)$")
_EXIT = re.compile(
    r"(?:exit(?:ed with)?(?: non-zero)?(?: exit)? (?:code|status)|returned non-zero exit status)[: ]+(\d+)"
)
MOST_LINES = 60


@dataclass(slots=True)
class _Job:
    name: str
    began: float | None
    fields: dict[str, str] = field(default_factory=dict)


def read_snakemake(
    lines: Iterable[str],
    owner: str,
    host: str = "",
    *,
    read_log: Callable[[Sequence[LogPath], str], str] = lambda *_: "",
) -> Iterator[PastAttempt]:
    """Every job that has ended according to the log, with the time between its start and its end."""
    jobs: dict[str, _Job] = {}
    tries: dict[str, int] = {}
    now: float | None = None
    at: _Job | None = None
    failing = False
    words: list[str] = []

    def ended(job: str, *, failed: bool) -> PastAttempt:
        known = jobs.get(job) or _Job("", now)
        seconds = max(0.0, now - known.began) if now is not None and known.began is not None else 0.0
        tries[job] = tries.get(job, 0) + 1
        threads = known.fields.get("threads", "1")
        evidence = None
        if failed:
            # The second block has the log file, what the executor said, and the command.
            logs = _LOG_END.sub("", known.fields.get("log", ""))
            paths = [LogPath(path, known.began, now) for path in re.split(r", ", logs) if path]
            text = "\n".join(words)
            tail = read_log(paths, owner) if paths else ""
            code = _EXIT.search(text)
            memory = _MEMORY.search(known.fields.get("resources", ""))
            evidence = read_evidence(
                {
                    "exit_code": code[1] if code else None,
                    "log_tail": tail or text,
                    "wall_time": seconds,
                    "memory_limit": read_size(f"{memory[1]}M") if memory else None,
                    "node": host,
                }
            )
        return PastAttempt(
            "snakemake", known.fields.get("external_jobid") or f"job {job}", known.name, owner, (host,) if host else (),
            PastState.FAILED if failed else PastState.SUCCEEDED, float(threads) if threads.isdigit() else 1.0, seconds, tries[job], evidence,
            known.began, now, known.fields.get("wildcards", ""),
        )  # fmt: skip

    for raw in lines:
        line = raw.rstrip("\n")
        stamp = _STAMP.fullmatch(line)
        begins, fails = _BEGINS.match(line), _FAILS.match(line)
        if failing and (
            stamp is not None or begins is not None or fails is not None or line.startswith("Shutting down")
        ):
            if at is not None and "jobid" in at.fields:
                job = at.fields["jobid"]
                known = jobs.get(job)
                if known is not None:
                    known.fields |= {name: at.fields[name] for name in ("log", "external_jobid") if name in at.fields}
                yield ended(job, failed=True)
            at, failing, words = None, False, []
        if stamp is not None:
            now = datetime.strptime(stamp[1], "%a %b %d %H:%M:%S %Y").astimezone().timestamp()
        elif begins is not None:
            at = _Job(begins[1], now)
        elif fails is not None:
            at, failing, words = _Job(fails[1], now), True, []
        elif (match := _DONE.match(line)) is not None:
            yield ended(match[1], failed=False)
        elif at is not None and (known_field := _FIELD.match(line)) is not None:
            at.fields[known_field[1]] = known_field[2]
            if known_field[1] == "jobid" and not failing:
                jobs[known_field[2]] = at
        if failing and len(words) < MOST_LINES:
            words.append(line)
    if failing and at is not None and "jobid" in at.fields:
        yield ended(at.fields["jobid"], failed=True)
