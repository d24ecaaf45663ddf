"""The runner of a task: a payload that runs executors one after another and reports how each ended.

Where the operator lets tasks run on the host, an executor gets a view of the file system of its own, in which the paths of the task are there and the rest is
as on the host. Where the system does not allow that, the paths are changed in the words of its command and its environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from typing import IO, Any

from forestay_pilot.staging import task_view
from forestay_pilot.staging.task_plan import APPTAINER, HOST, MAX_REPORT, PLAN, REPORT, ROOT, below

_TAIL = 32_768
_PIECE = 65_536
_PASSED = ("PATH", "HOME")
_NOT_FOUND = 127
_LAST_WORDS = 10.0  # seconds for what an executor left running in the background to close its output
_SYSTEM = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var")  # fmt: skip


def main(folder: str) -> None:
    """Run the task that is laid out in a folder; its exit code is that of the executor that ended it."""
    sys.exit(TaskRunner(folder).run())


class TaskRunner:
    """One task under way."""

    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, PLAN), encoding="utf-8") as source:
            self._plan: dict[str, Any] = json.load(source)
        self._folder = folder
        self._root = os.path.join(folder, ROOT)
        self._report: dict[str, Any] = {"logs": [], "system": []}
        self._view = False

    def run(self) -> int:
        """Executors in order, until one fails that may not."""
        if self._plan.get("containers") == HOST:
            self._view = task_view.possible()
            how = "with their own view of the file system" if self._view else "with rewritten paths"
            self._report["system"].append(f"executors run on the host, not in their images, {how}")
        self._tell()
        executors = self._plan["executors"]
        for place, executor in enumerate(executors):
            code = self._one(executor, most=MAX_REPORT // (2 * len(executors)))
            if code != 0:
                words = f"executor {place + 1} of {len(executors)} ended with exit code {code}"
                if not executor.get("ignore_error"):
                    self._report["system"].append(words)
                    self._tell()
                    return code
                self._report["system"].append(f"{words}, which was to be ignored")
        self._tell()
        return 0

    def _one(self, executor: dict[str, Any], *, most: int) -> int:
        log: dict[str, Any] = {"start_time": _now()}
        code, tails = self._execute(executor)
        log.update(end_time=_now(), exit_code=code)
        for name, tail in zip(("stdout", "stderr"), tails):
            text = tail.decode("utf-8", "replace").replace("\0", "")
            if text:
                log[name] = text[-min(_TAIL, most) :]
        self._report["logs"].append(log)
        self._tell()
        return code

    def _execute(self, executor: dict[str, Any]) -> tuple[int, tuple[bytes, bytes]]:
        with contextlib.ExitStack() as files:
            source = self._open(files, executor.get("stdin"), "rb") or subprocess.DEVNULL
            sinks = [self._open(files, executor.get(name), "wb") for name in ("stdout", "stderr")]
            try:
                process = self._begin(executor, source)
            except OSError as error:
                words = f"{executor['command'][0]}: {error.strerror or error}\n".encode()
                if sinks[1] is not None:
                    sinks[1].write(words)
                os.write(2, words)
                return (_NOT_FOUND if isinstance(error, FileNotFoundError) else 126), (b"", words)
            pumps = [
                _Pump(stream, sink, own) for stream, sink, own in zip((process.stdout, process.stderr), sinks, (1, 2))
            ]
            code = process.wait()
            for pump in pumps:
                pump.join(_LAST_WORDS)
        return (128 - code if code < 0 else code), (pumps[0].tail, pumps[1].tail)

    def _begin(self, executor: dict[str, Any], source: Any) -> subprocess.Popen[bytes]:
        try:
            return self._start(executor, source)
        except subprocess.SubprocessError:
            # A view could be had, but not with these paths.
            self._view = False
            self._report["system"].append("no own view of the file system could be created; the paths are rewritten")
            return self._start(executor, source)

    def _start(self, executor: dict[str, Any], source: Any) -> subprocess.Popen[bytes]:
        command = [str(word) for word in executor["command"]]
        values = {str(name): str(value) for name, value in (executor.get("env") or {}).items()}
        own = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith("FORESTAY_")}
        streams: dict[str, Any] = {"stdin": source, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if self._plan.get("containers") != HOST:
            words, environment = self._in_container(executor, command, values, own)
            return subprocess.Popen(words, env=environment, cwd=self._folder, **streams)  # noqa: S603 - a task's own command
        if self._view:
            inside = executor.get("workdir") or "/"
            enter = task_view.entering(self._root, private=self._private(), workdir=inside, keep=self._folder)
            # The program is searched by the variables of its own environment, inside.
            words = _by_path(command, {**own, **values}, self._root)
            return subprocess.Popen(words, env={**own, **values}, preexec_fn=enter, **streams)  # noqa: S603
        change = _Change(self._root, self._declared())
        words = [change(word) for word in command]
        environment = {**own, **{name: change(value) for name, value in values.items()}}
        folder = below(self._root, executor["workdir"]) if executor.get("workdir") else self._root
        return subprocess.Popen(words, env=environment, cwd=folder, **streams)  # noqa: S603

    def _in_container(
        self, executor: dict[str, Any], command: list[str], environment: dict[str, str], own: dict[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """By Apptainer: only the paths of the task are shared. Variables go by the environment: everybody reads command lines."""
        image = str(executor["image"])
        if "://" not in image and not image.startswith("/"):
            image = f"docker://{image}"
        words = [str(self._plan[APPTAINER]), "exec", "--containall", "--writable-tmpfs"]
        for path in self._bound():
            words += ["--bind", f"{below(self._root, path)}:{path}"]
        words += ["--pwd", executor.get("workdir") or "/", image, *command]
        passed = {f"APPTAINERENV_{name}": value for name, value in environment.items()}
        return words, {**own, **passed}

    def _declared(self) -> list[str]:
        """Every path that the task speaks of."""
        plan = self._plan
        paths = [
            str(entry["path"]) for kind in ("files", "contents", "folders", "outputs") for entry in plan.get(kind, ())
        ]
        paths += [str(entry) for entry in plan.get("volumes", ())]
        for executor in plan["executors"]:
            paths += [str(executor[name]) for name in ("workdir", "stdin", "stdout", "stderr") if executor.get(name)]
        return paths

    def _private(self) -> list[str]:
        """The folders that are the task's own: of files the folder they are in, unless the system needs it."""
        plan = self._plan
        folders = {str(folder["path"]) for folder in plan.get("folders", ())} | {
            str(volume) for volume in plan.get("volumes", ())
        }
        folders |= {str(output["path"]) for output in plan.get("outputs", ()) if output.get("type") == "DIRECTORY"}
        folders |= {str(executor["workdir"]) for executor in plan["executors"] if executor.get("workdir")}
        files = set(self._declared()) - folders
        folders |= {os.path.dirname(_plain(path)) for path in files}
        return sorted({_clean(path) for path in folders} - set(_SYSTEM))

    def _bound(self) -> list[str]:
        """What a container shares: those folders, and single files in folders that the image needs itself."""
        folders = self._private()
        outermost = [folder for folder in folders if not any(folder.startswith(f"{other}/") for other in folders)]
        alone = []
        for path in self._declared():
            clean = _clean(path)
            if (
                not any(clean == folder or clean.startswith(f"{folder}/") for folder in outermost)
                and clean not in _SYSTEM
            ):
                target = below(self._root, clean)
                if not os.path.lexists(target):
                    open(target, "ab").close()
                alone.append(clean)
        return [*outermost, *sorted(set(alone))]

    def _open(self, files: contextlib.ExitStack, path: str | None, mode: str) -> IO[bytes] | None:
        return files.enter_context(open(below(self._root, path), mode, buffering=0)) if path else None

    def _tell(self) -> None:
        """The report is whole at any time: the runner may be killed."""
        partial_file = os.path.join(self._folder, REPORT + ".tmp")
        with open(partial_file, "w", encoding="utf-8") as sink:
            json.dump(self._report, sink)
        os.replace(partial_file, os.path.join(self._folder, REPORT))


