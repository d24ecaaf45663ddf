"""Listings that grow, and where a member of one is found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import SystemClock
from forestay.adapters.system.file_lists import SharedFiles
from forestay.adapters.system.results import SharedResults
from forestay.ports.data.file_lists import MAX_LISTED
from forestay.ports.errors import NotFound, Permanent
from forestay.services.data.listings import PAGE, ListingRound, Listings, Watch

AT_ONCE = ((MAX_LISTED, 0.0),)
ROUND = ListingRound("lab", "c1", "each@1", "file")


@dataclass
class FakeFiles:
    """Files that appear when a test says so."""

    names: list[str] = field(default_factory=list)
    looks: int = 0

    async def files(self, pattern: str) -> list[str]:
        self.looks += 1
        return sorted(self.names)

    async def lines(self, path: str) -> list[str]:
        return self.names

    async def there(self, path: str) -> bool:
        return path in self.names


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlJobStore]:
    opened = SqlJobStore(f"sqlite:///{tmp_path / 'jobs.db'}")
    await opened.open()
    yield opened
    await opened.close()


def listings(store: SqlJobStore, files: Any, **more: Any) -> Listings:
    return Listings(store, SystemClock(), files, every=0.01, **{"gather": AT_ONCE} | more)


async def test_two_who_watch_at_once_make_one_listing(store: SqlJobStore) -> None:
    """An orchestrator that was taken for dead, and the one in its place."""
    files = FakeFiles()
    mine, others = listings(store, files), listings(store, files)
    for n in range(20):
        files.names.append(f"/f/{(n * 7) % 20:02}")
        summaries = await asyncio.gather(*(listings.watch(ROUND, Watch("/f/*"), n) for listings in (mine, others)))
        assert {summary.count for summary in summaries} == {n + 1}
        assert {summary.ended for summary in summaries} == {False}
    members = await listings(store, files).members("lab", ROUND.name, range(20))
    assert list(members.values()) == files.names, "in the order in which they appeared"
    for keeping in (mine, others):
        assert await keeping.members("lab", ROUND.name, range(20)) == members


async def test_a_member_is_found_in_pages_of_any_size(store: SqlJobStore) -> None:
    files = FakeFiles()
    known = 0
    watching = listings(store, files)
    for size in (1, 700, 1, 1, PAGE + 500, 3, 2 * PAGE, 600):
        files.names += [f"/f/{known + n:06}" for n in range(size)]
        while known < len(files.names):
            known = (await watching.watch(ROUND, Watch("/f/*"), known)).count
    reading = listings(store, files)
    for place in (0, 1, 700, 701, 702, 703, 1702, 2205, 4000, known - 1):
        assert await reading.members("lab", ROUND.name, [place]) == {place: f"/f/{place:06}"}
    everything = await reading.members("lab", ROUND.name, range(known))
    assert list(everything.values()) == files.names
    with pytest.raises(NotFound):
        await reading.members("lab", ROUND.name, [known])


async def test_when_a_watch_ends(store: SqlJobStore) -> None:
    files = FakeFiles([f"/f/{n}" for n in range(5)])
    by_count = await listings(store, files).watch(ROUND, Watch("/f/*", until_count=3), 0)
    assert (by_count.count, by_count.ended) == (3, True)
    again = await listings(store, files).watch(ROUND, Watch("/f/*", until_count=3), 0)
    assert again == by_count, "a repeat is told the same"
    closed = ListingRound("lab", "c1", "each@2", "file")
    files.names.append("/f/done")
    by_file = await listings(store, files).watch(closed, Watch("/f/*", until_file="/f/done"), 0)
    assert (by_file.count, by_file.ended) == (6, True)
    nothing = ListingRound("lab", "c1", "each@3", "file")
    quiet = await listings(store, FakeFiles()).watch(nothing, Watch("/f/*", until_quiet=0, begun=0), 0)
    assert (quiet.count, quiet.ended) == (0, True)
    long = await listings(store, FakeFiles(), longest=0.05).watch(nothing, Watch("/f/*"), 0)
    assert (long.count, long.ended) == (0, False), "nothing is new: it is asked again"


async def test_many_files_that_come_together_are_told_together(store: SqlJobStore) -> None:
    files = FakeFiles(["/f/0"])
    watching = listings(store, files, gather=((MAX_LISTED, 0.3),))
    assert (await watching.watch(ROUND, Watch("/f/*"), 0)).count == 1
    task = asyncio.create_task(watching.watch(ROUND, Watch("/f/*"), 1))
    looks = files.looks
    for n in range(1, 50):
        files.names.append(f"/f/{n}")
        while files.looks == looks and not task.done():  # noqa: ASYNC110 - the look itself is what is waited for
            await asyncio.sleep(0)
        looks = files.looks
        if task.done():
            break
    assert (await task).count > 2


async def test_what_may_be_listed(tmp_path: Path) -> None:
    """Only what is under the folders that are named, whatever links say, and never what is hidden."""
    data, secret = tmp_path / "data", tmp_path / "secret"
    for folder in (data / "a", data / "b", data / "own", secret):
        folder.mkdir(parents=True)
        (folder / "x.txt").write_text("one\n\ntwo\n")
    (data / "a" / ".hidden.txt").touch()
    (data / "a" / "folder.txt").mkdir()
    (data / "link").symlink_to(secret)
    (data / "link.txt").symlink_to(secret / "x.txt")
    shared = SharedFiles((data,), hidden=(data / "own",), most=3)
    assert await shared.files(f"{data}/*/x.txt") == [f"{data}/a/x.txt", f"{data}/b/x.txt"]
    assert await shared.files("a/*.txt") == [f"{data}/a/x.txt"]
    assert await shared.files("nothing/*.txt") == []
    assert await shared.files("a/.*.txt") == [f"{data}/a/.hidden.txt"]
    assert await shared.lines("a/x.txt") == ["one", "two"]
    assert await shared.there("a/x.txt")
    assert not await shared.there("a/y.txt")
    for pattern in ("link/*", "../secret/*", f"{secret}/*", "/*/*", "own/*", f"{tmp_path}/*/x.txt"):
        with pytest.raises(Permanent):
            await shared.files(pattern)
    for path in ("link.txt", "link/x.txt", "own/x.txt", "a", "a/y.txt", "/etc/passwd"):
        with pytest.raises(Permanent):
            await shared.lines(path)
    results = SharedResults((data,))
    assert await results.read(str(data / "a"), "x.txt") == b"one\n\ntwo\n"
    assert await results.read(str(data), "a") is None, "a folder is no result"
    for n in range(4):
        (data / "b" / f"{n}.txt").touch()
    with pytest.raises(Permanent, match="more than 3 files"):
        await shared.files("b/*")
    with pytest.raises(Permanent, match="can set flow_files"):
        await SharedFiles(()).files("a/*")
