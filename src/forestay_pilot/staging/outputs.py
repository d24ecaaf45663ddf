"""Outputs of an attempt: copied under its own path, synced to disk, then listed in a manifest.

Until the server commits the manifest nobody reads what lies here, so a second attempt can never be seen. Every
file and folder is fsynced before the manifest gets its name, and the manifest before the end is sent.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import json
import os
import re
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from forestay_pilot.process.payload import BadClaimError, safe_part
from forestay_pilot.process.regular_file import open_regular
from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.pump import SinkError, pump

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forestay_pilot.process.payload import ClaimedJob

FOLDER_GONE = "folder-gone"
MAX_MANIFEST = 256 << 20  # bytes; of a hundred thousand outputs with long names it has a tenth
_PIECE = 1 << 20
_SMALL = 1 << 16  # what is not longer is copied without a thread of its own
_FEW = 4  # copied one after the other
_COPIERS = 16  # a disk makes many files durable in about the time that it needs for one


class OutputMissingError(Exception):
    """A declared output does not exist."""

    def __init__(self, words: str, *, pattern: str = "") -> None:
        super().__init__(words)
        self.pattern = pattern


class OutputFailedError(Exception):
    """The outputs exist but could not be committed."""

    def __init__(self, words: str, *, error: str = "", file: str = "") -> None:
        super().__init__(words)
        self.error = error  # as the system or the storage calls it
        self.file = file


@dataclass(frozen=True)
class OutputManifest:
    """The description of the committed outputs in a completion."""

    path: str
    sha256: str
    files: int
    bytes: int
    listing: tuple[tuple[str, int, str], ...] = ()  # path, size and SHA-256 of each, for the cache


def check_patterns(patterns: Iterable[object]) -> list[str]:
    """The patterns, if each stays inside the working folder; raises BadClaimError otherwise."""
    checked = []
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern or "\0" in pattern:
            raise BadClaimError(f"{pattern!r} is not an output pattern")
        if os.path.isabs(pattern) or ".." in pattern.split("/"):
            raise BadClaimError(f"the output pattern {pattern!r} leaves the working folder")
        checked.append(pattern)
    return checked


def find_outputs(folder: str, patterns: Iterable[str], *, needed: bool = True) -> dict[str, str]:
    """Declared outputs as {name: real path}; a pattern without any raises OutputMissingError, unless they are not needed."""
    root = os.path.realpath(folder)
    outputs: dict[str, str] = {}
    folders: dict[str, str] = {}
    for pattern in patterns:
        before = len(outputs)
        seen_before = 0
        for match in matches_below(root, pattern):
            for path in _files_at(match, root):
                real = _real_path(path, folders)
                if not real.startswith(root + os.sep) or not os.path.isfile(real):
                    continue  # a link out of the folder, a pipe, a socket: not an output
                name = os.path.relpath(path, root)
                seen_before += name in outputs
                outputs[name] = real
        if needed and len(outputs) == before and not seen_before:
            raise OutputMissingError(f"no file matches the declared output {pattern!r}", pattern=pattern)
    return outputs


def _real_path(path: str, folders: dict[str, str]) -> str:
    """The path without links; each folder is looked up once."""
    if os.path.islink(path):
        return os.path.realpath(path)
    parent, name = os.path.split(path)
    if name in ("", ".", ".."):
        return os.path.realpath(path)
    if parent not in folders:
        folders[parent] = os.path.realpath(parent)
    return os.path.join(folders[parent], name)


def matches_below(folder: str, pattern: str) -> Iterator[str]:
    """The paths in a folder that match, as `glob` understands patterns; but no wildcard enters a link to a folder.

    Two links to their own folder would otherwise have as many paths as there are ways through them.
    """
    part, _, rest = pattern.partition("/")
    while part == "**" and rest.startswith("**/"):
        rest = rest[3:]
    if part in ("", "."):
        yield from matches_below(folder, rest) if rest else [folder]
    elif part == "**":
        for below, names, _ in os.walk(folder):
            names[:] = sorted(name for name in names if not name.startswith("."))
            yield from matches_below(below, rest) if rest else [below]
            if not rest:
                return  # all that is in it counts
    elif not glob.has_magic(part):
        path = os.path.join(folder, part)
        if not rest:
            yield from [path] if os.path.lexists(path) else []
        elif os.path.isdir(path):
            yield from matches_below(path, rest)
    else:
        for entry in _entries(folder, part):
            if not rest:
                yield entry.path
            elif entry.is_dir(follow_symlinks=False):
                yield from matches_below(entry.path, rest)


def is_below(path: str, root: str) -> bool:
    """Whether a path leads into a folder, or to itself, once links are followed. The folder is without links."""
    return f"{os.path.realpath(path)}{os.sep}".startswith(root + os.sep)


def _entries(folder: str, part: str) -> list[os.DirEntry[str]]:
    hidden = part.startswith(".")
    match = re.compile(fnmatch.translate(part)).match
    try:
        with os.scandir(folder) as found:
            entries = [entry for entry in found if match(entry.name) and (hidden or not entry.name.startswith("."))]
    except OSError:
        return []
    return sorted(entries, key=lambda entry: entry.name)


def _files_at(match: str, root: str) -> Iterable[str]:
    if not os.path.isdir(match):
        yield match
        return
    if not is_below(match, root):
        return  # a link out of the folder
    for folder, _, names in os.walk(match):
        for name in sorted(names):
            yield os.path.join(folder, name)


def commit_outputs(job: ClaimedJob, folder: str, patterns: list[str], outputs: str) -> OutputManifest:
    """Copy the declared outputs under the attempt's own path and write its manifest.

    Raises OutputMissingError when a pattern has no file, OutputFailedError when the disk refuses or the folder itself is
    gone. What was copied by then is taken away again as far as possible.
    """
    if not os.path.isdir(folder):
        # The payload may have created its outputs; they were removed together with the folder.
        raise OutputFailedError("the working folder is gone", error=FOLDER_GONE)
    found_outputs = find_outputs(folder, patterns)
    place = attempt_path(job, outputs)
    made = False
    try:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.mkdir(place)  # must be new: a path is never shared by two claims
        made = True
        manifest = _write(job, found_outputs, place)
        for parent in (os.path.dirname(place), os.path.dirname(os.path.dirname(place)), outputs):
            _sync_folder(parent)
    except OSError as error:
        if made:
            shutil.rmtree(place, ignore_errors=True)
        words = f"outputs could not be committed: {error.strerror or error}"
        raise OutputFailedError(words, error=symbol(error)) from error
    return manifest


def attempt_path(job: ClaimedJob, outputs: str) -> str:
    """The folder that belongs to this attempt alone."""
    return os.path.join(outputs, *attempt_parts(job))


def attempt_parts(job: ClaimedJob) -> tuple[str, str, str]:
    """The parts of its path, or of that of its checkpoint, wherever it is."""
    last = f"{job.generation}.{job.attempt}.{safe_part(job.claim)[:8]}"
    if job.checkpoint_number:
        last += f".c{job.checkpoint_number}"
    return safe_part(job.tenant), safe_part(job.job), last


def _write(job: ClaimedJob, outputs: dict[str, str], place: str) -> OutputManifest:
    names = sorted(outputs)
    folders = {place}
    for parent in {os.path.dirname(os.path.join(place, name)) for name in names}:
        os.makedirs(parent, exist_ok=True)
        while parent not in folders:
            folders.add(parent)
            parent = os.path.dirname(parent)
    listing = _copy_all([(name, outputs[name], os.path.join(place, name)) for name in names])
    for parent in sorted(folders, reverse=True):
        _sync_folder(parent)
    path = os.path.join(place, "manifest.json")
    if os.path.lexists(path):
        raise FileExistsError(17, "an output has the reserved name manifest.json")
    content, manifest = manifest_of(job, path, listing)
    partial_file = path + ".tmp"
    with open(partial_file, "xb") as sink:
        sink.write(content)
        sink.flush()
        os.fsync(sink.fileno())
    os.rename(partial_file, path)
    _sync_folder(place)
    return manifest


def _copy_all(files: list[tuple[str, str, str]]) -> list[tuple[str, int, str]]:
    """Copy files, each as name, source and target; what is found of each, in the same order."""
    if len(files) <= _FEW:
        return [(name, *_copy(source, target)) for name, source, target in files]
    copiers = ThreadPoolExecutor(_COPIERS, thread_name_prefix="outputs")
    try:
        found = copiers.map(lambda file: _copy(file[1], file[2]), files)
        return [(name, *copied) for (name, _, _), copied in zip(files, found)]
    finally:
        # The first failure ends the others, so that nothing is written any more when the folder is removed.
        copiers.shutdown(cancel_futures=True)


def manifest_of(job: ClaimedJob, path: str, listing: list[tuple[str, int, str]]) -> tuple[bytes, OutputManifest]:
    """The manifest as written, and its entry in the completion."""
    document = {
        "job": job.job,
        "generation": job.generation,
        "attempt": job.attempt,
        "claim": job.claim,
        "files": [{"path": name, "bytes": size, "sha256": sha256} for name, size, sha256 in listing],
    }
    content = json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"
    sha256 = hashlib.sha256(content).hexdigest()
    total = sum(size for _, size, _ in listing)
    return content, OutputManifest(path=path, sha256=sha256, files=len(listing), bytes=total, listing=tuple(listing))


def _copy(source: str, target: str) -> tuple[int, str]:
    """Copy one file, hashing what is written; the copy is on disk when this returns."""
    digest = hashlib.sha256()
    reader = open_regular(source)
    try:
        about = os.fstat(reader)
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            sizes: list[int] = []
            if about.st_size > _SMALL:
                piece = min(_PIECE, about.st_size + 1)
                pump(lambda buffer: os.readv(reader, [buffer]), writer, digest.update, piece=piece, moved=sizes.append)
            else:
                while data := os.read(reader, _SMALL):
                    sizes.append(_write_all(writer, data))
                    digest.update(data)
            os.fchmod(writer, stat.S_IMODE(about.st_mode) & 0o777)
            os.fsync(writer)
        finally:
            os.close(writer)
    except SinkError as error:
        raise error.error from error
    finally:
        os.close(reader)
    return sum(sizes), digest.hexdigest()


def _write_all(writer: int, data: bytes) -> int:
    left = memoryview(data)
    while left:
        left = left[os.write(writer, left) :]
    return len(data)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def as_document(manifest: OutputManifest) -> dict[str, object]:
    """The manifest's entry in a completion."""
    document = asdict(manifest)
    del document["listing"]  # consumers read it from the file
    return document
