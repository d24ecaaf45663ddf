"""Handles the entries of a background loop one by one, so that an entry that cannot be handled does not stop the others.

Each loop of a reconciler goes through the documents of all tenants. Without this, a document that cannot be read, or that makes the code raise, would stop the loop
there in every pass, and everything after it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from forestay.ports.errors import PortError, Transient, Unreadable

TaskInstance = TypeVar("TaskInstance")
Key = TypeVar("Key", bound=Hashable)
Document = TypeVar("Document")

OUTAGE = 5
"""This many `Transient` errors in a row mean that the store or the engine does not answer: the pass ends."""
REMEMBERED = 1_000


@dataclass(slots=True)
class Quarantine:
    """The items of one loop that could not be handled."""

    count: int = 0
    """How many were set aside, for metrics. An item that fails again in the same way counts once."""
    _reported: dict[str, str] = field(default_factory=dict)

    async def each(
        self,
        items: Iterable[TaskInstance],
        handle: Callable[[TaskInstance], Awaitable[object]],
        *,
        name: Callable[[TaskInstance], str],
        troubled: Callable[[str], None],
        failed: Callable[[TaskInstance, str], Awaitable[object]] | None = None,
    ) -> Transient | None:
        """Handle each item; returns the last `Transient`, whose items the caller handles in a later pass.

        An item that raises any other error is reported and set aside; ``failed`` is called for it, for instance to hold it for a person. `Transient` is raised at
        once after `OUTAGE` of them in a row.
        """
        last: Transient | None = None
        in_a_row = 0
        for document in items:
            try:
                await handle(document)
                in_a_row = 0
            except Transient as error:
                last, in_a_row = error, in_a_row + 1
                if in_a_row >= OUTAGE:
                    raise
            except Exception as error:
                in_a_row = 0
                why = _reason(error)
                self.report(name(document), why, troubled)
                if failed is not None:
                    await self._give_up(document, why, failed, name, troubled)
        return last

    async def _give_up(
        self,
        document: TaskInstance,
        why: str,
        failed: Callable[[TaskInstance, str], Awaitable[object]],
        name: Callable[[TaskInstance], str],
        troubled: Callable[[str], None],
    ) -> None:
        try:
            await failed(document, why)
        except Transient:
            return  # the item fails again in the next pass, and is given up then
        except Exception as error:
            self.report(name(document), f"{why}; {_reason(error)}", troubled)

    async def readable(
        self,
        get: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Document]]],
        keys: Sequence[Key],
        troubled: Callable[[str], None],
        *,
        name: Callable[[Key], str] = str,
    ) -> Mapping[Key, Document]:
        """Read documents by their ids, without those that cannot be read, which are reported. ``name``: the name of a document that `Unreadable` gives."""
        try:
            return await get(keys)
        except Unreadable as error:
            spoilt = set(error.names)
            for document in error.names:
                self.report(document, "its document cannot be read", troubled)
            rest = [key for key in keys if name(key) not in spoilt]
            return await get(rest) if rest else {}

    def report(self, name: str, why: str, troubled: Callable[[str], None]) -> None:
        """Report an item that is set aside: once for each reason, however many passes find it."""
        if self._reported.get(name) == why:
            return
        if len(self._reported) >= REMEMBERED:
            self._reported.clear()
        self._reported[name] = why
        self.count += 1
        troubled(f"{name} is set aside: {why}")


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, PortError) else f"{type(error).__name__}: {error}"