class _Pump(threading.Thread):
    """Carries what an executor prints to its file, to the job's log, and keeps the end of it."""

    def __init__(self, stream: IO[bytes] | None, sink: IO[bytes] | None, own: int) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._sink = sink
        self._own = own
        self.tail = b""
        self.start()

    def run(self) -> None:
        assert self._stream is not None  # noqa: S101 - it was asked for
        while True:
            piece = os.read(self._stream.fileno(), _PIECE)
            if not piece:
                self._stream.close()
                return
            if self._sink is not None:
                with contextlib.suppress(OSError):
                    self._sink.write(piece)
            with contextlib.suppress(OSError):
                os.write(self._own, piece)
            self.tail = (self.tail + piece)[-_TAIL:]


class _Change:
    """Changes the paths of a task in a text to where they lie on the host, the longest first."""

    def __init__(self, root: str, paths: list[str]) -> None:
        self._root = root
        clean = {_clean(_plain(path)) for path in paths}
        parents = {os.path.dirname(path) for path in clean} - set(_SYSTEM)
        self._paths = sorted((clean | parents) - {"/"}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        out, at = [], 0
        while at < len(text):
            path = next(
                (
                    other_path
                    for other_path in self._paths
                    if text.startswith(other_path, at) and _ends(text, at + len(other_path))
                ),
                None,
            )
            if path is None or (at > 0 and (text[at - 1].isalnum() or text[at - 1] in "._/-")):
                out.append(text[at])
                at += 1
            else:
                out.append(below(self._root, path))
                at += len(path)
        return "".join(out)


def _ends(text: str, at: int) -> bool:
    return at == len(text) or not (text[at].isalnum() or text[at] in "._-")


def _by_path(command: list[str], environment: dict[str, str], root: str) -> list[str]:
    """The command with its program found: outside, where the same programs are."""
    if "/" in command[0]:
        return command
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise FileNotFoundError(2, "there is no such program")
    return [program, *command[1:]]


def _plain(path: str) -> str:
    """A path up to where wildcards begin."""
    parts = []
    for part in path.split("/"):
        if any(sign in part for sign in "*?["):
            parts.append("x")
            break
        parts.append(part)
    return "/".join(parts)


def _clean(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"
