"""Which job a pilot gets: priority, bytes present, age; waitForData; look-ahead."""

from __future__ import annotations

import itertools
import random
import time
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples

from forestay.domain.scheduling.cache_index import CacheIndex
from forestay.domain.scheduling.colocation import ColocationRequest
from forestay.domain.scheduling.matching import Matching
from forestay.domain.scheduling.matching_policy import MatchingPolicy
from forestay.domain.scheduling.waiting_jobs import CandidateJob

MB = 10**6
EAGER = MatchingPolicy(wait=0, quarantine=0)
"""Nobody waits for data."""
WAITING = MatchingPolicy(wait=60, quarantine=0)
LOOK_AHEAD = MatchingPolicy(wait=60, quarantine=3600)
"""Jobs are also put aside for hosts that are busy."""


def two_hosts(policy: MatchingPolicy, slots: int = 1, sites: bool = False) -> Matching:
    """Hosts `a` and `b` with idle pilots a0, a1, … and b0, b1, …"""
    matching = Matching(policy)
    for host in "ab":
        for slot in range(slots):
            matching.join(f"{host}{slot}", host, f"site-{host}" if sites else None)
            matching.idle(f"{host}{slot}")
    return matching


def test_priority_comes_first_then_bytes_then_age() -> None:
    matching = two_hosts(EAGER)
    matching.cached("a0", [("big", 700 * MB), ("small", 7 * MB)])
    matching.arrive(CandidateJob("old", 1), 0)
    matching.arrive(CandidateJob("some", 2, ("small",)), 0)
    matching.arrive(CandidateJob("most", 3, ("big", "elsewhere")), 0)
    matching.arrive(CandidateJob("urgent", 4, priority=1), 0)
    order = []
    for _ in range(5):
        order.append(matching.take("a0", 0))
        matching.idle("a0")
    assert order == ["urgent", "most", "some", "old", None]


def test_the_sizes_count_not_the_number_of_files() -> None:
    matching = two_hosts(EAGER)
    matching.cached("a0", [("x", 1), ("y", 1), ("z", 1), ("big", 10)])
    matching.arrive(CandidateJob("three", 1, ("x", "y", "z")), 0)
    matching.arrive(CandidateJob("one", 2, ("big",)), 0)
    assert matching.take("a0", 0) == "one"


def test_a_pilot_sees_the_files_of_its_neighbours_and_of_no_others() -> None:
    for pilot, expected in (("a1", "late"), ("b0", "early")):
        matching = two_hosts(EAGER, slots=2)
        matching.cached("a0", [("x", 1)])
        matching.arrive(CandidateJob("early", 1), 0)
        matching.arrive(CandidateJob("late", 2, ("x",)), 0)
        assert matching.take(pilot, 0) == expected


def test_wait_for_data_holds_back_only_while_an_idle_pilot_elsewhere_has_the_data() -> None:
    matching = two_hosts(WAITING)
    matching.cached("b0", [("x", 1)])
    matching.arrive(CandidateJob("job", 1, ("x",)), 0)
    assert matching.take("a0", 0) is None
    matching.busy("b0")
    assert matching.take("a0", 1) == "job"


def test_nobody_waits_for_an_idle_pilot_that_cannot_have_the_job() -> None:
    """It has the data, and is too small, or has not the time."""
    matching = two_hosts(WAITING)
    matching.cached("b0", [("x", 1)])
    matching.arrive(CandidateJob("job", 1, ("x",)), 0)
    assert matching.take("a0", 0) is None
    assert matching.take("b0", 0, fits=lambda _job: False) is None
    assert matching.take("a0", 0) == "job"


def test_wait_for_data_ends_after_its_time() -> None:
    matching = two_hosts(WAITING)
    matching.cached("b0", [("x", 1)])
    matching.arrive(CandidateJob("job", 1, ("x",)), 0)
    assert matching.take("a0", 0) is None
    assert matching.take("a0", WAITING.wait - 0.1) is None
    assert matching.take("a0", WAITING.wait) == "job"


