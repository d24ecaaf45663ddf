"""What is left of a campaign when it is over, gathered past Forestay: documents, stories, ledger, journal, files."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.system.chaos.faults import Fault, read_faults
from tests.system.chaos.ledger import Mark, read_ledger
from tests.system.chaos.submitter import Accepted

_CLAIM = re.compile(r"claim ([0-9a-f]{32})")
_HOST = re.compile(r"claim [0-9a-f]{32} on (\S+)$")


class Line(NamedTuple):
    """One line of a story."""

    rev: int
    at: int
    """Milliseconds since 1970."""
    event: str
    state: str
    attempt: int
    by: str
    note: str

    @property
    def claim(self) -> str:
        match = _CLAIM.search(self.note)
        return match[1] if match else ""

    @property
    def host(self) -> str:
        """Which incarnation of a pilot claimed; only in lines of claims."""
        match = _HOST.search(self.note)
        return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class Winner:
    """The end that counts."""

    generation: int
    attempt: int
    claim: str
    manifest: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the store has it in the end."""

    id: str
    tenant: str
    state: str
    attempt: int
    batch: str
    story: tuple[Line, ...]
    winner: Winner | None
    kept: frozenset[str] = frozenset()
    """Claims of which an end is kept as evidence."""


@dataclass(frozen=True, slots=True)
class Published:
    """A manifest on disk, checked against the files it names."""

    path: str
    sha256: str
    document: Mapping[str, Any]
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the auditor judges by."""

    accepted: Sequence[Accepted]
    batches: Mapping[str, int]
    """How many jobs each key was accepted with."""
    jobs: Mapping[str, Job]
    marks: Sequence[Mark]
    faults: Sequence[Fault]
    cuts: Sequence[tuple[float, str]] = ()
    """When the gate cut all connections of which pilot."""
    published: Mapping[str, Published] = field(default_factory=dict)
    """By path: every manifest that a job document names."""
    slowness: Sequence[tuple[float, float]] = ()
    """When the machine was how many times slower than the one for which limits are written."""
    misuse: Sequence[str] = ()
    stories: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)
    """Stories as the servers tell them, of some jobs that ran more than once: event and attempt of each line."""


def gather(folder: Path) -> Evidence:
    """Everything the auditor needs, from the folder that a campaign has left."""
    records: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in _lines(folder / "records.jsonl"):
        if record["job"]:
            records[record["job"]].append(record)
    jobs = {line["id"]: job_from(line, records[line["id"]]) for line in _lines(folder / "jobs.jsonl")}
    manifests = [job.winner.manifest["path"] for job in jobs.values() if job.winner and job.winner.manifest]
    journal = list(_lines(folder / "journal.jsonl"))
    nothing: dict[str, Any] = {"told": {}, "misuse": []}
    asked = next(_lines(folder / "asked.json"), nothing)
    return Evidence(
        accepted=[
            Accepted(job, line["tenant"], kind)
            for line in journal
            for job, kind in zip(line["ids"], line["kinds"], strict=True)
        ],
        batches={line["key"]: len(line["ids"]) for line in journal},
        jobs=jobs,
        marks=list(read_ledger(folder / "ledger.jsonl")),
        faults=read_faults(folder / "faults.jsonl"),
        cuts=read_cuts(folder / "gate.jsonl"),
        published={path: read_published(path) for path in manifests},
        slowness=[(line["at"], line["times"]) for line in _lines(folder / "slowness.jsonl")],
        misuse=asked["misuse"],
        stories={job: [(event, attempt) for event, attempt in story] for job, story in asked["told"].items()},
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open() as lines:
            yield from map(json.loads, lines)


def job_from(document: Mapping[str, Any], records: Iterable[Mapping[str, Any]]) -> Job:
    """Put a stored document and the records beside it together."""
    lines: dict[int, Line] = {}
    kept: set[str] = set()
    history = [Line(*line[:7]) for line in document["history"]]
    for record in records:
        if record["kind"] == "chapter":
            lines |= {line[0]: Line(*line[:7]) for line in record["body"]["lines"]}
        elif record["kind"] in ("late-completion", "evidence"):
            kept.add(record["body"]["ending"]["claim"])
    lines = {rev: line for rev, line in lines.items() if rev < history[0].rev} | {line.rev: line for line in history}
    return Job(
        id=document["id"],
        tenant=document["tenant"],
        state=document["state"],
        attempt=document["attempt"],
        batch=document.get("labels", {}).get("batch", ""),
        story=tuple(lines[rev] for rev in sorted(lines)),
        winner=_winner(document),
        kept=frozenset(kept),
    )


def _winner(document: Mapping[str, Any]) -> Winner | None:
    winner = document.get("winner")
    if winner == "last":
        winner = document["last"]
    if not winner:
        return None
    return Winner(winner["generation"], winner["attempt"], winner["claim"], winner.get("manifest"))


def read_published(path: str) -> Published:
    """Read a manifest and check every file it names, with nothing of Forestay's own code."""
    place = Path(path)
    try:
        content = place.read_bytes()
        document = json.loads(content)
        wrong = ""
        for file in document["files"]:
            data = (place.parent / file["path"]).read_bytes()
            if len(data) != file["bytes"] or hashlib.sha256(data).hexdigest() != file["sha256"]:
                wrong = f"{file['path']} is not what the manifest says"
            value = data.decode().split()
            if value != [document["job"], f"{document['generation']}.{document['attempt']}", document["claim"]]:
                wrong = f"{file['path']} was written by another run: {value}"
        if not document["files"]:
            wrong = "it names no file"
    except (OSError, ValueError, KeyError) as error:
        return Published(path, "", {}, f"cannot be read: {error!r}")
    return Published(path, hashlib.sha256(content).hexdigest(), document, wrong)


def read_cuts(path: Path) -> list[tuple[float, str]]:
    """The cuts that the gate wrote down."""
    cuts = []
    if path.exists():
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if line["what"] == "cut":
                cuts.append((line["at"], line["pilot"]))
    return cuts
