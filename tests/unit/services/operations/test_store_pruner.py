"""Everything that is stored is removed after its period, and nothing that something else still needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.examples import job, pilot, record, specification
from tests.contract.test_incident_store import incident

from forestay.adapters.sql.audit import SqlAuditStore
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.taught_pattern import TaughtPack
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident, IncidentState, status_of
from forestay.domain.exceptions.safeguards.audit import PRUNED, AuditNote
from forestay.domain.jobs.job_document import State
from forestay.domain.jobs.submission import Submission
from forestay.domain.peers.placing import Placing, PlacingState
from forestay.domain.pilots.pilot import PilotState
from forestay.formats.rules.audit_json import check_pruned, entry_public
from forestay.ports.documents import Document
from forestay.ports.errors import NotFound, Transient
from forestay.ports.jobs.job_store import DocumentChange, JobQuery, Stored
from forestay.services.exceptions.detect.taught_patterns import KIND as TAUGHT
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.jobs.job_submitter import JobSubmitter
from forestay.services.jobs.store_marks import incidents_pruned_before, pruned_before
from forestay.services.operations import audit_pruner
from forestay.services.operations.audit_pruner import AuditPruner
from forestay.services.operations.batch_pause import BatchPause
from forestay.services.operations.incident_pruner import IncidentPruner
from forestay.services.operations.job_pruner import JobPruner
from forestay.services.operations.record_pruner import AGED, OF_INCIDENTS, RecordPruner
from forestay.services.operations.retention import DAY, Cutoffs, Retention
from forestay.services.operations.specification_pruner import LEAST_DAYS, SpecificationPruner
from forestay.services.operations.store_pruner import StorePruner
from forestay.services.rules.rule_store import ReferenceIncident, RuleStore

OLD = 1_000_000
BEFORE = 2_000_000
NO_PAUSE = 0.0


@dataclass
class TestClock(SystemClock):
    """The time of day can be set; it does not pass."""

    __test__ = False
    at: int = 1_700_000_000_000

    def now(self) -> int:
        return self.at


@dataclass
class FakeEngine:
    """Knows of runs whether they have ended."""

    ended: dict[str, int | None] = field(default_factory=dict)

    async def describe(self, run: str) -> Any:
        if run not in self.ended:
            raise NotFound(run)
        return SimpleNamespace(ended=self.ended[run], above="")

    async def find(self, *_: Any, **__: Any) -> Any:
        runs = [SimpleNamespace(started=0) for ended in self.ended.values() if ended is None]
        return SimpleNamespace(runs=runs, cursor=None)


@dataclass
class Desk:
    store: SqlJobStore
    documents: SqlDocumentStore
    incidents: SqlIncidentStore
    pilots: SqlPilotStore
    audit: AuditLog
    clock: TestClock
    engine: FakeEngine

    @property
    def pause(self) -> BatchPause:
        return BatchPause(self.clock, NO_PAUSE)

    def records(self, engine: FakeEngine | None = None) -> RecordPruner:
        return RecordPruner(self.store, self.documents, self.incidents, self.pilots, self.clock, engine)  # type: ignore[arg-type]

    def incident_pruner(self, engine: FakeEngine | None = None) -> IncidentPruner:
        return IncidentPruner(self.incidents, self.store, self.documents, self.clock, engine)  # type: ignore[arg-type]

    def submitter(self) -> JobSubmitter:
        """As after a restart: with no memory of earlier requests."""
        return JobSubmitter(self.store, self.clock, RandomIds(), documents=self.documents)

    async def put(self, name: str, kind: str, /, **body: object) -> None:
        await self.documents.put([(Document(name, "alpha", kind, body), None)])

    async def job(self, name: str, state: State = State.COMPLETED, **changes: Any) -> None:
        await self.store.write([DocumentChange(job(name, state=state, changed=OLD, **changes), None)])

    async def closed(self, *incidents: Incident, state: IncidentState = IncidentState.COMPLETE) -> None:
        statuses = [replace(status_of(entry), state=state, due=None, changed=entry.at) for entry in incidents]
        await self.incidents.add_incidents(list(zip(incidents, statuses, strict=True)))

    async def there(self, names: Sequence[str]) -> set[str]:
        assert (await self.incidents.get_incidents(names)).keys() == (await self.incidents.get_statuses(names)).keys()
        return set(await self.incidents.get_incidents(names))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store, clock = SqlJobStore(f"sqlite:///{tmp_path / 'prune.db'}"), TestClock()
    await store.open()
    database = store.database
    yield Desk(
        store,
        SqlDocumentStore(database),
        SqlIncidentStore(database),
        SqlPilotStore(database),
        AuditLog(SqlAuditStore(database), clock, RandomIds()),
        clock,
        FakeEngine(),
    )
    await store.close()


def old_incident(name: str, **changes: Any) -> Incident:
    return incident(name, **{"at": OLD, "run": "", "job": "", **changes})


class TestPeriods:
    def test_nothing_is_removed_unless_the_period_of_jobs_is_set(self) -> None:
        assert Retention(0, 5, 5, 5).cutoffs(DAY * 100) == Cutoffs()

    def test_no_period_is_shorter_than_that_of_jobs(self) -> None:
        cutoffs = Retention(30, 7, 90, 1).cutoffs(100 * DAY)
        assert cutoffs == Cutoffs(jobs=70 * DAY, incidents=70 * DAY, keys=10 * DAY, audit=70 * DAY)

    def test_a_period_of_none_is_for_ever(self) -> None:
        assert Retention(30).cutoffs(100 * DAY) == Cutoffs(jobs=70 * DAY)


class TestIncidents:
    async def test_those_closed_long_ago_go_and_replays_learn_of_it(self, desk: Desk) -> None:
        for state in IncidentState:
            await desk.closed(old_incident(state.value), state=state)
        await desk.closed(old_incident("new", at=BEFORE), old_incident("other kind", kind=ExceptionType.TIMEOUT))
        assert await desk.incident_pruner().prune(BEFORE, desk.pause) == 4
        names = [state.value for state in IncidentState]
        assert await desk.there([*names, "new", "other kind"]) == {"open", "acting", "waiting", "held", "new"}
        assert await incidents_pruned_before(desk.documents) == BEFORE
        assert await pruned_before(desk.documents) == 0

    async def test_one_that_was_closed_lately_stays_however_old_it_is(self, desk: Desk) -> None:
        made = old_incident("slow")
        await desk.incidents.add_incidents(
            [(made, replace(status_of(made), state=IncidentState.COMPLETE, due=None, changed=BEFORE))]
        )
        assert await desk.incident_pruner().prune(BEFORE, desk.pause) == 0
        assert await incidents_pruned_before(desk.documents) == 0

    async def test_those_that_rules_and_corrections_name_stay(self, desk: Desk) -> None:
        await desk.closed(*(old_incident(name) for name in ("rule", "corrected", "none")))
        await RuleStore(desk.documents).keep_reference_incident("alpha", ReferenceIncident("rule", "abort", "", {}))
        pack = TaughtPack().with_correction(_correction("corrected"))
        await desk.put(f"{TAUGHT}:alpha", TAUGHT, **pack.to_dict())
        assert await desk.incident_pruner().prune(BEFORE, desk.pause) == 1
        assert await desk.there(["rule", "corrected", "none"]) == {"rule", "corrected"}

    async def test_those_of_waiting_jobs_stay(self, desk: Desk) -> None:
        for state in (State.FAULTED, State.AVAILABLE, State.COMPLETED):
            await desk.job(state.value, state)
            await desk.closed(old_incident(f"of {state.value}", job=state.value))
        await desk.closed(old_incident("of a job that is gone", job="gone"))
        assert await desk.incident_pruner().prune(BEFORE, desk.pause) == 2
        names = [f"of {state.value}" for state in (State.FAULTED, State.AVAILABLE, State.COMPLETED)]
        assert await desk.there(names) == set(names[:2])

    async def test_those_of_runs_go_when_the_run_is_over(self, desk: Desk) -> None:
        desk.engine.ended = {"over": OLD, "open": None}
        await desk.put("engine-run:theirs", "engine-run:alpha:nextflow")
        await desk.put("engine-run:ended", "engine-run-ended")
        await desk.closed(*(old_incident(run, run=run) for run in ("over", "open", "theirs", "ended")))
        await desk.closed(old_incident("forgotten", run="forgotten", engine="nextflow"))
        assert await desk.incident_pruner().prune(BEFORE, desk.pause) == 2, "without an engine nothing of our own runs"
        assert await desk.there(["over", "open", "theirs", "ended", "forgotten"]) == {"over", "open", "theirs"}
        assert await desk.incident_pruner(desk.engine).prune(BEFORE, desk.pause) == 1
        assert await desk.there(["over", "open", "theirs"]) == {"open", "theirs"}

    async def test_more_than_a_page_go(self, desk: Desk) -> None:
        names = [f"i-{number:04}" for number in range(1100)]
        await desk.closed(*(old_incident(name, at=OLD + place // 9) for place, name in enumerate(names)))
        assert await desk.incident_pruner().prune(BEFORE, desk.pause) == 1100
        assert await desk.there(names) == set()

    async def test_what_people_did_about_them_goes_with_them(self, desk: Desk) -> None:
        await desk.store.add_records([record(kind, kind=kind, at=OLD) for kind in (*OF_INCIDENTS, "key")])
        await desk.put("inbox-act:1", "inbox-act", at=OLD)
        await desk.put("inbox-act:2", "inbox-act", at=BEFORE)
        kept = old_incident("kept", at=BEFORE)
        await desk.closed(kept)
        seen = (await desk.incidents.get_statuses(["kept"]))["kept"].status.fingerprint
        for name, fingerprint, at in (("of-kept", seen, OLD), ("of-none", "f1", OLD), ("late", "f2", BEFORE)):
            await desk.put(f"error-triage:alpha:{fingerprint}", "error-triage", at=at, name=name)
        assert await desk.records().prune_beside_incidents(BEFORE) == 5
        assert {found.id for found in await desk.store.find_records()} == {"key"}
        assert {stored.document.id for stored in await desk.documents.find("inbox-act")} == {"inbox-act:2"}
        left = {stored.document.body["name"] for stored in await desk.documents.find("error-triage")}
        assert left == {"of-kept", "late"}


def _correction(name: str) -> Any:
    from forestay.domain.exceptions.causes.taught_pattern import CorrectedCause

    return CorrectedCause(name, Cause.MEMORY, "ann", OLD)


class TestKeys:
    async def test_a_key_is_kept_as_long_as_one_of_its_jobs(self, desk: Desk) -> None:
        submissions = [Submission(specification(), "ada")] * 3
        accepted = await desk.submitter().submit(submissions, by="ada", key="k")
        before = desk.clock.at = desk.clock.at + DAY
        assert await desk.records().prune_keys(before, desk.pause) == 0
        known = list((await desk.store.get([entry.id for entry in accepted])).values())
        await desk.store.remove(known[:2])
        assert await desk.records().prune_keys(before, desk.pause) == 0
        await desk.store.remove(known[2:])
        assert await desk.records().prune_keys(before - DAY, desk.pause) == 0, "the period is not over"
        assert await desk.records().prune_keys(before, desk.pause) == 1
        again = await desk.submitter().submit(submissions, by="ada", key="k")
        assert [entry.created for entry in again] == [True] * 3, "a new submission, as documented"

    async def test_a_key_that_was_used_again_meanwhile_stays(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two reconcilers remove the same key, and between the two it is used again."""
        await desk.store.add_records([record("key:a", kind="key", at=OLD, body={"digest": "d", "jobs": 1})])
        drop = desk.store.drop_records

        async def late(before: int, **what: Any) -> int:
            await drop(before, **what)
            await desk.store.add_records([record("key:a", kind="key", at=BEFORE, body={"digest": "d", "jobs": 1})])
            return await drop(before, **what)

        monkeypatch.setattr(desk.store, "drop_records", late)
        assert await desk.records().prune_keys(BEFORE, desk.pause) == 0
        assert await desk.store.get_record("key:a") is not None

    async def test_more_than_a_page_go(self, desk: Desk) -> None:
        body = {"digest": "d", "jobs": 1}
        await desk.store.add_records([record(f"key:{number}", kind="key", at=OLD, body=body) for number in range(1100)])
        await desk.store.add_records([record("key:new", kind="key", at=BEFORE, body=body)])
        assert await desk.records().prune_keys(BEFORE, desk.pause) == 1100
        assert [found.id for found in await desk.store.find_records(kind="key")] == ["key:new"]


