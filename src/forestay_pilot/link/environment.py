"""The checks before a pilot registers: a machine that cannot run jobs must not get any.

Each check returns a text of the problem, or nothing. All are made, so that an operator sees all problems at once. A
site adds its own as programs (``--check``), which say what is wrong by a bad exit code and their last words.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Callable

from forestay_pilot.clock import steady
from forestay_pilot.link.server_link import NETWORK_ERRORS, ServerAddress, ServerRing
from forestay_pilot.process.control_group import usable_memory
from forestay_pilot.process.payload import clean_variables
from forestay_pilot.process.payload_cgroup import check_parent
from forestay_pilot.process.process_end import wait_and_end
from forestay_pilot.process.process_tree import OWN_SESSIONS

log = logging.getLogger("forestay_pilot")

_OLDEST_PYTHON = (3, 9)
_LEAST_MEMORY = 64 << 20
_PROBE = b"forestay\n" * 512
_WORDS = 500


@dataclass(frozen=True)
class PilotEnvironment:
    """Where a pilot is about to work."""

    ring: ServerRing
    work: str
    outputs: str
    memory: int | None = None  # the configured memory; None: all of it
    space: int = 64 << 20  # bytes that must be free in the work folder
    needs: list[str] = field(default_factory=list)  # programs that jobs of this site count on
    scripts: list[str] = field(default_factory=list)
    script_seconds: float = 60.0
    skew: float = 300.0
    server_wait: float = 120.0
    cgroup: str = ""  # the control group that was named for payloads


@dataclass(frozen=True)
class FailedCheck:
    """A check that failed."""

    check: str
    words: str

    def __str__(self) -> str:
        return f"{self.check}: {self.words}"


@dataclass(frozen=True)
class Check:
    """One check of the environment."""

    name: str
    look: Callable[[PilotEnvironment], str]  # what is wrong; empty when nothing is


def check_environment(place: PilotEnvironment, checks: tuple[Check, ...] | None = None) -> list[FailedCheck]:
    """Make every check; gives those that failed. A check that breaks has failed."""
    found_checks = []
    for check in CHECKS if checks is None else checks:
        try:
            words = check.look(place)
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
        log.debug("check %s: %s", check.name, words or "good")
        if words:
            found_checks.append(
                FailedCheck(check.name, "".join(char if char.isprintable() else " " for char in words)[:_WORDS])
            )
    return found_checks


def _python(_place: PilotEnvironment) -> str:
    if sys.version_info < _OLDEST_PYTHON:
        return f"Python 3.9 or later is required; this is {platform.python_version()}"
    return "" if sys.platform == "linux" else f"a pilot needs Linux; this is {sys.platform}"


def _work_folder(place: PilotEnvironment) -> str:
    wrong = _not_writable(place.work)
    if not wrong and os.stat(place.work).st_uid != os.getuid():
        return f"{place.work} belongs to someone else"
    return wrong


def _work_space(place: PilotEnvironment) -> str:
    try:
        room = os.statvfs(place.work)
    except OSError:
        return ""  # reported by another check
    free = room.f_bavail * room.f_frsize
    if free < place.space:
        return f"{free >> 20} MiB are free in {place.work}, {place.space >> 20} are required"
    if room.f_files and not room.f_favail:
        return f"no files can be created in {place.work}: its file system has no free inodes"
    return ""


def _outputs(place: PilotEnvironment) -> str:
    return _not_writable(place.outputs)


def _scratch(_place: PilotEnvironment) -> str:
    """Check the temporary folder, to which many programs write by default."""
    try:
        return _not_writable(tempfile.gettempdir())
    except FileNotFoundError as error:
        return str(error)


def _not_writable(path: str) -> str:
    """Make a folder, write a file there and read it back."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(_PROBE)
            probe.flush()
            os.fsync(probe.fileno())
            probe.seek(0)
            if probe.read() != _PROBE:
                return f"what was written in {path} cannot be read back"
    except OSError as error:
        return f"{path} cannot be written: {error.strerror or error}"
    return ""


def _memory(place: PilotEnvironment) -> str:
    most = usable_memory()
    if most < _LEAST_MEMORY:
        return f"the batch system allows {most >> 20} MiB of memory; {_LEAST_MEMORY >> 20} are required"
    if place.memory is not None and place.memory > most:
        return f"{place.memory >> 20} MiB of memory are configured for jobs, but only {most >> 20} are available"
    return ""


def _cgroup(place: PilotEnvironment) -> str:
    return check_parent(place.cgroup) if place.cgroup else ""


def _commands(place: PilotEnvironment) -> str:
    missing = [name for name in place.needs if shutil.which(name) is None]
    return f"not on the PATH: {', '.join(missing)}" if missing else ""


def _scripts(place: PilotEnvironment) -> str:
    wrong = []
    for path in place.scripts:
        words = _run_script(path, place)
        if words:
            wrong.append(f"{os.path.basename(path)} {words}")
    return "; ".join(wrong)


def _run_script(path: str, place: PilotEnvironment) -> str:
    """Run a site's own check; it sees neither the pilot's variables nor its open files."""
    with tempfile.TemporaryFile() as random:
        try:
            process = OWN_SESSIONS.start(
                [os.path.abspath(path)],
                stdin=subprocess.DEVNULL,
                stdout=random,
                stderr=subprocess.STDOUT,
                cwd=place.work,
                env={**clean_variables(), "FORESTAY_WORK": place.work, "FORESTAY_OUTPUT_FOLDER": place.outputs},
            )
        except OSError as error:
            return f"cannot be run: {error.strerror or error}"
        code = wait_and_end(process, place.script_seconds)
        if code is None:
            return f"did not end within {place.script_seconds:g} s"
        if code == 0:
            return ""
        random.seek(max(0, random.seek(0, os.SEEK_END) - 4096))
        lines = random.read().decode(errors="replace").strip().splitlines()
        last = lines[-1][:_WORDS] if lines else "no output"
        return f"gave {code}: {last}"


def _server(place: PilotEnvironment) -> str:
    """A server answers, and its clock and this machine's agree: addresses that are signed for a time need that."""
    give_up = steady() + place.server_wait
    pause = 0.2
    while True:
        words = ""
        for server in place.ring.order():
            try:
                apart = _clock_apart(place.ring, server)
            except (*NETWORK_ERRORS, ValueError) as error:
                words = f"{server} does not respond: {error or type(error).__name__}"
                continue
            if abs(apart) > place.skew:
                return f"this machine's clock is {apart:+.0f} s different from that of {server}"
            return ""
        if steady() + pause > give_up:
            return words
        time.sleep(pause)
        pause = min(5.0, pause * 2)


def _clock_apart(ring: ServerRing, server: ServerAddress) -> float:
    """Seconds by which this machine's clock is ahead of a server's, according to the date of a response."""
    connection = ring.connect(server, 5.0)
    try:
        connection.request("GET", f"{server.prefix}/v1/status", headers={"Accept": "application/json"})
        response = connection.getresponse()
        response.read(4096)
        if response.status >= 500:
            raise ValueError(f"it answers {response.status}")
        date = response.getheader("Date")
        return 0.0 if date is None else time.time() - parsedate_to_datetime(date).timestamp()
    finally:
        connection.close()


CHECKS = (
    Check("python", _python),
    Check("work-folder", _work_folder),
    Check("work-space", _work_space),
    Check("scratch", _scratch),
    Check("outputs", _outputs),
    Check("memory", _memory),
    Check("cgroup", _cgroup),
    Check("commands", _commands),
    Check("site-check", _scripts),
    Check("server", _server),
)
"""In the order in which they are made. The server comes last: it may be waited for."""
