"""Starts a payload without copying its guard.

A fork copies the guard's tables of pages, and then each page that the child touches before it becomes the payload: twice the cost of
a small program. `posix_spawn` copies nothing, but cannot tie a child to its parent's death. So this does what `posix_spawn` does,
with more steps: a child that shares the guard's memory while the guard waits. No Python can run in it. It runs functions of the C
library instead, each in a context (`makecontext`) that goes on with the next, up to the one that becomes the program.

None of the steps decides anything, and none but the last can fail for a reason that matters: what can fail is done by the guard before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forestay_pilot.process import libc

_CLONE_VM = 0x100
_CLONE_VFORK = 0x4000
_CONTEXT = 1024  # bytes; glibc's takes 968
# Bytes of a context and its stack. Where a stack is too short, it goes on into what steps before have used.
_STEP = 2048
_MOST_ARGUMENTS = 5
_OFFER = b"500"
_STANDARD = 3  # descriptors that a payload has
_SECONDS = 10


class _ContextHead(ctypes.Structure):
    """The beginning of a context, as far as its maker fills it in."""

    _fields_ = (
        ("flags", ctypes.c_ulong),
        ("next", ctypes.c_void_p),
        ("stack", ctypes.c_void_p),
        ("stack_flags", ctypes.c_int),
        ("stack_size", ctypes.c_size_t),
    )


class _Step(NamedTuple):
    function: int
    arguments: tuple[int, ...]


class Spawner:
    """Starts programs from this process, which must have one thread."""

    def __init__(self) -> None:
        """Raises AttributeError or OSError where the C library has no contexts."""
        library = ctypes.CDLL(None)
        self._clone = library.clone
        self._clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        self._make = library.makecontext
        self._make.restype = None
        self._make.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, *(ctypes.c_long,) * _MOST_ARGUMENTS)

        def function(name: str) -> int:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

        self._set = function("setcontext")
        self._null = os.open(os.devnull, os.O_RDONLY)
        # Whoever holds the far end alone lives: when the guard is dead, sending to it is a deadly signal.
        self._near, self._far = socket.socketpair()
        if min(self._null, self._near.fileno(), self._far.fileno()) < _STANDARD:
            raise OSError("a standard descriptor is closed")
        self._failed = ctypes.c_char(b"\0")
        self._offer = ctypes.c_char_p(b"/proc/self/oom_score_adj"), ctypes.c_char_p(_OFFER)
        failed, dup2 = ctypes.addressof(self._failed), function("dup2")
        path, amount = (ctypes.cast(text, ctypes.c_void_p).value or 0 for text in self._offer)
        prctl = function("prctl")
        before = [
            _Step(function("setsid"), ()),
            _Step(prctl, (libc.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)),
            _Step(prctl, (libc.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)),
            # The guard died before it was the one whose death counts: the child ends before it becomes the program.
            _Step(function("signal"), (int(signal.SIGPIPE), int(signal.SIG_DFL))),
            _Step(function("close"), (self._far.fileno(),)),
            _Step(function("send"), (self._near.fileno(), failed, 0, 0)),
            # When memory runs out, the payload goes before its guard and its pilot. The lowest number is free, so the file gets that.
            _Step(function("close"), (0,)),
            _Step(function("open"), (path, os.O_WRONLY)),
            _Step(function("write"), (0, amount, len(_OFFER))),
            _Step(dup2, (self._null, 0)),
        ]
        self._dup2, self._execve = dup2, function("execve")
        after = [_Step(function("memset"), (failed, 1, 1)), _Step(function("_exit"), (127,))]
        self._own = len(before)  # the first of three that are another each time
        count = len(before) + 3 + len(after)
        self._memory = ctypes.create_string_buffer(_STEP * (count + 2))
        first = -(-ctypes.addressof(self._memory) // _STEP) * _STEP
        self._contexts = [first + number * _STEP for number in range(count)]
        self._stack = first + (count + 1) * _STEP - 64
        self._lay_out(library.getcontext)
        for number, step in [*enumerate(before), *enumerate(after, self._own + 3)]:
            self._fill_in(number, step)
        # What runs in a context uses up its stack. To copy all of them costs less than to make them again.
        self._image = ctypes.string_at(first, _STEP * count)

    def _lay_out(self, get: ctypes._NamedFuncPointer) -> None:
        """Fill in the contexts but for what they call. All keep signals waiting but the last: a stop that came takes effect there."""
        get.argtypes = [ctypes.c_void_p]
        execve = self._own + 2
        kept = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        try:
            for number, place in enumerate(self._contexts):
                signal.pthread_sigmask(signal.SIG_SETMASK, () if number == execve else signal.valid_signals())
                if get(place):
                    raise OSError("the C library gives no context")
                head = _ContextHead.from_address(place)
                head.next = place + _STEP
                head.stack, head.stack_size = place + _CONTEXT, _STEP - _CONTEXT
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, kept)

    def _fill_in(self, number: int, step: _Step) -> None:
        given = step.arguments
        unused = (0,) * (_MOST_ARGUMENTS - len(given))
        self._make(self._contexts[number], step.function, len(given), *given, *unused)

    def start(self, program: str, argv: Sequence[str], environment: Mapping[str, str], output: int) -> int:
        """Start a program in this process's folder, with its output to a descriptor; its process id, or 0 when it does not start. ValueError for texts that no program can be given."""
        path = ctypes.c_char_p(os.fsencode(program))
        words = _texts([os.fsencode(word) for word in argv])
        variables = _texts([os.fsencode(f"{name}={value}") for name, value in environment.items()])
        arguments = (
            ctypes.cast(path, ctypes.c_void_p).value or 0,
            ctypes.addressof(words),
            ctypes.addressof(variables),
        )
        ctypes.memmove(self._contexts[0], self._image, len(self._image))
        self._fill_in(self._own, _Step(self._dup2, (output, 1)))
        self._fill_in(self._own + 1, _Step(self._dup2, (output, 2)))
        self._fill_in(self._own + 2, _Step(self._execve, arguments))
        self._failed.value = b"\0"
        pid = int(self._clone(self._set, self._stack, _CLONE_VM | _CLONE_VFORK | signal.SIGCHLD, self._contexts[0]))
        if pid > 0 and self._failed.value != b"\0":
            os.waitpid(pid, 0)
            return 0
        return max(0, pid)

    def works(self) -> bool:
        """Whether it does on this machine, tried in a process of its own: all steps, with a program that none can become.

        Twice: where the processor keeps a second stack of what was called, that of a context is used up by the first start.
        """
        pid = os.fork()
        if pid == 0:
            signal.alarm(_SECONDS)
            try:
                tried = [not self.start("/", ["/"], {}, self._null) and self._failed.value != b"\0" for _ in range(2)]
                os._exit(0 if all(tried) else 1)
            finally:
                os._exit(1)
        return os.waitpid(pid, 0)[1] == 0

    def close(self) -> None:
        self._near.close()
        self._far.close()
        os.close(self._null)


def _texts(texts: list[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    if b"\0" in b"".join(texts):
        raise ValueError("a text with a zero byte would be cut there")
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)


def find_spawner() -> Spawner | None:
    """One that works; none on other systems, where payloads are forked."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return None
    with contextlib.suppress(AttributeError, OSError):
        spawner = Spawner()
        if spawner.works():
            return spawner
        spawner.close()
    return None
