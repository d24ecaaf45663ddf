"""The auditor finds what it is there to find: each test takes a good end of a campaign and spoils one thing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.system.chaos.audit import Audit, Verdict
from tests.system.chaos.evidence import Evidence, job_from, read_published
from tests.system.chaos.faults import Fault
from tests.system.chaos.ledger import Mark
from tests.system.chaos.submitter import Accepted

LEASE = 60.0
JOB = "j1"
FIRST, SECOND = "a" * 32, "b" * 32
T = 1_000_000.0
"""When the job was claimed first, in seconds."""


def line(rev: int, at: float, event: str, state: str, attempt: int, by: str, note: str) -> tuple[Any, ...]:
    return (rev, round(at * 1000), event, state, attempt, by, note)


class JobScenario:
    """A job whose first pilot was killed while it ran, and whose second run was committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kind = "short"
        self.history: list[tuple[Any, ...]] = [
            line(1, T - 1, "create", "available", 0, "ada", ""),
            line(2, T, "claim", "running", 1, "p-1", f"claim {FIRST} on pilot-01.1"),
            line(3, T + 10.5, "release", "available", 1, "server", f"its pilot died: its channel closed; claim {FIRST}"),
            line(4, T + 11, "claim", "running", 2, "p-2", f"claim {SECOND} on pilot-02.1"),
            line(5, T + 13, "complete", "completed", 2, "p-2", f"exit 0; claim {SECOND}"),
        ]  # fmt: skip
        self.state = "completed"
        self.manifest = self.publish(SECOND, 2)
        self.winner: dict[str, Any] | None = {
            "generation": 0, "attempt": 2, "claim": SECOND, "manifest": self.manifest,
        }  # fmt: skip
        self.records: list[dict[str, Any]] = []
        self.marks = [
            Mark(T + 0.1, "START", JOB, 1, FIRST, "0.1"),
            Mark(T + 10.1, "CUT", JOB, 1, FIRST, "0.1"),
            Mark(T + 11.1, "START", JOB, 2, SECOND, "0.2"),
            Mark(T + 12, "EFFECT", JOB, 2, SECOND, "0.2"),
            Mark(T + 12.1, "END", JOB, 2, SECOND, "0.2", "0"),
        ]
        self.faults = [
            Fault("kill", "pilot", "pilot-01.1", T + 10, T + 10),
            Fault("stop", "store", "all nodes", T + 12.05, T + 12.08),
        ]
        self.cuts: list[tuple[float, str]] = []
        self.slowness: list[tuple[float, float]] = []
        self.batches = {"k": 1}
        self.told: dict[str, list[tuple[str, int]]] = {}
        self.others: list[dict[str, Any]] = []

    def publish(self, claim: str, attempt: int, *, content: str | None = None) -> dict[str, Any]:
        place = self.folder / f"0.{attempt}.{claim[:8]}"
        place.mkdir(exist_ok=True)
        data = (content or f"{JOB} 0.{attempt} {claim}\n").encode()
        (place / "result.txt").write_bytes(data)
        files = [{"path": "result.txt", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}]
        document = {"job": JOB, "generation": 0, "attempt": attempt, "claim": claim, "files": files}
        text = json.dumps(document).encode()
        (place / "manifest.json").write_bytes(text)
        return {"path": str(place / "manifest.json"), "sha256": hashlib.sha256(text).hexdigest()}

    def judge(self) -> Verdict:
        document = {
            "id": JOB, "tenant": "t", "state": self.state, "attempt": 2, "labels": {"batch": "k"},
            "history": self.history, "winner": self.winner,
        }  # fmt: skip
        jobs = [job_from(document, self.records), *(job_from(other, ()) for other in self.others)]
        named = [job.winner.manifest["path"] for job in jobs if job.winner and job.winner.manifest]
        evidence = Evidence(
            accepted=[Accepted(JOB, "t", self.kind)],
            batches=self.batches,
            jobs={job.id: job for job in jobs},
            marks=self.marks,
            faults=self.faults,
            cuts=self.cuts,
            published={path: read_published(path) for path in named},
            slowness=self.slowness,
            stories=self.told,
        )
        return Audit(evidence, LEASE).judge()


@pytest.fixture
def scenario(tmp_path: Path) -> JobScenario:
    return JobScenario(tmp_path)


LISTS = (
    "lost", "unfinished", "unnoticed", "unrecorded", "unpublished", "killed", "killed_in_outage", "false_orphans",
    "key_duplicates", "odd",
)  # fmt: skip


def found(verdict: Verdict) -> set[str]:
    """Which lists have something in them."""
    return {name for name in LISTS if getattr(verdict, name)}