def test_no_more_jobs_are_held_back_than_there_are_idle_pilots_with_their_data() -> None:
    matching = two_hosts(WAITING, slots=2)
    matching.cached("b0", [("x", 1)])
    for number in range(3):
        matching.arrive(CandidateJob(number, number, ("x",)), 0)
    assert matching.take("a0", 0) == 2
    assert [matching.take("b0", 0), matching.take("b1", 0)] == [0, 1]


def test_who_has_only_a_part_waits_for_who_has_all() -> None:
    matching = two_hosts(WAITING)
    matching.cached("a0", [("x", 1)])
    matching.cached("b0", [("x", 1), ("y", 1)])
    matching.arrive(CandidateJob("job", 1, ("x", "y")), 0)
    assert matching.take("a0", 0) is None
    assert matching.take("b0", 0) == "job"


def test_producers_whose_outputs_meet_go_to_one_host() -> None:
    matching = two_hosts(LOOK_AHEAD, slots=2)
    for number, key in enumerate("mnmn"):
        matching.arrive(CandidateJob(number, number, colocate=ColocationRequest(key, room=2, of=3)), 0)
    assert [matching.take(pilot, 0) for pilot in ("a0", "b0", "a1", "b1")] == [0, 1, 2, 3]


def test_who_is_to_meet_goes_anywhere_when_the_host_has_no_slot_and_nothing_else_waits() -> None:
    matching = two_hosts(LOOK_AHEAD, slots=1)
    for number in range(2):
        matching.arrive(CandidateJob(number, number, colocate=ColocationRequest("m", room=2, of=3)), 0)
    assert matching.take("a0", 0) == 0
    assert matching.take("b0", 0) == 1


def test_who_is_to_meet_waits_for_its_host_while_others_find_something_else() -> None:
    matching = two_hosts(LOOK_AHEAD, slots=1)
    for number in range(2):
        matching.arrive(CandidateJob(number, number, colocate=ColocationRequest("m", room=2, of=3)), 0)
    matching.arrive(CandidateJob("other", 5), 0)
    assert [matching.take("a0", 0), matching.take("b0", 0)] == [0, "other"]
    matching.ended(0, 1)
    matching.idle("a0")
    assert matching.take("a0", 1) == 1


def test_one_producer_of_two_readers_finds_room_for_both() -> None:
    """W2: a host with two slots gets one such producer, not two, while another host has room."""
    matching = two_hosts(LOOK_AHEAD, slots=2)
    for number in range(2):
        matching.arrive(CandidateJob(number, number, colocate=ColocationRequest(number, room=2, of=3)), 0)
    assert [matching.take("a0", 0), matching.take("a1", 0), matching.take("b0", 0)] == [0, None, 1]
    matching.ended(0, 9)
    matching.idle("a0")
    matching.cached("a0", [("out", 1)])
    for reader in ("r1", "r2"):
        matching.arrive(CandidateJob(reader, 9, ("out",), colocate=ColocationRequest(0, room=2, of=3)), 9)
    assert {matching.take("a0", 9), matching.take("a1", 9)} == {"r1", "r2"}


def test_a_colocation_that_never_ends_gives_its_room_back() -> None:
    matching = two_hosts(LOOK_AHEAD, slots=2)
    matching.arrive(CandidateJob(0, 0, colocate=ColocationRequest("m", room=2, of=3)), 0)
    assert matching.take("a0", 0) == 0
    matching.ended(0, 1)
    matching.idle("a0")
    matching.tick(LOOK_AHEAD.keep + 2)
    matching.busy("b0")
    matching.busy("b1")
    matching.arrive(CandidateJob(1, 1, colocate=ColocationRequest("n", room=2, of=3)), 5000)
    assert matching.take("a1", 5000) == 1


