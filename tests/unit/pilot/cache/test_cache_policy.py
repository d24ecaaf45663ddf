"""What a cache keeps and what goes: the paper's formulas, its LRU, and the laws that hold for every policy."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.sizes import examples

from forestay_pilot.cache.cache_policy import POLICIES, CacheBook, cache_size, host_cache_size

GB = 1000**3
NAMES = sorted(POLICIES)


@pytest.mark.ledger("P3-07")
def test_a_pilots_cache_is_its_space_less_what_a_job_needs() -> None:
    assert cache_size(10 * GB, 2 * GB) == 8 * GB
    assert cache_size(GB, 2 * GB) == 0


@pytest.mark.ledger("P3-09")
@pytest.mark.parametrize(("pilots", "size"), [(1, 8), (2, 18), (4, 38), (0, 8)])
def test_the_cache_of_a_host_grows_with_its_pilots(pilots: int, size: int) -> None:
    assert host_cache_size(10 * GB, pilots, 2 * GB) == size * GB


@pytest.mark.ledger("P3-07")
def test_lru_removes_until_the_removed_sum_is_the_new_files_size() -> None:
    """Section IV-C: with 10 free, a file of 30 still makes three of 10 go, not two."""
    book = CacheBook(70)
    for name in ("a", "b", "c", "d", "e", "f"):
        assert book.add(name, 10) == []
    book.use("a")
    assert book.add("new", 30) == ["b", "c", "d"]
    assert list(book) == ["a", "e", "f", "new"]


def test_an_exact_book_counts_the_free_space_too() -> None:
    book = CacheBook(70, exact=True)
    for name in ("a", "b", "c", "d", "e", "f"):
        book.add(name, 10)
    assert book.add("new", 30) == ["a", "b"]


def test_a_file_in_a_jobs_folder_never_goes() -> None:
    book = CacheBook(30)
    for name in ("a", "b", "c"):
        book.add(name, 10)
    book.pin("a")
    book.pin("b")
    assert book.add("d", 20) is None, "nothing is removed for a file that cannot fit"
    assert list(book) == ["a", "b", "c"]
    assert book.add("d", 10) == ["c"]
    book.unpin("b")
    assert book.add("e", 10) == ["b"], "what was pinned is a candidate again"


def test_a_smaller_capacity_is_followed_when_jobs_let_go() -> None:
    book = CacheBook(30)
    for name in ("a", "b", "c"):
        book.add(name, 10)
    book.pin("a")
    assert book.resize(0) == ["b", "c"]
    assert book.used == 10
    book.unpin("a")
    assert book.resize(0) == ["a"]


@pytest.mark.ledger("P3-21")
def test_each_policy_chooses_by_its_own_measure() -> None:
    chosen = {}
    for name in NAMES:
        book = CacheBook(100, name)
        book.add("large", 60, cost=1)
        book.add("small", 20, cost=1)
        book.add("late", 20, cost=1)
        for _ in range(3):
            book.use("large")
        book.use("small")
        chosen[name] = book.add("new", 20, cost=1)
    assert chosen["fifo"] == ["large"]
    assert chosen["lru"] == ["late"]
    assert chosen["lru2"] == ["late"]
    assert chosen["lfu"] == ["late"]
    assert chosen["gdsf"] == ["late"]


@pytest.mark.ledger("P3-21")
def test_the_cost_aware_policy_keeps_what_is_dear_for_its_size() -> None:
    book = CacheBook(100, "gdsf")
    book.add("dear", 50, cost=500.0)
    book.add("cheap", 50, cost=1.0)
    assert book.add("new", 50, cost=1.0) == ["cheap"]


@pytest.mark.ledger("P3-21")
def test_old_fame_fades() -> None:
    """Plain LFU would keep the file that was used often once, for ever."""
    book = CacheBook(2, "lfu")
    book.add("famous", 1)
    for _ in range(20):
        book.use("famous")
    newcomer = 0
    while "famous" in book and newcomer < 1000:
        newcomer += 1
        book.add(f"n{newcomer}", 1)
        book.use(f"n{newcomer}")
    assert "famous" not in book
    assert newcomer < 50


@pytest.mark.ledger("P3-21")
def test_a_scan_does_not_drive_out_what_is_used_again_and_again() -> None:
    kept = {}
    for name in ("lru", "lru2"):
        book = CacheBook(10, name)
        for key in ("a", "b", "c"):
            book.add(key, 1)
            book.use(key)
        for number in range(50):
            book.add(f"scan{number}", 1)
        kept[name] = {key for key in ("a", "b", "c") if key in book}
    assert kept == {"lru": set(), "lru2": {"a", "b", "c"}}


@settings(max_examples=examples(200), deadline=None)
@given(
    capacity=st.integers(1, 60),
    trace=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 20)), max_size=80),
)
def test_lru_is_lru(capacity: int, trace: list[tuple[int, int]]) -> None:
    """Against the few lines that anyone would write for it."""
    book, order, sizes = CacheBook(capacity), OrderedDict[str, None](), dict[str, int]()
    for number, size in trace:
        key = f"f{number}"
        if key in order:
            assert book.use(key)
            order.move_to_end(key)
            continue
        removed = book.add(key, size)
        if size > capacity:
            assert removed is None
            continue
        expected = []
        if sum(sizes[name] for name in order) + size > capacity:
            freed = 0
            while order and (freed < size or sum(sizes[name] for name in order) + size > capacity):
                oldest = order.popitem(last=False)[0]
                freed += sizes[oldest]
                expected.append(oldest)
        assert removed == expected
        order[key], sizes[key] = None, size


class Books(RuleBasedStateMachine):
    """Every policy at once, driven through the same life."""

    def __init__(self) -> None:
        super().__init__()
        self.books = {name: CacheBook(50, name) for name in NAMES}
        self.held: dict[str, dict[str, int]] = {name: {} for name in NAMES}  # with sizes
        self.pins: dict[str, dict[str, int]] = {name: {} for name in NAMES}

    @rule(number=st.integers(0, 15), size=st.integers(0, 60), cost=st.floats(0.01, 1000))
    def add(self, number: int, size: int, cost: float) -> None:
        key = f"f{number}"
        for name, book in self.books.items():
            held, pins = self.held[name], self.pins[name]
            before = dict(held)
            fits = book.fits(size)
            removed = book.add(key, size, cost)
            if key in before:
                assert removed == []
                continue
            assert (removed is not None) == fits
            if removed is None:
                continue
            assert len(set(removed)) == len(removed)
            for gone in removed:
                assert not pins.get(gone), "a pinned file went"
                del held[gone]
            if removed:
                assert sum(before.values()) + size > book.capacity, "files went though there was room"
                most = sum(before[gone] for gone in removed) - before[removed[-1]]
                assert most < size or sum(before.values()) - most + size > book.capacity, "one too many went"
            held[key] = size

    @rule(number=st.integers(0, 15))
    def use(self, number: int) -> None:
        for name, book in self.books.items():
            assert book.use(f"f{number}") == (f"f{number}" in self.held[name])

    @rule(number=st.integers(0, 15))
    def pin(self, number: int) -> None:
        key = f"f{number}"
        for name, book in self.books.items():
            if book.pin(key):
                self.pins[name][key] = self.pins[name].get(key, 0) + 1

    @rule(number=st.integers(0, 15))
    def unpin(self, number: int) -> None:
        key = f"f{number}"
        for name, book in self.books.items():
            book.unpin(key)
            if self.pins[name].get(key):
                self.pins[name][key] -= 1
            # As the cache does: what was too much stayed only because a job had it.
            for gone in book.resize(book.capacity):
                assert not self.pins[name].get(gone)
                del self.held[name][gone]

    @rule(number=st.integers(0, 15))
    def discard(self, number: int) -> None:
        key = f"f{number}"
        for name, book in self.books.items():
            assert book.discard(key) == (self.held[name].pop(key, None) is not None)
            self.pins[name].pop(key, None)

    @rule(amount=st.integers(0, 60), odd=st.booleans())
    def free(self, amount: int, odd: bool) -> None:
        for name, book in self.books.items():
            removed = book.free(amount, lambda key: int(key[1:]) % 2 == odd)
            held, pins = self.held[name], self.pins[name]
            for gone in removed:
                assert int(gone[1:]) % 2 == odd
                assert not pins.get(gone)
            freed = sum(held.pop(gone) for gone in removed)
            left = [key for key in held if int(key[1:]) % 2 == odd and not pins.get(key)]
            assert freed >= amount or not left

    @rule(capacity=st.integers(0, 80))
    def resize(self, capacity: int) -> None:
        for name, book in self.books.items():
            for gone in book.resize(capacity):
                assert not self.pins[name].get(gone)
                del self.held[name][gone]

    @invariant()
    def sums_are_right(self) -> None:
        for name, book in self.books.items():
            held, pins = self.held[name], self.pins[name]
            assert set(book) == set(held)
            assert book.used == sum(held.values())
            pinned = sum(size for key, size in held.items() if pins.get(key))
            assert book.pinned == pinned
            assert book.used <= max(book.capacity, pinned)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


@pytest.mark.ledger("P3-21")
def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"belady.*lru, fifo"):
        CacheBook(10, "belady")
