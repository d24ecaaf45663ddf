"""Server-sent events, read line by line.

Lines are split at line feeds alone: a log text may contain other characters that some readers take for line ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forestay.client.transport.errors import BadAnswer

LONGEST = 64 << 20
"""A line longer than this is not one of ours; better to stop than to fill the memory."""


class StreamEvent(NamedTuple):
    """One event of a stream. A comment line, which servers send to keep a stream open, is an event without a name."""

    name: str
    data: str
    id: str


class EventReader:
    """Turns the bytes of a stream into events, however they were cut."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self._rest = b""
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[StreamEvent]:
        """The events that this piece of the stream completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST:
            raise BadAnswer("the event stream has an endless line; is this a Forestay server?")
        for line in lines:
            event = self._line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _line(self, line: str) -> StreamEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not field:
            return StreamEvent("", value, self.last_id)
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id" and "\0" not in value:
            self.last_id = value
        return None

    def _dispatch(self) -> StreamEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        if not data and not name:
            return None
        return StreamEvent(name or "message", "\n".join(data), self.last_id)
