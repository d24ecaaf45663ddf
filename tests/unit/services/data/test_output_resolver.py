"""The outputs of the elements that another scatter takes up one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.services.data.test_committed_files import CLAIM, TOKEN, written

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.results import SharedResults
from forestay.domain.flows.execution.run_names import job_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, State
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.data.output_resolver import OutputResolver

SPEC = Specification("s", "a", "make", ("make",), outputs=("*.dat",), named_outputs={"out": "*.dat"})
WANTED = {"$elements": {"run": "r", "work": "make@2", "output": "out", "earlier": ["make@1"]}}


async def resolver(folder: Path, **files: dict[str, bytes]) -> OutputResolver:
    """Jobs that have made these files, named by their round and number."""
    store = SqlJobStore(f"sqlite:///{folder / 'jobs.db'}")
    await store.open()
    await store.put_specifications([SPEC])
    for name, made in files.items():
        work, _, number = name.partition("_")
        job = job_of("r", f"make@{work[1:]}", int(number))
        manifest = written(folder / "a" / job / "1.1.c0ffee00", **made)
        winner = AttemptResult(token=TOKEN, claim=CLAIM, outcome=AttemptOutcome.OK, reason="exit", manifest=manifest)
        document = new_job(Submission(SPEC, "ann", index=int(number)), job=job, now=1, by="ann")
        await store.write([DocumentChange(replace(document, state=State.COMPLETED, winner=winner), None)])
    return OutputResolver(store, SharedResults((folder,)))


async def test_each_element_is_made_of_the_file_with_its_number_from_the_newest_round(tmp_path: Path) -> None:
    outputs = await resolver(
        tmp_path, w1_0={"a.dat": b"1"}, w1_1={"b.dat": b"1"}, w2_1={"c.dat": b"1"}, w1_2={"d.dat": b"1"}
    )
    made = await outputs.referred("a", "r", [WANTED], [0, 1])
    places = made.places(WANTED["$elements"], True)
    assert isinstance(places, dict)
    assert {at: Path(place).name for at, place in places.items()} == {0: "a.dat", 1: "c.dat"}
    await outputs.store.close()


async def test_rounds_that_are_named_beside_the_order_count(tmp_path: Path) -> None:
    outputs = await resolver(tmp_path, w1_0={"a.dat": b"1"}, w3_0={"b.dat": b"1"})
    made = await outputs.referred("a", "r", [WANTED], [0], ["make@3", "make@2", "make@1"])
    assert str(made.places(WANTED["$elements"], True)).count("b.dat") == 1
    await outputs.store.close()


async def test_an_element_without_exactly_one_file_is_named(tmp_path: Path) -> None:
    outputs = await resolver(tmp_path, w1_0={"a.dat": b"1", "b.dat": b"2"}, w1_1={"c.txt": b"1"}, w1_2={"d.dat": b"1"})
    made = await outputs.referred("a", "r", [WANTED], [0, 1, 2, 3])
    assert made.lacking([0, 1, 2, 3]) == [0, 1, 3]
    assert made.lacking([2]) == []
    await outputs.store.close()


async def test_another_tenant_has_none_of_them(tmp_path: Path) -> None:
    outputs = await resolver(tmp_path, w1_0={"a.dat": b"1"})
    assert (await outputs.referred("b", "r", [WANTED], [0])).lacking([0]) == [0]
    await outputs.store.close()
