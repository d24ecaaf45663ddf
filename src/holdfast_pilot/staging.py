"""Staging in: the inputs of a job, brought into its folder before it starts.

Every file is checked against the size and digest that are known of it, by whoever asked for the job or by the manifest of the
job that made it. What goes wrong is told by file and by cause: not there, not as it should be, not to be reached, no space.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import ipaddress
import json
import os
import random
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Callable
from urllib.parse import unquote, urlsplit

from holdfast_pilot.slot_end import symbol

_PIECE = 1 << 20
_TIMEOUT = 30.0
_TRIES = 3
_AT_ONCE = 4
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM)

Fetch = Callable[[], "tuple[int, str]"]
"""Brings an input to its target from its source; gives its size and SHA-256."""
InputCache = Callable[["dict[str, Any]", str, Fetch], str]
"""Brings an input to its target without its source if it can; gives where it came from."""


class StagingError(Exception):
    """An input could not be brought; the reason is the fault's."""

    def __init__(self, reason: str, words: str, *, again: bool = False, error: str = "", file: str = "") -> None:
        super().__init__(words)
        self.reason = reason
        self.error = error  # as the system or the server calls it: ENOENT, HTTP 404
        self.file = file  # the input
        self.again = again  # whether the same transfer may go better in a moment


class StoppedError(Exception):
    """The job was stopped meanwhile."""


def stage_in(
    inputs: list[dict[str, Any]],
    folder: str,
    *,
    sequential: bool,
    stopped: Callable[[], bool],
    ca_file: str | None = None,
    cache: InputCache | None = None,
) -> None:
    """Bring all inputs into the folder; raises StagingError for the first in order that cannot be brought."""
    given_up = threading.Event()

    def bring(given: dict[str, Any]) -> None:
        try:
            transfer = _Transfer(given, folder, lambda: given_up.is_set() or stopped(), ca_file)
            if cache is None or given.get("refused") or given.get("missing"):
                transfer.run()
            else:
                cache(given, transfer.target, transfer.run)
        except BaseException:
            given_up.set()
            raise

    if sequential or len(inputs) == 1:
        for given in inputs:
            bring(given)
        return
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="staging") as pool:
        errors = [future.exception() for future in [pool.submit(bring, given) for given in inputs]]
    found = [error for error in errors if error is not None]
    # One that was given up because another failed is not the cause.
    for error in sorted(found, key=lambda one: isinstance(one, StoppedError)):
        raise error


