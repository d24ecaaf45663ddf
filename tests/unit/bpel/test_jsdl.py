"""JSDL 1.0: what is read, what is refused with its line, and what it becomes here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples

from forestay_bpel.domain.jsdl.definition import (
    LIMITS,
    RANGES,
    CreationFlag,
    EnvironmentVariable,
    Exact,
    Executing,
    FileSystem,
    JobDefinition,
    JobResources,
    RangeBound,
    RangeSpan,
    RangeValue,
    Staged,
    Word,
)
from forestay_bpel.domain.jsdl.job import NotRunnable, converted_job
from forestay_bpel.formats.jsdl import JsdlRefused, read_jsdl, write_jsdl

HEAD = (
    '<JobDefinition xmlns="http://schemas.ggf.org/jsdl/2005/11/jsdl" xmlns:p="http://schemas.ggf.org/jsdl/2005/11/jsdl-posix" '
    'xmlns:h="http://schemas.ggf.org/jsdl/2006/07/jsdl-hpcpa">'
)
WHOLE = f"""{HEAD}
 <JobDescription>
  <JobIdentification><JobName>fit model</JobName><JobProject>wheat</JobProject></JobIdentification>
  <Application>
   <ApplicationName>fit</ApplicationName>
   <p:POSIXApplication name="fit">
    <p:Executable>/bin/sort</p:Executable><p:Argument>-n</p:Argument>
    <p:Input>in.txt</p:Input><p:Output>out.txt</p:Output>
    <p:Environment name="LC_ALL">C</p:Environment>
    <p:WallTimeLimit>60</p:WallTimeLimit><p:CPUTimeLimit>30</p:CPUTimeLimit>
   </p:POSIXApplication>
  </Application>
  <Resources>
   <CandidateHosts><HostName>n1</HostName></CandidateHosts>
   <TotalCPUCount><Range><LowerBound>2</LowerBound><UpperBound>8</UpperBound></Range></TotalCPUCount>
   <TotalPhysicalMemory><LowerBoundedRange>1048576</LowerBoundedRange></TotalPhysicalMemory>
  </Resources>
  <DataStaging><FileName>in.txt</FileName><CreationFlag>overwrite</CreationFlag><Source><URI>file:///data/a%20b</URI></Source></DataStaging>
  <DataStaging><FileName>out.txt</FileName><CreationFlag>overwrite</CreationFlag><DeleteOnTermination>true</DeleteOnTermination><Target/></DataStaging>
 </JobDescription>
