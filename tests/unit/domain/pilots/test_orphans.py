"""When silence means death: patience by the scanner's own clock, the alarm, the dead that stay on heartbeat pages."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.sizes import examples

from forestay.domain.pilots.orphans import (
    ALARM_LEAST,
    ALARM_SHARE,
    AT_ONCE,
    HOLD_BACK,
    HeldClaim,
    Scan,
    ScannerMemory,
    SeenPilot,
    bury,
    forgotten,
    judge,
    look,
    patience,
)
from forestay.domain.pilots.pilot import Heartbeat, HeartbeatPage, newest_heartbeats, newest_session

PILOTS = tuple(f"p{number}" for number in range(8))
LEASE = 60


def test_patience_is_a_fifth_more_than_the_lease_and_never_less_than_ten_seconds_more() -> None:
    assert [patience(lease) for lease in (15, 60, 600)] == [25.0, 72.0, 720.0]


@dataclass
class _Known:
    counter: int
    since: float
    buried: bool = False


class ScannerMachine(RuleBasedStateMachine):
    """One scanner over many scans; pilots send heartbeats, fall silent, come back, and older heartbeat pages turn up again."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.memory = ScannerMemory()
        self.heartbeats: dict[str, Heartbeat] = {}
        self.known: dict[str, _Known] = {}
        self.last: Scan | None = None

    @rule(pilot=st.sampled_from(PILOTS), session=st.integers(0, 99), claims=st.lists(st.sampled_from("abc")))
    def heartbeat(self, pilot: str, session: int, claims: list[str]) -> None:
        before = self.heartbeats.get(pilot)
        counter = before.counter + 1 if before else 0
        self.heartbeats[pilot] = Heartbeat(counter, session, LEASE, tuple(claims))

    @rule(pilot=st.sampled_from(PILOTS), session=st.integers(0, 99))
    def an_older_heartbeat_is_read(self, pilot: str, session: int) -> None:
        """A stale heartbeat page: neither a sign of life nor of death."""
        before = self.heartbeats.get(pilot)
        if before is not None and before.counter > 0:
            self.scan_with(self.heartbeats | {pilot: Heartbeat(before.counter - 1, session, LEASE)}, 1.0)

    @rule(pilot=st.sampled_from(PILOTS))
    def leaves_the_heartbeat_pages(self, pilot: str) -> None:
        self.heartbeats.pop(pilot, None)

    @rule(passed=st.floats(0.1, 100))
    def scan(self, passed: float) -> None:
        self.scan_with(self.heartbeats, passed)

    def scan_with(self, heartbeats: dict[str, Heartbeat], passed: float) -> None:
        self.now += passed
        self.known = {pilot: known for pilot, known in self.known.items() if pilot in heartbeats}
        for pilot, heartbeat in heartbeats.items():
            known = self.known.get(pilot)
            if known is None or heartbeat.counter > known.counter:
                self.known[pilot] = _Known(heartbeat.counter, self.now)
        self.last = look(self.memory, heartbeats, now=self.now)
        self.memory = self.last.memory

    @rule(data=st.data())
    def bury_some(self, data: st.DataObject) -> None:
        if self.last is not None and self.last.silent:
            dead = data.draw(st.lists(st.sampled_from(self.last.silent), unique=True))
            self.memory = bury(self.memory, dead)
            for pilot in dead:
                self.known[pilot].buried = True
            self.last = None

    @rule()
    def the_store_was_away(self) -> None:
        self.memory, self.known, self.last = ScannerMemory(), {}, None

    @invariant()
    def silence_is_measured_by_our_own_clock(self) -> None:
        if self.last is None:
            return
        due = {
            pilot
            for pilot, known in self.known.items()
            if not known.buried and self.now - known.since >= patience(LEASE)
        }
        assert set(self.last.silent) == due
        since = [self.memory.pilots[pilot].since for pilot in self.last.silent]
        assert since == sorted(since)


TestScanner = pytest.mark.ledger("P4-14")(ScannerMachine.TestCase)
TestScanner.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


@st.composite
def scans(draw: st.DrawFn) -> tuple[Scan, frozenset[str]]:
    """A scan of up to 60 pilots with any of them silent, for any time, some buried, some holding claims."""
    now = 10_000.0
    pilots: dict[str, SeenPilot] = {}
    silent: list[str] = []
    for number in range(draw(st.integers(0, 60))):
        name = f"p{number}"
        waited = draw(st.sampled_from([0.0, patience(LEASE), HOLD_BACK * patience(LEASE)]))
        buried = draw(st.booleans()) and waited > 0
        pilots[name] = SeenPilot(1, now - waited, LEASE, buried)
        if waited and not buried:
            silent.append(name)
    silent.sort(key=lambda name: pilots[name].since)
    holding = draw(st.frozensets(st.sampled_from(silent))) if silent else frozenset()
    return Scan(ScannerMemory(pilots), tuple(silent), now), holding


@given(scans())
def test_the_verdict_on_the_silent(run: tuple[Scan, frozenset[str]]) -> None:
    scan, holding = run
    verdict = judge(scan, holding)
    assert set(verdict.dead) <= holding
    assert set(verdict.idle) == set(scan.silent) - holding
    heard = [name for name, seen in scan.memory.pilots.items() if not seen.buried and name not in scan.silent]
    too_many = len(holding) >= ALARM_LEAST and len(holding) > ALARM_SHARE * (len(heard) + len(holding))
    assert verdict.alarm == too_many
    if not verdict.alarm:
        assert set(verdict.dead) == holding
        return
    assert len(verdict.dead) <= AT_ONCE
    for pilot in verdict.dead:
        assert scan.now - scan.memory.pilots[pilot].since >= HOLD_BACK * patience(LEASE)


