"""Results of earlier runs are found again, on every store: the same ones only, of the same tenant, as long as they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.room import Stores
from tests.sizes import examples
from tests.unit.services.data.test_committed_files import CLAIM, TOKEN, written

from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.file_digests import SharedFileDigests
from forestay.adapters.system.results import SharedResults
from forestay.domain.data.attempt_folder import committed_manifest_is_own
from forestay.domain.jobs.inputs import JobInput
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, JobDocument, State
from forestay.domain.jobs.lifecycle import words
from forestay.domain.jobs.reuse import expected_digests, result_job, reuse_note, why_run
from forestay.domain.jobs.specification import Effects, Specification
from forestay.domain.jobs.submission import JobElement, Submission, new_jobs
from forestay.ports.documents import DocumentStore
from forestay.ports.jobs.job_store import DocumentChange, JobStore, Written
from forestay.services.flows.result_reuse import KIND, ResultReuse, forget_results

REF = FlowRef("r", "align@1", "f", -1, 0, 1)


@dataclass
class Desk:
    """Makes jobs as runs do, and ends them."""

    jobs: JobStore
    documents: DocumentStore
    folder: Path
    made: int = 0
    spec: Specification = field(init=False)

    def __post_init__(self) -> None:
        self.spec = Specification(
            "s",
            "a",
            "align",
            ("align", "{x}"),
            inputs=(JobInput("in.txt", str(self.folder / "in.txt")),),
            outputs=("out",),
        )
        (self.folder / "in.txt").write_text("one")

    @property
    def reuse(self) -> ResultReuse:
        return ResultReuse(self.jobs, self.documents, SharedResults((self.folder,)), SharedFileDigests((self.folder,)))

    async def run(
        self,
        *,
        spec: Specification | None = None,
        parameters: Sequence[object] = ("p",),
        end: State | None = State.COMPLETED,
        again: bool = False,
    ) -> list[JobDocument]:
        """One run: its jobs are made, and end if they are not reused."""
        spec = spec or self.spec
        await self.jobs.put_specifications([spec])
        elements = []
        for at, value in enumerate(parameters):
            self.made += 1
            elements.append(JobElement(f"j-{self.made}", at, {"x": value}, REF._replace(place=at)))
        decided = await self.reuse.decide("flow/align", spec, elements, owner="ann", again=again)
        documents = list(new_jobs(Submission(spec, "ann"), decided, now=self.made, by="run:r"))
        ended = [document if document.final or end is None else self.ended(document, end) for document in documents]
        for result in await self.jobs.write([DocumentChange(document, None) for document in ended]):
            assert isinstance(result, Written)
        return ended

    def ended(self, document: JobDocument, state: State) -> JobDocument:
        if state is not State.COMPLETED:
            return replace(document, state=state)
        manifest = written(self.folder / document.tenant / document.id / "1.1.c0ffee00", out=document.id.encode())
        winner = AttemptResult(token=TOKEN, claim=CLAIM, outcome=AttemptOutcome.OK, reason="exit", manifest=manifest)
        return replace(document, state=state, winner=winner)


@pytest.fixture
def desk(stores: Stores, tmp_path: Path) -> Desk:
    return Desk(stores.jobs, stores.documents, tmp_path)


async def test_the_same_job_is_not_run_again(desk: Desk) -> None:
    (first,) = await desk.run()
    assert (why_run(first).reused, why_run(first).why) == (
        None,
        "no earlier result of this element of the task is known",
    )
    (again,) = await desk.run()
    assert (again.state, again.winner, again.attempt) == (State.COMPLETED, first.winner, 0)
    assert why_run(again).reused == first.id
    assert words(again.history[-1]) == f"The result of job {first.id} was reused; nothing was run."
    assert committed_manifest_is_own(again), "its outputs are those of the job that made them"
    (third,) = await desk.run()
    assert result_job(third) == first.id, "not of one that reused them itself"
    assert (await desk.jobs.get([third.id]))[third.id].document == third


async def test_another_byte_of_an_input_is_another_job_and_is_named(desk: Desk) -> None:
    (first,) = await desk.run()
    (desk.folder / "in.txt").write_text("onE")
    (again,) = await desk.run()
    assert again.winner != first.winner
    answer = why_run(again)
    assert (answer.reused, answer.differs, answer.nearest) == (None, ("input in.txt",), first.id)
    assert answer.why == f"not the same as in job {first.id}: input in.txt"
    (desk.folder / "in.txt").write_text("one")
    assert why_run((await desk.run())[0]).reused == first.id, "the first result is still known"


async def test_so_is_another_command_and_of_a_scatter_only_what_changed_runs(desk: Desk) -> None:
    await desk.run(parameters="pqr")
    again = await desk.run(parameters="pXr")
    assert [why_run(job).reused is not None for job in again] == [True, False, True]
    assert why_run(again[1]).differs == ("command", "parameter x")


async def test_a_file_that_a_parameter_names_counts(desk: Desk) -> None:
    path = desk.folder / "named.txt"
    path.write_text("1")
    await desk.run(parameters=[str(path)])
    assert why_run((await desk.run(parameters=[str(path)]))[0]).reused
    path.write_text("2")
    assert why_run((await desk.run(parameters=[str(path)]))[0]).differs == (f"file {path}",)
    path.unlink()
    (unknown,) = await desk.run(parameters=[str(path)])
    assert why_run(unknown).why == f"the content of {path} is not known before the job runs"


async def test_what_is_staged_must_be_what_the_key_was_made_of(desk: Desk) -> None:
    (first,) = await desk.run()
    assert expected_digests(first) == {"in.txt": SharedFileDigests((desk.folder,))._digest(str(desk.folder / "in.txt"))}


async def test_what_is_run_again_by_command_runs_and_its_result_is_reused_later(desk: Desk) -> None:
    (first,) = await desk.run()
    (again,) = await desk.run(again=True)
    assert (why_run(again).reused, why_run(again).why) == (None, "its task was run again in the same run")
    assert again.winner != first.winner
    assert why_run((await desk.run())[0]).reused == again.id


async def test_effects_outside_are_never_reused(desk: Desk) -> None:
    spec = replace(desk.spec, effects=Effects.EXTERNAL)
    await desk.run(spec=spec)
    (again,) = await desk.run(spec=spec)
    assert why_run(again).reused is None
    assert "effects are external" in why_run(again).why


@pytest.mark.parametrize("end", [State.FAILED, State.CANCELLED, State.FORCED_COMPLETE, None])
async def test_only_what_completed_is_reused(desk: Desk, end: State | None) -> None:
    await desk.run(end=end)
    (again,) = await desk.run()
    assert why_run(again).reused is None
    assert why_run((await desk.run())[0]).reused == again.id


async def test_outputs_that_are_gone_or_were_changed_are_not_reused(desk: Desk) -> None:
    (first,) = await desk.run()
    manifest = Path(first.winner.manifest.path) if first.winner and first.winner.manifest else Path()
    manifest.write_text("{}")
    (again,) = await desk.run()
    assert why_run(again).why == f"the outputs of job {first.id} cannot be read any more"


async def test_another_tenant_has_results_of_its_own(desk: Desk) -> None:
    (first,) = await desk.run()
    (other,) = await desk.run(spec=replace(desk.spec, tenant="b", id="s-b"))
    assert why_run(other).reused is None
    for job in (first, other):
        (stored,) = (await desk.documents.get([str(reuse_note(job)["place"])])).values()
        assert (stored.document.tenant, stored.document.kind) == (job.tenant, KIND)


async def test_entries_go_with_the_job_that_is_pruned(desk: Desk) -> None:
    (first,) = await desk.run()
    (second,) = await desk.run()
    names = [f"reuse:a:{reuse_note(first)['key']}", str(reuse_note(first)["place"])]
    await forget_results(desk.documents, [first])
    assert list(await desk.documents.get(names)) == names[1:], "the place is that of the second by now"
    await forget_results(desk.documents, [second])
    assert await desk.documents.get(names) == {}
    assert why_run((await desk.run())[0]).reused is None


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.binary(max_size=3), st.sampled_from("pq"), st.sampled_from(["", "E"])), min_size=2, max_size=6
    )
)
async def test_never_a_hit_when_any_input_byte_differs(runs: list[tuple[bytes, str, str]]) -> None:
    """Any order of runs with any contents, parameters and environment: a result is only that of the same ones."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        store = SqlJobStore(f"sqlite:///{folder / 'jobs.db'}")
        await store.open()
        try:
            desk = Desk(store, SqlDocumentStore(store.database), folder)
            made: dict[str, tuple[bytes, str, str]] = {}
            for number, asked in enumerate(runs):
                content, parameter, environment = asked
                (folder / "in.txt").write_bytes(content)
                spec = replace(desk.spec, id=f"s{number}", environment={"E": environment} if environment else {})
                (job,) = await desk.run(spec=spec, parameters=[parameter])
                made[job.id] = asked
                assert made[result_job(job)] == asked
                assert (why_run(job).reused is not None) == (asked in runs[:number])
        finally:
            await store.close()