@pytest.mark.parametrize("policy", [WAITING, LOOK_AHEAD])
def test_several_sites_get_the_jobs_whose_data_are_there(policy: MatchingPolicy) -> None:
    matching = two_hosts(policy, slots=2, sites=True)
    matching.cached("b0", [("x", 1)])
    matching.arrive(CandidateJob("plain", 2), 0)
    matching.arrive(CandidateJob("there", 1, ("x",)), 0)
    assert matching.take("a0", 0) == "plain"
    assert matching.take("b1", 0) == "there"


def test_the_idle_pilot_for_a_job_is_the_one_with_its_data() -> None:
    matching = two_hosts(LOOK_AHEAD)
    matching.cached("b0", [("x", 1)])
    matching.arrive(CandidateJob("job", 1, ("x",)), 0)
    matching.arrive(CandidateJob("plain", 1), 0)
    assert matching.pilot_for("job", 0) == "b0"
    matching.give("job", "b0", 0)
    assert matching.pilot_for("plain", 0) == "a0"


def test_a_host_that_goes_takes_its_files_along_and_frees_what_was_kept_for_it() -> None:
    matching = two_hosts(WAITING)
    matching.cached("b0", [("x", 1)])
    matching.arrive(CandidateJob("job", 1, ("x",)), 0)
    assert matching.take("a0", 0) is None
    matching.part("b0")
    assert matching.take("a0", 0) == "job"


def test_a_file_is_at_a_host_until_its_last_copy_goes() -> None:
    cache_index = CacheIndex()
    cache_index.add("p", "h", [("x", 3)])
    cache_index.add("q", "h", [("x", 3), ("y", 4)])
    assert cache_index.bytes_at("h", ("x", "y", "z")) == 7
    cache_index.remove("p", "h", ["x"])
    assert cache_index.bytes_at("h", ("x",)) == 3
    cache_index.forget("q", "h")
    assert (dict(cache_index.at("h")), list(cache_index.where("x"))) == ({}, [])
    cache_index.add("p", "h", [("x", 3)])
    cache_index.add("q", "h", [("x", 3)])
    cache_index.lose("h", "x")
    assert cache_index.bytes_at("h", ("x",)) == 0
    cache_index.forget("p", "h")
    cache_index.forget("q", "h")
    assert list(cache_index.where("x")) == []


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_no_job_is_lost_given_twice_or_kept_for_ever(data: st.DataObject) -> None:
    policy = data.draw(st.sampled_from([EAGER, WAITING, LOOK_AHEAD]))
    matching = Matching(policy)
    pilots = [(host, slot) for host in range(3) for slot in range(2)]
    names = {pilot: f"{pilot[0]}-{pilot[1]}" for pilot in pilots}
    for host, slot in pilots:
        matching.join(names[host, slot], f"h{host}", f"s{host % 2}")
    given_to: dict[int, str] = {}
    running: dict[str, int] = {}
    arrived: set[int] = set()
    left: set[int] = set()
    now, numbers = 0.0, itertools.count()
    for _ in range(data.draw(st.integers(5, 60))):
        what = data.draw(st.sampled_from(["arrive", "ask", "end", "cache", "uncache", "leave", "wait"]))
        pilot = names[data.draw(st.sampled_from(pilots))]
        if what == "arrive":
            job = next(numbers)
            files = tuple(data.draw(st.lists(st.sampled_from("xyz"), unique=True, max_size=2)))
            key = data.draw(st.sampled_from([None, "m", "n"]))
            colocate = (
                ColocationRequest(key, data.draw(st.integers(1, 3)), data.draw(st.integers(0, 4))) if key else None
            )
            matching.arrive(CandidateJob(job, job, files, data.draw(st.integers(0, 1)), colocate), now)
            arrived.add(job)
        elif what == "ask" and pilot not in running:
            matching.idle(pilot)
            value = matching.take(pilot, now)
            if value is not None:
                assert isinstance(value, int)
                assert value in arrived - left
                assert value not in given_to
                given_to[value] = pilot
                running[pilot] = value
        elif what == "end" and pilot in running:
            matching.ended(running.pop(pilot), now)
            matching.idle(pilot)
        elif what == "cache":
            matching.cached(pilot, [(data.draw(st.sampled_from("xyz")), 5)])
        elif what == "uncache":
            matching.cached(pilot, (), [data.draw(st.sampled_from("xyz"))])
        elif what == "leave" and arrived - left - given_to.keys():
            job = min(arrived - left - given_to.keys())
            matching.leave(job)
            left.add(job)
        elif what == "wait":
            now += data.draw(st.sampled_from([1.0, 30.0, 4000.0]))
    open_jobs = arrived - left - given_to.keys()
    assert len(matching) == len(open_jobs)
    now += LOOK_AHEAD.quarantine + LOOK_AHEAD.wait  # whatever was kept is to be had by anyone now
    asker = names[0, 0]
    got = set()
    for _ in range(len(open_jobs)):
        if asker in running:
            matching.ended(running.pop(asker), now)
        matching.idle(asker)
        value = matching.take(asker, now)
        if value is None:  # kept for an idle pilot that never asks: for a bounded time
            now += LOOK_AHEAD.quarantine + LOOK_AHEAD.wait
            value = matching.take(asker, now)
        assert isinstance(value, int)
        got.add(value)
        running[asker] = value
    assert got == open_jobs