def test_a_site_that_is_gone_for_good_is_given_up_in_the_end_and_others_are_not_kept_waiting_for_ever() -> None:
    """Ten of twelve pilots vanish at once: an alarm, then they are given up a few at a time."""
    heartbeats = {f"p{number}": Heartbeat(1, 1, LEASE, ("c",)) for number in range(12)}
    memory, gone = ScannerMemory(), set(list(heartbeats)[:10])
    alarmed_at = released_at = None
    for second in range(0, 2000, 5):
        for pilot in set(heartbeats) - gone:
            heartbeats[pilot] = Heartbeat(second, 1, LEASE, ("c",))
        scan = look(memory, heartbeats, now=float(second))
        verdict = judge(scan, {name for name in scan.silent if name in gone})
        memory = bury(scan.memory, verdict.dead + verdict.idle)
        alarmed_at = second if verdict.alarm and alarmed_at is None else alarmed_at
        released_at = second if verdict.dead and released_at is None else released_at
    assert alarmed_at == 75
    assert released_at == 290
    assert {pilot for pilot, seen in memory.pilots.items() if seen.buried} == gone


def test_the_long_dead_neither_raise_the_alarm_nor_water_it_down() -> None:
    dead = {f"old{number}": SeenPilot(1, 0.0, LEASE, buried=True) for number in range(50)}
    fresh = {f"p{number}": SeenPilot(1, 900.0, LEASE) for number in range(5)}
    silent = tuple(fresh)
    alone = judge(Scan(ScannerMemory(dead | fresh), silent, 1000.0), set(silent))
    assert alone.alarm
    assert alone.dead == ()
    restarted = Scan(ScannerMemory(fresh | {name: SeenPilot(1, 0.0, LEASE) for name in dead}), (*dead, "p0"), 1000.0)
    verdict = judge(restarted, {"p0"})
    assert (verdict.dead, set(verdict.idle), verdict.alarm) == (("p0",), set(dead), False)


def test_a_buried_pilot_that_heartbeats_again_is_alive() -> None:
    memory = bury(look(ScannerMemory(), {"p": Heartbeat(1, 1, LEASE)}, now=0.0).memory, ["p", "unheard of"])
    assert look(memory, {"p": Heartbeat(1, 1, LEASE)}, now=500.0).silent == ()
    again = look(memory, {"p": Heartbeat(2, 1, LEASE)}, now=500.0)
    assert not again.memory.pilots["p"].buried
    assert look(again.memory, {"p": Heartbeat(2, 1, LEASE)}, now=572.0).silent == ("p",)


@given(
    st.lists(
        st.tuples(
            st.floats(0.5, 60),  # seconds since the last sweep
            st.integers(0, 3),  # heartbeats since
            st.sampled_from(["named", "unnamed", "unheard"]),
        ),
        max_size=40,
    )
)
def test_a_claim_is_forgotten_after_two_later_heartbeats_or_when_nobody_was_ever_heard(
    sweeps: list[tuple[float, int, str]],
) -> None:
    memory, now, counter = ScannerMemory(), 0.0, 5
    unnamed_at: int | None = None
    unheard_since: float | None = None
    for passed, beaten, what in sweeps:
        now += passed
        counter += beaten
        heartbeats = {} if what == "unheard" else {"p": Heartbeat(counter, 1, LEASE, ("c",) if what == "named" else ())}
        memory, lost = forgotten(memory, [HeldClaim("j", "c", "p")], heartbeats, lease=LEASE, now=now)
        if what != "unheard":
            unheard_since = None
        if what != "unnamed":
            unnamed_at = None
        if what == "unnamed" and unnamed_at is None:
            unnamed_at = counter
        if what == "unheard" and unheard_since is None:
            unheard_since = now
        two_later = unnamed_at is not None and counter >= unnamed_at + 2
        never = unheard_since is not None and now - unheard_since >= patience(LEASE)
        assert bool(lost) == (two_later or never)


def test_a_claim_of_a_buried_pilot_is_lost_at_once_unless_it_came_back() -> None:
    memory = ScannerMemory({"p": SeenPilot(7, 0.0, LEASE, buried=True)})
    held = [HeldClaim("j", "c", "p")]
    for heartbeats in ({}, {"p": Heartbeat(7, 1, LEASE, ("c",))}):
        assert forgotten(memory, held, heartbeats, lease=LEASE, now=1.0)[1] == tuple(held)
    assert forgotten(memory, held, {"p": Heartbeat(8, 1, LEASE, ("c",))}, lease=LEASE, now=1.0)[1] == ()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(PILOTS), st.integers(0, 9), st.integers(0, 9))))
def test_the_newest_heartbeat_wins_over_all_heartbeat_pages(noted: list[tuple[str, str, int, int]]) -> None:
    heartbeat_pages = [
        HeartbeatPage(server, bucket, 1, "", {pilot: Heartbeat(counter, session, LEASE)})
        for bucket, (server, pilot, counter, session) in enumerate(noted)
    ]
    newest = newest_heartbeats(heartbeat_pages)
    for pilot in {pilot for _, pilot, _, _ in noted}:
        assert newest[pilot].counter == max(counter for _, name, counter, _ in noted if name == pilot)
        assert newest_session(heartbeat_pages, pilot) == max(session for _, name, _, session in noted if name == pilot)
    assert newest_session(heartbeat_pages, "nobody") == 0
