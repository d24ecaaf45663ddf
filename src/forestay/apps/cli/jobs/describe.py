"""`forestay describe`: everything about one job."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import elapsed, lasting, moment, read_moment, size
from forestay.apps.cli.jobs import squeue
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from datetime import datetime

    from forestay.client.api.schemas import Job, LastJson, StoredSpecificationJson

EFFECTS = {
    "external": "external: an attempt whose pilot lost its lease is killed, and after a stop a person decides",
    "resumable": "external, resumable: an attempt whose pilot lost its lease is killed, and runs again",
}
JOB = typer.Argument(metavar="JOB", help="The job's id, or the beginning of it.")


def describe(session: Session, job: Annotated[str, JOB]) -> None:
    """Show everything about a job.

    forestay describe 4f1c9d2a
    """
    name = session.job(job)
    found_job, specification = session.client.job(name), session.client.specification(name)
    if session.out.as_json:
        session.out.document({"job": found_job, "specification": specification})
        return
    sections = description(found_job, specification, session.client.now())
    width = max(len(label) for _, rows in sections for label, _ in rows)
    for number, (title, rows) in enumerate(sections):
        if number:
            session.out.data()
        session.out.data(session.out.paint(title, "bold"))
        for label, value in rows:
            session.out.folded(f"  {label:<{width}}  {neutral.line(value)}", width + 4)


def description(
    job: Job, specification: StoredSpecificationJson, now: datetime
) -> list[tuple[str, list[tuple[str, str]]]]:
    """A job in sections; empty sections are not shown."""
    index = "" if job["index"] is None else f" [{job['index']}]"
    about = [
        ("Id", job["id"]),
        ("Name", job["name"] + index),
        ("Owner", job["owner"] + (f", team {job['team']}" if job["team"] else "") + f", tenant {job['tenant']}"),
        ("Submitted", moment(job["created"])),
        ("Patterns", ", ".join(job["patterns"])),
    ]
    if job["labels"]:
        about.append(("Labels", ", ".join(f"{key}={value}" for key, value in sorted(job["labels"].items()))))
    if job["callback"]:
        callback = job["callback"]
        state = "called" if callback["done"] else f"not called yet ({callback['tries']} tries)"
        about.append(("Callback", f"{callback['url']}, {state}"))
    sections = [("Job", about), ("State", _status(job, now)), ("Command", _running(job, specification))]
    if job["last"]:
        sections.append(
            (f"Attempt {job['last'].get('attempt', '?')}, the last one that ended", ending(job["last"], job))
        )
    if job["winner"]:
        manifest = job["winner"]["manifest"]
        rows = [("From", f"attempt {job['winner']['attempt']}")]
        if manifest:
            rows += [
                ("Path", manifest["path"]),
                ("Files", f"{manifest['files']:,}, {size(manifest['bytes'])}"),
                ("Manifest", f"sha256 {manifest['sha256']}"),
            ]
        sections.append(("Outputs", rows))
    return sections


def _status(job: Job, now: datetime) -> list[tuple[str, str]]:
    phase = f", {job['phase']}" if job["phase"] else ""
    rows = [
        ("State", f"{job['state']}{phase}, since {moment(job['changed'])}"),
        ("Attempt", _attempts(job)),
        ("Priority", str(job["priority"])),
    ]
    if job["held"]:
        rows.append(("Held by", ", ".join(job["holders"])))
    if job["claim"]:
        claim = job["claim"]
        rows.append(
            ("Claimed", f"by pilot {claim['pilot']} on {claim['host']}, {lasting(squeue.time_used(job, now))} ago")
        )
        rows.append(("Claim", claim["id"]))
    elif job["state"] == "available":
        why = squeue.reason(job, now)
        waiting = str(job.get("waiting") or "") if squeue.waits_for(job) == why else ""
        rows.append(("Waits", waiting or (f"until {moment(job['not_before'])}" if why == "BeginTime" else "for a pilot with a free slot" if why == "Resources" else "until it is released")))  # fmt: skip
    if checkpoint := job.get("checkpoint"):
        manifest = checkpoint["manifest"]
        count = f"{manifest['files']:,} {'file' if manifest['files'] == 1 else 'files'}"
        since = read_moment(checkpoint["at"]) or now
        age = lasting(max(0.0, (now - since).total_seconds()))
        attempt = f"of attempt {checkpoint['attempt']}, {count}, {size(manifest['bytes'])}, {age} old"
        rows.append(("Checkpoint", attempt))
    if job["overlap_possible"]:
        rows.append(("Overlap", "an earlier attempt was given up without proof that its process has ended"))
    rows.append(("Version", f"{job['version']}, generation {job['generation']}"))
    return rows


def _attempts(job: Job) -> str:
    """Its attempts, and how many of them count against its maximum. One that lost its pilot, or was retried free of charge, does not."""
    charged = f"{job['attempt']}; {job['failures']} of at most {job['max_attempts']} charged"
    free = f", {job['releases']} free of charge (pilot lost, or a free retry)" if job["releases"] else ""
    return charged + free


def _running(job: Job, specification: StoredSpecificationJson) -> list[tuple[str, str]]:
    needs = job["resources"]
    nodes = needs.get("nodes", 1)
    wanted = [f"{nodes} nodes, each {needs.get('cpus', 1)} CPU" if nodes > 1 else f"{needs.get('cpus', 1)} CPU"]
    wanted += [f"{size(needs.get('memory', 0))} memory"] if needs.get("memory") else []
    wanted += [f"{size(needs.get('disk', 0))} disk"] if needs.get("disk") else []
    wanted += [f"{needs.get('gpus')} GPU"] if needs.get("gpus") else []
    wall = needs.get("wall")
    wanted += [f"at most {elapsed(wall)}"] if wall else []
    rows = [("Command", shlex.join(specification["command"]))]
    if specification.get("container"):
        rows.append(("Container", specification["container"]))
    if job["parameters"]:
        rows.append(("Parameters", ", ".join(f"{key}={value}" for key, value in sorted(job["parameters"].items()))))
    rows.append(("Needs", f"{', '.join(wanted)} (class {job['resource_class']})"))
    if job["expected_runtime"] is not None:
        rows.append(("Expected", f"{lasting(job['expected_runtime'])}; an alert is raised past it"))
    rows += [("Environment", f"{key}={value}") for key, value in sorted(specification.get("environment", {}).items())]
    rows += [
        ("Secret", f"{key} from {_secret(value)}") for key, value in sorted(specification.get("secrets", {}).items())
    ]
    if specification.get("outputs"):
        rows.append(("Outputs", ", ".join(specification.get("outputs", []))))
    if checkpoint := specification.get("checkpoint"):
        every = f", committed every {lasting(checkpoint.get('every', 0))}" if checkpoint.get("every") else ""
        signalled = f"SIG{checkpoint.get('signal', 'TERM')}, then {lasting(checkpoint.get('grace', 10))} to write them"
        rows.append(("Checkpoint", f"{', '.join(checkpoint['files'])}; {signalled}{every}"))
    if specification.get("effects") in EFFECTS:
        rows.append(("Effects", EFFECTS[specification["effects"]]))
    rows.append(("Specification", job["specification"]))
    return rows


def _secret(reference: str | dict[str, str]) -> str:
    if isinstance(reference, str):
        return reference
    return ", ".join(f"{source}:{name}" for source, name in reference.items() if source != "as") + ", as a file"


def ending(last: LastJson, job: Job) -> list[tuple[str, str]]:
    """How an attempt ended."""
    rows = [("Result", "succeeded" if last.get("outcome") == "ok" else f"failed: {in_words(last)}")]
    if last.get("started"):
        rows.append(("Started", moment(last.get("started"))))
    wall, cpu, peak = last.get("wall"), last.get("cpu"), last.get("peak_memory")
    if wall is not None:
        busy = f", {cpu:.1f} s of CPU" if cpu is not None else ""
        rows.append(("Ran", lasting(wall) + busy))
    if peak is not None:
        asked = job["resources"].get("memory") or 0
        rows.append(("Peak memory", size(peak) + (f" of {size(asked)} requested" if asked else "")))
    if last.get("image"):
        rows.append(("Image", str(last.get("image"))))
    if last.get("host"):
        rows.append(("Host", last.get("host", "")))
    return rows


def in_words(last: LastJson) -> str:
    """How an attempt ended, in a few words."""
    reason, code, signal = last.get("reason"), last.get("exit_code"), last.get("signal")
    words = {
        "start-failed": "the command could not be started",
        "image-failed": "its container image could not be prepared",
        "secret-failed": "one of its secrets could not be read",
        "output-missing": "a required output is missing",
        "output-failed": "its outputs could not be stored",
        "cancelled": "it was stopped",
        "wall-limit": "it exceeded its time limit",
        "not-started": "the pilot returned it",
        "pilot-stopped": "its pilot was stopped",
    }.get(reason or "")
    if words:
        return words
    if signal:
        return f"killed by signal {signal}"
    return f"exit code {code}" if code is not None else reason or "unknown"
