"""The ranks of one job as its pilot sees them: the command that starts them, the sign by which they live, and how they ended."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.clock import steady
from forestay_pilot.nodes.rank import ALIVE, BEGUN, ENDED, FIRST, OVER, PATIENCE, TURN, read_text, write_whole
from forestay_pilot.process.payload import Payload, PayloadOutcome
from forestay_pilot.process.work_folder import remove_folder

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("forestay_pilot")

# Started from the place of this package, and nothing else from outside; also when it lies in a zip file.
_ENTRY = "import sys; sys.path.insert(0, sys.argv[1]); from forestay_pilot.nodes.rank import main; main()"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MOST_TOLD = 64  # ranks that an end describes
_MOST_TAILS = 8
_OF_THE_BATCH_SYSTEM = "SLURM_"
_TOKEN = "SLURM_JWT"  # noqa: S105 - the name of the variable
_UNKNOWN = "its end is unknown"
_LAUNCHER_FAILED = "the launcher ended with 0 after it had started %d ranks on %d nodes"


class SeveralNodes:
    """The nodes of this pilot, and the command by which its site starts something on all of them."""

    def __init__(self, count: int, launcher: list[str]) -> None:
        self.count = count
        self._launcher = launcher

    def started(self, payload: Payload, folder: str, cpus: int) -> Payload:
        """The same payload, started as the ranks of a job."""
        values = {"{nodes}": str(self.count), "{cpus}": str(cpus)}
        launcher = [_filled(word, values) for word in self._launcher]
        argv = [*launcher, sys.executable, "-I", "-S", "-c", _ENTRY, _ROOT, folder, payload.folder, *payload.argv]
        # By these the launcher finds the allocation. The pilot's other variables stay here, as for every payload.
        known = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_OF_THE_BATCH_SYSTEM) and name != _TOKEN
        }
        environment = {**known, **payload.environment}
        return replace(payload, argv=argv, environment=environment, program="", measured=False, group="")


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


class Ranks:
    """The ranks of one claim, while they may live."""

    def __init__(self, folder: str, may_live: Callable[[], bool]) -> None:
        """`may_live` is asked before each sign: without one, the ranks end by themselves."""
        os.makedirs(folder, mode=0o700)
        self.folder = folder
        self._may_live = may_live
        self._count = 0
        self._signed = steady()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sign_on, name="ranks", daemon=True)

    def __enter__(self) -> Ranks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_all()
        failure = remove_folder(self.folder)
        if failure is not None:
            log.warning("%s", failure)

    def _sign_on(self) -> None:
        while not self._over.is_set():
            if self._may_live():
                self._count += 1
                # One that cannot be written is like one that was not given.
                with contextlib.suppress(OSError):
                    write_whole(os.path.join(self.folder, ALIVE), str(self._count))
                    self._signed = steady()
            self._over.wait(TURN)

    def _end_all(self) -> None:
        """End the ranks that still live, and wait until none can."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            with contextlib.suppress(OSError):
                write_whole(os.path.join(self.folder, ALIVE), OVER)
        # One that does not answer has seen no sign since, and has ended itself by then if its host lives.
        until = self._signed + PATIENCE + 2.0
        while steady() < until and len(self._read(ENDED)) < len(self._read(BEGUN)):
            time.sleep(TURN / 5)

    def _read(self, kind: str) -> dict[int, dict[str, Any]]:
        found = {}
        for name in os.listdir(self.folder):
            number = name[: -len(kind)]
            if name.endswith(kind) and number.isdigit():
                # One that is being written tells the rest a moment later.
                with contextlib.suppress(ValueError):
                    found[int(number)] = {"rank": int(number), **json.loads(read_text(os.path.join(self.folder, name)))}
        return found

    def judge(self, outcome: PayloadOutcome, nodes: int) -> PayloadOutcome:
        """The outcome of all ranks together: a failure is that of the rank that failed first."""
        self._end_all()
        begun, ended = self._read(BEGUN), self._read(ENDED)
        known = {**begun, **ended}
        changes: dict[str, Any] = {
            "oom_kills": None,  # those of one node say nothing about the others
            "cpu": sum(float(rank.get("cpu") or 0) for rank in ended.values()),
            "peak_memory": max((int(rank.get("peak_memory") or 0) for rank in ended.values()), default=0),
        }
        first = read_text(os.path.join(self.folder, FIRST))
        failed = ended.get(int(first)) if first.isdigit() else None
        if failed is not None and not outcome.stopped_for:
            changes.update(exit_code=failed["exit_code"], signal=failed["signal"])
        elif outcome.exit_code == 0 and not outcome.stopped_for and len(ended) < nodes:
            changes["start_error"] = _LAUNCHER_FAILED % (len(begun), nodes)
        outcome = replace(outcome, **changes)
        if outcome.exit_code == 0 and not outcome.stopped_for and not outcome.start_error:
            return outcome
        worst_last = sorted(known.values(), key=lambda rank: _weight(rank, failed))
        tails = "".join(_section(rank) for rank in worst_last[-_MOST_TAILS:])
        rest = len(known) - _MOST_TAILS
        more = f"\n[pilot: {rest} more ranks]\n" if rest > 0 else "\n"
        ranks = [_described(rank) for rank in reversed(worst_last[-MOST_TOLD:])]
        return replace(outcome, log_tail=outcome.log_tail + more + tails, ranks=ranks)


def _weight(rank: dict[str, Any], failed: dict[str, Any] | None) -> tuple[bool, bool, bool, int]:
    """The rank that failed first comes last, where a log is read; before it those without an end, and those that failed themselves."""
    well = rank.get("exit_code") == 0 or bool(rank.get("stopped_for"))
    return rank is failed or rank == failed, "exit_code" not in rank, not well, -int(rank["rank"])


def _described(rank: dict[str, Any]) -> dict[str, Any]:
    names = ("rank", "host", "exit_code", "signal", "stopped_for")
    known = {name: rank[name] for name in names if rank.get(name) is not None}
    return known if "exit_code" in rank else {**known, "stopped_for": _UNKNOWN}


def _section(rank: dict[str, Any]) -> str:
    if "exit_code" not in rank:
        how = _UNKNOWN
    elif rank["exit_code"] is None:
        how = f"ended by signal {rank['signal']}" if rank["signal"] else "not begun"
    else:
        how = f"exit code {rank['exit_code']}"
    if rank.get("stopped_for"):
        how += f", since {rank['stopped_for']}"
    text = str(rank.get("tail") or "")
    return f"[pilot: rank {rank['rank']} on {rank['host']}: {how}]\n" + (
        text if not text or text.endswith("\n") else text + "\n"
    )
