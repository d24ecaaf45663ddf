"""Paper P1: a failure that nobody knows is answered by a rule that is written while eleven jobs wait; an event from outside suspends all runs of a flow until a worklet has repaired what was wrong."""

from __future__ import annotations

from datetime import datetime

from forestay.apps.demo.act import FINAL, Act, ActResult, DemoStage
from forestay.client.api import rule_calls, run_calls
from forestay.client.api.schemas import IncidentJson, IncidentWhole

WAITING = 11
WORDS = "zorp: table 4 is being rebuilt"
CONDITION = 'evidence.log_tail.exists(line, line.contains("is being rebuilt"))'
TRIGGER = "the calibration is wrong"
RUNS = 3
FLOW, WORKLET = "demo-analysis", "demo-recalibrate"


async def play(stage: DemoStage, result: ActResult) -> None:
    await _unknown_failure(stage, result)
    first = result.summary
    await _outside_event(stage, result)
    result.summary = f"{first}; {result.summary}"


async def _unknown_failure(stage: DemoStage, result: ActResult) -> None:
    table = stage.site.folder / "table-4"
    script = f'test -e "{table}" && exit 0; echo "{WORDS}"; exit 9'
    accepted = await stage.client.submit(
        [{"index": number} for number in range(WAITING)],
        {"name": "read-table", "command": ["sh", "-c", script], "max_attempts": 1, "when_exhausted": "hold"},
    )
    ids = [job["id"] for job in accepted]

    async def held() -> list[IncidentJson] | None:
        incidents = [entry for entry in await stage.find_incidents(state="held") if entry["job"] in ids]
        return incidents if len(incidents) == WAITING else None

    waiting = await stage.until(held, f"{WAITING} failures to wait for a person")
    table.touch()
    stage.show(f"  {WAITING} jobs wait for a person. Cause: {waiting[0]['cause']}. They printed: {WORDS}")
    incident = waiting[0]["id"]

    async def write_rule() -> None:
        draft = {
            "type": "abort",
            "condition": CONDITION,
            "conclusion": {"steps": [{"action": "resubmit", "wait": 1}]},
            "reference_incident": incident,
            "description": "The table is there again after a moment.",
        }
        rule = (await stage.client.send(rule_calls.add_rule("domain/site", draft)))["rule"]
        replay = await stage.client.send(rule_calls.replay_rules("domain/site", {}))
        stage.show(
            f"  The replay of the new rule over {replay['incidents']} failures changes {replay['differs']} decisions"
        )
        await stage.client.send(rule_calls.set_rule_state("domain/site", rule, "active"))

    await stage.visitor(
        f"open {stage.site.url}/rules/domain/site?from={incident}, write the rule (the condition {CONDITION} and the step "
        "resubmit), add it, look at its replay, and promote it",
        write_rule,
    )

    async def done() -> bool:
        jobs = await stage.jobs(id=ids)
        return all(job["state"] in FINAL for job in jobs) and len(jobs) == WAITING

    await stage.until(done, "the waiting jobs to go on", by_visitor=True)
    jobs = await stage.jobs(id=ids)
    answered = [entry for entry in await stage.incidents(state="complete") if entry["job"] in ids]
    by_rule = [entry for entry in answered if entry["decisions"][-1]["by"].startswith("domain/site#")]
    (version, *_) = [
        entry for entry in await stage.client.send(rule_calls.rule_versions("domain/site")) if entry["replayed"]
    ]
    completed = sum(job["state"] == "completed" for job in jobs)
    result.figure("jobs that waited for a person", len(waiting), "their incidents")
    result.figure(
        "causes that Forestay knew for them", sum(entry["cause"] != "unknown" for entry in waiting), "their incidents"
    )
    result.figure(
        "recorded failures in the replay of the promotion",
        version["replayed"]["incidents"],
        "the version of the rule set",
    )
    result.figure("of them it answers otherwise", version["replayed"]["differs"], "the version of the rule set")
    result.figure(
        "of these known to be wrong", version["replayed"]["rule"].get("wrong", 0), "the version of the rule set"
    )
    result.figure("incidents answered by the new rule", len(by_rule), "their decisions")
    result.figure("waiting jobs that completed", completed, "the jobs")
    result.summary = f"{len(waiting)} jobs waited, one rule was written and replayed, {completed} went on"
    stage.expect(all(entry["cause"] == "unknown" for entry in waiting), "Forestay knew the cause of the failures")
    stage.expect(completed == WAITING, f"{completed} of {WAITING} waiting jobs completed")
    stage.expect(len(by_rule) == WAITING, f"{len(by_rule)} of {WAITING} incidents were answered by the rule")


