"""Checkpoints: files from which the next attempt of a job continues, when time ends or a pilot is lost.

An attempt has made progress when it committed a checkpoint with another content than the one that it began with. Such an
attempt costs neither a retry nor a lost claim, so that a long job may go through any number of short allocations. The number
of these continuations is bounded: a job whose checkpoints differ for ever and lead nowhere ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from forestay.domain.jobs.job_document import Claim, JobDocument, Manifest, SavedCheckpoint
from forestay.domain.jobs.specification import CheckpointPolicy

MAX_CONTINUATIONS = 1000
"""Attempts that may end with progress and cost nothing: six weeks of allocations of one hour."""
MAX_FILES = 100
"""Patterns of one job."""
MAX_PATTERN = 1000
MAX_EVERY = 86_400
MAX_GRACE = 3600
SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2")
CHECKPOINT = "checkpoint_seconds"
"""Where a document says that its job continues from checkpoints: the least seconds in which an attempt can make progress."""


def checkpoint_as_plain(policy: CheckpointPolicy | None) -> dict[str, Any]:
    """The field of a specification that it is, without its defaults; nothing for a job without checkpoints."""
    if policy is None:
        return {}
    usual = CheckpointPolicy(files=())
    plain: dict[str, Any] = {"files": list(policy.files)}
    plain |= {
        name: getattr(policy, name)
        for name in ("signal", "every", "grace")
        if getattr(policy, name) != getattr(usual, name)
    }
    return {"checkpoint": plain}


def checkpoint_from_plain(data: Mapping[str, Any] | None) -> CheckpointPolicy | None:
    if not data:
        return None
    usual = CheckpointPolicy(files=())
    return CheckpointPolicy(
        files=tuple(data["files"]),
        signal=data.get("signal", usual.signal),
        every=data.get("every", usual.every),
        grace=data.get("grace", usual.grace),
    )


def wrong_checkpoint(policy: CheckpointPolicy) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is wrong with a policy, each with its place."""
    if not 1 <= len(policy.files) <= MAX_FILES:
        yield ("files",), f"a checkpoint has 1 to {MAX_FILES} patterns of files"
    for place, pattern in enumerate(policy.files):
        if not pattern or len(pattern) > MAX_PATTERN or not pattern.isprintable():
            yield ("files", place), f"expected a pattern of 1 to {MAX_PATTERN:,} characters"
        elif pattern.startswith("/") or ".." in pattern.split("/"):
            yield ("files", place), "a checkpoint is in the job's folder; no leading '/' and no '..'"
    if policy.signal not in SIGNALS:
        yield ("signal",), f"the signal is one of {', '.join(SIGNALS)}"
    if not 0 <= policy.every <= MAX_EVERY:
        yield ("every",), "the time between two checkpoints is 1 second to a day, or 0"
    if not 1 <= policy.grace <= MAX_GRACE:
        yield ("grace",), "the time to write a checkpoint is 1 second to an hour"


def least_seconds(policy: CheckpointPolicy) -> int:
    """The least seconds that a pilot must have left: so long until the first checkpoint, and as long to write the last as to read it."""
    return policy.every + 2 * policy.grace


def seconds_to_progress(document: JobDocument) -> int | None:
    """The same of a job's document; None for a job without checkpoints."""
    seconds = document.extra.get(CHECKPOINT) if document.extra else None
    return seconds if isinstance(seconds, int) else None


def saved(document: JobDocument, holder: Claim, manifest: Manifest, content: str, number: int, now: int) -> JobDocument:
    """The document with a checkpoint of the attempt that holds it. An older one, or one with the same content, changes nothing."""
    current = document.checkpoint
    if current is not None and (
        current.content == content or (current.claim == holder.id and current.number >= number)
    ):
        return document
    return document.having(
        checkpoint=SavedCheckpoint(
            token=document.token,
            claim=holder.id,
            number=number,
            manifest=manifest,
            content=content,
            at=now,
            continuations=0 if current is None else current.continuations,
            replaced=None if current is None else current.manifest,
        )
    )


def progress(document: JobDocument) -> SavedCheckpoint | None:
    """The newer checkpoint of an attempt that just ends; None if it made none, or if too many attempts went on at no cost."""
    checkpoint = document.checkpoint
    if checkpoint is None or checkpoint.token != document.token or checkpoint.continuations >= MAX_CONTINUATIONS:
        return None
    return checkpoint


def continued(checkpoint: SavedCheckpoint) -> SavedCheckpoint:
    """The checkpoint after an attempt that ended with progress."""
    return replace(checkpoint, continuations=checkpoint.continuations + 1)


def words_of(checkpoint: SavedCheckpoint, now: int | None = None) -> str:
    """A checkpoint in a few words: `the checkpoint of attempt 2 (14 files, 2.1 GB, 6 min old)`."""
    files = checkpoint.manifest.files
    age = "" if now is None else f", {_age(max(0, now - checkpoint.at) // 1000)} old"
    count = f"{files:,} file{'' if files == 1 else 's'}"
    return f"the checkpoint of attempt {checkpoint.token.attempt} ({count}, {_size(checkpoint.manifest.size)}{age})"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _age(seconds: int) -> str:
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
