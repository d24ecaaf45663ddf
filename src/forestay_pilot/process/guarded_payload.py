"""One payload as its guard sees it: its output, its limits, and how it ended."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from forestay_pilot.clock import steady
from forestay_pilot.process.device_locks import unlock
from forestay_pilot.process.kernel_kills import oom_kills
from forestay_pilot.process.payload_cgroup import PayloadCgroup

if TYPE_CHECKING:
    from forestay_pilot.job_secrets.redaction import Redactor

DEVICE_HELD = "device-held"
"""The reason why a payload did not begin: another process holds its device."""
TAIL_BYTES = 8 * 1024
FAILURE_TAIL_BYTES = 16 * 1024  # of a failed payload: the cause may be a long trace before the end


class GuardedPayload:
    """One payload while it lives, and until its last process is gone."""

    def __init__(
        self,
        request: dict[str, Any],
        pid: int,
        output: int,
        exec_error: int,
        leaf: PayloadCgroup | None,
        locks: list[int],
    ) -> None:
        self.claim: str = request["claim"]
        self.grace: float = request["grace"]
        self.external: bool = request["external"]
        self.checkpoint_signal: int = request["checkpoint_signal"]
        self.checkpoint_grace: float = request["checkpoint_grace"]
        self.folder: str = request["folder"]
        self.watched: bool = request["watched"]
        self.settle: float = request["settle"]
        self.settle_until = 0.0
        self.measured: bool = request["measured"]
        self.oom_kills = oom_kills()
        self.leaf = leaf
        self.log_path: str = request["log"]
        self.log_cap: int = request["log_cap"]
        self.pid = pid
        self.output = output
        self.exec_error = exec_error
        self.locks = locks  # what holds its devices; whatever is left of it holds them, too
        self.started = time.time()
        self.began = steady()
        wall = request["wall"]
        self.wall_until: float | None = None if wall is None else self.began + wall
        self.kill_at: float | None = None
        self.stopped_for = ""
        self.log_file = -1
        self.log_bytes = 0
        self.tail = bytearray()
        self.end: dict[str, Any] | None = None
        self.linger_until = 0.0
        self.strays: set[int] = set()  # processes that left its session and were killed after its end
        self.secrets_folder: str = request["secrets_folder"]
        self.redactor = _redactor(request["secrets"]) if request["secrets"] else None

    def keep(self, data: bytes) -> None:
        """Add output to the log, up to its cap, and to the tail, which is always the newest, without values of its secrets."""
        self._add(data if self.redactor is None else self.redactor.feed(data))

    def _add(self, data: bytes) -> None:
        room = self.log_cap - self.log_bytes
        self.log_bytes += len(data)
        self.tail += data
        if len(self.tail) > 2 * FAILURE_TAIL_BYTES:
            del self.tail[:-FAILURE_TAIL_BYTES]
        if room <= 0:
            return
        # A full disk must not stop the payload: the tail is still there.
        with contextlib.suppress(OSError):
            if self.log_file < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
                self.log_file = os.open(self.log_path, flags, 0o600)
            os.write(self.log_file, data[:room])
            if len(data) >= room:
                os.write(self.log_file, b"\n[the log is cut here: it reached %d bytes]\n" % self.log_cap)

    def note(self, text: str) -> None:
        """Say in the log what was done to the payload."""
        self._add(f"\n[pilot: {text}]\n".encode())

    def end_output(self) -> None:
        """Add what was held since it might have become the value of a secret."""
        if self.redactor is not None:
            self._add(self.redactor.flush())

    def close(self) -> None:
        for descriptor in (self.output, self.exec_error, self.log_file):
            if descriptor >= 0:
                os.close(descriptor)
        self.output = self.exec_error = self.log_file = -1
        unlock(self.locks)
        self.locks = []
        self.remove_secrets()

    def remove_secrets(self) -> None:
        """Remove the files with its secrets."""
        if self.secrets_folder:
            from forestay_pilot.job_secrets.secret_files import remove_secrets

            remove_secrets(self.secrets_folder)


def _redactor(secrets: dict[str, str]) -> Redactor:
    # Imported for jobs with secrets only: each guard and each of its forks would carry it.
    from forestay_pilot.job_secrets.redaction import Redactor

    return Redactor(secrets)