class _Transfer:
    """One input on its way."""

    def __init__(self, given: dict[str, Any], folder: str, stopped: Callable[[], bool], ca_file: str | None) -> None:
        self._given = given
        self._stopped = stopped
        self._ca_file = ca_file
        self._name = str(given.get("name"))
        self._source = str(given.get("source"))
        self.target = _inside(folder, self._name)
        self._kept = (0, "")
        size, digest = given.get("bytes"), given.get("sha256")
        self._length: str | None = None  # as a web server announces it
        self._size: int | None = size if isinstance(size, int) else None
        self._sha256: str | None = digest if isinstance(digest, str) else None

    def run(self) -> tuple[int, str]:
        wait = 0.2
        for left in range(_TRIES - 1, -1, -1):
            try:
                self._bring()
            except StagingError as error:
                if not left or not error.again:
                    raise
                threading.Event().wait(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
                wait *= 4
            else:
                break
        return self._kept

    def _bring(self) -> None:
        given = self._given
        if given.get("refused"):
            raise self._error("policy", str(given["refused"]))
        if given.get("missing"):
            raise self._error("data-missing", str(given["missing"]))
        if isinstance(given.get("manifest"), dict):
            self._from_manifest(given["manifest"], str(given.get("path")))
        elif self._source.startswith(("http:", "https:")):
            self._from_web()
        else:
            path = unquote(urlsplit(self._source).path) if self._source.startswith("file:") else self._source
            self._from_file(path)

    def _error(self, reason: str, words: str, *, again: bool = False, error: str = "") -> StagingError:
        words = f"input {self._name} from {self._source}: {words}"
        return StagingError(reason, words, again=again, error=error, file=self._name)

    def _from_manifest(self, manifest: dict[str, Any], path: str) -> None:
        """An output of another job, as its manifest describes it."""
        place = str(manifest.get("path"))
        try:
            with open(place, "rb") as source:
                content = source.read()
        except OSError as error:
            words = f"the manifest {place} cannot be read: {error.strerror}"
            raise self._error("data-missing", words, error=symbol(error)) from error
        if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
            raise self._error("data-corrupt", f"{place} is not the manifest that was committed")
        for known in json.loads(content)["files"]:
            if known["path"] == path:
                self._size, self._sha256 = known["bytes"], known["sha256"]
                self._from_file(os.path.join(os.path.dirname(place), path))
                return
        raise self._error("data-missing", "the job has no output of this name")

    def _from_file(self, path: str) -> None:
        try:
            source = open(path, "rb", buffering=0)  # noqa: SIM115 - closed below; what fails here is the source
        except OSError as error:
            reason = "data-missing" if error.errno in _NOT_THERE else "transfer"
            raise self._error(reason, error.strerror or str(error), error=symbol(error)) from error
        with source:
            self._keep(source)

    def _from_web(self) -> None:
        parts = urlsplit(self._source)
        host, secure = parts.hostname or "", parts.scheme == "https"
        try:
            port = parts.port or (443 if secure else 80)
            address = self._address(host, port)
            connection = _connection(host, address, port, secure=secure, ca_file=self._ca_file)
            try:
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request("GET", target, headers={"Host": parts.netloc, "Accept-Encoding": "identity"})
                answer = connection.getresponse()
                self._judge(answer)
                self._length = answer.getheader("Content-Length")
                self._keep(answer)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            name = symbol(error) if isinstance(error, OSError) else ""
            raise self._error("transfer", f"{type(error).__name__}: {error}", again=True, error=name) from error

    def _judge(self, answer: http.client.HTTPResponse) -> None:
        status = answer.status
        if status in (404, 410):
            raise self._error("data-missing", f"the server answered {status}", error=f"HTTP {status}")
        if status != 200:
            # A redirect could lead anywhere, so none is followed.
            again = status >= 500 or status == 429
            raise self._error("transfer", f"the server answered {status}", again=again, error=f"HTTP {status}")

    def _address(self, host: str, port: int) -> str:
        """The address to call; every one that the name stands for must be allowed."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(one[4][0]) for one in found]
        if self._given.get("private") is not True:
            for address in addresses:
                if not ipaddress.ip_address(address).is_global:
                    raise self._error("policy", f"{host} is {address}, which is not a public address")
        return addresses[0]

    def _keep(self, source: BinaryIO | http.client.HTTPResponse | Any) -> None:
        """Write what a source gives, and see that it is what was asked for."""
        digest, size = hashlib.sha256(), 0
        draft = self.target + ".staging"
        try:
            os.makedirs(os.path.dirname(self.target), exist_ok=True)
            with open(draft, "wb", buffering=0) as sink:
                while True:
                    if self._stopped():
                        raise StoppedError(self._name)
                    piece = source.read(_PIECE)
                    if not piece:
                        break
                    digest.update(piece)
                    size += len(piece)
                    _write(sink, piece)
        except OSError as error:
            if error.errno in _FULL:
                raise self._error("disk", f"no space for it: {error.strerror}", error=symbol(error)) from error
            raise self._error("transfer", str(error), again=True, error=symbol(error)) from error
        except http.client.HTTPException as error:
            raise self._error("transfer", f"it broke off after {size} bytes", again=True) from error
        if self._length is not None and str(size) != self._length:
            raise self._error("transfer", f"it broke off after {size} of {self._length} bytes", again=True)
        if self._size is not None and size != self._size:
            raise self._error("data-corrupt", f"it has {size} bytes, {self._size} were expected")
        if self._sha256 is not None and digest.hexdigest() != self._sha256:
            raise self._error("data-corrupt", f"its SHA-256 is {digest.hexdigest()}, {self._sha256} was expected")
        os.rename(draft, self.target)
        self._kept = (size, digest.hexdigest())


def _write(sink: Any, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[sink.write(left) :]


def _inside(folder: str, name: str) -> str:
    """Where an input goes; a server that names a place outside is not obeyed."""
    if not name or "\0" in name or os.path.isabs(name) or any(part in ("", ".", "..") for part in name.split("/")):
        raise StagingError("bad-input", f"{name!r} is not a path inside the job's folder")
    return os.path.join(folder, name)


def _connection(host: str, address: str, port: int, *, secure: bool, ca_file: str | None) -> http.client.HTTPConnection:
    """A connection to the very address that was checked, under the name that was asked for."""
    wire = socket.create_connection((address, port), _TIMEOUT)
    if secure:
        wire = ssl.create_default_context(cafile=ca_file).wrap_socket(wire, server_hostname=host)
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    connection.sock = wire
    return connection
