"""A task of several executors, as its claim describes it: prepared in the job's folder before it runs, and its outputs found there afterwards.

``root`` in the job's folder stands for the root of the container: what the task calls ``/data/x`` lies at ``root/data/x``. Executors see it there by a
container, by a view of the file system of their own, or by changed words (`task_run`).
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import shutil
import sys
from typing import Any

from forestay_pilot.containers.runtimes import NoContainerError
from forestay_pilot.process.payload import BadClaimError
from forestay_pilot.process.regular_file import read_regular
from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.outputs import OutputMissingError, is_below, matches_below
from forestay_pilot.staging.transfer import FULL, StagingError

ROOT = "root"
PLAN = "task.json"
REPORT = "report.json"
FOLDER = "DIRECTORY"
MAX_REPORT = 400_000  # characters of the executors' output that a completion may contain
_MAX_REPORT_FILE = 16 * MAX_REPORT  # bytes of the file: a character may take six, and there is more in it than texts
APPTAINER, HOST = "apptainer", "host-paths"

_ENTRY = (
    "import sys; sys.path.insert(0, sys.argv[1]); from forestay_pilot.staging.task_run import main; main(sys.argv[2])"
)
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def runner_command(plan: dict[str, Any], folder: str, apptainer: str) -> list[str]:
    """The command that runs the executors; raises NoContainerError where they may not run on this machine."""
    if plan.get("containers") != HOST and not apptainer:
        raise NoContainerError(
            "its executors need containers, and there is no apptainer on this machine; "
            "an operator can run tasks on the host with the setting tes_containers"
        )
    return [sys.executable, "-I", "-S", "-c", _ENTRY, _HERE, folder]


def below(root: str, path: str) -> str:
    """Where a path of the container lies; raises BadClaimError for one that leads outside."""
    parts = [part for part in str(path).split("/") if part not in ("", ".")]
    if not str(path).startswith("/") or ".." in parts or "\0" in str(path):
        raise BadClaimError(f"{path!r} is not a path in a container")
    return os.path.join(root, *parts)


def lay_out(plan: dict[str, Any], folder: str, *, apptainer: str) -> None:
    """Place all files where the task expects them. Raises StagingError and BadClaimError."""
    root = os.path.join(folder, ROOT)
    try:
        os.makedirs(root, exist_ok=True)
        for volume in plan.get("volumes", ()):
            os.makedirs(below(root, volume), exist_ok=True)
        for other_folder in plan.get("folders", ()):
            _bring_folder(str(other_folder.get("source")), below(root, other_folder["path"]))
        for file in plan.get("files", ()):
            target = _made(root, file["path"])
            # The staged file may be a link into the host's cache: what the task does to its own copy must not change that.
            shutil.copyfile(os.path.join(folder, file["name"]), target)
            os.unlink(os.path.join(folder, file["name"]))
        for content in plan.get("contents", ()):
            with open(_made(root, content["path"]), "w", encoding="utf-8", newline="") as sink:
                sink.write(str(content.get("content", "")))
        for output in plan.get("outputs", ()):
            place = below(root, _before_wildcard(output["path"]))
            os.makedirs(place if output.get("type") == FOLDER else os.path.dirname(place), exist_ok=True)
        for executor in plan.get("executors", ()):
            for name in ("stdin", "stdout", "stderr"):
                if executor.get(name):
                    _made(root, executor[name])
            if executor.get("workdir"):
                os.makedirs(below(root, executor["workdir"]), exist_ok=True)
        with open(os.path.join(folder, PLAN), "w", encoding="utf-8") as sink:
            json.dump({**plan, "apptainer": apptainer}, sink)
    except OSError as error:
        reason = "disk" if error.errno in FULL else "bad-input"
        words = f"the task could not be prepared: {error}"
        raise StagingError(reason, words, error=symbol(error)) from error


def _made(root: str, path: str) -> str:
    target = below(root, path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    return target


def _before_wildcard(path: str) -> str:
    """The path up to its first part with a wildcard, and one part more, whose folder is to be there."""
    parts = str(path).split("/")
    at = next((place for place, part in enumerate(parts) if glob.has_magic(part)), None)
    return str(path) if at is None else "/".join([*parts[:at], "x"])


def _bring_folder(source: str, target: str) -> None:
    try:
        shutil.copytree(source, target, dirs_exist_ok=True, symlinks=False, ignore_dangling_symlinks=True)
    except shutil.Error as error:
        first = str(error.args[0][0][2]) if error.args and error.args[0] else str(error)
        raise StagingError("transfer", f"input {source}: {first}", file=source[-500:]) from error
    except OSError as error:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM)
        reason = "data-missing" if missing else "disk" if error.errno in FULL else "transfer"
        words = f"input {source}: {error.strerror}"
        raise StagingError(reason, words, error=symbol(error), file=source[-500:]) from error


def found_outputs(plan: dict[str, Any], folder: str, *, all_needed: bool) -> list[str]:
    """The existing outputs, as patterns for the commit; raises OutputMissingError for a required one that is missing."""
    root = os.path.join(folder, ROOT)
    patterns: dict[str, None] = {}
    for output in plan.get("outputs", ()):
        path = str(output["path"])
        place = below(root, path)
        if is_pattern(path):
            matches = list(matches_below(root, path))
        else:
            matches = [place] if os.path.exists(place) else []
            if not matches and all_needed:
                raise OutputMissingError(f"the output {path} does not exist", pattern=path[-500:])
        for match in matches:
            for file in _files_at(match, root):
                _make_real(file, root)
                patterns[glob.escape(os.path.relpath(file, folder))] = None
    return list(patterns)


def is_pattern(path: str) -> bool:
    """Whether a path has a wildcard in it."""
    return glob.has_magic(path)


def _files_at(place: str, root: str) -> list[str]:
    if not os.path.isdir(place) or not is_below(place, os.path.realpath(root)):
        return [place] if os.path.isfile(place) or os.path.islink(place) else []
    return [os.path.join(at, name) for at, _, names in os.walk(place) for name in names]


def _make_real(file: str, root: str) -> None:
    """A link to another file of the task becomes a copy of that: to the task a whole path begins at its own root."""
    if not os.path.islink(file):
        return
    target = os.readlink(file)
    if os.path.isabs(target) and not target.startswith(root + os.sep):
        inside = os.path.join(root, target.lstrip("/"))
        if os.path.isfile(inside) and os.path.realpath(inside).startswith(root + os.sep):
            os.unlink(file)
            shutil.copyfile(inside, file)


def read_report(folder: str) -> dict[str, Any]:
    """The runner's report on its executors; empty if it cannot be read."""
    try:
        report = json.loads(read_regular(os.path.join(folder, REPORT), _MAX_REPORT_FILE))
    except (OSError, ValueError, RecursionError):  # the task can write there, too
        return {}
    return report if isinstance(report, dict) else {}


def matcher(pattern: str) -> re.Pattern[str]:
    """A wildcard path as a regular expression: no wildcard matches a slash, or a dot at the beginning of a name."""
    parts = []
    for part in pattern.split("/"):
        text, at = "", 0
        if part[:1] in ("*", "?", "["):
            text = r"(?!\.)"
        while at < len(part):
            sign = part[at]
            end = part.find("]", at + 2)
            if sign == "[" and end > 0:
                inner = part[at + 1 : end]
                inner = ("^" + inner[1:] if inner[0] == "!" else inner).replace("\\", "\\\\")
                text += f"(?!/)[{inner}]"
                at = end
            else:
                text += {"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign))
            at += 1
        parts.append(text)
    return re.compile("/".join(parts) + r"(?:/.*)?", re.DOTALL)
