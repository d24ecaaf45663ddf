"""A run as an RO-Crate: what was run, on which inputs, by whom, every attempt, the failures and the rules that answered them.

The crate follows the profiles of Workflow Run RO-Crate (process, workflow and provenance run crate). Where they lack a term, schema.org's terms are used: a failed attempt
is an action with its error, and an incident an `AssessAction` on it, whose instrument is the rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Json = dict[str, Any]

CONTEXT = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
FLOW = "flow.yaml"
PYTHON = "flow.py"
ENGINE = "#forestay"
DONE = {"completed": "Completed", "forced_complete": "Completed", "failed": "Failed", "cancelled": "Failed"}
_BEGAN = frozenset({"claim"})
_ENDED = {"complete": "Completed", "adopt": "Completed", "failure": "Failed", "release": "Failed"}


def crate(
    run: Mapping[str, Any],
    flow: Mapping[str, Any],
    jobs: Sequence[Mapping[str, Any]],
    stories: Mapping[str, Sequence[Mapping[str, Any]]],
    incidents: Sequence[Mapping[str, Any]],
    *,
    version: str,
    made: str,
    licence: str,
) -> Json:
    """The metadata document. `stories` has those of jobs that had more than one attempt, by their ids."""
    graph = _graph(run, flow, jobs, stories, incidents, version, made, licence)
    return {"@context": CONTEXT, "@graph": [_plain(entity) for entity in graph]}


def _plain(entity: Json) -> Json:
    """A value in RO-Crate's conventions: no lists of one element, no empty lists, and times with their offset."""
    values: Json = {}
    for name, value in entity.items():
        if isinstance(value, list):
            if len(value) > 1:
                values[name] = value
            elif value:
                values[name] = value[0]
        elif name.endswith("Time"):
            values[name] = str(value).replace("Z", "+00:00")
        else:
            values[name] = value
    return values


def flow_file(flow: Mapping[str, Any]) -> str:
    """The name of the flow's text in the crate."""
    return PYTHON if flow.get("language") == "python" else FLOW