</JobDefinition>"""


def test_a_definition_may_name_a_container() -> None:
    """An element of our own, where JSDL allows it; without it nothing changes."""
    name = '<c:Container xmlns:c="urn:forestay:jsdl">docker://debian:12</c:Container>'
    text = WHOLE.replace("<p:POSIXApplication", f"{name}<p:POSIXApplication", 1)
    definition = read_jsdl(text)
    assert converted_job(definition).pattern.container == "docker://debian:12"
    assert read_jsdl(write_jsdl(definition)) == definition
    assert converted_job(read_jsdl(WHOLE)).pattern.container == ""
    with pytest.raises(NotRunnable, match="container"):
        converted_job(read_jsdl(text.replace("docker://", "ftp://")))


def test_a_definition_becomes_a_job() -> None:
    made = converted_job(read_jsdl(WHOLE))
    assert made.name == "fit-model"
    assert made.pattern.command[0] == "sh"
    assert made.pattern.command[-2:] == ("/bin/sort", "-n")
    assert made.pattern.inputs == {"in.txt": "/data/a b"}
    assert made.pattern.outputs == {"out": "out.txt"}
    assert made.pattern.environment == {"LC_ALL": "C"}
    need = made.pattern.resources
    assert (need.cpus, need.memory, need.wall) == (2, 1 << 20, 60)
    assert [note for note in made.notes if "CandidateHosts" in note]


def test_resources_in_all_become_those_of_each_node() -> None:
    text = WHOLE.replace("</Resources>", "<TotalResourceCount><Exact>3</Exact></TotalResourceCount></Resources>")
    need = converted_job(read_jsdl(text)).pattern.resources
    assert (need.nodes, need.cpus, need.memory) == (3, 1, 349_526)


def test_the_shell_around_a_command_does_what_the_definition_says(tmp_path: Path) -> None:
    made = converted_job(read_jsdl(WHOLE))
    (tmp_path / "in.txt").write_text("10\n9\n")
    subprocess.run(made.pattern.command, cwd=tmp_path, check=True, timeout=20)
    assert (tmp_path / "out.txt").read_text() == "9\n10\n"


def test_creation_flags(tmp_path: Path) -> None:
    target = tmp_path / "kept"
    staging = (
        Staged("all", source="file:///a"),
        Staged("all", flag=CreationFlag.APPEND, source="file:///b"),
        Staged("all", flag=CreationFlag.DONT_OVERWRITE, source="file:///c"),
        Staged("out", target=target.as_uri(), flag=CreationFlag.DONT_OVERWRITE),
        Staged("out", target=(tmp_path / "more").as_uri(), flag=CreationFlag.APPEND),
    )
    run = Executing(executable=Word("cat"), arguments=(Word("all"),), output=Word("out"))
    made = converted_job(JobDefinition(executing=run, staging=staging)).pattern
    folder = tmp_path / "job"
    for name, source in made.inputs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source)
    target.write_text("before")
    (tmp_path / "more").write_text("before")
    subprocess.run(made.command, cwd=folder, check=True, timeout=20)
    assert (folder / "out").read_text() == "/a/b"
    assert target.read_text() == "before"
    assert (tmp_path / "more").read_text() == "before/a/b"
    assert made.effects == "external"


def test_a_failing_command_fails_and_stages_nothing(tmp_path: Path) -> None:
    run = Executing(executable=Word("sh"), arguments=(Word("-c"), Word("echo x; exit 3")), output=Word("out"))
    staging = (Staged("out", target=(tmp_path / "there").as_uri()),)
    made = converted_job(JobDefinition(executing=run, staging=staging)).pattern
    assert subprocess.run(made.command, cwd=tmp_path, check=False, timeout=20).returncode == 3
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("<JobName>", "<Job>", 3, "invalid XML"),
        ("</JobDescription>", "<More xmlns='urn:x'/></JobDescription>", 20, "More in JobDescription is not supported"),
        ("overwrite<", "sometimes<", 18, "not one of overwrite, append, dontOverwrite"),
        ("<LowerBound>2<", "<LowerBound>9<", 15, "greater than the upper"),
        ("<LowerBound>2<", "<LowerBound>two<", 15, "not a number"),
        ("<LowerBound>2<", "<LowerBound>INF<", 15, "not a number"),
        ("<FileName>in.txt</FileName>", "", 18, "has no FileName"),
        (">true<", ">yes<", 19, "neither true nor false"),
        ("<p:WallTimeLimit>60<", "<p:WallTimeLimit>1.5<", 10, "whole number"),
        ('<p:Environment name="LC_ALL">', "<p:Environment>", 9, "needs the attribute name"),
        ("<JobProject>", "<JobName>x</JobName><JobProject>", 3, "too often"),
        ("<p:Input>in.txt</p:Input><p:Output>out.txt</p:Output>", "<p:Output>o</p:Output><p:Input>i</p:Input>", 8, "too late"),
        ("JobDescription>", "Nothing>", 2, "not supported"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, line: int, words: str) -> None:
    assert old in WHOLE
    with pytest.raises(JsdlRefused) as refused:
        read_jsdl(WHOLE.replace(old, new))
    assert any(error.line == line and words in error.message for error in refused.value.wrong), refused.value.wrong


def test_nothing_to_run_is_refused() -> None:
    with pytest.raises(NotRunnable):
        converted_job(read_jsdl(f"{HEAD}<JobDescription/></JobDefinition>"))
    with pytest.raises(NotRunnable, match="must be in"):
        converted_job(
            JobDefinition(executing=Executing(executable=Word("x")), staging=(Staged("../x", source="file:///a"),))
        )


def test_a_range_holds_what_it_says() -> None:
    some = RangeValue(
        RangeBound(1),
        RangeBound(100, exclusive=True),
        (Exact(50, 0.5),),
        (RangeSpan(RangeBound(10), RangeBound(20, exclusive=True)),),
    )
    assert [value for value in (0, 1, 2, 10, 20, 49.5, 49, 100, 101) if some.holds(value)] == [0, 1, 10, 49.5, 101]
    assert some.least() == 10


TEXT = st.text(st.characters(min_codepoint=33, exclude_categories=["Cs", "Cc", "Cn"]), min_size=1, max_size=12)
MAYBE = st.just("") | TEXT
WORDS = st.builds(Word, TEXT, MAYBE)
NUMBERS = st.integers(0, 10**9).map(float) | st.floats(0, 1e9, allow_nan=False)
BOUNDS = st.builds(RangeBound, NUMBERS, st.booleans())
SPANS = st.builds(
    lambda a, b: RangeSpan(min(a, b, key=lambda value: value.value), max(b, a, key=lambda value: value.value)),
    BOUNDS,
    BOUNDS,
)
RANGE = st.builds(
    RangeValue, st.none() | BOUNDS, st.none() | BOUNDS,
    st.lists(st.builds(Exact, NUMBERS, st.none() | NUMBERS), max_size=2).map(tuple), st.lists(SPANS, max_size=2).map(tuple),
).filter(lambda value: value != RangeValue())  # fmt: skip
RESOURCES = st.builds(
    JobResources,
    hosts=st.lists(TEXT, max_size=2).map(tuple),
    file_systems=st.lists(st.builds(FileSystem, TEXT, MAYBE, MAYBE, MAYBE, MAYBE, st.none() | RANGE), max_size=2).map(
        tuple
    ),
    exclusive=st.none() | st.booleans(),
    system=MAYBE,
    system_version=MAYBE,
    system_description=MAYBE,
    architecture=MAYBE,
    ranges=st.dictionaries(st.sampled_from(RANGES), RANGE, max_size=3),
)
ONE = st.none() | WORDS
POSIX_RUN = st.builds(
    Executing, st.just(False), MAYBE, ONE, st.lists(WORDS, max_size=3).map(tuple), ONE, ONE, ONE, ONE,
    st.lists(st.builds(EnvironmentVariable, TEXT, MAYBE, MAYBE), max_size=2).map(tuple),
    st.dictionaries(st.sampled_from(LIMITS), st.integers(0, 2**40), max_size=3), MAYBE, MAYBE,
)  # fmt: skip
PLAIN = st.builds(Word, TEXT)
HPC_RUN = st.builds(
    Executing, st.just(True), MAYBE, st.none() | PLAIN, st.lists(PLAIN, max_size=3).map(tuple), st.none() | PLAIN,
    environment=st.lists(st.builds(EnvironmentVariable, TEXT, MAYBE), max_size=2).map(tuple), user=MAYBE,
)  # fmt: skip
STAGED = st.builds(
    Staged, TEXT, MAYBE, st.sampled_from(CreationFlag), st.booleans(), st.none() | MAYBE, st.none() | MAYBE, MAYBE
)
JOBS = st.builds(
    JobDefinition, MAYBE, MAYBE, st.lists(TEXT, max_size=2).map(tuple), st.lists(TEXT, max_size=2).map(tuple),
    MAYBE, MAYBE, MAYBE, MAYBE, st.none() | POSIX_RUN | HPC_RUN, st.none() | RESOURCES, st.lists(STAGED, max_size=3).map(tuple), MAYBE,
)  # fmt: skip


@given(JOBS)
@settings(max_examples=examples(150), deadline=None)
def test_what_is_written_is_read_as_the_same(job: JobDefinition) -> None:
    assert read_jsdl(write_jsdl(job)) == job
