"""Two and more caches on one host: links, counts, space, the last link, one transfer."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.sizes import examples
from tests.unit.pilot.cached import cache_in, cached_bytes, put, sha256_of

from forestay_pilot.cache.cache import Cache
from forestay_pilot.cache.cache_neighbours import Neighbours
from forestay_pilot.cache.cache_staging import CACHE, ELEMENT, NEIGHBOUR, CacheStaging, file_key
from forestay_pilot.staging.staging import StoppedError

SPACE = 1000


def told(*caches: Cache) -> list[dict[str, Any]]:
    return [{"pilot": f"p-{number}", "cache": cache.area.path} for number, cache in enumerate(caches)]


class Host:
    """Caches that know each other."""

    def __init__(self, folder: Path, many: int, **changes: Any) -> None:
        self.folder = folder
        self.caches = [cache_in(folder / "cache", SPACE, **changes) for _ in range(many)]
        self.neighbours = [Neighbours(cache) for cache in self.caches]
        for neighbour in self.neighbours:
            neighbour.told(told(*self.caches))

    def look(self) -> None:
        for neighbour in self.neighbours:
            neighbour.look()

    def put(self, number: int, name: str, content: bytes) -> bool:
        kept = put(self.caches[number], self.folder / "job", name, content)
        shutil.rmtree(self.folder / "job")
        return kept


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, 2)


def gone(cache: Cache) -> list[str]:
    result: list[str] = cache._report.request()["gone"]
    return result


@pytest.mark.ledger("P3-08")
def test_the_last_link_is_told_of_and_no_other(host: Host, tmp_path: Path) -> None:
    """Section IV-D: a file is removed from the system only if its last link is deleted."""
    first, second = host.caches
    host.put(0, "lfn:a", b"a" * 100)
    host.look()
    assert second.find("lfn:a")
    assert cached_bytes(tmp_path / "cache") == 100, "one file, two names"
    first.set_pilots(0)
    first._book.capacity = 0
    first.trim()
    assert first.find("lfn:a") is None
    assert gone(first) == []
    assert second.give("lfn:a", str(tmp_path / "in"), claim="c")
    os.unlink(tmp_path / "in")
    second.release("c")
    second._book.capacity = 0
    second.trim()
    assert gone(second) == ["lfn:a"]
    assert cached_bytes(tmp_path / "cache") == 0


@pytest.mark.ledger("P3-09")
def test_the_space_follows_the_pilots(tmp_path: Path) -> None:
    host = Host(tmp_path, 3, keep=100)
    assert [cache.capacity for cache in host.caches] == [2900] * 3
    host.neighbours[0].told(told(host.caches[1]))
    assert host.caches[0].capacity == 1900
    host.put(0, "lfn:a", b"a" * 1000)
    host.put(0, "lfn:b", b"b" * 800)
    host.neighbours[0].told([])
    assert host.caches[0].capacity == 900
    assert host.caches[0].find("lfn:a") is None, "less space, fewer files"


@pytest.mark.ledger("P3-10")
def test_an_area_out_of_reach_is_a_dead_neighbour(host: Host, tmp_path: Path) -> None:
    first, second = host.caches
    host.put(1, "lfn:a", b"a" * 100)
    host.look()
    Path(second.area.path).rename(tmp_path / "away")
    host.neighbours[0].look()
    assert host.neighbours[0].alive == []
    assert first.capacity == SPACE
    assert first.find("lfn:a"), "what was linked stays"
    host.neighbours[0].told(told(*host.caches))
    assert first.capacity == SPACE, "the servers still believe in it"
    (tmp_path / "away").rename(second.area.path)
    host.neighbours[0].told(told(*host.caches))
    assert first.capacity == 2 * SPACE


def test_lists_that_make_no_sense_are_passed_over(host: Host) -> None:
    odd: Any
    for odd in (None, 1, {}, [1], [{}], [{"cache": 1}], [{"cache": "relative"}], [{"cache": "/a\0b"}]):
        host.neighbours[0].told(odd)
        assert host.neighbours[0].alive == []


def test_the_host_is_not_filled_beyond_its_space(host: Host, tmp_path: Path) -> None:
    """Each pilot may keep 2000 bytes; together they may not keep 4000."""
    for number in range(8):
        assert host.put(number % 2, f"lfn:{number}", bytes([number]) * 500)
        host.look()
        host.look()
        for cache in host.caches:
            cache.trim()
        assert cached_bytes(tmp_path / "cache") <= 2 * SPACE


def test_a_neighbours_spoiled_file_is_not_linked(host: Host, tmp_path: Path) -> None:
    first, second = host.caches
    host.put(0, "lfn:a", b"a" * 100)
    place = Path(first.area.place(sha256_of(b"a" * 100)))
    place.chmod(0o644)
    place.write_bytes(b"spoiled")
    host.look()
    assert second.find("lfn:a") is None
    assert host.neighbours[1].give("lfn:a", str(tmp_path / "in")) is None


class Crowd(RuleBasedStateMachine):
    """Three pilots of a host: sums agree with the disk, files agree with their names, nothing that was promised is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.host = Host(self.folder, 3)

    @rule(who=st.integers(0, 2), number=st.integers(0, 8), size=st.integers(1, 1500))
    def bring(self, who: int, number: int, size: int) -> None:
        self.host.put(who, f"lfn:{number}-{size}", bytes([number]) * size)

    @rule(who=st.integers(0, 2))
    def look(self, who: int) -> None:
        self.host.neighbours[who].look()

    @rule(who=st.integers(0, 2), others=st.sets(st.integers(0, 2)))
    def told(self, who: int, others: set[int]) -> None:
        self.host.neighbours[who].told(told(*(self.host.caches[number] for number in others)))

    @invariant()
    def sums_agree(self) -> None:
        for cache, neighbours in zip(self.host.caches, self.host.neighbours):
            assert cache.used <= cache.capacity
            known = neighbours._known.values()
            others = {file.sha256: file.size for neighbour in known for file in neighbour.held.values()}
            own = {sha256: file.size for sha256, file in cache._files.items()}
            assert cache.host_used == sum({**others, **own}.values())
            for sha256 in own:
                assert sha256_of(Path(cache.area.place(sha256)).read_bytes()) == sha256

    def teardown(self) -> None:
        for cache in self.host.caches:
            cache.close()
        shutil.rmtree(self.folder)


