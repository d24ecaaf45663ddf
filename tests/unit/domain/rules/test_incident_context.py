"""What an incident tells is what conditions may ask about."""

from __future__ import annotations

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.rules.context import read_context, told_by


def test_an_incident_is_read_as_a_context_and_nothing_of_it_is_wrong() -> None:
    incident = Incident(
        "i1", "lab", "ada", ExceptionType.ABORT, 5, run="c1", instance="align:1", job="j1", attempt=2, cause="memory", flow="f" * 64,
        context={
            "job": {
                "name": "align_1", "labels": {"queue": "long"}, "priority": 3, "attempt": 2, "failures": 1, "releases": 0, "max_attempts": 3,
                "index": None, "team": "", "resources": {"cpus": 4, "memory": 1 << 30, "disk": 0, "gpus": 0, "wall": 60},
            },
            "evidence": {"exit_code": 137, "log_tail": "one\nKilled", "oom_kills": 1},
            "finding": {"cause": "memory", "confidence": 0.9, "retry": "changed", "pattern": None, "words": "…", "lines": [], "also": []},
            "tasks": {"align": "faulted"},
        },
    )  # fmt: skip
    context, wrong = read_context(told_by(incident))
    assert wrong == ()
    expected = {
        "cause": "memory", "confidence": 0.9, "retry": "changed", "pattern": "", "job.id": "j1", "job.owner": "ada", "job.name": "align_1",
        "job.labels": {"queue": "long"}, "job.attempt": 2, "job.memory": 1 << 30, "job.cpus": 4, "job.wall": 60, "job.index": None,
        "evidence.exit_code": 137, "evidence.log_tail": ["one", "Killed"], "evidence.oom_kills": 1, "evidence.signal": None,
        "tasks": {"align": "faulted"}, "run.id": "c1", "task.name": "align:1", "exception.task": "align", "exception.type": "abort",
    }  # fmt: skip
    assert {name: context[name] for name in expected} == expected