def test_a_good_end_has_nothing_wrong(scenario: JobScenario) -> None:
    verdict = scenario.judge()
    assert found(verdict) == set()
    assert (verdict.starts, verdict.extra_attempts, verdict.through_outage) == (2, 1, 1)


def test_a_death_is_measured_when_all_else_is_calm(scenario: JobScenario) -> None:
    scenario.faults[1] = replace(scenario.faults[1], began=T + 200, ended=T + 200)
    verdict = scenario.judge()
    assert verdict.deaths == [pytest.approx(0.5)]
    scenario.faults.append(Fault("kill", "server", "server-1.1", T + 5, T + 9))
    assert scenario.judge().deaths == []


def test_a_death_is_judged_by_how_slow_the_machine_was_meanwhile(scenario: JobScenario) -> None:
    scenario.faults[1] = replace(scenario.faults[1], began=T + 200, ended=T + 200)
    scenario.slowness = [(T + 1, 9.0), (T + 10.2, 0.5), (T + 10.9, 2.5), (T + 20, 9.0)]
    verdict = scenario.judge()
    assert verdict.deaths == [pytest.approx(0.5)]
    assert verdict.paced_deaths == [pytest.approx(0.2)]
    scenario.slowness = [(T + 10.2, 0.5)]
    assert scenario.judge().paced_deaths == [pytest.approx(0.5)]


def test_figures_beyond_their_limits_are_complaints() -> None:
    verdict = Verdict(deaths=[0.4, 1.2], paced_deaths=[0.4, 1.2], silences=[1.2, 1.3], through_outage=1)
    assert len(verdict.complaints(death_limit=1.0, silence_limit=1.25)) == 2
    assert verdict.complaints(death_limit=2.0, silence_limit=None) == []
    assert len(Verdict().complaints(death_limit=1.0, silence_limit=1.25)) == 3


def test_an_accepted_job_that_is_not_there(scenario: JobScenario) -> None:
    evidence = Evidence([Accepted(JOB, "t", "short")], {}, {}, [], [])
    assert Audit(evidence, LEASE).judge().lost == ["j1 is not in the store"]


@pytest.mark.parametrize(("state", "name"), [("running", "lost"), ("faulted", "lost"), ("available", "unfinished")])
def test_a_job_that_is_not_final(scenario: JobScenario, state: str, name: str) -> None:
    scenario.state, scenario.winner = state, None
    scenario.history, scenario.marks = scenario.history[:3], scenario.marks[:2]
    assert found(scenario.judge()) == {name}


def test_a_wrong_final_state(scenario: JobScenario) -> None:
    scenario.kind = "broken"
    assert found(scenario.judge()) == {"odd"}


def test_a_start_that_the_story_does_not_have(scenario: JobScenario) -> None:
    scenario.marks.append(Mark(T + 12, "START", JOB, 2, "c" * 32, "0.2"))
    assert found(scenario.judge()) == {"unnoticed"}


def test_two_starts_for_one_claim(scenario: JobScenario) -> None:
    scenario.marks.append(scenario.marks[2])
    assert found(scenario.judge()) == {"unnoticed"}


def test_a_run_of_a_job_that_nobody_submitted(scenario: JobScenario) -> None:
    scenario.marks.append(Mark(T, "START", "j2", 1, "c" * 32, "0.1"))
    assert found(scenario.judge()) == {"unnoticed"}


def test_an_attempt_used_twice(scenario: JobScenario) -> None:
    scenario.history[3] = line(4, T + 11, "claim", "running", 1, "p-2", f"claim {SECOND} on pilot-02.1")
    assert "unnoticed" in found(scenario.judge())


def test_two_commits(scenario: JobScenario) -> None:
    scenario.history.append(line(6, T + 14, "adopt", "completed", 2, "p-1", f"late completion accepted; claim {FIRST}"))
    assert "unnoticed" in found(scenario.judge())


def test_a_claim_of_which_the_story_does_not_tell_the_end(scenario: JobScenario) -> None:
    del scenario.history[2]
    scenario.history = [(place + 1, *entry[1:]) for place, entry in enumerate(scenario.history)]
    assert found(scenario.judge()) == {"unrecorded"}


def test_a_story_that_the_servers_tell_otherwise(scenario: JobScenario) -> None:
    scenario.told[JOB] = [("create", 0), ("claim", 1), ("release", 1), ("claim", 2), ("complete", 2)]
    assert found(scenario.judge()) == set()
    del scenario.told[JOB][2]
    assert found(scenario.judge()) == {"unrecorded"}


def test_a_story_with_a_gap(scenario: JobScenario) -> None:
    scenario.history[0] = line(0, T - 1, "create", "available", 0, "ada", "")
    assert found(scenario.judge()) == {"unrecorded"}