def _merges(pilots: int, pairs: int, slots: int = 4, *, together: bool = True) -> tuple[float, float, int]:
    """W3 in a small simulation: the share of input bytes found where the merge ran, seconds of CPU spent in matching, jobs."""
    chance = random.Random(1)
    matching = Matching(LOOK_AHEAD if together else EAGER)
    for pilot in range(pilots):
        matching.join(pilot, f"h{pilot % (pilots // slots)}", "site")
    ends: list[tuple[float, int, int]] = []
    halves = [0] * pairs
    found = read = jobs = 0
    now, spent = 0.0, 0.0

    def start(job: int, pilot: int) -> None:
        nonlocal found, read
        if job >= 2 * pairs:
            pair = job - 2 * pairs
            found += matching.present(pilot, (2 * pair, 2 * pair + 1))
            read += 2
        heappush(ends, (now + chance.gauss(1000, 50), job, pilot))

    def colocate(pair: int) -> ColocationRequest | None:
        return ColocationRequest(pair, room=2, of=3) if together else None

    for job in range(2 * pairs):
        matching.arrive(CandidateJob(job, job, colocate=colocate(job // 2)), 0)
    for pilot in range(pilots):
        matching.idle(pilot)
    for pilot in [*range(pilots), *range(pilots)]:
        if matching.knows(pilot) and (first := matching.take(pilot, 0)) is not None:
            start(int(first), pilot)
    while ends:
        now, job, pilot = heappop(ends)
        jobs += 1
        began = time.thread_time()
        matching.ended(job, now)
        matching.idle(pilot)
        if job < 2 * pairs:
            matching.cached(pilot, [(job, 1)])
            halves[job // 2] += 1
            if halves[job // 2] == 2:
                merge = 2 * pairs + job // 2
                files = (job // 2 * 2, job // 2 * 2 + 1)
                matching.arrive(CandidateJob(merge, job, files, 1, colocate(job // 2)), now)
                host = matching.pilot_for(merge, now)
                if host is not None:
                    matching.give(merge, host, now)
                    start(merge, int(host))
        following = matching.take(pilot, now)
        spent += time.thread_time() - began
        if following is not None:
            start(int(following), pilot)
    assert len(matching) == 0
    return found / read, spent, jobs


def test_merges_find_both_inputs_at_the_papers_size() -> None:
    assert _merges(120, 40)[0] == 1.0
    assert _merges(120, 40, together=False)[0] <= 0.6


def test_merges_find_their_inputs_also_when_every_slot_is_busy() -> None:
    assert _merges(120, 1200)[0] >= 0.97


@pytest.mark.long
def test_a_match_costs_about_the_same_with_many_pilots() -> None:
    few, many = _merges(1000, 2000), _merges(20_000, 20_000)
    assert many[1] / many[2] <= 5 * few[1] / few[2]