async def _outside_event(stage: DemoStage, result: ActResult) -> None:
    data, calibration = stage.site.folder / "data", stage.site.folder / "calibration"
    worklet = await stage.store_flow("recalibrate")
    steps = [
        {"action": "suspend", "target": "all-runs"},
        {"action": "compensate", "worklets": [{"flow": worklet, "give": {"calibration": str(calibration)}}]},
        {"action": "continue", "target": "all-runs"},
    ]
    draft = {
        "type": "run-external",
        "condition": f'exception.trigger == "{TRIGGER}"',
        "conclusion": {"steps": steps},
        "reference_incident": "example-calibration",
        "context": {"exception": {"trigger": TRIGGER}},
        "description": "Nothing is fitted until the calibration was measured again.",
    }
    rule = (await stage.client.send(rule_calls.add_rule(f"flow/{FLOW}", draft)))["rule"]
    await stage.client.send(rule_calls.set_rule_state(f"flow/{FLOW}", rule, "active"))
    runs = [await stage.start_run("analysis", data=str(data)) for _ in range(RUNS)]

    async def offered() -> bool:
        running = [await stage.jobs(run=run, state="running") for run in runs]
        triggers = await stage.client.send(run_calls.triggers(runs[0]))
        return all(running) and any(trigger["name"] == TRIGGER for trigger in triggers)

    await stage.until(offered, "the runs to read, and the trigger to be offered")

    async def raise_event() -> None:
        await stage.client.send(run_calls.raise_exception(runs[0], trigger=TRIGGER))

    await stage.visitor(f"open {stage.site.url}/runs/{runs[0]} and press “Raise {TRIGGER}”", raise_event)

    async def suspended() -> bool:
        steps = [step for incident in await stage.incidents(run=runs[0]) for step in incident["steps"]]
        return any(step["action"] == "suspend" and step["state"] == "done" for step in steps)

    await stage.until(suspended, "all runs to be suspended", by_visitor=True)
    data.touch()
    details = [await stage.ended(run) for run in runs]

    async def complete() -> IncidentWhole | None:
        return next(iter(await stage.incidents(run=runs[0], state="complete")), None)

    incident = await stage.until(complete, "the end of the playbook")
    (worklet_run,) = (await stage.client.send(run_calls.find_runs({"name": WORKLET}))).runs
    repaired = datetime.fromisoformat(str(worklet_run["ended"]))
    # The job of a task that comes next is created meanwhile, but no pilot may claim it.
    fits = [job for run in runs for job in await stage.jobs(run=run, name="fit")]
    claims = [line["at"] for job in fits for line in await stage.story(job) if line["event"] == "claim"]
    early = [at for at in claims if datetime.fromisoformat(at) < repaired]
    held = len(fits) - len(early)
    done = [step["action"] for step in incident["steps"] if step["state"] == "done"]
    completed = sum(run["state"] == "completed" for run in details)
    result.runs += [*runs, worklet_run["id"]]
    result.figure("runs whose next job waited for the repair", held, "the stories of the jobs")
    result.figure("worklets that repaired", int(worklet_run["state"] == "completed"), "the run of the worklet")
    result.figure("jobs that were claimed before the repair", len(early), "the stories of the jobs")
    result.figure("runs that continued and completed", completed, "the runs")
    result.summary = f"an event suspended {held} runs, a worklet repaired, {completed} completed"
    stage.expect(done == ["suspend", "continue"], f"the playbook did {done}")
    stage.expect(calibration.exists(), "the worklet repaired nothing")
    stage.expect(len(fits) == len(runs) and not early, "a run went on before the repair")


ACT = Act(
    "P1",
    "Rules, worklets and events from outside",
    "What to do about a failure is a rule, kept apart from the flow. A new rule is replayed over the recorded failures before it may act, and jobs that already wait go on by it; nothing is restarted. Events from outside are answered in the same way, for one run or for all runs of a flow.",
    play,
)
