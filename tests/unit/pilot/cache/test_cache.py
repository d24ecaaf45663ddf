"""The cache on disk: links, spoiled files, crashes, space."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.sizes import examples
from tests.unit.pilot.cached import cache_in, cached_bytes, put, sha256_of

from forestay_pilot.cache.cache import Cache
from forestay_pilot.cache.cache_area import Area, AreaIndex

NAME = "job:j-1/out.root"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(shared: Path) -> Cache:
    return cache_in(shared)


def test_a_job_gets_a_read_only_link(cache: Cache, tmp_path: Path) -> None:
    assert put(cache, tmp_path / "first", NAME, b"content")
    target = tmp_path / "second" / "deep" / "in.root"
    assert cache.give(NAME, str(target), claim="c-2")
    assert target.read_bytes() == b"content"
    assert stat.S_IMODE(target.stat().st_mode) == 0o444
    assert target.samefile(cache.area.place(sha256_of(b"content"))), "no second copy"


def test_only_the_content_that_is_wanted_is_a_hit(cache: Cache, tmp_path: Path) -> None:
    put(cache, tmp_path, NAME, b"content")
    target = str(tmp_path / "in")
    assert not cache.give(NAME, target, claim="c", sha256=sha256_of(b"other"))
    assert not cache.give(NAME, target, claim="c", size=8)
    assert not cache.give("job:j-2/out.root", target, claim="c")
    assert cache.give(NAME, target, claim="c", sha256=sha256_of(b"content"), size=7)


def test_one_content_under_two_names_takes_its_space_once(cache: Cache, tmp_path: Path) -> None:
    put(cache, tmp_path, "lfn:a", b"x" * 600)
    assert put(cache, tmp_path, "lfn:b", b"x" * 600)
    assert cache.used == 600
    assert cache.find("lfn:a") == cache.find("lfn:b") == sha256_of(b"x" * 600)


@pytest.mark.parametrize("when", ["while the job runs", "after it"])
def test_a_file_that_a_payload_wrote_to_is_dropped(cache: Cache, tmp_path: Path, when: str) -> None:
    put(cache, tmp_path / "a", NAME, b"content")
    target = tmp_path / "in"
    cache.give(NAME, str(target), claim="c-1")
    if when == "after it":
        cache.release("c-1")
    target.chmod(0o644)
    target.write_bytes(b"CONTENT")
    cache.release("c-1")
    assert not cache.give(NAME, str(tmp_path / "next"), claim="c-2")
    assert cache.find(NAME) is None
    assert cache.used == 0


def test_a_copy_serves_where_no_link_can_be_made(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert put(cache, tmp_path / "a", NAME, b"content")
    target = tmp_path / "in"
    assert cache.give(NAME, str(target), claim="c-1")
    target.write_bytes(b"changed")
    assert cache.give(NAME, str(tmp_path / "next"), claim="c-2"), "the payload has a file of its own"
    assert (tmp_path / "next").read_bytes() == b"content"


@pytest.mark.ledger("P3-07")
def test_the_least_recently_used_files_really_leave_the_disk(cache: Cache, shared: Path, tmp_path: Path) -> None:
    for number in range(10):
        put(cache, tmp_path / "a", f"lfn:{number}", bytes([number]) * 100)
    cache.give("lfn:0", str(tmp_path / "in"), claim="c-1")
    for path in (tmp_path / "a").iterdir():
        path.unlink()
    put(cache, tmp_path / "b", "lfn:new", b"n" * 250)
    assert [name for name in (f"lfn:{n}" for n in range(10)) if cache.find(name) is None] == ["lfn:1", "lfn:2", "lfn:3"]
    assert cached_bytes(shared) == 950 == cache.used


def test_a_file_in_use_stays_though_space_is_short(cache: Cache, tmp_path: Path) -> None:
    put(cache, tmp_path, NAME, b"x" * 900)
    cache.give(NAME, str(tmp_path / "in"), claim="c-1")
    assert not put(cache, tmp_path, "lfn:new", b"n" * 200)
    cache.release("c-1")
    assert put(cache, tmp_path, "lfn:new", b"n" * 200)
    assert cache.find(NAME) is None


@pytest.mark.ledger("P3-07")
def test_the_disk_keeps_what_a_job_needs(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the sums there is room; somebody else fills the disk."""
    cache = cache_in(shared, 1000, keep=100)
    free = 5000
    monkeypatch.setattr(Area, "free_space", lambda _: free - cached_bytes(shared))
    assert put(cache, tmp_path, "lfn:1", b"1" * 400)
    assert put(cache, tmp_path, "lfn:2", b"2" * 400)
    free = 700
    assert put(cache, tmp_path, "lfn:3", b"3" * 50)
    assert cache.find("lfn:1") is None, "it went to give the disk back what is to be kept free"
    free = 50
    assert not put(cache, tmp_path, "lfn:4", b"4" * 50)


def test_outputs_enter_when_their_job_is_committed(cache: Cache, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "out.root").write_bytes(b"made here")
    listing = [("out.root", 9, sha256_of(b"made here"))]
    cache.offer("c-1", "j-1", str(folder), listing)
    cache.offer("c-2", "j-2", str(folder), listing)
    (folder / "out.root").unlink()
    assert cache.find(NAME) is None
    cache.settle("c-1", committed=True)
    cache.settle("c-2", committed=False)
    assert cache.give(NAME, str(tmp_path / "in"), claim="c-3")
    assert cache.find("job:j-2/out.root") is None, "another attempt's outputs counted"
    assert not list(Path(cache.area.path, "drafts").iterdir())


