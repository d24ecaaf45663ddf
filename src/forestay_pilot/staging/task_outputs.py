"""Delivers the committed outputs of a task to the addresses that its client named.

Only files that the job's document names as committed are delivered, so a second attempt has no effect here, and delivering the same files twice is
harmless. A file is visible at its place when it is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import tempfile
from functools import partial
from typing import Any, Callable
from urllib.parse import quote

from forestay_pilot.process.regular_file import open_regular, read_regular
from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.outputs import MAX_MANIFEST, OutputFailedError
from forestay_pilot.staging.stage_out import STORE
from forestay_pilot.staging.task_plan import FOLDER, ROOT, is_pattern, matcher
from forestay_pilot.staging.transfer import FileLocation, StagingError, StoppedError, TransferContext, TransferTerms

_TRIES = 5
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 20.0

Sign = Callable[["list[dict[str, Any]]"], "dict[str, str]"]
"""Asks the servers for addresses by which files may be put to S3. Raises StagingError."""


def bring_outputs(plan: dict[str, Any], folder: str, *, sign: Sign, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Bring all; gives what went where. Raises OutputFailedError and StoppedError."""
    files = _committed(plan["manifest"], folder)
    transfer = TransferContext(TransferTerms.read(None, tries=_TRIES), stopped)
    sent = []
    for output in plan["outputs"]:
        for path, url in sorted(_chosen(output, files).items()):
            if output.get("refused"):
                raise OutputFailedError(str(output["refused"]), error="policy", file=path[-500:])
            size = os.stat(files[path]).st_size
            put = partial(_put, files[path], size, output["to"], url, sign, transfer)
            _try(put, url, transfer)
            shown = (
                url if output["to"]["kind"] != "file" or str(output["url"]).startswith("/") else "file://" + quote(url)
            )
            sent.append({"url": shown, "path": path, "size_bytes": str(size)})
    return {"outputs": sent[:5000]}


def _committed(manifest: dict[str, Any], folder: str) -> dict[str, str]:
    """The files by the paths that the task calls them: staged here, or where the pilots of the site see them."""
    where = str(manifest.get("path"))
    root = os.path.join(folder, ROOT)
    if where.startswith("element:"):
        names = [os.path.relpath(os.path.join(at, name), folder) for at, _, files in os.walk(root) for name in files]
        return {_called(name): os.path.join(folder, name) for name in names}
    try:
        content = read_regular(where, MAX_MANIFEST)
    except OSError as error:
        words = f"the manifest {where} cannot be read: {error.strerror}"
        raise OutputFailedError(words, error=symbol(error)) from error
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        raise OutputFailedError(f"{where} is not the manifest that was committed", error="bad-manifest")
    base = os.path.dirname(where)
    return {_called(file["path"]): os.path.join(base, file["path"]) for file in json.loads(content)["files"]}


def _called(name: str) -> str:
    return name[len(ROOT) :] if name.startswith(ROOT + "/") else "/" + name


def _chosen(output: dict[str, Any], files: dict[str, str]) -> dict[str, str]:
    """The files that an output names, and where each goes."""
    path, base = "/" + str(output["path"]).strip("/"), str(output["to"]["base"] if "to" in output else "")
    local = output.get("to", {}).get("kind") == "file"
    if is_pattern(path):
        fits, prefix = matcher(path), str(output.get("path_prefix") or "")
        return {
            file: _joined(base, file[len(prefix) :] if file.startswith(prefix) else file, local=local)
            for file in files
            if fits.fullmatch(file)
        }
    if output.get("type") == FOLDER or path not in files:
        inside = path.rstrip("/") + "/"
        return {file: _joined(base, file[len(inside) :], local=local) for file in files if file.startswith(inside)}
    return {path: base}


def _joined(base: str, rest: str, *, local: bool) -> str:
    rest = rest.lstrip("/")
    return f"{base.rstrip('/')}/{rest if local else quote(rest)}"


def _put(file: str, size: int, to: dict[str, Any], url: str, sign: Sign, transfer: TransferContext) -> None:
    kind = str(to["kind"])
    if kind == "file":
        _copy(file, url)
    elif kind == "s3":
        signed = sign([{"path": url, "bytes": size}])
        STORE["s3"](file, size, FileLocation("s3", signed[url], to.get("private") is True), transfer)
    else:
        STORE["http"](file, size, FileLocation("http", url, to.get("private") is True), transfer)


def _copy(file: str, target: str) -> None:
    """Beside its place first, and whole on disk, then by its name."""
    parent = os.path.dirname(target)
    partial_file = ""
    try:
        os.makedirs(parent, exist_ok=True)
        handle, partial_file = tempfile.mkstemp(prefix=".forestay-", dir=parent)
        with open(handle, "wb") as sink, open(open_regular(file), "rb") as source:
            shutil.copyfileobj(source, sink, 1 << 20)
            os.fchmod(sink.fileno(), os.stat(file).st_mode & 0o777 & ~_mask())
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(partial_file, target)
    except OSError as error:
        if partial_file:
            with contextlib.suppress(OSError):
                os.unlink(partial_file)
        again = symbol(error) in ("EIO", "ESTALE", "ETIMEDOUT", "EAGAIN")
        raise StagingError("output-failed", error.strerror or str(error), again=again, error=symbol(error)) from error


def _mask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _try(deed: Callable[[], None], url: str, transfer: TransferContext) -> None:
    wait = _FIRST_WAIT
    for left in range(transfer.terms.tries - 1, -1, -1):
        if transfer.stopped():
            raise StoppedError
        try:
            deed()
        except StagingError as error:
            if not left or not error.again:
                shown = url.partition("?")[0][-300:]
                raise OutputFailedError(f"{shown}: {error}", error=error.error, file=shown) from error
            transfer.pause(max(error.wait, wait * random.uniform(0.5, 1.0)))  # noqa: S311 - spreads load, guards nothing
            wait = min(wait * 2, _LONGEST_WAIT)
        else:
            return
