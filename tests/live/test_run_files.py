"""Flows and the files outside: listings, watched folders, inputs and outputs, with a real pilot that runs real processes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.live.run_site import TENANT, RunSite, run_site
from tests.unit.apps.server.processes import Started, processes
from tests.unit.apps.server.running import until
from tests.unit.formats.flows.test_examples import EXAMPLES

from forestay.adapters.system.file_lists import SharedFiles
from forestay.adapters.system.results import SharedResults
from forestay.domain.flows.events import VerbKind
from forestay.formats.jobs.job_public import specification_public
from forestay.ports.errors import NotFound
from forestay.ports.jobs.job_store import JobQuery
from forestay.services.data.listings import ListingRound, Listings, ListingSummary
from forestay.services.data.output_resolver import OutputResolver

pytestmark = pytest.mark.live


@dataclass
class FileSite:
    """A site with a real pilot, and a folder that everyone sees."""

    site: RunSite
    folder: Path

    def __getattr__(self, name: str) -> Any:
        return getattr(self.site, name)

    async def jobs(self, run: str) -> list[dict[str, Any]]:
        person = self.site.server.person("viewer", tenant=TENANT)
        jobs: list[dict[str, Any]] = []
        cursor = None
        while True:
            params = {"run": run, "limit": "1000"} | ({"cursor": cursor} if cursor else {})
            page = (await person.get("/v1/jobs", params=params)).json()
            jobs += page["jobs"]
            cursor = page["cursor"]
            if not cursor:
                return jobs

    async def specification(self, job: str) -> dict[str, Any]:
        stored = (await self.site.server.services.components.store.get([job]))[job]
        specifications = await self.site.server.services.components.store.get_specifications(
            [stored.document.specification]
        )
        return specification_public(specifications[stored.document.specification])


@asynccontextmanager
async def file_site(store: str, folder: Path, **settings: Any) -> AsyncIterator[FileSite]:
    shared = folder / "shared"
    shared.mkdir()
    state = folder / "state"  # what Forestay keeps is hidden from flows
    state.mkdir()
    outputs = folder / "outputs"
    known: dict[str, Any] = {"flow_files": (shared,), "outputs": (outputs,), "watch_every": 0.1}
    async with (
        run_site(store, state, pilots=0, **known | settings) as site,
        processes(site.domain, folder) as running,
    ):
        running.pilot(TENANT, Started(None, site.server.url), slots=4)  # type: ignore[arg-type]
        yield FileSite(site, shared)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FileSite]:
    async with file_site(request.param, tmp_path_factory.mktemp("files")) as running:
        yield running


def make_listings(site: FileSite) -> Listings:
    parts = site.server.services.components
    return Listings(parts.store, parts.clock, SharedFiles((site.folder,)))


async def test_a_scatter_over_the_files_of_a_folder(site: FileSite) -> None:
    """The example, as it is."""
    folder = site.folder / "my texts"
    folder.mkdir()
    for name, words in {"a": "one two", "b": "three", "c d": "four five six"}.items():
        (folder / f"{name}.conf").write_text(words)
    (folder / "other.txt").write_text("not this one")
    run = await site.start((EXAMPLES / "scatter-gather.yaml").read_text(), folder=str(folder))
    result = await site.result(run)
    assert result["outputs"] == {"files": 3, "words": 6}, result


async def test_lines_of_a_file_and_a_product(site: FileSite) -> None:
    (site.folder / "names.txt").write_text("ada\n\nbob\ncleo\n")
    run = await site.start("""
