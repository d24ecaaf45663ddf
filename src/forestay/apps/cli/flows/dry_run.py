"""`forestay run --dry-run`: what a run would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting, number_of, size
from forestay.apps.cli.columns import Column, folded, table
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

SHOWN = 5
"""The most missing inputs of a task that are named."""


def show_dry_run(session: Session, forecast: Mapping[str, Any]) -> ExitCode:
    """Show what a run would do; exit code 1 if it could not be started, or inputs are missing."""
    out = session.out
    if out.as_json:
        out.document({"dry_run": dict(forecast)})
    else:
        for line in dry_run_lines(forecast, out.page_width):
            out.data(line)
    return ExitCode.FAILED if forecast["problems"] or forecast["missing"] else ExitCode.OK


def dry_run_lines(forecast: Mapping[str, Any], width: int) -> Iterator[str]:
    tasks: Sequence[Mapping[str, Any]] = forecast["tasks"]
    open_ = any(task["jobs"] is None for task in tasks)
    jobs = number_of(forecast["jobs"], "job") + (" or more" if open_ else "")
    yield f"{neutral.line(forecast['name'])}: {number_of(len(tasks), 'task')}, {jobs}. Nothing was started."
    if forecast["grown"]:
        yield "A Python flow names its tasks only as it runs."
    if tasks:
        columns = [
            Column("TASK", flexible=True),
            Column("AFTER", flexible=True),
            Column("JOBS", right=True),
            Column("CPUS", right=True),
            Column("MEMORY", right=True),
            Column("WALL", right=True),
            Column("ATTEMPTS", right=True),
        ]
        if forecast["reuse"]:
            columns.append(Column("REUSED", right=True))
        rows = [_row(task)[: len(columns)] for task in tasks]
        yield from table(columns, rows, width=width)
    for text in _remarks(forecast):
        yield from folded(neutral.line(text), width, 2)


def _row(task: Mapping[str, Any]) -> list[str]:
    needs, retry, reuse = task["resources"] or {}, task["retry"] or {}, task["reuse"]
    count = "?" if task["jobs"] is None else f"{task['jobs']:,}" if task["jobs"] or task["kind"] == "job" else "-"
    return [
        "  " * len(task["inside"]) + task["name"],
        ",".join(task["after"]) or "-",
        "0" if task["runs"] is False else count,
        str(needs.get("cpus", "-")),
        size(needs["memory"]) if needs.get("memory") else "-",
        lasting(needs["wall"]) if needs.get("wall") else "-",
        str(retry.get("max_attempts", "-")),
        "-" if reuse is None else f"{reuse['reused']:,}" + (f", {reuse['open']:,} open" if reuse["open"] else ""),
    ]


def _remarks(forecast: Mapping[str, Any]) -> Iterator[str]:
    for problem in forecast["problems"]:
        yield f"Cannot start: {problem}"
    if forecast["holders"]:
        yield f"Held: {', '.join(forecast['holders'])} holds all runs of this flow; the run would wait"
    for task in forecast["tasks"]:
        yield from _task_remarks(task)
    for count in forecast["rules"]:
        whose = {"": "the run", "*": "any task"}.get(count["task"], f"task {count['task']}")
        yield f"Rules of {count['rule_set']}: {count['type']} of {whose}: {count['active']} active, {count['shadow']} in shadow"
    if not forecast["rules"]:
        yield "Rules: none"
    waits = ", ".join(lasting(seconds) if seconds else "0 s" for seconds in forecast["free_tries"])
    yield "Without a rule: up to ATTEMPTS attempts of a job" + (
        f"; infrastructure failures are retried {len(forecast['free_tries'])} times besides, after {waits}"
        if waits
        else ""
    )


def _task_remarks(task: Mapping[str, Any]) -> Iterator[str]:
    name, reuse, inputs = task["name"], task["reuse"], task["inputs"]
    if task["kind"] != "job":
        yield f"{name}: {task['kind']}"
    if task["runs"] is False:
        yield f"{name}: skipped; its condition does not hold: {task['condition']}"
        return
    if task["runs"] is None:
        yield f"{name}: runs only if {task['condition']}"
    if task["open"]:
        yield f"{name}: number of jobs not known: {task['open']}"
    if task["inside"]:
        rounds = f", at most {task['rounds']} times" if task["rounds"] > 1 else ""
        branch = f", branch {task['branch']}" if task["branch"] else ""
        yield f"{name}: inside {task['inside'][-1]}{branch}{rounds}"
    if inputs is not None and inputs["missing_count"]:
        missing: Sequence[str] = inputs["missing"][:SHOWN]
        more = inputs["missing_count"] - len(missing)
        yield f"{name}: missing inputs: {', '.join(missing)}" + (f" and {more:,} more" if more else "")
    if inputs is not None and inputs["elsewhere"]:
        yield f"{name}: {number_of(inputs['elsewhere'], 'input')} cannot be checked from the server"
    if reuse is not None and reuse["why"]:
        yield f"{name}: {'would run' if reuse['run'] else 'reuse not known'}: {reuse['why']}"
    if task["when_failed"] not in ("", "fail"):
        yield f"{name}: when it fails: {task['when_failed']}"
    if task["tolerate"]:
        yield f"{name}: tolerates {number_of(task['tolerate'], 'failed job')}"