def test_what_a_dead_pilot_left_is_taken_over(shared: Path, tmp_path: Path) -> None:
    dead = cache_in(shared)
    put(dead, tmp_path, "lfn:good", b"good")
    put(dead, tmp_path, "lfn:rotten", b"rotten")
    put(dead, tmp_path, "lfn:large", b"l" * 900)
    rotten = Path(dead.area.place(sha256_of(b"rotten")))
    about = rotten.stat()
    rotten.chmod(0o644)
    rotten.write_bytes(b"ROTTEN")
    os.utime(rotten, ns=(about.st_atime_ns, about.st_mtime_ns))
    alive = cache_in(shared, 600)
    assert alive.adopt_orphans() == 0, "its pilot lives"
    assert dead.area._lock is not None
    os.close(dead.area._lock)
    assert alive.adopt_orphans() == 2
    assert not Path(dead.area.path).exists()
    assert alive.give("lfn:good", str(tmp_path / "in"), claim="c")
    assert not alive.give("lfn:rotten", str(tmp_path / "in"), claim="c"), "nobody vouches for it, so it is read once"
    assert alive.find("lfn:large") is None


def test_a_torn_index_is_read_as_far_as_it_goes(cache: Cache, tmp_path: Path) -> None:
    put(cache, tmp_path, "lfn:1", b"1")
    put(cache, tmp_path, "lfn:2", b"2")
    index = Path(cache.area.path, "index")
    whole = index.read_bytes()
    reader = AreaIndex(cache.area.path)
    for cut in range(len(whole) + 1):
        index.write_bytes(whole[:cut])
        lines = whole[:cut].count(b"\n")
        assert [file.name for file in AreaIndex(cache.area.path).all()] == ["lfn:1", "lfn:2"][:lines]
        reader.news()
    index.write_bytes(b'{"odd": 1}\n[1, 2]\n["n", "../../x", 1, 1, true]\nnonsense\n')
    assert list(AreaIndex(cache.area.path).all()) == []


def test_a_long_history_is_tidied_up(cache: Cache, tmp_path: Path) -> None:
    reader = AreaIndex(cache.area.path)
    (tmp_path / "f").write_bytes(b"")
    for number in range(1200):
        content = b"%04d" % number * 50
        (tmp_path / "f").write_bytes(content)
        cache.keep(f"lfn:{number}", str(tmp_path / "f"), size=200, sha256=sha256_of(content))
        (tmp_path / "f").unlink()
        if number == 600:
            reader.news()
    news = reader.news()
    assert news.whole, "its inode is another"
    assert len(Path(cache.area.path, "index").read_bytes().splitlines()) < 1000
    assert {file.name for file in AreaIndex(cache.area.path).all()} == {f"lfn:{n}" for n in range(1195, 1200)}


class Disk(RuleBasedStateMachine):
    """Whatever is done, disk, sums, names and index agree."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.mkdtemp()
        self.root = Path(self._folder)
        self.cache = cache_in(self.root / "cache", 100)
        self.claims: list[str] = []
        self.count = 0

    @rule(number=st.integers(0, 9), size=st.integers(0, 60), held=st.booleans())
    def bring(self, number: int, size: int, held: bool) -> None:
        self.count += 1
        claim = f"c-{self.count}" if held else None
        put(self.cache, self.root / "jobs", f"lfn:{number}", bytes([number]) * size, claim=claim)
        if claim:
            self.claims.append(claim)

    @rule(number=st.integers(0, 9), spoil=st.booleans())
    def use(self, number: int, spoil: bool) -> None:
        self.count += 1
        claim, target = f"c-{self.count}", self.root / "jobs" / f"in-{self.count}"
        known = self.cache.find(f"lfn:{number}")
        if not self.cache.give(f"lfn:{number}", str(target), claim=claim):
            assert self.cache.find(f"lfn:{number}") is None
            return
        self.claims.append(claim)
        assert known == sha256_of(target.read_bytes()), "a job got what it did not ask for"
        if spoil:
            target.chmod(0o644)
            target.write_bytes(b"spoiled")

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        self.claims.remove(claim)
        self.cache.release(claim)

    @invariant()
    def all_agree(self) -> None:
        files = {path.name for path in (Path(self.cache.area.path) / "files").iterdir()}
        assert files == set(self.cache._files) == set(self.cache._book)
        assert {file.name for file in AreaIndex(self.cache.area.path).all()} == set(self.cache._names)
        assert self.cache.used <= self.cache.capacity
        assert self.cache.host_used == self.cache.used
        assert self.cache._report._held.keys() == self.cache._names.keys()

    def teardown(self) -> None:
        for claim in self.claims:
            self.cache.release(claim)
        assert not any(self.cache._held.values())
        assert self.cache._book.pinned == 0
        self.cache.close()
        shutil.rmtree(self._folder)


TestDisk = Disk.TestCase
TestDisk.settings = settings(
    max_examples=examples(25), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
