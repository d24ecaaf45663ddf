"""What operators teach: known to every process, bounded, and judged by even if whoever taught it dies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.exceptions.causes.cause import Cause, RetryNeed
from forestay.domain.exceptions.causes.taught_pattern import MOST, TaughtPattern, taught_pattern
from forestay.domain.rules.retry_record import RetryRecord
from forestay.ports.errors import Conflict, NotFound, Transient
from forestay.services.exceptions.detect.taught_patterns import EVERYBODY_KNOWS, FRESH, TaughtPatterns
from forestay.services.exceptions.inbox.pattern_scores import PatternScore


@dataclass
class Hands:
    """A clock that is set by hand."""

    seconds: float = 1_000.0

    def now(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlJobStore]:
    opened = SqlJobStore(f"sqlite:///{tmp_path / 'taught.db'}")
    await opened.open()
    yield opened
    await opened.close()


def _pattern(name: str, retry: RetryNeed | None = None) -> TaughtPattern:
    return taught_pattern(name, "t", f"quux {name}", Cause.NODE, retry, [], by="olga", at=1)


async def test_what_one_process_writes_another_knows_within_seconds(store: SqlJobStore) -> None:
    clock = Hands()
    first, other = (TaughtPatterns(SqlDocumentStore(store.database), clock) for _ in range(2))
    assert await other.patterns("t") == ()
    await first.teach("t", _pattern("1-a"))
    assert [pattern.name for pattern in await first.patterns("t")] == ["taught-1-a"]
    assert await other.patterns("t") == (), "what was read a moment ago is used again"
    clock.seconds += FRESH
    known = await other.patterns("t")
    assert [pattern.name for pattern in known] == ["taught-1-a"]
    clock.seconds += FRESH
    assert await other.patterns("t") is known, "a classifier of it is made once"
    assert await other.patterns("another") == ()


async def test_who_cannot_read_goes_on_with_what_is_known_and_never_with_nothing(
    store: SqlJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Hands()
    taught = TaughtPatterns(SqlDocumentStore(store.database), clock)
    await taught.teach("t", _pattern("1-a"))

    async def down(_self: object, _names: object) -> None:
        raise Transient("down")

    monkeypatch.setattr(SqlDocumentStore, "get", down)
    clock.seconds += 10 * FRESH
    assert len(await taught.patterns("t")) == 1
    with pytest.raises(Transient):
        await taught.patterns("nobody-asked-before")


async def test_there_is_a_bound_and_what_is_removed_makes_room(store: SqlJobStore) -> None:
    taught = TaughtPatterns(SqlDocumentStore(store.database), Hands())
    for number in range(MOST):
        await taught.teach("t", _pattern(f"1-{number:x}"))
    with pytest.raises(Conflict, match="100 taught patterns"):
        await taught.teach("t", _pattern("2-a"))
    assert (await taught.teach("t", _pattern("1-0"))).version == MOST + 1, "one of a known name takes its place"
    await taught.forget("t", "taught-1-1")
    await taught.teach("t", _pattern("2-a"))
    with pytest.raises(NotFound):
        await taught.forget("t", "taught-1-1")


async def test_a_note_stays_until_every_process_has_the_pattern(store: SqlJobStore) -> None:
    clock = Hands()
    taught = TaughtPatterns(SqlDocumentStore(store.database), clock)
    await taught.teach("t", _pattern("1-a"))
    (note,) = await taught.notes()
    assert (note.tenant, note.pattern, taught.is_known_to_all(note)) == ("t", "taught-1-a", False)
    clock.seconds += EVERYBODY_KNOWS / 1000
    assert taught.is_known_to_all(note)
    # It was taught anew before it was done with.
    await taught.teach("t", _pattern("1-a"))
    await taught.done(note)
    (again,) = await taught.notes()
    assert again.at > note.at
    await taught.done(again)
    assert list(await taught.notes()) == []


@pytest.mark.parametrize(
    ("retry", "retried", "helped", "loses"),
    [
        (RetryNeed.SAME, 2, 0, False),
        (RetryNeed.SAME, 3, 1, True),
        (RetryNeed.SAME, 4, 2, False),
        (RetryNeed.NO, 9, 0, False),
    ],
)
def test_a_pattern_loses_if_another_try_mostly_did_not_help(
    retry: RetryNeed, retried: int, helped: int, *, loses: bool
) -> None:
    assert PatternScore(_pattern("1-a", retry), RetryRecord(retried, retried, helped)).loses is loses
