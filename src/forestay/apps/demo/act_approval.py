"""Paper P2: a failure that may pass is retried in levels; an approval is refused, and what was done is undone, the last first."""

from __future__ import annotations

from forestay.apps.demo.act import Act, ActResult, DemoStage
from forestay.client.api import run_calls

DONE = ["the slot is requested", "the slot is reserved", "the invoice is sent"]
UNDONE = ["the invoice is cancelled", "the reservation is cancelled", "the request is withdrawn"]


async def play(stage: DemoStage, result: ActResult) -> None:
    journal = stage.site.folder / "journal"
    run = await stage.start_run("slot", journal=str(journal))

    async def asked() -> str | None:
        questions = await stage.client.send(run_calls.questions())
        return next((str(question["id"]) for question in questions if question["run"] == run), None)

    question = await stage.until(asked, "the question")
    stack = await stage.client.send(run_calls.compensation_stack(run))

    async def refuse() -> None:
        await stage.client.send(run_calls.answer_question(question, {"approve": False}))

    await stage.visitor(f"open {stage.site.url}/inbox, choose Questions, and refuse the approval", refuse)

    async def over() -> bool:
        return bool((await stage.client.run(run))["ended"])

    await stage.until(over, "the end of the run", by_visitor=True)
    details = await stage.ended(run, "failed")
    lines = journal.read_text().splitlines()
    jobs = await stage.jobs(run=run)
    retries = [
        line["note"]
        for job in jobs
        for line in await stage.story(job)
        if line["by"].startswith("playbook:") and "retry policy" in line["note"]
    ]
    answer = await stage.client.send(run_calls.question(question))
    result.runs.append(run)
    result.figure("retries by levels of the retry policy", len(retries), "the stories of the jobs")
    result.figure("answer to the question", str(answer["answer"]), f"the question, answered by {answer['answered_by']}")
    result.figure("compensations on the stack before it", len(stack), "the run")
    result.figure("compensations left on it at the end", details["compensations"], "the run")
    for number, line in enumerate(lines[len(DONE) :], start=1):
        result.figure(f"undone as number {number}", line, "the journal of the system that the flow changed")
    result.summary = f"approval refused; {len(lines) - len(DONE)} compensations ran, the last first"
    stage.expect(retries, "the failure that may pass was not retried by the retry policy")
    stage.expect(details["compensations"] == 0, f"{details['compensations']} compensations did not run")
    stage.expect(len(stack) == len(UNDONE), f"{len(stack)} compensations are on the stack")
    stage.expect(lines == DONE + UNDONE, f"the journal says {lines}")


ACT = Act(
    "P2",
    "Retry levels and the compensation stack",
    "A failure that may pass is retried in levels, each with its own wait. What will not pass is undone: every step that changed something has a compensation on a stack, and they run last in, first out.",
    play,
)
