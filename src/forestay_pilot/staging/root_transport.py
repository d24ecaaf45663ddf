"""Files of XRootD servers, transferred by ``xrdcp``, which sites with such servers have on their hosts.

It writes the partial file while this process hashes the existing part.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.outbound import checked_address, port_of
from forestay_pilot.staging.transfer import StagingError

if TYPE_CHECKING:
    from forestay_pilot.staging.partial_file import PartialFile
    from forestay_pilot.staging.transfer import FileLocation, TransferContext

PROGRAM = "xrdcp"
_STAT = "xrdfs"
_SIZE = re.compile(rb"^Size:\s+(\d+)", re.MULTILINE)
_PORT = 1094
_KEPT = ("PATH", "HOME", "LANG", "KRB5CCNAME", "BEARER_TOKEN_FILE")
_KEPT_PREFIXES = ("X509_", "XrdSec", "XRD_")
_NUMBER = re.compile(r"\[(3\d{3})\]\s*([^\n(]*)")
_MISSING = ("3011", "3016")  # not found, is a directory
_NO_SPACE = ("3009", "3021", "3030")
_AGAIN = ("3004", "3007", "3008", "3012", "3014", "3024")  # I/O, overload, server trouble
_LOOK = 0.05


def fetch(place: FileLocation, partial_file: PartialFile, transfer: TransferContext) -> None:
    """Add to a draft what it lacks of a file of an XRootD server."""
    again = bool(partial_file.size and partial_file.wanted_sha256)
    if not again:
        partial_file.restart()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial_file.path)
    else:
        os.truncate(partial_file.path, partial_file.size)
        partial_file.mixed = True
    _copy(place, [*(["--continue"] if again else []), _address(place), partial_file.path], transfer, partial_file)
    try:
        _see_whole(place, partial_file, transfer)
        partial_file.follow(os.stat(partial_file.path).st_size, transfer)
        if partial_file.wanted_sha256 and partial_file.sha256 != partial_file.wanted_sha256 and not partial_file.mixed:
            # It was read while it was written; the present content counts.
            size, mark = os.stat(partial_file.path).st_size, partial_file.mark
            partial_file.restart()
            partial_file.mark = mark
            partial_file.follow(size, transfer)
    except OSError as error:
        raise StagingError("transfer", str(error), again=True, error=symbol(error)) from error


def _see_whole(place: FileLocation, partial_file: PartialFile, transfer: TransferContext) -> None:
    """Check the size: ``xrdcp`` 5.5 reports success even when the disk was full."""
    size = os.stat(partial_file.path).st_size
    whole = partial_file.wanted_size if partial_file.wanted_size is not None else _remote_size(place, transfer)
    if whole is None or size >= whole:
        return
    disk = os.statvfs(partial_file.path)
    if disk.f_bavail * disk.f_frsize < min(1 << 20, whole - size):
        raise StagingError("disk", f"no space for it: {size} of {whole} bytes are there", error="ENOSPC")
    partial_file.follow(size, transfer)
    raise StagingError("transfer", f"the transfer was interrupted after {size} of {whole} bytes", again=True)


def _remote_size(place: FileLocation, transfer: TransferContext) -> int | None:
    parts = urlsplit(_address(place))
    try:
        answer = subprocess.run(  # noqa: S603 - an address and a path, and no shell
            [_STAT, f"{parts.scheme}://{parts.netloc}", "stat", "/" + parts.path.lstrip("/")],
            env=_environment(place, transfer.terms.timeout),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=transfer.terms.timeout * 2,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _SIZE.search(answer.stdout)
    return int(match[1]) if match else None


def store(path: str, size: int, place: FileLocation, transfer: TransferContext) -> None:
    """Bring a local file to an XRootD server; folders on the way are made."""
    _copy(place, ["--path", path, _address(place)], transfer, None)


def _address(place: FileLocation) -> str:
    """The address with what was checked in place of the name, where the protocol does not need the name itself."""
    parts = urlsplit(place.at)
    host = parts.hostname or ""
    try:
        address = checked_address(host, port_of(parts, _PORT), private=place.private)
    except (OSError, ValueError) as error:
        name = symbol(error) if isinstance(error, OSError) else ""
        raise StagingError("transfer", f"{type(error).__name__}: {error}", again=True, error=name) from error
    parts = parts._replace(path="//" + parts.path.lstrip("/"))  # with one slash it would be no path of the server's
    if parts.scheme in ("roots", "xroots"):
        return parts.geturl()
    where = f"[{address}]" if ":" in address else address
    return parts._replace(netloc=f"{where}:{port_of(parts, _PORT)}").geturl()


def _copy(place: FileLocation, words: list[str], transfer: TransferContext, partial_file: PartialFile | None) -> None:
    command = [PROGRAM, "--nopbar", "--force", *words] if "--continue" not in words else [PROGRAM, "--nopbar", *words]
    try:
        running = subprocess.Popen(  # noqa: S603 - an address and a path, and no shell
            command,
            env=_environment(place, transfer.terms.timeout),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            close_fds=True,
        )
    except OSError as error:
        words_ = f"{PROGRAM} cannot be run here: {error.strerror}"
        raise StagingError("transfer", words_, error=f"no {PROGRAM}") from error
    try:
        _watch(running, transfer, partial_file)
        output = running.stderr.read(8192).decode(errors="replace") if running.stderr else ""
    finally:
        if running.poll() is None:
            running.kill()
        running.wait()
        if running.stderr:
            running.stderr.close()
    if running.returncode:
        raise judge(running.returncode, output)


def _watch(running: subprocess.Popen[bytes], transfer: TransferContext, partial_file: PartialFile | None) -> None:
    """Wait until it ends, stalls, or is no longer needed; meanwhile hash the data that have arrived."""
    moved, seen = time.monotonic(), -1
    while running.poll() is None:
        transfer.go_on()
        if partial_file is not None:
            with contextlib.suppress(OSError):
                size = os.stat(partial_file.path).st_size
                if size != seen:
                    moved, seen = time.monotonic(), size
                partial_file.follow(size, transfer)
            if time.monotonic() - moved > transfer.terms.timeout:
                raise StagingError(
                    "transfer", f"no data for {transfer.terms.timeout:g} s", again=True, error="ETIMEDOUT"
                )
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(_LOOK)


def judge(code: int, output: str) -> StagingError:
    """The meaning of ``xrdcp``'s output."""
    lines = [line for line in output.splitlines() if line.strip()]
    words = f"{PROGRAM} ended with {code}: {lines[-1].strip()[:300] if lines else 'no output'}"
    match = _NUMBER.search(output)
    number = match[1] if match else ""
    name = f"XRootD {number}" if number else ""
    if number in _MISSING:
        return StagingError("data-missing", words, error=name)
    if number in _NO_SPACE or "No space left" in output or "Disk quota exceeded" in output:
        return StagingError("disk", words, error=name or "ENOSPC")
    if number and number not in _AGAIN:
        return StagingError("transfer", words, error=name)
    if not number and ("onnection" in output or "expired" in output or "timeout" in output.lower()):
        name = "XRootD connection"
    return StagingError("transfer", words, again=True, error=name)


def _environment(place: FileLocation, timeout: float) -> dict[str, str]:
    """What the program needs to find its credentials, and limits on how long it waits; nothing of the pilot's own."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    seconds = str(max(1, int(timeout)))
    kept.update(
        XRD_CONNECTIONWINDOW=seconds,
        XRD_CONNECTIONRETRY="1",
        XRD_REQUESTTIMEOUT=seconds,
        XRD_STREAMTIMEOUT=seconds,
        XRD_TIMEOUTRESOLUTION="1",
        XRD_LOGLEVEL="Error",
    )
    if not place.element:
        kept["XRD_REDIRECTLIMIT"] = "0"  # only servers that an operator named may send the pilot elsewhere
    return kept