forestay: 1
name: lines
tasks:
  greet:
    scatter: {name: {lines: names.txt}, n: {range: [0, 2]}}
    command: [sh, -c, 'echo "$1 $2" > said.txt', "-", "${name}", "${n}"]
    outputs: {said: said.txt}
  all:
    inputs: {said: "${tasks.greet.outputs.said}"}
    run: cat said/* | paste -sd, > all.txt; printf '{"said":"%s"}' "$(cat all.txt)" > all.json
    result: all.json
outputs: {said: "${tasks.all.result.said}"}
""")
    result = await site.result(run)
    assert result["outputs"] == {"said": "ada 0,ada 1,bob 0,bob 1,cleo 0,cleo 1"}, result


async def test_a_listing_that_cannot_be_made_fails_the_task_with_words(site: FileSite) -> None:
    text = """
forestay: 1
name: outside
params: {pattern: null}
tasks:
  each: {command: [cat, "${file}"], scatter: {file: {files: "${params.pattern}"}}}
"""
    for pattern in ("/etc/*.conf", "../*", "/*", "*/../../*"):
        run = await site.start(text, pattern=pattern)
        result = await site.result(run)
        assert result["outcome"] == "failed"
        assert "flow_files" in result["reason"] or ".. is not allowed" in result["reason"], result
    run = await site.start(text, pattern="nothing-here/*.txt")
    assert (await site.result(run))["outcome"] == "completed", "a scatter over no file has nothing to do"


async def test_the_first_listing_stays_whoever_repeats_it(site: FileSite) -> None:
    """An orchestrator that dies after it has stored a listing, and the one that repeats it, tell of the same."""
    folder = site.folder / "twice"
    folder.mkdir()
    (folder / "a.txt").touch()
    listings = make_listings(site)
    round_ = ListingRound(TENANT, "some-run", "each@1", "file")
    first = await listings.list_files(round_, f"{folder}/*.txt", lines=False)
    (folder / "b.txt").touch()
    again = await make_listings(site).list_files(round_, f"{folder}/*.txt", lines=False)
    assert again == first == ListingSummary(first.listing, 1)
    assert await listings.members(TENANT, first.listing, [0]) == {0: str(folder / "a.txt")}
    other = await listings.list_files(replace(round_, work="each@2"), f"{folder}/*.txt", lines=False)
    assert other.count == 2
    with pytest.raises(NotFound):
        await listings.members("another tenant", first.listing, [0])


async def test_a_long_listing_is_carried_by_reference(tmp_path: Path) -> None:
    """3,000 elements: the run's history has a name and a count, not the members."""
    shared, state = tmp_path / "shared", tmp_path / "state"
    shared.mkdir()
    state.mkdir()
    (shared / "long.txt").write_text("".join(f"element-number-{n:05}\n" for n in range(3000)))
    async with run_site("sqlite", state, pilots=0, flow_files=(shared,)) as site:
        run = await site.start("""
forestay: 1
name: long
tasks:
  each: {command: ["true"], scatter: {one: {lines: long.txt}}}
outputs: {count: "${tasks.each.count}"}
""")
        mine = JobQuery(TENANT, anyof={"run": [run]})
        store = site.server.services.components.store

        async def all_made() -> bool:
            return (await store.count(mine, by="work")).get("each@1") == 3000

        await until(all_made, "3,000 jobs", 60)
        page = await store.search(mine, sort="index", limit=3000)
        assert [job.document.parameters["one"] for job in page.jobs] == [f"element-number-{n:05}" for n in range(3000)]
        client = await site.engine.client()
        history = await client.get_workflow_handle(run).fetch_history()
        assert "element-number" not in history.to_json()
        assert (await site.verb(run, VerbKind.REMOVE)).accepted
        await site.ended(run)


WATCH = """
forestay: 1
name: watching
params: {folder: null}
tasks:
  each:
    scatter: {file: {watch: "${params.folder}/*.raw", until: {file: "${params.folder}/done"}}}
    run: wc -c < "$FORESTAY_PARAM_FILE" > size.txt
    outputs: {size: size.txt}
  merge:
    command: [sh, -c, 'cat "$@" | sort -n | paste -sd, > all.txt; printf "{\\"sizes\\": \\"%s\\"}" "$(cat all.txt)" > all.json', "-", "${tasks.each.outputs.size}"]
    result: all.json
outputs: {count: "${tasks.each.count}", sizes: "${tasks.merge.result.sizes}"}
"""


def there(paths: Sequence[str]) -> bool:
    return all(Path(path).exists() for path in paths)


def appear(folder: Path, name: str, content: str) -> None:
    """Written elsewhere and renamed: a file is whole when it appears."""
    draft = folder / f".{name}"
    draft.write_text(content)
    draft.rename(folder / name)


@pytest.mark.ledger("P3-14")
async def test_jobs_are_made_as_files_appear_and_merged_when_no_more_will(site: FileSite) -> None:
    folder = site.folder / f"incoming-{uuid4().hex[:8]}"
    folder.mkdir()
    appear(folder, "1.raw", "x")
    run = await site.start(WATCH, folder=str(folder))

    def well(count: int) -> Any:
        async def there() -> bool:
            jobs = await site.jobs(run)
            return len(jobs) == count and all(job["state"] == "completed" for job in jobs)

        return there

    await until(well(1), "the job of the first file")
    appear(folder, "3.raw", "xxx")
    await until(well(2), "the job of the second file")
    assert (await site.tasks(run))["merge"] == "waiting"
    appear(folder, "2.raw", "xx")  # before the last by name: the order of a listing never changes
    (folder / "done").touch()
    result = await site.result(run)
    assert result["outputs"] == {"count": 3, "sizes": "1,2,3"}, result
    names = {
        job["index"]: job["parameters"]["file"].rpartition("/")[2]
        for job in await site.jobs(run)
        if job["name"] == "each"
    }
    assert names == {0: "1.raw", 1: "3.raw", 2: "2.raw"}


@pytest.mark.ledger("P3-14")
async def test_a_watch_goes_on_in_a_new_run_and_stops_with_its_run(tmp_path: Path) -> None:
    async with file_site("sqlite", tmp_path, history_limit=60) as site:
        folder = site.folder / "incoming"
        folder.mkdir()
        run = await site.start(WATCH, folder=str(folder))
        for n in range(12):
            appear(folder, f"{n}.raw", "x" * n)

            async def made(count: int = n + 1) -> bool:
                return len(await site.jobs(run)) == count

            await until(made, f"job {n}")
        assert await site.runs(run) > 1
        (folder / "done").touch()
        result = await site.result(run)
        assert result["outputs"]["count"] == 12
        other = await site.start(WATCH, folder=str(site.folder / "nobody"))
        await site.task_is(other, "each", "listing")
        assert (await site.verb(other, VerbKind.REMOVE)).accepted
        assert (await site.ended(other)).state == "removed"


@pytest.mark.ledger("P3-14")
async def test_a_watch_ends_when_it_has_been_quiet(site: FileSite) -> None:
    folder = site.folder / f"quiet-{uuid4().hex[:8]}"
    folder.mkdir()
    text = WATCH.replace('{file: "${params.folder}/done"}', "{quiet: 2 s, count: 5}")
    appear(folder, "a.raw", "x")
    run = await site.start(text, folder=str(folder))
    assert (await site.result(run))["outputs"]["count"] == 1
    for n in range(7):
        appear(folder, f"{n}.raw", "x")
    run = await site.start(text, folder=str(folder))
    assert (await site.result(run))["outputs"]["count"] == 5, "so many and no more"


@pytest.mark.ledger("P3-15", "P3-14")
async def test_the_tier0_flow(site: FileSite) -> None:
    """172 jobs in three steps, each merged; the first step's jobs appear as files do."""
    folder = site.folder / f"tier0-{uuid4().hex[:8]}"
    folder.mkdir()
    for n in range(30):
        appear(folder, f"{n}.raw", f"event {n}\n")
    run = await site.start((EXAMPLES / "tier0.yaml").read_text(), incoming=str(folder))

    async def some() -> bool:
        return len(await site.jobs(run)) >= 30

    await until(some, "the first repack jobs")
    for n in range(30, 80):
        appear(folder, f"{n}.raw", f"event {n}\n")
    assert (await site.ended(run, 300)).state == "completed"
    jobs = await site.jobs(run)
    assert Counter(job["name"] for job in jobs) == {
        "repack": 80, "repack-merge": 4, "prompt-reco": 60, "reco-merge": 4, "alca-reco": 20, "alca-merge": 4,
    }  # fmt: skip
    assert all(job["state"] == "completed" for job in jobs)
    person = site.server.person("viewer", tenant=TENANT)
    shown = (await person.get(f"/v1/runs/{run}")).json()["outputs"]["calibration"]
    assert [Path(entry).name for entry in shown] == ["merged.dat"] * 4
    assert there(shown)


CHAIN = """
forestay: 1
name: chain
params: {staging: parallel}
flows:
  inner:
    name: inner
    params: {text: null}
    tasks:
      shout:
        inputs: {in.txt: "${params.text}"}
        run: tr a-z A-Z < in.txt > out.txt
        outputs: {loud: out.txt}
    outputs: {loud: "${tasks.shout.outputs.loud}"}
tasks:
  make:
    scatter: {word: [one, two, three]}
    run: mkdir -p d; echo "$FORESTAY_PARAM_WORD" > "d/$FORESTAY_PARAM_WORD.txt"; echo more > "d/$FORESTAY_PARAM_WORD.log"
    outputs: {text: "d/${word}.txt", all: "d/*"}
  join:
    inputs: {parts: "${tasks.make.outputs.text}", everything: "${tasks.make.outputs.all}"}
    run: cat parts/* | paste -sd- > joined.txt; ls everything | wc -l >> joined.txt
    outputs: {joined: joined.txt}
  gathered: {merge: {joined: "${tasks.join.outputs.joined}"}}
  sub: {flow: inner, params: {text: "${tasks.gathered.outputs.joined}"}}
  last:
    inputs: {"sub/loud.txt": "${tasks.sub.outputs.loud}", joined.txt: "${tasks.gathered.outputs.joined}"}
    run: printf '{"text":"%s","same":%s}' "$(head -1 sub/loud.txt)" "$(tail -1 joined.txt)" > last.json
    result: last.json
  each:
    scatter: {part: "${tasks.make.outputs.text}"}
    inputs: {"p/${index}.txt": "${part}"}
    run: test "$(cat p/*.txt)" = "$(basename "$FORESTAY_PARAM_PART" .txt)"
outputs: {text: "${tasks.last.result.text}", files: "${tasks.last.result.same}", each: "${tasks.each.well}"}
"""


@pytest.mark.ledger("P0-08")
async def test_what_one_task_makes_is_brought_to_the_next(site: FileSite) -> None:
    """By manifest: from a scatter, by a pattern, through a merge, into and out of a sub-flow, and as what another scatter runs over."""
    run = await site.start(CHAIN)
    result = await site.result(run)
    assert result["outputs"] == {"text": "ONE-TWO-THREE", "files": 6, "each": 3}, result
    jobs = {(job["name"], job["index"]): job["id"] for job in await site.jobs(run)}
    specification = await site.specification(jobs["join", None])
    assert [
        (input_["name"], input_["source"]) for input_ in specification["inputs"] if input_["name"].startswith("parts/")
    ] == [
        (f"parts/{n}-{word}.txt", f"job:{jobs['make', n]}/d/{word}.txt")
        for n, word in enumerate(["one", "two", "three"])
    ]


@pytest.mark.ledger("P0-09")
async def test_an_output_that_was_changed_after_its_commit_is_not_used(site: FileSite) -> None:
    text = """
forestay: 1
name: spoiled
tasks:
  make: {run: echo good > out.txt, outputs: {out: out.txt}}
  spoil: {command: [sh, -c, 'chmod u+w "$0"; echo bad > "$0"', "${tasks.make.outputs.out}"]}
  use: {inputs: {in.txt: "${tasks.make.outputs.out}"}, run: 'test "$(cat in.txt)" = good', after: [spoil]}
"""
    run = await site.start(text)
    assert (await site.result(run))["outcome"] == "completed", "it is made again"
    assert sorted(job["name"] for job in await site.jobs(run)) == ["make", "make", "spoil", "use"]
    (use,) = [job for job in await site.jobs(run) if job["name"] == "use"]
    incidents = (
        await site.server.person("viewer", tenant=TENANT).get("/v1/incidents", params={"job": use["id"]})
    ).json()
    assert [incident["cause"] for incident in incidents["incidents"]] == ["data-corrupt"]


async def test_inputs_that_are_not_allowed_fail_the_task_with_words(site: FileSite) -> None:
    for source, words in (
        ("http://169.254.169.254/latest/meta-data", "staging_hosts"),
        ("https://example.org/x", "staging_hosts"),
        ("relative/path", "a source is a path"),
        ("ftp://127.0.0.1/x", "a source is a path"),
    ):
        text = f"forestay: 1\nname: refused\ntasks:\n  a: {{command: [cat, x], inputs: {{x: '{source}'}}}}\n"
        result = await site.result(await site.start(text))
        assert result["outcome"] == "failed"
        assert words in result["reason"], result


async def test_outputs_of_another_tenant_cannot_be_named(site: FileSite) -> None:
    text = "forestay: 1\nname: made\ntasks: {make: {run: echo mine > out.txt, outputs: {out: out.txt}}}\n"
    run = await site.start(text)
    await site.ended(run)
    wanted = {"$output": {"run": run, "work": "make@1", "output": "out"}}
    outputs = OutputResolver(site.server.services.components.store, SharedResults(()))
    assert (await outputs.shown(TENANT, "c", {"x": wanted}))["x"] != wanted
    assert (await outputs.shown("another", "c", {"x": wanted}))["x"] == wanted


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
async def test_outputs_that_a_run_has_lost_are_made_again(site: FileSite) -> None:
    """Both steps before the last one, which gets its input by the name of its task as ever; the run itself sees nothing of it."""
    place = site.folder / uuid4().hex
    place.mkdir()
    run = await site.start(
        """
forestay: 1
name: lost
params: {place: text}
tasks:
  first:
    command: [sh, -c, 'echo first >> "$1/ran"; echo good > made', "-", "${params.place}"]
    outputs: {made: made}
  second:
    inputs: {x: "${tasks.first.outputs.made}"}
    command: [sh, -c, 'echo second >> "$1/ran"; cat x > made', "-", "${params.place}"]
    outputs: {made: made}
  gate:
    after: [second]
    command: [sh, -c, 'touch "$1/reached"; while ! test -e "$1/open"; do sleep 0.05; done', "-", "${params.place}"]
  third:
    after: [gate]
    inputs: {x: "${tasks.second.outputs.made}"}
    command: [sh, -c, 'echo third >> "$1/ran"; test "$(cat x)" = good', "-", "${params.place}"]
""",
        place=str(place),
    )

    async def reached() -> bool:
        return (place / "reached").exists()

    await until(reached, "the gate")
    store = site.server.services.components.store
    jobs = {job["name"]: job["id"] for job in await site.jobs(run)}
    for stored in (await store.get([jobs["first"], jobs["second"]])).values():
        shutil.rmtree(Path(stored.document.winner.manifest.path).parent)
    (place / "open").touch()

    assert (await site.ended(run)).state == "completed"
    assert (place / "ran").read_text().split() == ["first", "second", "first", "second", "third"]
    ended = Counter((job["name"], job["state"]) for job in await site.jobs(run))
    assert ended == Counter({(name, "completed"): 2 if name in ("first", "second") else 1 for name in (*jobs, "third")})
