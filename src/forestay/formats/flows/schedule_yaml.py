"""Schedules in YAML: all errors are reported at once, with line and column."""

from __future__ import annotations

from dataclasses import dataclass, replace

from forestay.domain.flows.definition.flow_problem import Place
from forestay.domain.flows.definition.flow_version import LANGUAGE
from forestay.domain.flows.schedule import DAY, Overlap, RunSchedule, check_schedule
from forestay.formats.flows.yaml_flow import TextProblem, text_problems
from forestay.formats.text.document_fields import Fields, duration_of
from forestay.formats.text.yaml_text import read_yaml

FIELDS = ("flow", "cron", "params", "time_zone", "catch_up", "overlap", "paused", "note")


@dataclass(frozen=True, slots=True)
class SchedulesText:
    """The result of reading a text: schedules, each with its flow as it was written, or problems."""

    schedules: tuple[RunSchedule, ...] = ()
    problems: tuple[TextProblem, ...] = ()


def read_schedules(text: str) -> SchedulesText:
    """Read and check a file of schedules; the flow of each is the name of a file, a version, or the name of a Python flow."""
    document = read_yaml(text)
    fields = Fields()
    made: list[RunSchedule] = []
    if not document.findings:
        record = fields.record(
            document.value, (), ["forestay", "schedules"], what="a file of schedules", needed=["schedules"]
        )
        if record.get("forestay") != LANGUAGE or record.get("forestay") is True:
            fields.wrong((), f"add 'forestay: {LANGUAGE}', the version of this language")
        entries = fields.record(record.get("schedules", {}), ("schedules",), None, what="schedules by name")
        made = [_schedule(fields, name, data, ("schedules", name)) for name, data in entries.items()]
    findings = [*document.findings, *fields.findings]
    if not findings:
        for schedule in made:
            findings += [
                replace(problem, path=("schedules", schedule.name, *problem.path))
                for problem in check_schedule(schedule)
            ]
    problems = text_problems(document, findings)
    return SchedulesText(() if problems else tuple(made), problems)


def _schedule(fields: Fields, name: str, data: object, at: Place) -> RunSchedule:
    record = fields.record(data, at, FIELDS, what="a schedule", needed=["flow", "cron"])
    cron = record.get("cron", [])
    return RunSchedule(
        name=name,
        flow=fields.text(record.get("flow", "-"), (*at, "flow")),
        cron=tuple(fields.texts([cron] if isinstance(cron, str) else cron, (*at, "cron"))),
        params=fields.record(record.get("params", {}), (*at, "params"), None, what="parameters by name"),
        time_zone=fields.text(record.get("time_zone", "UTC"), (*at, "time_zone")),
        catch_up=fields.number_in(duration_of, record.get("catch_up", DAY), (*at, "catch_up")),
        overlap=fields.one_of(Overlap, record.get("overlap", Overlap.SKIP.value), (*at, "overlap")),
        paused=fields.truth(record.get("paused", False), (*at, "paused")),
        note=fields.text(record.get("note", ""), (*at, "note"), empty=True),
    )
