"""Implements `ports.insertion.job_spool.JobSpool` with the folder to which the sbatch shim writes."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forestay.adapters.system.regular_file import open_regular
from forestay.domain.sites.batch import BatchId
from forestay.domain.sites.cancel_call import CancelCall
from forestay.domain.sites.watched_job import PayloadRecord, Question, WatchedJob
from forestay.formats.text.cancel_options import read_cancel_call
from forestay.ports.errors import Permanent

FORMAT = b"1"
WITH_OPTIONS = b"2"
"""The format of a record that also contains its user's permissions."""
MOST_WORD = 16_384
"""The most bytes of one record; paths and names are shorter."""
MOST_TAIL = 32_768
MOST_JOBS = 50_000
"""The most records of one user that are read, lowest ids first; the folder is open to all, and no user's records may crowd out another's."""
MOST_SCRIPT = 1 << 20
CANCEL_CALLS = "scancel.*"
"""Records of calls that cancel jobs."""
MOST_CALLS = 1000
"""The most such records of one user that are read; they are kept for minutes."""
MOST_CALL = 1 << 22
"""The most bytes of one: an engine that ends names all its jobs."""
TICK = 0.02
"""Seconds, longer than a tick of the clock that file systems take their times from."""
YOUNG = 1.0
"""Seconds after its last change in which a file may be changed again without another time of change, so that it is read again."""
_WORK_FOLDER = re.compile(r"(?m)^###   - (/.+)$")
"""The work folder of an array's element, in the header of Nextflow's script."""


