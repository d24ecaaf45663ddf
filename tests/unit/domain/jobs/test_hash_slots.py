"""Slots: each has exactly one owner, the load is even, and only a leaver's slots move."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples

from forestay.domain.jobs.hash_slots import SLOTS, fallback_hash_slots, hash_slot_of, own_hash_slots

names = st.lists(
    st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=24),
    min_size=1,
    max_size=8,
    unique=True,
)


@settings(max_examples=examples(40), deadline=None)
@given(names)
def test_servers_with_one_view_share_all_slots_without_overlap(servers: list[str]) -> None:
    owners = Counter(slot for server in servers for slot in own_hash_slots(server, servers))
    assert owners == Counter(range(SLOTS))


@settings(max_examples=examples(25), deadline=None)
@given(names.filter(lambda value: len(value) > 1), st.data())
def test_when_a_server_leaves_only_its_slots_move(servers: list[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(servers))
    left = [server for server in servers if server != gone]
    freed = own_hash_slots(gone, servers)
    for server in left:
        before, after = own_hash_slots(server, servers), own_hash_slots(server, left)
        assert before <= after
        assert after - before <= freed


@settings(max_examples=examples(25), deadline=None)
@given(names.filter(lambda value: len(value) > 1), st.data())
def test_every_slot_has_one_heir_who_gets_it_when_its_owner_leaves(servers: list[str], data: st.DataObject) -> None:
    heirs = Counter(slot for server in servers for slot in fallback_hash_slots(server, servers))
    assert heirs == Counter(range(SLOTS))
    gone = data.draw(st.sampled_from(servers))
    left = [server for server in servers if server != gone]
    for server in left:
        gained = own_hash_slots(server, left) - own_hash_slots(server, servers)
        assert gained == fallback_hash_slots(server, servers) & own_hash_slots(gone, servers)


@pytest.mark.parametrize("count", range(1, 17))
def test_the_share_out_is_even(count: int) -> None:
    servers = [f"server-{number:02d}.example.org:8080" for number in range(count)]
    shares = [len(own_hash_slots(server, servers)) for server in servers]
    mean = SLOTS / count
    # Independent random shares would lie within about four standard deviations (the square root of the mean).
    assert max(abs(share - mean) for share in shares) <= 4 * mean**0.5


@pytest.mark.parametrize("count", [2, 5, 16])
def test_names_of_random_digits_share_evenly_too(count: int) -> None:
    servers = [f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}" for number in range(1, count + 1)]
    shares = [len(own_hash_slots(server, servers)) for server in servers]
    mean = SLOTS / count
    assert max(abs(share - mean) for share in shares) <= 4 * mean**0.5


@settings(max_examples=examples(50), deadline=None)
@given(st.text(min_size=1, max_size=12))
def test_a_server_counts_itself_alive(server: str) -> None:
    assert own_hash_slots(server, []) == own_hash_slots(server, [server]) == frozenset(range(SLOTS))


@given(st.uuids())
def test_a_job_stays_in_its_slot(job: object) -> None:
    assert 0 <= hash_slot_of(str(job)) == hash_slot_of(str(job)) < SLOTS


def test_the_slot_of_a_job_is_the_same_in_every_release() -> None:
    # Stored documents carry their slot: another hash would hide them from every server.
    assert (hash_slot_of("0b5dbb5c-93a8-5c7e-8f4b-8f5f3f6f1f11"), hash_slot_of("j1")) == (767, 488)