def _graph(
    run: Mapping[str, Any],
    flow: Mapping[str, Any],
    jobs: Sequence[Mapping[str, Any]],
    stories: Mapping[str, Sequence[Mapping[str, Any]]],
    incidents: Sequence[Mapping[str, Any]],
    version: str,
    made: str,
    licence: str,
) -> Iterator[Json]:
    file, run_ref, person = flow_file(flow), f"#run-{run['id']}", f"#person-{run['owner']}"
    tasks = sorted({str(task["task"]) for task in run["tasks"]})
    actions = [*_job_actions(run, jobs, stories, person)]
    failures = [*_incidents(incidents, {action["@id"] for action in actions})]
    controls = [*_controls(run, actions)]
    yield {
        "@id": "ro-crate-metadata.json",
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": [
            _ref("https://w3id.org/ro/crate/1.1"),
            _ref("https://w3id.org/workflowhub/workflow-ro-crate/1.0"),
        ],
    }
    yield {
        "@id": "./",
        "@type": "Dataset",
        "name": f"{run['name']}, run {run['id']}",
        "description": _told(run, jobs, incidents),
        "datePublished": made,
        "license": _ref(_licence_id(licence)),
        "author": _ref(person),
        "conformsTo": [_ref(profile) for profile in PROFILES],
        "hasPart": [_ref(file)],
        "mainEntity": _ref(file),
        "mentions": [
            _ref(run_ref),
            *(_ref(entity["@id"]) for entity in [*actions, *failures] if entity["@type"] != "CreativeWork"),
        ],
    }
    yield {"@id": _licence_id(licence), "@type": "CreativeWork", "name": licence}
    for profile, name in PROFILES.items():
        yield {"@id": profile, "@type": "CreativeWork", "name": name, "version": profile.rpartition("/")[2]}
    yield {
        "@id": file,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
        "name": run["name"],
        "version": run["version"],
        "encodingFormat": "text/x-python" if file == PYTHON else "application/yaml",
        "conformsTo": _ref("https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"),
        "programmingLanguage": _ref("#language"),
        "input": [_ref(f"#param-{name}") for name in run["params"]],
        "output": [_ref(f"#output-{name}") for name in run["outputs"]],
        "step": [_ref(f"{file}#{task}") for task in tasks],
        "hasPart": [_ref(f"#tool-{task}") for task in tasks],
    }
    language = "Python" if file == PYTHON else "Forestay flow"
    yield {"@id": "#language", "@type": "ComputerLanguage", "name": language, "version": version}
    yield {
        "@id": ENGINE,
        "@type": "SoftwareApplication",
        "name": "Forestay",
        "softwareVersion": version,
        "description": "Keeps job flows going when jobs, nodes, data, networks and schedulers fail.",
    }
    yield {"@id": person, "@type": "Person", "name": run["owner"]}
    yield from _values("param", run["params"])
    yield from _values("output", run["outputs"])
    for place, task in enumerate(tasks):
        yield {
            "@id": f"{file}#{task}",
            "@type": "HowToStep",
            "name": task,
            "position": str(place),
            "workExample": _ref(f"#tool-{task}"),
        }
        yield {
            "@id": f"#tool-{task}",
            "@type": "SoftwareApplication",
            "name": task,
            "softwareVersion": f"of the flow {run['version'][:12]}",
        }
    yield _ended(
        {
            "@id": run_ref,
            "@type": "CreateAction",
            "name": f"{run['name']} of {run['owner']}",
            "description": _told(run, jobs, incidents),
            "instrument": _ref(file),
            "agent": _ref(person),
            "object": [_ref(f"#param-{name}-value") for name in run["params"]],
            "result": [_ref(f"#output-{name}-value") for name in run["outputs"]],
            "startTime": run["started"],
        },
        DONE.get(run["state"], "Active"),
        run["ended"],
        str(run.get("reason") or ""),
    )
    yield {
        "@id": f"#organised-{run['id']}",
        "@type": "OrganizeAction",
        "name": f"Forestay ran {run['name']}",
        "agent": _ref(person),
        "instrument": _ref(ENGINE),
        "object": [_ref(control["@id"]) for control in controls],
        "result": _ref(run_ref),
        "startTime": run["started"],
        **({"endTime": run["ended"]} if run["ended"] else {}),
    }
    yield from (control | {"instrument": _ref(f"{file}#{control.pop('task')}")} for control in controls)
    yield from actions
    yield from failures


def _licence_id(licence: str) -> str:
    return licence if "://" in licence else "#licence"


def _ref(name: str) -> Json:
    return {"@id": name}


def _ended(action: Json, status: str, at: str | None, error: str = "") -> Json:
    action["actionStatus"] = f"http://schema.org/{status}ActionStatus"
    if at:
        action["endTime"] = at
    if error and status == "Failed":
        action["error"] = error
    return action


def _values(kind: str, values: Mapping[str, Any]) -> Iterator[Json]:
    for name, value in values.items():
        yield {
            "@id": f"#{kind}-{name}",
            "@type": "FormalParameter",
            "additionalType": _type_of(value),
            "name": name,
            "conformsTo": _ref("https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"),
            "workExample": _ref(f"#{kind}-{name}-value"),
        }
        yield {
            "@id": f"#{kind}-{name}-value",
            "@type": "PropertyValue",
            "name": name,
            "value": value if isinstance(value, str | int | float | bool) else json.dumps(value, sort_keys=True),
            "exampleOfWork": _ref(f"#{kind}-{name}"),
        }


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "Boolean"
    return {int: "Integer", float: "Float"}.get(type(value), "Text")


def _task_of(job: Mapping[str, Any], tasks: Mapping[str, str]) -> str:
    """The task that a job belongs to: a job's work is its task and the round of it."""
    task = str(job["work"] or job["name"]).rpartition("@")[0] or str(job["name"])
    return tasks.get(task, task)


def _attempts(story: Iterable[Mapping[str, Any]]) -> dict[int, Json]:
    """When each attempt began and how it ended."""
    attempts: dict[int, Json] = {}
    for line in story:
        attempt = int(line["attempt"])
        if line["event"] in _BEGAN:
            attempts[attempt] = {
                "startTime": line["at"],
                "host": str(line["note"]).partition(" on ")[2].partition(", ")[0],
            }
        elif line["event"] in _ENDED and attempt in attempts:
            _ended(attempts[attempt], _ENDED[line["event"]], line["at"], str(line["words"]))
    return attempts


