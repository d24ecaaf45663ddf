"""Counts and reports the errors of a store that are not about a request.

Callers turn such an error into a retry, an unknown outcome or a response 503. None of these informs the operator, who is
the only one who can repair a store with a full disk or a missing table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from forestay.ports.clock import Clock
from forestay.ports.errors import PortError, Transient
from forestay.ports.jobs.job_store import Unknown

REPORT_EVERY = 10.0
"""Seconds between two reports of one operation: a store that fails does so at every request."""

Store = TypeVar("Store")


@dataclass(slots=True)
class StoreErrors:
    """The errors of the stores of one process."""

    clock: Clock
    report: Callable[[str, str, int], None]
    """Called with the operation, the error, and how many errors it had since the last report."""
    counts: Counter[str] = field(default_factory=Counter)
    """By operation."""
    _reported: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, operation: str, error: str) -> None:
        self.counts[operation] += 1
        now, count = self.clock.monotonic(), self.counts[operation]
        last, reported = self._reported.get(operation, (None, 0))
        if last is None or now - last >= REPORT_EVERY:
            self._reported[operation] = (now, count)
            self.report(operation, error, count - reported)


def watched(store: Store, name: str, errors: StoreErrors) -> Store:
    """The same store; its errors are counted and reported on their way to the caller."""
    return cast("Store", _WatchedStore(store, name, errors))


def unwatched(store: Store) -> Store:
    """The store behind a watched one."""
    return cast("Store", store._store) if isinstance(store, _WatchedStore) else store  # noqa: SLF001 - the class below


class _WatchedStore:
    def __init__(self, store: object, name: str, errors: StoreErrors) -> None:
        self._store = store
        self._name = name
        self._errors = errors

    def __getattr__(self, attribute: str) -> Any:
        """Called once for each operation: the wrapper is cached, since every request of every pilot goes through here."""
        value = getattr(self._store, attribute)
        if not iscoroutinefunction(value):
            return value
        watched_call = self._watch(value, f"{self._name}.{attribute}")
        setattr(self, attribute, watched_call)
        return watched_call

    def _watch(self, call: Callable[..., Awaitable[Any]], operation: str) -> Callable[..., Awaitable[Any]]:
        errors = self._errors

        @wraps(call)
        async def watched_call(*values: Any, **named: Any) -> Any:
            try:
                result = await call(*values, **named)
            except Transient as error:
                errors.add(operation, str(error))
                raise
            except PortError:
                raise  # about the request, and returned to its caller
            except Exception as error:
                errors.add(operation, f"{type(error).__name__}: {error}")
                raise
            if (unknown := _unknown(result)) is not None:
                errors.add(operation, unknown.detail)
            return result

        return watched_call


def _unknown(result: object) -> Unknown | None:
    """The first write of a result whose outcome is unknown."""
    if isinstance(result, Unknown):
        return result
    if isinstance(result, Sequence) and not isinstance(result, str | bytes):
        return next((answer for answer in result if isinstance(answer, Unknown)), None)
    return None