TestCrowd = Crowd.TestCase
TestCrowd.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)


class Fetches:
    """A slow source that counts."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.count = 0
        self.go = threading.Event()

    def to(self, target: Path) -> Any:
        def fetch() -> tuple[int, str]:
            self.count += 1
            self.go.wait(10)
            target.write_bytes(self.content)
            return len(self.content), sha256_of(self.content)

        return fetch


def never() -> bool:
    return False


@pytest.mark.ledger("P3-08")
def test_misses_at_once_make_one_transfer(host: Host, tmp_path: Path) -> None:
    stagings = [CacheStaging(cache, near) for cache, near in zip(host.caches, host.neighbours)]
    source = Fetches(b"content")
    fields = {"file": "lfn:a", "source": "lfn:a"}
    where: list[str] = []

    def bring(number: int) -> None:
        target = tmp_path / f"in-{number}"
        where.append(stagings[number % 2].bring(fields, str(target), source.to(target), f"c-{number}", never))

    threads = [threading.Thread(target=bring, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    while not source.count:
        threading.Event().wait(0.01)
    source.go.set()
    for thread in threads:
        thread.join(10)
    assert source.count == 1
    assert sorted(where) == [CACHE] * 4 + [ELEMENT, NEIGHBOUR]
    assert {(tmp_path / f"in-{number}").stat().st_ino for number in range(6)} == {(tmp_path / "in-0").stat().st_ino}


def test_a_job_that_is_stopped_waits_for_no_transfer(host: Host, tmp_path: Path) -> None:
    staging = CacheStaging(host.caches[0], None)
    source = Fetches(b"content")
    fields = {"file": "lfn:a"}
    first = threading.Thread(
        target=lambda: staging.bring(fields, str(tmp_path / "1"), source.to(tmp_path / "1"), "c-1", never)
    )
    first.start()
    while not source.count:
        threading.Event().wait(0.01)
    with pytest.raises(StoppedError):
        staging.bring(fields, str(tmp_path / "2"), source.to(tmp_path / "2"), "c-2", lambda: True)
    source.go.set()
    first.join(10)


def test_a_transfer_that_fails_lets_the_next_try(host: Host, tmp_path: Path) -> None:
    staging = CacheStaging(host.caches[0], host.neighbours[0])

    def fail() -> tuple[int, str]:
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        staging.bring({"file": "lfn:a"}, str(tmp_path / "in"), fail, "c-1", never)
    source = Fetches(b"content")
    source.go.set()
    assert staging.bring({"file": "lfn:a"}, str(tmp_path / "in"), source.to(tmp_path / "in"), "c-2", never) == ELEMENT


def test_what_may_change_unseen_is_not_cached() -> None:
    digest = hashlib.sha256(b"").hexdigest()
    assert file_key({"source": "/data/a"}) is None
    assert file_key({"source": "/data/a", "sha256": digest}) == "/data/a"
    assert file_key({"source": "job:j-1/a"}) == "job:j-1/a"
    assert file_key({"source": "/data/a", "file": "lfn:a"}) == "lfn:a"