@dataclass(frozen=True, slots=True)
class ShimSpool:
    """One folder; `new` in it is open to every user, with the sticky bit, so that no user can remove another's record. `settled` is ours alone: a file
    for each array, with the elements that are settled while the array is still watched."""

    folder: Path
    records: Path | None = None
    """The folder, shared by the nodes and this machine, in which jobs write records of themselves; None: they do not."""
    before_end: bool = False
    """Jobs that fail ask there before they end, in `asks`; those that start while it is vouched for do."""
    patience: int = 10
    """Seconds for which such a job waits for an answer."""
    _words: dict[str, tuple[WatchedJob, os.stat_result]] = field(default_factory=dict, compare=False, repr=False)
    """Records that were read before, by file name: of 10,000 few are new."""

    def prepare(self) -> None:
        """Create missing parts; existing ones stay as the administrator made them. `Permanent` if they cannot be created."""
        for place in (self.folder / "new", *self._shared()):
            try:
                if place.is_dir():
                    continue
                place.mkdir(parents=True, exist_ok=True)
                # Users list it too: when a user asks for the state of a job, the shim checks which jobs are watched.
                place.chmod(0o1777 if os.getuid() == 0 else 0o700)
            except OSError as error:
                raise Permanent(
                    f"the folder {place} cannot be created: {error.strerror}; create it for this user, or choose another spool (--spool, and FORESTAY_SHIM_SPOOL for the shim)"
                ) from error

    def _shared(self) -> list[Path]:
        if self.records is None:
            return []
        return [self.records, self.records / "asks"] if self.before_end else [self.records]

    def jobs(self) -> Sequence[WatchedJob]:
        jobs: list[tuple[WatchedJob, os.stat_result]] = []
        try:
            entries = [entry for entry in os.scandir(self.folder / "new") if entry.name.partition(".")[0].isdecimal()]
        except FileNotFoundError:
            return ()
        taken: Counter[int] = Counter()
        for entry in sorted(entries, key=lambda entry: (len(entry.name.partition(".")[0]), entry.name)):
            with contextlib.suppress(OSError, ValueError):
                now = entry.stat(follow_symlinks=False)
                taken[now.st_uid] += 1
                if taken[now.st_uid] <= MOST_JOBS:
                    word = self._words.get(entry.name)
                    jobs.append(word if word is not None and _is_same(word[1], now) else _read(entry.path))
        self._wait_for_changes(known for _, known in jobs)
        self._words.clear()
        settled = time.time() - YOUNG
        self._words.update((job.file, (job, known)) for job, known in jobs if known.st_ctime < settled)
        return sorted((job for job, known in jobs if self._stays(job, known)), key=lambda job: (job.since, job.id))

    def _wait_for_changes(self, words: Iterable[os.stat_result]) -> None:
        """While a name is replaced there is a moment in which it still leads to its file and the file's other name is the only one that is counted. A
        listing of the folder waits for whoever replaces; after a tick of the clock a file that was linked anew has another time of change."""
        newest = max((word.st_ctime for word in words), default=0.0)
        if abs(time.time() - newest) < 1:
            time.sleep(TICK)
        with os.scandir(self.folder / "new") as entries:
            next(entries, None)

    def _stays(self, job: WatchedJob, known: os.stat_result) -> bool:
        try:
            return _is_sole(str(self.folder / "new" / job.file), known)
        except OSError:
            return False

    def discard(self, job: WatchedJob) -> None:
        with contextlib.suppress(OSError):
            (self.folder / "new" / job.file).unlink()

    def settle(self, job: WatchedJob) -> None:
        if job.id != job.base:
            self._settle_element(job)
        else:
            for path in (self.folder / "new").glob(f"{job.id}.*"):
                path.unlink(missing_ok=True)
            # Last, because without it the elements would be hidden again.
            (self.folder / "settled" / job.id).unlink(missing_ok=True)
        for place in self._shared():
            _remove(place, job)

    def cancel_calls(self) -> Sequence[CancelCall]:
        calls: list[CancelCall] = []
        taken: Counter[int] = Counter()
        for path in (self.folder / "new").glob(CANCEL_CALLS):
            with contextlib.suppress(OSError, ValueError), open_regular(str(path)) as source:
                known = os.fstat(source.fileno())
                taken[known.st_uid] += 1
                if taken[known.st_uid] > MOST_CALLS or not _is_sole(str(path), known):
                    continue
                version, *arguments = source.read(MOST_CALL).decode(errors="replace").split("\0")[:-1]
                call = read_cancel_call(arguments, known.st_uid, known.st_mtime)
                if version.encode() == FORMAT and call is not None:
                    calls.append(call)
        return calls

    def forget_cancel_calls(self, before: float) -> None:
        for path in (self.folder / "new").glob(CANCEL_CALLS):
            with contextlib.suppress(OSError):
                if os.lstat(path).st_mtime < before:
                    path.unlink()

    def take(self, job: WatchedJob, start: int) -> bool:
        if self.records is None:
            return False
        asked = self.records / "asks" / f"{job.id}.{start}"
        try:
            os.close(os.open(f"{asked}.taken", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        except FileExistsError:
            with contextlib.suppress(OSError):
                # Taken by us in an earlier poll. If it was anybody else, the job has withdrawn its question, or will soon.
                return asked.exists() and os.lstat(f"{asked}.taken").st_uid == os.getuid()
            return False
        except OSError:
            return False
        return asked.exists()

    def forget_questions(self, job: WatchedJob) -> None:
        if self.records is not None:
            _remove(self.records / "asks", job)

    def _settle_element(self, job: WatchedJob) -> None:
        place = self.folder / "settled"
        if not place.is_dir():
            place.mkdir()
            place.chmod(0o755)  # The shim of every user reads it.
        with (place / job.base).open("a") as target:
            os.fchmod(target.fileno(), 0o644)
            target.write(f"{job.id.partition('_')[2]}\n")

    def settled(self, array: WatchedJob) -> frozenset[BatchId]:
        try:
            numbers = (self.folder / "settled" / array.id).read_text().split()
        except OSError:
            return frozenset()
        return frozenset(f"{array.id}_{number}" for number in numbers)

    def record(self, job: WatchedJob, restarts: int) -> PayloadRecord | None:
        if self.records is None:
            return None
        try:
            with open_regular(str(self.records / f"{job.id}.{restarts}")) as source:
                if os.fstat(source.fileno()).st_uid != job.owner:
                    return None
                return _read_record(source.read(MOST_WORD).decode(errors="replace"), job, restarts)
        except (OSError, ValueError):
            return None

    def questions(self, jobs: Mapping[BatchId, int]) -> Mapping[BatchId, Question]:
        if self.records is None or not self.before_end:
            return {}
        questions: dict[BatchId, Question] = {}
        # The folder is open to all: only files of watched jobs are opened.
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.records / "asks"):
                name, _, start = entry.name.partition(".")
                owner = jobs.get(name.partition("_")[0])
                if start.isdigit() and owner is not None:
                    with contextlib.suppress(OSError, ValueError):
                        question = _read_question(entry.path, int(start), owner)
                        if name not in questions or questions[name].restarts < question.restarts:
                            questions[name] = question
        return questions

    def vouch(self, seconds: float, *, hide: float = 0) -> None:
        watch = self.folder / "watch"
        on_nodes = self.records / "watch" if self.records is not None and self.before_end else None
        if seconds <= 0:
            watch.unlink(missing_ok=True)
            if on_nodes is not None:
                on_nodes.unlink(missing_ok=True)
            return
        now = time.time()
        # One second for the time between reading this file and replacing it.
        since = self._since(now + 1) or now
        _put(watch, f"{int(now + seconds)}\n{since:.3f}\n{int(hide)}\n")
        if on_nodes is not None:
            _put(on_nodes, f"{int(now + seconds)}\n{self.patience}\n")

    def vouched(self) -> float | None:
        return self._since(time.time())

    def _since(self, now: float) -> float | None:
        """The start of the declared time, if the declaration is valid at `now`."""
        try:
            until, since, _ = (self.folder / "watch").read_text().split()
            return float(since) if int(until) > now else None
        except (OSError, ValueError):
            return None

    def tail(self, path: str, owner: int) -> str:
        try:
            # No link and no pipe: the job's owner chose this path, and we may have more access than the owner.
            with open_regular(path) as source:
                known = os.fstat(source.fileno())
                if known.st_uid != owner:
                    return ""
                source.seek(max(0, known.st_size - MOST_TAIL))
                return source.read(MOST_TAIL).decode(errors="replace")
        except OSError:
            return ""

    def element_logs(self, job: WatchedJob) -> Sequence[str]:
        try:
            place = _work_folder(job)
        except (OSError, IndexError, ValueError):
            return ()
        return [str(place / name) for name in (".command.err", ".command.out")] if job.id != job.base else ()

    def told_nextflow(self, job: WatchedJob) -> bool:
        place = Path(job.directory)
        try:
            place = _work_folder(job)
            os.lstat(place / ".exitcode")
        except FileNotFoundError:
            return not place.is_dir()
        except (OSError, IndexError, ValueError):
            return True
        return True


def _work_folder(job: WatchedJob) -> Path:
    """The work folder of a Nextflow task; for the elements of an array it is in the script."""
    place = Path(job.directory)
    element = job.id.partition("_")[2]
    if not element:
        return place
    with open_regular(str(place / ".command.run")) as source:
        text = source.read(MOST_SCRIPT).decode(errors="replace")
    return Path(_WORK_FOLDER.findall(text)[int(element)])


def _remove(place: Path, job: WatchedJob) -> None:
    """Every file of a job, or of the elements of an array."""
    for pattern in (f"{job.id}.*", f"{job.id}_*.*"):
        for path in place.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()


def _put(path: Path, text: str) -> None:
    """Replace a file atomically."""
    # The folder may be open to all: nobody can be there first under a name that cannot be guessed, or have it lead elsewhere.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(handle, "w") as target:
        os.fchmod(handle, 0o644)
        target.write(text)
    draft.rename(path)


def _read_record(text: str, job: WatchedJob, restarts: int) -> PayloadRecord:
    head, _, tail = text.partition("\n\n")
    version, *lines = head.split("\n")
    fields = dict(line.split("=", 1) for line in lines)
    if version.encode() != FORMAT or (fields.get("job"), fields.get("try")) != (job.id, str(restarts)):
        raise ValueError("no record of this start")
    code, signal = (int(fields[name]) if name in fields else None for name in ("exit", "signal"))
    return PayloadRecord(
        fields["host"][:200], int(fields["begun"]), int(fields["seen"]), int(fields["peak"]), code, signal or None, tail
    )


def _read_question(path: str, start: int, owner: int) -> Question:
    with open_regular(path) as source:
        if os.fstat(source.fileno()).st_uid != owner:
            raise ValueError(f"{path} is not of the job's user")
        version, code, signal, ended, *more = source.read(100).decode().split()
    if version.encode() != FORMAT:
        raise ValueError(f"{path} is not a question")
    kills = int(more[0]) if more else 0
    if int(signal):
        return Question(start, None, int(signal), int(ended), kills)
    return Question(start, int(code), None, int(ended), kills)


def _is_same(known: os.stat_result, now: os.stat_result) -> bool:
    """Whether a file is unchanged since it was read: the same file, with one name only, not modified."""
    return os.path.samestat(now, known) and now.st_nlink == 1 and now.st_ctime_ns == known.st_ctime_ns


def _is_sole(path: str, known: os.stat_result) -> bool:
    """Whether this is the only name of a file that was not linked or changed since."""
    return _is_same(known, os.lstat(path))


def _read(path: str) -> tuple[WatchedJob, os.stat_result]:
    with open_regular(path) as source:
        known = os.fstat(source.fileno())
        # Whoever makes a second link to a file of another user puts that user's name on what they did themselves. It may be gone again by now: only
        # what has this name, and no other, is a word.
        if not _is_sole(path, known):
            raise ValueError(f"{path} has several links")
        parts = source.read(MOST_WORD).split(b"\0")
    if (parts[0], len(parts)) not in ((FORMAT, 6), (WITH_OPTIONS, 7)):
        raise ValueError(f"{path} is not a job record")
    _, job, cluster, directory, run, *options = (part.decode(errors="replace") for part in parts[:-1])
    if not job.isdigit() or not Path(path).name.startswith(f"{job}."):
        raise ValueError(f"{path} names another job")
    allow_requeue = options == ["allow"]
    word = WatchedJob(job, cluster, known.st_uid, directory, run[:200], known.st_mtime, Path(path).name, allow_requeue)
    return word, known