def test_a_story_whose_beginning_is_in_a_chapter_has_no_gap(scenario: JobScenario) -> None:
    scenario.records.append({"kind": "chapter", "body": {"first": 1, "lines": scenario.history[:3]}})
    scenario.history = scenario.history[3:]
    assert found(scenario.judge()) == set()


def test_a_manifest_that_is_not_on_disk(scenario: JobScenario) -> None:
    Path(scenario.manifest["path"]).unlink()
    assert found(scenario.judge()) == {"unpublished"}


def test_a_manifest_that_was_changed(scenario: JobScenario) -> None:
    path = Path(scenario.manifest["path"])
    path.write_bytes(path.read_bytes() + b"\n")
    assert found(scenario.judge()) == {"unpublished"}


def test_an_output_that_was_changed(scenario: JobScenario) -> None:
    Path(scenario.manifest["path"]).with_name("result.txt").write_text("something else")
    assert found(scenario.judge()) == {"unpublished"}


def test_an_output_that_another_run_wrote(scenario: JobScenario) -> None:
    assert scenario.winner is not None
    scenario.winner["manifest"] = scenario.publish(SECOND, 2, content=f"{JOB} 0.1 {FIRST}\n")
    assert found(scenario.judge()) == {"unpublished"}


def test_the_manifest_of_a_run_that_did_not_win(scenario: JobScenario) -> None:
    assert scenario.winner is not None
    scenario.winner["manifest"] = scenario.publish(FIRST, 1)
    assert found(scenario.judge()) == {"unpublished"}


def test_a_winner_that_never_had_an_effect(scenario: JobScenario) -> None:
    del scenario.marks[3]
    assert found(scenario.judge()) == {"unpublished"}


def test_a_payload_that_nobody_killed(scenario: JobScenario) -> None:
    scenario.marks[4] = Mark(T + 12.1, "CUT", JOB, 2, SECOND, "0.2")
    assert found(scenario.judge()) == {"killed_in_outage"}
    scenario.faults.pop()
    assert found(scenario.judge()) == {"killed"}


def test_a_claim_taken_from_a_pilot_that_lives(scenario: JobScenario) -> None:
    scenario.faults.pop(0)
    scenario.marks[1] = Mark(T + 10.1, "END", JOB, 1, FIRST, "0.1", "0")
    assert found(scenario.judge()) == {"false_orphans"}
    scenario.cuts.append((T + 10, "p-1"))
    assert found(scenario.judge()) == set()


@pytest.mark.parametrize("seconds", [50.0, 90.0])
def test_silence_counts_only_beyond_the_lease(scenario: JobScenario, seconds: float) -> None:
    scenario.faults = [Fault("stop", "pilot", "pilot-01.1", T + 1, T + 1 + seconds)]
    scenario.history[2] = line(
        3, T + 73, "release", "available", 1, "orphan watch", f"its pilot fell silent; claim {FIRST}"
    )
    scenario.marks[1] = Mark(T + 10.1, "END", JOB, 1, FIRST, "0.1", "0")
    verdict = scenario.judge()
    assert found(verdict) == ({"false_orphans"} if seconds < LEASE else set())
    assert verdict.silences == ([] if seconds < LEASE else [pytest.approx(72 / LEASE)])


def test_a_claim_that_its_pilot_did_not_know_was_never_started(scenario: JobScenario) -> None:
    note = f"its pilot does not have the claim; claim {FIRST}"
    scenario.history[2] = line(3, T + 40, "release", "available", 1, "orphan watch", note)
    assert found(scenario.judge()) == {"false_orphans"}
    del scenario.marks[:2]
    assert found(scenario.judge()) == set()


def test_more_jobs_for_a_key_than_were_accepted(scenario: JobScenario) -> None:
    scenario.others.append({"id": "j2", "tenant": "t", "state": "available", "attempt": 0, "labels": {"batch": "k"},
                        "history": scenario.history[:1]})  # fmt: skip
    assert found(scenario.judge()) == {"key_duplicates"}


def test_a_fault_that_no_payload_had(scenario: JobScenario) -> None:
    scenario.history[2] = line(3, T + 10.5, "failure", "faulted", 1, "p-1", f"signal 9; claim {FIRST}")
    assert found(scenario.judge()) == {"odd"}


def test_a_process_that_ended_by_itself(scenario: JobScenario) -> None:
    scenario.faults.append(Fault("crash", "server", "server-1.2", T + 100, T + 100, "exit 1"))
    assert found(scenario.judge()) == {"odd"}
    scenario.faults[-1] = replace(scenario.faults[-1], began=T + 13)
    assert found(scenario.judge()) == set(), "a server may refuse to start while the store is away"
    scenario.faults[-1] = replace(scenario.faults[-1], what="pilot")
    assert found(scenario.judge()) == {"odd"}