def _job_actions(
    run: Mapping[str, Any],
    jobs: Sequence[Mapping[str, Any]],
    stories: Mapping[str, Sequence[Mapping[str, Any]]],
    person: str,
) -> Iterator[Json]:
    tasks = {str(task["id"]): str(task["task"]) for task in run["tasks"]}
    for job in jobs:
        task, last = _task_of(job, tasks), job["last"] or {}
        base = {"@type": "CreateAction", "instrument": _ref(f"#tool-{task}"), "agent": _ref(person), "task": task}
        attempts = _attempts(stories.get(job["id"], ()))
        for number, facts in attempts.items():
            if number == job["attempt"]:
                continue
            host = facts.pop("host")
            name = f"{job['name']}, attempt {number}" + (f" on {host}" if host else "")
            yield {"@id": f"#job-{job['id']}-{number}", "name": name, "description": name, **base, **facts}
        attempt = job["attempt"] or 1
        final = {
            "@id": f"#job-{job['id']}-{attempt}",
            "name": f"{job['name']}, attempt {attempt}",
            "description": f"{job['name']}, attempt {attempt}, which is {job['state']}",
            **base,
            "startTime": attempts.get(attempt, {}).get("startTime") or last.get("started") or job["created"],
        }
        note = f"{last.get('reason') or ''} exit code {last.get('exit_code')}".strip()
        yield _ended(final, DONE.get(job["state"], "Active"), job["changed"] if job["state"] in DONE else None, note)


def _controls(run: Mapping[str, Any], actions: Sequence[Json]) -> Iterator[Json]:
    """One control action for each task: the engine's request, and the resulting runs."""
    runs: dict[str, list[str]] = {}
    for action in actions:
        runs.setdefault(action.pop("task"), []).append(action["@id"])
    known = {str(task["task"]) for task in run["tasks"]}
    for task, made in runs.items():
        if task in known:
            yield {
                "@id": f"#control-{task}",
                "@type": "ControlAction",
                "name": f"Run {task}",
                "task": task,
                "object": [_ref(name) for name in made],
            }


def _incidents(incidents: Sequence[Mapping[str, Any]], actions: set[str]) -> Iterator[Json]:
    """Each incident as an assessment of the attempt that it is about, with the rules that answered."""
    rules: dict[str, Json] = {}
    for incident in incidents:
        attempt = f"#job-{incident['job']}-{incident['attempt']}"
        names = [*_decided(incident)]
        for decision in incident["decisions"]:
            rule = str(decision["detail"].get("rule") or "")
            if rule:
                name = f"#rule-{rule}"
                rules[name] = {"@id": name, "@type": "CreativeWork", "name": f"rule {rule}"}
        used = [f"#rule-{d['detail']['rule']}" for d in incident["decisions"] if d["detail"].get("rule")]
        yield {
            "@id": f"#incident-{incident['id']}",
            "@type": "AssessAction",
            "name": f"{incident['type']}: {incident['cause']}",
            "description": " ".join(names),
            "startTime": incident["at"],
            **({"object": _ref(attempt)} if attempt in actions else {}),
            "instrument": [_ref(name) for name in dict.fromkeys(used)] or _ref(ENGINE),
        }
    yield from rules.values()


def _decided(incident: Mapping[str, Any]) -> Iterator[str]:
    for decision in incident["decisions"]:
        yield f"Decided {decision['verdict']} by {decision['by']}."
    for step in incident["steps"]:
        yield f"{step['action']}: {step['state']} {step['detail']}".strip() + "."
    yield f"It is {incident['state']}."


def _told(run: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]], incidents: Sequence[Mapping[str, Any]]) -> str:
    again = sum(1 for job in jobs if job["attempt"] > 1)
    return (
        f"A run of {run['name']} for {run['owner']}, which is {run['state']}: {len(jobs)} jobs, {again} of them tried more than once, "
        f"{len(incidents)} incidents."
    )
