"""The words of a run's history."""

from __future__ import annotations

import pytest

from forestay.formats.flows.run_history import history_event_public


@pytest.mark.parametrize(
    ("kind", "facts", "task", "words"),
    [
        ("started", {"owner": "alice", "params": {"day": "mon"}}, "", "alice started the run with day='mon'"),
        ("submit_jobs", {"order": {"work": "align@1"}, "count": 80, "skip": "3"}, "align", "align: 78 jobs submitted"),
        ("start-shard", {"order": {"work": "a@1"}, "shard": 2, "start": {"count": 5000}}, "a", "a: shard 2 with 5,000 jobs started"),
        ("JobsEnded", {"work": "a@1", "well": "ff", "bad": "100"}, "a", "a: 9 jobs finished so far, 8 succeeded, 1 failed"),
        ("JobsEnded", {"work": "a@1", "bad": "1", "reason": "exit code 3"}, "a", "a: 1 job finished so far, 1 failed: exit code 3"),
        ("ShardEnded", {"work": "a@2", "shard": 1, "well": 4999, "bad": 1}, "a", "a: shard 1 finished, 4,999 jobs succeeded, 1 failed"),
        ("RunEnded", {"work": "s@1", "index": 3, "well": False, "reason": "late"}, "s", "s: sub-flow run 3 failed: late"),
        ("place_run", {"command": {"order": {"work": "s@1"}, "index": 2}}, "s", "s: sub-flow run 2 is placed in a domain"),
        ("place_run", {"command": {"order": {"work": "s@1"}, "index": 2}, "domain": "west", "chosen": False, "left": ["east", ""]}, "s", "s: sub-flow run 2 runs in domain west, before that in east, this domain"),
        ("place_run", {"command": {"order": {"work": "s@1"}}, "domain": "west", "chosen": True}, "s", "s: sub-flow run 0 is being sent to domain west"),
        ("place_run", {"command": {"order": {"work": "s@1"}}, "domain": "", "chosen": True, "left": []}, "s", "s: sub-flow run 0 runs in this domain"),
        ("Verb", {"by": "bob", "kind": "force-complete", "task": "a", "reason": "checked"}, "a", "bob requested: force complete a: checked"),
        ("Verb", {"by": "bob", "kind": "suspend"}, "", "bob requested: suspend the run"),
        ("steer_jobs", {"order": {"work": "a@1"}, "verb": "hold"}, "a", "a: its jobs are held"),
        ("report", {"kind": "deadline", "task": "a", "detail": "not done within 5 s"}, "a", "a: deadline: not done within 5 s"),
        ("ended", {"outcome": "forced_complete", "reason": ""}, "", "The run ended: forced complete"),
        ("something_new", {"work": "a@1"}, "a", "a: something new"),
    ],
)  # fmt: skip
def test_words(kind: str, facts: dict[str, object], task: str, words: str) -> None:
    assert history_event_public(0, kind, facts) == {
        "at": "1970-01-01T00:00:00.000Z", "kind": kind, "task": task, "words": words,
    }  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["start-shard", "start-run", "JobsEnded", "list_files", "tell_many", "ended", "Verb", "started"]
)
def test_facts_that_are_missing_or_odd_do_no_harm(kind: str) -> None:
    odd: list[dict[str, object]] = [{}, {"order": None, "well": "zz", "start": {}, "parent": {}, "targets": None}]
    for facts in odd:
        assert history_event_public(0, kind, facts)["words"]