class TestSpecifications:
    async def there(self, desk: Desk, *names: str) -> set[str]:
        return {
            spec.name for spec in (await desk.store.get_specifications([f"alpha-{name}" for name in names])).values()
        }

    async def test_those_that_no_job_names_go_when_they_were_not_used_for_long(self, desk: Desk) -> None:
        start, pruner = desk.clock.at, SpecificationPruner(desk.store, desk.clock)
        for name in ("used", "unused", "of a job"):
            await desk.store.put_specifications([specification(name=name)], used=start)
        await desk.job("one", State.AVAILABLE)
        (stored,) = (await desk.store.get(["one"])).values()
        document = replace(stored.document, specification="alpha-of a job")
        await desk.store.write([DocumentChange(document, stored.version)])
        desk.clock.at = start + (LEAST_DAYS + 1) * DAY
        await desk.store.put_specifications([specification(name="used")], used=desk.clock.at)
        assert await pruner.prune(desk.clock.at - DAY, desk.pause) == 1
        assert await self.there(desk, "used", "unused", "of a job") == {"used", "of a job"}
        assert await pruner.prune(desk.clock.at - DAY, desk.pause) == 0
        await desk.store.remove(list((await desk.store.get(["one"])).values()))
        desk.clock.at += (LEAST_DAYS + 2) * DAY
        assert await pruner.prune(desk.clock.at - DAY, desk.pause) == 2

    async def test_no_period_is_as_short_as_what_a_submitter_remembers(self, desk: Desk) -> None:
        await desk.store.put_specifications([specification()], used=desk.clock.at)
        desk.clock.at += (LEAST_DAYS - 1) * DAY
        assert await SpecificationPruner(desk.store, desk.clock).prune(desk.clock.at, desk.pause) == 0

    async def test_one_of_an_earlier_release_is_kept_for_a_whole_period_first(self, desk: Desk) -> None:
        pruner = SpecificationPruner(desk.store, desk.clock)
        await desk.store.put_specifications([specification()])
        assert await pruner.prune(desk.clock.at - DAY, desk.pause) == 0
        desk.clock.at += (LEAST_DAYS + 1) * DAY
        assert await pruner.prune(desk.clock.at - DAY, desk.pause) == 1

    async def test_a_submitter_that_runs_for_long_notes_that_it_uses_one(self, desk: Desk) -> None:
        """Its memory of what is stored must not outlive what is stored."""
        submitter, pruner = desk.submitter(), SpecificationPruner(desk.store, desk.clock)
        for _ in range(3):
            (accepted,) = await submitter.submit([Submission(specification(), "ada")], by="ada")
            await desk.store.remove(list((await desk.store.get([accepted.id])).values()))
            desk.clock.at += (LEAST_DAYS - 1) * DAY
            assert await pruner.prune(desk.clock.at, desk.pause) == 0
        desk.clock.at += 2 * DAY
        assert await pruner.prune(desk.clock.at, desk.pause) == 1
        (accepted,) = await submitter.submit([Submission(specification(), "ada")], by="ada")
        assert set(await desk.store.get_specifications([specification().id])) == {specification().id}

    async def test_one_used_between_the_search_and_the_removal_stays(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await desk.store.put_specifications([specification()], used=desk.clock.at)
        desk.clock.at += (LEAST_DAYS + 1) * DAY
        submitter, count = desk.submitter(), desk.store.count

        async def meanwhile(query: JobQuery, *, by: str) -> Any:
            counted = await count(query, by=by)
            await submitter.submit([Submission(specification(), "ada")], by="ada")
            return counted

        monkeypatch.setattr(desk.store, "count", meanwhile)
        assert await SpecificationPruner(desk.store, desk.clock).prune(desk.clock.at, desk.pause) == 0
        assert await desk.store.get_specifications([specification().id])


class TestAuditLog:
    async def entries(self, desk: Desk) -> list[dict[str, Any]]:
        entries, _ = await desk.audit.read("alpha", start=1, limit=1000)
        return [entry_public(entry) for entry in entries]

    async def test_the_log_can_be_verified_after_its_beginning_was_removed(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(audit_pruner, "PAGES", 2)
        for number in range(10):
            desk.clock.at += DAY
            await desk.audit.write("alpha", [AuditNote("ann", "job.cancel", f"j{number}")] * 3)
        await desk.audit.write("beta", [AuditNote("bob", "job.cancel", "j")])
        assert check_pruned(await self.entries(desk)).words == ""
        pruner = AuditPruner(desk.audit.store, desk.audit)
        assert await pruner.prune(desk.clock.at - 4 * DAY + 1, desk.pause) == 6
        entries = await self.entries(desk)
        assert [entry["number"] for entry in entries] == list(range(19, 32))
        assert entries[-1]["what"] == PRUNED
        checked = check_pruned(entries)
        assert (checked.broken, checked.number, checked.removed) == (None, 31, 18)
        assert await pruner.prune(desk.clock.at - 4 * DAY + 1, desk.pause) == 0
        assert len(await self.entries(desk)) == 13, "nothing to remove is not noted"

    async def test_entries_that_are_missing_in_the_middle_are_reported(self, desk: Desk) -> None:
        """However many were removed from the beginning with a note."""
        for number in range(6):
            await desk.audit.write("alpha", [AuditNote("ann", "job.cancel", f"j{number}")])
            desk.clock.at += DAY
        await AuditPruner(desk.audit.store, desk.audit).prune(desk.clock.at - 5 * DAY, desk.pause)
        entries = await self.entries(desk)
        assert [entry["number"] for entry in entries] == [2, 3, 4, 5, 6, 7]
        for place in (1, 3):
            checked = check_pruned([*entries[:place], *entries[place + 1 :]])
            assert (checked.broken, checked.number) == (place + 2, place + 1)
        assert check_pruned(entries[1:]).broken == 1
        assert check_pruned(entries[:-1]).broken == 1, "the note itself is gone"
        changed = [{**entries[0], "before": "f" * 64}, *entries[1:]]
        assert check_pruned(changed).broken == 2

    async def test_entries_that_are_missing_without_a_note_are_reported(self, desk: Desk) -> None:
        for number in range(4):
            await desk.audit.write("alpha", [AuditNote("ann", "job.cancel", f"j{number}")])
        await desk.audit.store.remove_first("alpha", 2)
        checked = check_pruned(await self.entries(desk))
        assert (checked.broken, checked.words) == (
            1,
            "entries 1 to 2 are missing, and no entry says that the retention removed it",
        )

    async def test_a_removal_that_broke_off_does_not_make_the_log_look_broken(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(6):
            await desk.audit.write("alpha", [AuditNote("ann", "job.cancel", f"j{number}")])
        remove = desk.audit.store.remove_first

        async def half(tenant: str, last: int) -> int:
            await remove(tenant, last - 2)
            raise Transient("away")

        pruner = AuditPruner(desk.audit.store, desk.audit)
        with monkeypatch.context() as patched:
            patched.setattr(desk.audit.store, "remove_first", half)
            with pytest.raises(Transient):
                await pruner.prune(desk.clock.at + 1, desk.pause)
        assert check_pruned(await self.entries(desk)).broken is None
        assert await pruner.prune(desk.clock.at, desk.pause) == 0
        desk.clock.at += 5
        await desk.audit.write("alpha", [AuditNote("ann", "job.cancel", "later")])
        assert await pruner.prune(desk.clock.at, desk.pause) == 3
        assert check_pruned(await self.entries(desk)).broken is None


class TestRecords:
    async def test_what_is_not_needed_once_it_is_old_goes_by_its_age(self, desk: Desk) -> None:
        kinds = (*AGED, "key", "evidence", "flow")
        await desk.store.add_records(
            [record(f"{kind}-{at}", kind=kind, at=at) for kind in kinds for at in (OLD, BEFORE)]
        )
        assert await desk.records().prune(BEFORE, desk.pause) == len(AGED)
        left = {found.id for found in await desk.store.find_records(limit=100)}
        assert left == {f"{kind}-{BEFORE}" for kind in AGED} | {
            f"{kind}-{at}" for kind in ("key", "evidence", "flow") for at in (OLD, BEFORE)
        }

    async def test_records_of_runs_without_jobs_go_when_the_run_is_over(self, desk: Desk) -> None:
        desk.engine.ended = {"over": OLD, "open": None}
        kinds = ("run-event", "wes-run", "listing-page")
        await desk.store.add_records(
            [record(f"{kind}-{run}", kind=kind, job=run, at=OLD) for kind in kinds for run in ("over", "open")]
        )
        await desk.store.add_records([record("since", kind="run-event", job="over", at=BEFORE)])
        assert await desk.records().prune(BEFORE, desk.pause) == 0, (
            "without an engine nobody knows whether they are over"
        )
        assert await desk.records(desk.engine).prune(BEFORE, desk.pause) == 3
        assert {found.job for found in await desk.store.find_records(limit=100) if found.id != "since"} == {"open"}

    async def test_runs_of_other_engines_go_with_their_events_when_nothing_is_heard_of_them(self, desk: Desk) -> None:
        await desk.put("engine-run:ended", "engine-run-ended", ended=OLD)
        await desk.put("engine-run:ended-lately", "engine-run-ended", ended=BEFORE)
        for name in ("silent", "heard"):
            await desk.put(f"engine-run:{name}", "engine-run:alpha:nextflow", ended=None)
        runs = ("ended", "ended-lately", "silent", "heard")
        await desk.store.add_records([record(f"e-{run}", kind="engine-event", job=run, at=OLD) for run in runs])
        await desk.store.add_records([record("e-late", kind="engine-event", job="heard", at=BEFORE)])
        assert await desk.records().prune(BEFORE, desk.pause) == 4
        assert {found.job for found in await desk.store.find_records()} == {"ended-lately", "heard"}
        assert set(await desk.documents.get([f"engine-run:{run}" for run in runs])) == {
            "engine-run:ended-lately",
            "engine-run:heard",
        }

    async def test_launches_that_ended_go_and_open_ones_stay(self, desk: Desk) -> None:
        for kind in ("launch-ended:alpha:site:0", "launch-ended:alpha:site:9", "launch:alpha:site"):
            await desk.put(f"launch:{kind}", kind)
        assert await desk.records().prune(5 * DAY // 4, desk.pause) == 1
        assert await desk.documents.kinds("launch") == ["launch-ended:alpha:site:9", "launch:alpha:site"]

    async def test_questions_of_runs_that_were_terminated_go(self, desk: Desk) -> None:
        desk.engine.ended = {"over": OLD, "open": None}
        for run in ("over", "open"):
            await desk.put(f"question:{run}", "question", run=run, asked=OLD)
        assert await desk.records(desk.engine).prune(BEFORE, desk.pause) == 1
        assert set(await desk.documents.get(["question:over", "question:open"])) == {"question:open"}

    async def test_placements_stay_until_the_parent_is_over_and_no_job_is_left(self, desk: Desk) -> None:
        desk.engine.ended = {"open": None, "over": OLD}
        made = Placing("r", "alpha", "ada", parent="open", work="w", index=0, flow="f", name="n", wanted="any", state=PlacingState.OVER)  # fmt: skip
        for run, parent in (("a", "open"), ("b", "over"), ("c", "over")):
            await desk.put(f"placing:{run}", "placing-over", **replace(made, run=run, parent=parent).as_plain())
        await desk.put("left:b:1", "placing-over", tenant="alpha", run="there", key="b:1", ended="completed")
        from forestay.domain.jobs.job_document import FlowRef

        await desk.job("of-c", flow_ref=FlowRef("c", "align@1", "f" * 64, -1, 0, 1))
        assert await desk.records(desk.engine).prune(BEFORE, desk.pause) == 1
        names = ["placing:a", "placing:b", "placing:c", "left:b:1"]
        assert set(await desk.documents.get(names)) == {"placing:a", "placing:c", "left:b:1"}
        assert await desk.records(desk.engine).prune(BEFORE, desk.pause) == 1
        assert set(await desk.documents.get(names)) == {"placing:a", "placing:c"}

    async def test_lists_of_pilots_of_hosts_that_are_gone_go(self, desk: Desk) -> None:
        for name, state in (("alive", PilotState.ALIVE), ("silent", PilotState.SILENT), ("gone", PilotState.GONE)):
            await desk.pilots.put_pilot(pilot(name, state=state), None)
        for host, pilots in (
            ("one", ["alive", "gone"]),
            ("two", ["silent"]),
            ("three", ["gone", "forgotten"]),
            ("four", []),
        ):
            await desk.put(f"host:{host}", "host", areas=dict.fromkeys(pilots, "a"))
        assert await desk.records().prune(BEFORE, desk.pause) == 2
        assert {stored.document.id for stored in await desk.documents.find("host")} == {"host:one", "host:two"}

    async def test_revocations_go_when_the_token_has_expired(self, desk: Desk) -> None:
        now = desk.clock.at
        await desk.store.add_records(
            [
                record("expired", kind="revoked-token", at=OLD, body={"digest": "d", "expires": now // 1000 - 90_000}),
                record("valid", kind="revoked-token", at=OLD, body={"digest": "d", "expires": now // 1000}),
                record("person", kind="revoked-token", at=OLD, body={"subject": "bob", "until": 1}),
            ]
        )
        assert await desk.records().prune(BEFORE, desk.pause) == 1
        assert {found.id for found in await desk.store.find_records()} == {"valid", "person"}

    async def test_a_file_without_replicas_goes(self, desk: Desk) -> None:
        await desk.put("replica:a", "replica", name="a")
        await desk.put("replica:b", "replica-none", name="b")
        assert await desk.records().prune(BEFORE, desk.pause) == 1
        assert set(await desk.documents.get(["replica:a", "replica:b"])) == {"replica:a"}


class TestAll:
    def pruner(self, desk: Desk, retention: Retention, reports: list[str]) -> StorePruner:
        return StorePruner(
            retention,
            JobPruner(desk.store, desk.documents, desk.pilots, desk.clock),
            desk.records(),
            desk.incident_pruner(),
            SpecificationPruner(desk.store, desk.clock),
            AuditPruner(desk.audit.store, desk.audit),
            desk.clock,
            pause=NO_PAUSE,
            troubled=reports.append,
        )

    async def fill(self, desk: Desk) -> None:
        (accepted,) = await desk.submitter().submit([Submission(specification(), "ada")], by="ada", key="k")
        (stored,) = (await desk.store.get([accepted.id])).values()
        await desk.store.write([DocumentChange(stored.document.having(state=State.COMPLETED), stored.version)])
        await desk.closed(incident("i1", at=desk.clock.at, run="", job=accepted.id))
        await desk.audit.write("alpha", [AuditNote("ann", "job.cancel", "j")])
        await desk.store.add_records([record("a", kind="alert", at=desk.clock.at)])

    async def test_everything_goes_after_its_period_in_one_pass_or_the_next(self, desk: Desk) -> None:
        await self.fill(desk)
        desk.clock.at += 400 * DAY
        reports: list[str] = []
        pruner = self.pruner(desk, Retention(30, 60, 90, 365), reports)
        await pruner.look()
        assert reports == []
        assert pruner.removed == {
            "expired": 0, "jobs": 1, "records": 0, "incidents": 1, "keys": 1, "specifications": 1, "audit": 1,
        }  # fmt: skip
        # The alert went with the jobs; nothing but the marks, and what says that the audit log was shortened, is left.
        assert await desk.store.find_records() == []
        assert list(await desk.documents.kinds("")) == ["pruned"]

    async def test_nothing_goes_where_no_period_is_set(self, desk: Desk) -> None:
        await self.fill(desk)
        desk.clock.at += 4000 * DAY
        pruner = self.pruner(desk, Retention(0, 60, 90, 365), [])
        await pruner.look()
        assert set(pruner.removed.values()) == {0}
        assert len(await desk.store.find_records()) == 2

    async def test_a_part_that_fails_stops_no_other(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        await self.fill(desk)
        desk.clock.at += 400 * DAY

        async def away(_jobs: list[Stored]) -> int:
            raise Transient("away")

        monkeypatch.setattr(desk.store, "remove", away)
        reports: list[str] = []
        pruner = self.pruner(desk, Retention(30, 60, 90, 365), reports)
        await pruner.look()
        assert reports == ["jobs: away"]
        assert (pruner.removed["incidents"], pruner.removed["keys"], pruner.removed["specifications"]) == (1, 0, 0)
