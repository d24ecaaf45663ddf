"""The runner: an interpreter that stays warm and executes function calls one after another.

It runs under the user's own interpreter, as a payload of the pilot: the pilot writes calls to its input, one JSON line each, and
reads one line of answer for each. An answer is written before the next call begins, so that when the runner dies the pilot knows
which call it died of.

A function is named (``module:name``, and the script it is in when that is the program itself), and its arguments are plain values. A
call may instead carry a closure as a cloudpickle, made by the very user whose runner this is; results are always plain values, so
nothing is ever unpickled on the way back.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
import mmap
import os
import pickle
import resource
import struct
import sys
import time
import traceback
import types
from typing import Any, Callable

from forestay_pilot.calls.plain_values import pack, unpack

INLINE = 4096  # characters of a result that go with the end; what is larger becomes a file
RESULT_FILE = "result.json"
TURN_FILE = ".turn"
TURNS = struct.Struct("=qq")  # the number of the call that was begun last, and the number below which calls may begin
_TAIL = 8192
_TRACEBACK = 2400
_MESSAGE = 600


class _Printed(io.RawIOBase):
    """What calls print: the newest part is kept for the end of the job."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = bytearray()
        self.size = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2  # for programs that a function starts; it leads to the runner's log

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self.size += len(raw)
        self.kept += raw
        if len(self.kept) > 2 * _TAIL:
            del self.kept[:-_TAIL]
        return len(raw)

    def take(self) -> tuple[str, int]:
        """The end of what was printed since the last time, and how much it was."""
        text, size = bytes(self.kept[-_TAIL:]).decode(errors="replace"), self.size
        self.kept.clear()
        self.size = 0
        return text, size


class _Functions:
    """The functions that calls name, each looked up once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Callable[..., Any]] = {}
        self._main = ""

    def find(self, call: dict[str, Any]) -> Callable[..., Any]:
        main, name = str(call.get("main") or ""), str(call["function"])
        function = self._known.get((main, name))
        if function is None:
            function = self._known[main, name] = self._look_up(main, name)
        return function

    def _look_up(self, main: str, name: str) -> Callable[..., Any]:
        module_name, _, path = name.partition(":")
        module: Any = self._script(main) if main else importlib.import_module(module_name)
        for part in path.split("."):
            module = getattr(module, part)
        if not callable(module):
            raise TypeError(f"{name} is not a function")
        found_module: Callable[..., Any] = module
        return found_module

    def _script(self, path: str) -> types.ModuleType:
        """The program's own script as a module; what it does under ``if __name__ == "__main__"`` is not done here."""
        if path != self._main:
            module = types.ModuleType("__forestay_main__")
            module.__file__ = path
            with io.open_code(path) as source:
                code = compile(source.read(), path, "exec")
            sys.argv = [path]
            # As in the program itself, so that what pickles or compares by module finds its own.
            sys.modules["__main__"] = sys.modules["__forestay_main__"] = module
            exec(code, module.__dict__)  # noqa: S102 - the user's own script
            self._main = path
        return sys.modules["__forestay_main__"]


def _call(functions: _Functions, call: dict[str, Any]) -> Any:
    if "each" in call:
        return [_outcome(functions, other_call) for other_call in call["each"]]
    if "pickle" in call:
        function, args, kwargs = pickle.loads(base64.b64decode(call["pickle"]))  # noqa: S301 - see the top
    else:
        function = functions.find(call)
        args = [unpack(entry) for entry in call.get("args") or ()]
        kwargs = {name: unpack(entry) for name, entry in (call.get("kwargs") or {}).items()}
    return function(*args, **kwargs)


def _outcome(functions: _Functions, call: dict[str, Any]) -> str:
    """One call of several that came together: what it gave back or raised, as JSON. Only what would end any program ends the others too."""
    try:
        return json.dumps({"value": pack(_call(functions, call))})
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        return _error(error)


