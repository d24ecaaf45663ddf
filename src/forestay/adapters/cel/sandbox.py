"""Evaluates untrusted expressions in a process that can be killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from forestay.domain.rules.condition import Erred, check_bounds
from forestay.domain.rules.context import Context
from forestay.ports.errors import Transient
from forestay.ports.rules.conditions import ConditionProblem, ConditionTrial

START = 60.0
WALL = 5.0
"""Seconds for one answer. The kernel enforces the limit on CPU time; this is for a process that is stopped or swapped out."""


class CelSandbox:
    """Implements the port `ConditionSandbox`. The process is started when it is first needed, and again after it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        self._lock = threading.Lock()
        self._asked = 0
        self.killed = 0
        """The number of texts for which a process was killed."""

    async def try_out(self, text: str, contexts: Sequence[Context] = ()) -> ConditionTrial:
        return await asyncio.to_thread(self.try_now, text, contexts)

    async def close(self) -> None:
        await asyncio.to_thread(self.end)

    def try_now(self, text: str, contexts: Sequence[Context] = ()) -> ConditionTrial:
        """The same for callers without an event loop."""
        wrong = check_bounds(text)
        if wrong:
            return ConditionTrial(tuple(ConditionProblem(0, 0, message) for message in wrong))
        with self._lock:
            fresh = self._process is None
            process = self._started()
            self._asked += 1
            request = {"id": self._asked, "text": text, "contexts": [dict(context) for context in contexts]}
            try:
                assert process.stdin is not None  # noqa: S101
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                return self._answer(START if fresh else WALL)
            except (OSError, Empty) as error:
                self._lose()
                raise Transient("the process that tests conditions does not respond") from error

    def end(self) -> None:
        """End the process."""
        with self._lock:
            self._lose()

    def _answer(self, wait: float) -> ConditionTrial:
        while True:
            line = self._answers.get(timeout=wait)
            if not line:
                raise Empty
            document: dict[str, Any] = json.loads(line)
            if "died" in document:
                self.killed += 1
                return ConditionTrial((ConditionProblem(0, 0, f"evaluation was stopped: {document['died']}"),))
            if document["id"] == self._asked:
                return ConditionTrial(
                    tuple(ConditionProblem(*problem) for problem in document["problems"]),
                    tuple(
                        Erred(answer["erred"]) if isinstance(answer, dict) else answer
                        for answer in document.get("answers", ())
                    ),
                )

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._lose()
            self._answers = SimpleQueue()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "forestay.adapters.cel.sandboxed"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            threading.Thread(target=_read, args=(self._process, self._answers), daemon=True).start()
        return self._process

    def _lose(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            # Its fork sees the end of the requests and exits; then it exits itself.
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read(process: subprocess.Popen[bytes], answers: SimpleQueue[bytes]) -> None:
    if process.stdout is None:
        return
    with process.stdout:
        for line in process.stdout:
            answers.put(line)
    answers.put(b"")
