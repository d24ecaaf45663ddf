"""Completions on their way to a server: kept in memory and on disk until the answer is not ``unknown``.

Sending an end twice is harmless (it carries its claim), losing one costs a whole run; so an end is sent again
through any outage for as long as the pilot lives, and what is left when it dies lies in the spool for the
next pilot. The completion of a job that succeeded is never discarded, however often a server refuses it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import re
import threading
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.claims.completion_files import (
    CompletionFile,
    CompletionFiles,
    parse_completions,
    write_completions,
)
from forestay_pilot.clock import steady
from forestay_pilot.link.server_link import LinkError, RefusedError, ServerLink, ServerRing, UnavailableError
from forestay_pilot.process.regular_file import NotRegularError, read_regular
from forestay_pilot.process.work_folder import DAMAGED

if TYPE_CHECKING:
    from forestay_pilot.claims.work_requests import WorkRequest, WorkRequests
    from forestay_pilot.link.identity import PilotIdentity

log = logging.getLogger("forestay_pilot")

MOST_AT_ONCE = 100
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 5.0
_LONGEST_WAIT_REFUSED = 60.0
_CALL_SECONDS = 10.0
_GATHER = 0.02  # seconds for which ends of short jobs wait for others to go with them, while the slots have more to run
_MAX_SPOOLED = 64 << 20  # bytes
_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_SETTLED = ("committed", "held", "superseded")
_NEW = ("image", "checkpoint")  # what servers of the previous release do not know
_UNKNOWN_FIELD = 422
_WRONG = (400, 409, 413, _UNKNOWN_FIELD)
_REFUSALS_BEFORE_GIVING_UP = 3


class _Pending:
    def __init__(self, document: dict[str, Any], file: CompletionFile | None) -> None:
        self.document = document
        self.file = file  # none when it could not be written
        self.due = 0.0
        self.wait = _FIRST_WAIT
        self.refusals = 0

    def put_off(self) -> None:
        self.due = steady() + self.wait * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load only
        longest = _LONGEST_WAIT_REFUSED if self.refusals else _LONGEST_WAIT
        self.wait = min(longest, self.wait * 2)

    def good(self) -> bool:
        """Whether the job succeeded: its outputs are committed, and discarding this would run it again."""
        return self.document.get("outcome") == "ok"


def _is_completion(document: object) -> bool:
    """Whether it names a job and a claim as servers do: the claim becomes the name of a file."""
    names = (document.get("job"), document.get("claim")) if isinstance(document, dict) else ()
    return bool(names) and all(isinstance(name, str) and _ID.fullmatch(name) for name in names)


def _name(document: dict[str, Any]) -> str:
    """One claim has one end, and at most one more word: that its folder could not be cleared."""
    return str(document["claim"]) + ("-cleanup" if "cleanup" in document else "")


class CompletionQueue(threading.Thread):
    """The thread that delivers ends, on a connection of its own."""

    def __init__(
        self, ring: ServerRing, identity: PilotIdentity, spool: str, *, on_settled: Callable[[str, str], None]
    ) -> None:
        super().__init__(name="completions", daemon=True)
        self._identity = identity
        self._spool = spool
        self._files = CompletionFiles(spool)
        self._on_settled = on_settled
        self._link = ServerLink(ring)
        self._changed = threading.Condition()
        self._pending: dict[str, _Pending] = {}
        self._ended = False
        self._behind = False  # ends wait for a server to answer again
        self._since: float | None = None  # when the first end came after those that were last taken to be sent
        self._requests: WorkRequests | None = None  # what asks for work along with ends

    def ask_along(self, requests: WorkRequests) -> None:
        """From now on ask for work together with ends."""
        self._requests = requests

    def wait_taken(self, seconds: float) -> None:
        """Wait until ends that came are on their way to a server, whose answer may bring work."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._since is None or self._requests is None, seconds)

    def put(self, documents: list[dict[str, Any]], kept: Callable[[], None] = lambda: None) -> None:
        """Take charge of ends. On disk first, so that they also outlive this process.

        ``kept`` is called when nothing of them can be lost any more, and before they are sent.
        """
        file = None
        try:
            file = self._files.keep(documents)
        except OSError as error:
            log.error("a completion is kept in memory only: %s", error)  # noqa: TRY400 - the line says it all
        with self._changed:
            for document in documents:
                self._leave(self._pending.get(_name(document)))
                self._pending[_name(document)] = _Pending(document, file)
            first, self._since = self._since is None, self._since or steady()
            kept()
            if first or not self._gathering(steady()):
                self._changed.notify_all()

    def adopt(self, paths: list[str]) -> None:
        """Take charge of ends that a dead pilot left behind."""
        for path in paths:
            try:
                documents = parse_completions(read_regular(path, _MAX_SPOOLED))
                ends = [document for document in documents if _is_completion(document)]
                if len(ends) < len(documents):
                    self._keep_ends(path, ends)
            except (NotRegularError, IsADirectoryError, ValueError, RecursionError) as error:
                log.warning("a spooled completion is damaged and set aside: %s (%s)", path, error)
                with contextlib.suppress(OSError):
                    os.rename(path, path + DAMAGED)
                continue
            except OSError as error:
                log.warning("a spooled completion cannot be read now: %s (%s)", path, error)
                continue
            if not ends:
                continue
            file = CompletionFile(path, len(ends))
            self._behind = True
            with self._changed:
                for document in ends:
                    pending = _Pending(document, file)
                    if self._pending.setdefault(_name(document), pending) is not pending:
                        self._leave(pending)
                self._changed.notify_all()

    def _keep_ends(self, path: str, ends: list[dict[str, Any]]) -> None:
        """Set a file aside in which something else stands beside ends, which stay under its name. The ends are never in no file."""
        log.warning("%s has something that is no completion; the file is set aside", path)
        with contextlib.suppress(OSError):  # they are sent all the same
            if ends:
                write_completions(path + ".tmp", ends)
            os.link(path, path + DAMAGED, follow_symlinks=False)
            if ends:
                os.rename(path + ".tmp", path)
            else:
                os.unlink(path)

    def waiting(self) -> int:
        """How many ends are not settled."""
        with self._changed:
            return len(self._pending)

    def behind(self) -> bool:
        """Whether completions could not be delivered when they arose. Until then no more claims are requested: a claim may be for one of these jobs."""
        return self._behind

    def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` until all is delivered; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending, seconds)

    def end(self) -> None:
        """Send no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._link.abort()

    def run(self) -> None:
        """Deliver until told to end; no error ends this thread."""
        outage_wait = _FIRST_WAIT
        while True:
            try:
                batch, request = self._next_batch()
                if not batch:
                    self._link.close()
                    return
                self._send(batch, request)
                outage_wait = _FIRST_WAIT
                self._behind = False
            except LinkError as error:
                self._behind = True
                if outage_wait == _FIRST_WAIT:
                    log.warning("completions wait for a server: %s", error)
                pause = outage_wait * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
                if isinstance(error, UnavailableError):
                    pause = max(pause, min(error.retry_after, _LONGEST_WAIT))
                self._pause(pause)
                outage_wait = min(_LONGEST_WAIT, outage_wait * 2)
            except Exception:
                log.exception("unexpected error while sending completions")
                self._pause(1.0)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended, seconds)

    def _next_batch(self) -> tuple[list[_Pending], WorkRequest | None]:
        """What is to be sent, with a request for work if slots are free; nothing once this thread is to end."""
        with self._changed:
            while not self._ended:
                now = steady()
                due = [pending for pending in self._pending.values() if pending.due <= now]
                gathering = self._gathering(now)
                if due and not gathering:
                    self._since = None
                    self._changed.notify_all()
                    # One that was refused goes alone, so that it cannot hold up the others.
                    doubtful = [pending for pending in due if pending.refusals]
                    if doubtful:
                        return [doubtful[0]], None
                    return due[:MOST_AT_ONCE], None if self._requests is None else self._requests.begin()
                times = [pending.due for pending in self._pending.values() if pending.due > now]
                if gathering and self._since is not None:
                    times.append(self._since + _GATHER)
                self._changed.wait(max(0.001, min(times) - now) if times else None)
        return [], None

    def _gathering(self, now: float) -> bool:
        """Whether ends still wait for others, to share a request with them: as long as the slots do not need what its answer brings."""
        if self._since is None or self._requests is None or now >= self._since + _GATHER:
            return False
        return self._requests.enough_ahead()

    def _send(self, batch: list[_Pending], request: WorkRequest | None) -> None:
        body: dict[str, Any] = {"completions": [pending.document for pending in batch]}
        if request is not None:
            body["claim"] = request.body
        answer = None
        try:
            # Work is asked for once; without an answer the ends are sent again, to every server, and alone.
            answer = self._identity.call(
                self._link, "POST", "/completions", body, timeout=_CALL_SECONDS, everywhere=request is None
            )
        except RefusedError as refusal:
            if refusal.status not in _WRONG:
                raise
            if request is not None and refusal.status == _UNKNOWN_FIELD:
                self._requests = None  # a server of the previous release, perhaps: work is asked for apart from now on
            self._on_refusal(batch, refusal)
            return
        finally:
            # Before the ends are settled: whoever waits for that sees what their answer brought.
            if request is not None:
                request.end(answer)
        results = answer.get("results")
        results_data = {
            str(result.get("claim")): str(result.get("result"))
            for result in (results if isinstance(results, list) else [])
            if isinstance(result, dict)
        }
        for pending in batch:
            result = results_data.get(str(pending.document["claim"]), "unknown")
            if result in _SETTLED:
                self._settle(pending, result)
            else:
                pending.put_off()

    def _on_refusal(self, batch: list[_Pending], refusal: RefusedError) -> None:
        log.warning("%d completions were refused: %s", len(batch), refusal)
        for pending in batch:
            pending.refusals += 1
            if pending.refusals > 1:
                # The server may be unable to accept its text; the outcome matters more.
                known = {name: value for name, value in pending.document.items() if name not in _NEW}
                pending.document = {**known, "log_tail": str(pending.document.get("log_tail"))[-500:]}
            if pending.refusals > _REFUSALS_BEFORE_GIVING_UP and len(batch) == 1 and not pending.good():
                self._set_aside(pending)
                self._settle(pending, "refused")
            else:
                pending.put_off()

    def _set_aside(self, pending: _Pending) -> None:
        """Store a completion that no server accepts in a file for inspection."""
        path = os.path.join(self._spool, _name(pending.document) + ".refused")
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as sink:
            json.dump(pending.document, sink)

    def _leave(self, pending: _Pending | None) -> None:
        """Its file need not keep it any more."""
        if pending is not None and pending.file is not None:
            self._files.settle(pending.file)

    def _settle(self, pending: _Pending, result: str) -> None:
        claim = str(pending.document["claim"])
        self._leave(pending)
        # The claim is released before anyone waiting for the flush continues.
        self._on_settled(claim, result)
        with self._changed:
            self._pending.pop(_name(pending.document), None)
            self._changed.notify_all()