def _error(error: BaseException) -> str:
    """What a function raised, as JSON of bounded size."""
    kind = type(error)
    text = "".join(traceback.format_exception(kind, error, _own_part(error)))
    packs: dict[str, Any] = {
        "type": f"{kind.__module__}:{kind.__qualname__}",
        "message": _text(error)[:_MESSAGE],
        "traceback": text[-_TRACEBACK:],
    }
    try:
        packs["args"] = pack(error.args)
        whole = json.dumps({"error": packs})
        if len(whole) <= INLINE:
            return whole
    except TypeError:
        pass
    packs.pop("args", None)
    while len(json.dumps({"error": packs})) > INLINE:
        packs["traceback"] = packs["traceback"][len(packs["traceback"]) // 4 + 1 :]
        packs["message"] = packs["message"][: len(packs["message"]) * 3 // 4]
    return json.dumps({"error": packs})


def _own_part(error: BaseException) -> types.TracebackType | None:
    """The traceback without the runner's own frames."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename == __file__:
        at = at.tb_next
    return at or error.__traceback__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"a {type(error).__name__} that cannot be shown"


class CallRunner:
    """Carries out calls until there are no more."""

    def __init__(self, calls: io.BufferedReader, answers: int, turn: mmap.mmap) -> None:
        self._turn = turn
        self._calls = calls
        self._answers = answers
        self._functions = _Functions()
        self._printed = _Printed()
        self._home = os.getcwd()
        self._memory = _CallMemory()

    def run(self) -> None:
        sys.stdout = sys.stderr = io.TextIOWrapper(
            self._printed,  # raw and unbuffered: output is visible at once
            encoding="utf-8",
            errors="replace",
            write_through=True,
        )
        self._answer({"ready": os.getpid()})
        for line in self._calls:
            request = json.loads(line)
            # Write first, then read: the pilot, which does the reverse, can be sure which calls will not begin.
            struct.pack_into("=q", self._turn, 0, request["number"])
            if request["number"] >= TURNS.unpack_from(self._turn)[1]:
                self._answer({"claim": request["claim"], "skipped": True})
            else:
                self._answer(self._carry_out(request))

    def _answer(self, document: dict[str, Any]) -> None:
        left = memoryview(json.dumps(document).encode() + b"\n")
        while left:
            left = left[os.write(self._answers, left) :]

    def _carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        os.environ.update(request["environment"])
        folder, enter = request["folder"], request["enter"]
        self._memory.begin()
        started, began, cpu = time.time(), time.monotonic(), time.process_time()
        result: str | None = None
        stored = False
        try:
            if enter:
                os.chdir(folder)
            value = _call(self._functions, request["call"])
            text = json.dumps({"value": pack(value)})
            stored = len(text) > INLINE
            if stored:
                _store(text, folder)
            else:
                result = text
            ok = True
        except BaseException as error:  # also SystemExit: the runner outlives its calls
            result, ok, stored = _error(error), False, False
        finally:
            wall, used = time.monotonic() - began, time.process_time() - cpu
            if enter:
                os.chdir(self._home)
        printed, size = self._printed.take()
        return {
            "claim": request["claim"],
            "ok": ok,
            "result": result,
            "stored": stored,
            "started": started,
            "wall": wall,
            "cpu": used,
            "peak_memory": self._memory.peak(),
            "log": printed,
            "log_bytes": size,
        }


class _CallMemory:
    """The peak of one call's memory, as if the interpreter had been fresh.

    The peak of a process never falls: what one call took would stand in the evidence of all that follow. Linux resets it for whoever asks;
    where it does not, only a call that goes beyond all before it is known by its peak, and any other by what it left. What
    earlier calls left in the interpreter is no part of it either.
    """

    def __init__(self) -> None:
        self._fresh = _resident()
        self._before = self._fresh
        self._reset = False
        self._known_peak = 0

    def begin(self) -> None:
        try:
            with open("/proc/self/clear_refs", "wb", buffering=0) as reset:
                reset.write(b"5")
            self._reset = True
        except OSError:
            self._reset = False
        self._before = _resident()
        self._known_peak = _highest()

    def peak(self) -> int:
        highest = _highest()
        if not self._reset and highest <= self._known_peak:
            highest = _resident()
        return self._fresh + max(0, highest - self._before)


def _resident() -> int:
    with open("/proc/self/statm", "rb") as numbers:
        return int(numbers.read().split()[1]) * resource.getpagesize()


def _highest() -> int:
    with open("/proc/self/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _store(result: str, folder: str) -> None:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, RESULT_FILE), "x", encoding="ascii") as sink:
        sink.write(result)


def main() -> None:
    """Take calls from the input and answer on the output; functions get neither."""
    calls, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    # Found by the pilot's way in only: from here on the user's own modules.
    sys.path.remove(sys.argv[-1])  # once: the user may have the same place on the way
    sys.path[:] = [place for place in sys.path if place]
    with open(TURN_FILE, "r+b") as turn:
        CallRunner(os.fdopen(calls, "rb"), answers, mmap.mmap(turn.fileno(), TURNS.size)).run()
