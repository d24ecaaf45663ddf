"""Checkpoints of an attempt: committed as its outputs are, each in a folder of its own, and staged for the next attempt.

A checkpoint is committed at intervals while the payload runs, and once more when it was stopped because its time was over or its
pilot has to go. Files that change while they are copied are no checkpoint; they are tried again a little later. A checkpoint
counts when the servers say so. Only then are older ones removed, and never those of a later attempt.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import logging
import os
import re
import shutil
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.link.server_link import LinkError, RefusedError
from forestay_pilot.process.regular_file import read_regular
from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.outputs import (
    MAX_MANIFEST,
    OutputFailedError,
    OutputManifest,
    OutputMissingError,
    as_document,
    attempt_parts,
    find_outputs,
)
from forestay_pilot.staging.transfer import StagingError, StoppedError

if TYPE_CHECKING:
    from types import TracebackType

    from forestay_pilot.process.payload import ClaimedJob

log = logging.getLogger("forestay_pilot")

Commit = Callable[["ClaimedJob", "list[str]"], OutputManifest]
"""Commits the files that match patterns, under the path of a job's checkpoint. Raises what commits of outputs raise."""
Report = Callable[["ClaimedJob", "dict[str, Any]"], str]
"""Tells the servers of a checkpoint; gives the manifest that counts now. Raises LinkError."""

_SOON = 1.0  # files that changed while they were copied are tried again after so long
_SUPERSEDED = (404, 409)
_FOLDER = re.compile(r"([0-9]+)\.([0-9]+)\..{1,8}\.c([0-9]+)")


@dataclass(frozen=True)
class CommittedCheckpoint:
    """A checkpoint whose files are committed, and which the servers may not know yet."""

    job: ClaimedJob  # with the checkpoint's number
    manifest: OutputManifest

    def as_document(self) -> dict[str, Any]:
        """As the servers are told of it."""
        listing = json.dumps([list(entry) for entry in sorted(self.manifest.listing)])
        return {
            "manifest": as_document(self.manifest),
            "content": hashlib.sha256(listing.encode()).hexdigest(),
            "number": self.job.checkpoint_number,
        }


class CheckpointSaver:
    """Commits the checkpoints of one attempt. A context: while it is open, the intervals run."""

    def __init__(
        self, job: ClaimedJob, folder: str, *, commit: Commit, report: Report, outputs: str, every: float
    ) -> None:
        self._job = job
        self._folder = folder
        self._commit_files = commit
        self._report = report
        self._outputs = outputs
        self._every = every
        self._number = 0
        # What the attempt began with is no progress.
        self._saved = _signature(find_outputs(folder, job.checkpoint_files, needed=False))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True) if every else None

    def __enter__(self) -> CheckpointSaver:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def commit_last(self) -> CommittedCheckpoint | None:
        """Commit what there is now that the payload has ended; nothing if it is not new. Its end tells the servers."""
        committed, _ = self._commit()
        return committed

    def settled(self, committed: CommittedCheckpoint, *, counts: bool) -> None:
        """The servers have answered: of two checkpoints one is removed."""
        remove_checkpoints(committed.job, self._outputs, only=not counts)

    def _run(self) -> None:
        wait = self._every
        while not self._ended.wait(wait):
            began = time.monotonic()
            try:
                stable = self._save()
            except RefusedError as refusal:
                if refusal.status in _SUPERSEDED:
                    log.warning("job %s: checkpoints are no longer taken: %s", self._job.job, refusal)
                    return
                stable = True
            except Exception:
                log.exception("job %s: a checkpoint could not be saved", self._job.job)
                stable = True
            wait = self._every if stable else min(self._every, max(_SOON, time.monotonic() - began))

    def _save(self) -> bool:
        """Commit and report what is new; false if the files changed meanwhile."""
        committed, stable = self._commit()
        if committed is None:
            return stable
        try:
            path = self._report(committed.job, committed.as_document())
        except RefusedError:
            remove_checkpoints(committed.job, self._outputs, only=True)
            raise
        except LinkError as error:
            log.warning("job %s: a checkpoint waits for a server: %s", self._job.job, error)
            self._saved = None  # told later, with what is there then
            return True
        self.settled(committed, counts=path == committed.manifest.path)
        return True

    def _commit(self) -> tuple[CommittedCheckpoint | None, bool]:
        """What was committed, and whether the files stayed as they were meanwhile."""
        files = find_outputs(self._folder, self._job.checkpoint_files, needed=False)
        before = _signature(files)
        if not files or before is None or before == self._saved:
            return None, before is not None
        self._number += 1
        job = replace(self._job, checkpoint_number=self._number)
        try:
            manifest = self._commit_files(job, [glob.escape(name) for name in files])
        except OutputMissingError:
            return None, False
        except (OutputFailedError, StoppedError, OSError) as error:
            log.warning("job %s: a checkpoint could not be committed: %s", job.job, error)
            return None, True
        if _signature(find_outputs(self._folder, job.checkpoint_files, needed=False)) != before:
            remove_checkpoints(job, self._outputs, only=True)
            return None, False
        self._saved = before
        return CommittedCheckpoint(job, manifest), True


def _signature(files: dict[str, str]) -> list[tuple[str, int, int, int]] | None:
    """What tells whether files changed; nothing if one has just gone."""
    try:
        about = [(name, os.stat(path)) for name, path in sorted(files.items())]
    except OSError:
        return None
    return [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in about]


def remove_checkpoints(job: ClaimedJob, outputs: str, *, only: bool = False) -> None:
    """Remove the checkpoints of a job that are older than this one, or this one alone; of one with the number 0, all that its attempt and earlier ones left.

    Only in the pilot's own folder: what is on a storage element is removed by the servers.
    """
    *parents, own = attempt_parts(job)
    folder = os.path.join(outputs, *parents)
    if only:
        shutil.rmtree(os.path.join(folder, own), ignore_errors=True)
        return
    limit = (job.generation, job.attempt, job.checkpoint_number or float("inf"))
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            match = _FOLDER.fullmatch(name)
            if match is not None and (int(match[1]), int(match[2]), int(match[3])) < limit:
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def checkpoint_inputs(begin_from: dict[str, Any]) -> list[dict[str, Any]]:
    """The files of the checkpoint that a claim names, as inputs. Raises StagingError."""
    if begin_from.get("missing"):
        raise StagingError("data-missing", str(begin_from["missing"]))
    files = begin_from.get("files")
    if isinstance(files, list):
        return [file for file in files if isinstance(file, dict)]
    manifest = begin_from.get("manifest")
    where = str(manifest.get("path")) if isinstance(manifest, dict) else ""
    try:
        content = read_regular(where, MAX_MANIFEST)
    except OSError as error:
        reason = "data-missing" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else "transfer"
        words = f"the manifest {where} cannot be read: {error.strerror}"
        raise StagingError(reason, words, error=symbol(error)) from error
    if not isinstance(manifest, dict) or hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        raise StagingError("data-corrupt", f"{where} is not the manifest that was committed")
    folder = os.path.dirname(where)
    return [
        {
            "name": file["path"],
            "source": f"{where}#{file['path']}",
            "bytes": file["bytes"],
            "sha256": file["sha256"],
            "from": [{"kind": "file", "path": os.path.join(folder, str(file["path"]))}],
        }
        for file in json.loads(content)["files"]
    ]
