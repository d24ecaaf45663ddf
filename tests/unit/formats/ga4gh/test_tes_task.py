"""Tasks of TES are read whole or refused with every error, and shown in three views."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples

from forestay.formats.ga4gh.tes_reading import MAX_CONTENT, read_shown_task, read_task, state_named
from forestay.formats.ga4gh.tes_task import (
    ExecutorLog,
    FileType,
    OutputFile,
    TaskDocument,
    TaskExecutor,
    TaskInput,
    TaskLog,
    TaskOutput,
    TaskResources,
    TaskState,
    TaskView,
    asked_json,
    tags_match,
    task_json,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
SOME = st.text("abcxyz*/.- é", min_size=1, max_size=12)
PATH = st.lists(st.text("abc_1é", min_size=1, max_size=4), min_size=1, max_size=3).map(
    lambda parts: "/" + "/".join(parts)
)
TEXTS = st.dictionaries(st.text("abcXY_", min_size=1, max_size=4), TEXT, max_size=3)
NUMBER = st.none() | st.integers(0, 512) | st.floats(0, 1e6, allow_nan=False)

INPUTS = st.builds(
    TaskInput,
    path=PATH,
    url=st.just(""),
    content=SOME,
    name=TEXT,
    description=TEXT,
    streamable=st.none() | st.booleans(),
) | st.builds(TaskInput, path=PATH, url=SOME, type=st.sampled_from(FileType), name=TEXT)
OUTPUTS = st.builds(TaskOutput, path=PATH, url=SOME, type=st.sampled_from(FileType), name=TEXT, description=TEXT)
EXECUTORS = st.builds(
    TaskExecutor,
    image=SOME,
    command=st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    workdir=st.just("") | PATH,
    stdin=st.just("") | PATH,
    stdout=st.just("") | PATH,
    stderr=st.just("") | PATH,
    env=TEXTS,
    ignore_error=st.booleans(),
)
RESOURCES = st.builds(
    TaskResources,
    cpu_cores=st.none() | st.integers(0, 512),
    preemptible=st.none() | st.booleans(),
    ram_gb=NUMBER,
    disk_gb=NUMBER,
    zones=st.lists(SOME, max_size=2).map(tuple),
    backend_parameters=TEXTS,
    backend_parameters_strict=st.booleans(),
)
LOGS = st.builds(
    TaskLog,
    logs=st.lists(
        st.builds(ExecutorLog, exit_code=st.integers(-255, 255), start_time=TEXT, stdout=TEXT, stderr=TEXT), max_size=2
    ).map(tuple),
    outputs=st.lists(st.builds(OutputFile, url=TEXT, path=TEXT, size_bytes=st.integers(0, 2**60)), max_size=2).map(
        tuple
    ),
    metadata=TEXTS,
    start_time=TEXT,
    system_logs=st.lists(SOME, max_size=2).map(tuple),
)
ASKED = {
    "executors": st.lists(EXECUTORS, min_size=1, max_size=3).map(tuple),
    "inputs": st.lists(INPUTS, max_size=2).map(tuple),
    "outputs": st.lists(OUTPUTS, max_size=2).map(tuple),
    "resources": st.none() | RESOURCES,
    "volumes": st.lists(PATH, max_size=2).map(tuple),
    "tags": TEXTS,
    "name": TEXT,
    "description": TEXT,
}
TASKS = st.builds(TaskDocument, **ASKED)
SHOWN = st.builds(
    TaskDocument,
    **ASKED,
    id=SOME,
    state=st.sampled_from(TaskState),
    creation_time=TEXT,
    logs=st.lists(LOGS, max_size=2).map(tuple),
)


def minimal(**more: Any) -> dict[str, Any]:
    return {"executors": [{"image": "alpine", "command": ["true"]}], **more}


@settings(max_examples=examples(60))
@given(TASKS)
def test_what_a_client_asks_for_is_read_as_it_was_written(task: TaskDocument) -> None:
    assert read_task(json.loads(json.dumps(asked_json(task)))) == task


@settings(max_examples=examples(60))
@given(SHOWN)
def test_what_a_server_shows_in_full_is_read_as_it_was_shown(task: TaskDocument) -> None:
    assert read_shown_task(json.loads(json.dumps(task_json(task, TaskView.FULL)))) == task


@settings(max_examples=examples(60))
@given(SHOWN)
def test_each_view_hides_what_it_must(task: TaskDocument) -> None:
    assert task_json(task, TaskView.MINIMAL) == {"id": task.id, "state": task.state.value}
    full, basic = task_json(task, TaskView.FULL), task_json(task, TaskView.BASIC)
    assert all("content" not in input_ for input_ in basic.get("inputs", ()))
    for log, whole in zip(basic.get("logs", ()), full.get("logs", ()), strict=True):
        assert "system_logs" not in log
        assert {"logs", "outputs"} <= log.keys()
        for executor in log["logs"]:
            assert "exit_code" in executor
            assert not executor.keys() & {"stdout", "stderr"}
        assert all(isinstance(output["size_bytes"], str) for output in whole["outputs"])
    assert basic.keys() == full.keys()
    assert all("type" in entry for kind in ("inputs", "outputs") for entry in full.get(kind, ()))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["executors", "inputs", "image", "command", "path", "url", "content", "tags", "resources"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_anything_is_read_or_refused_in_words(data: Any) -> None:
    read = read_task(data)
    assert isinstance(read, TaskDocument) or all(problem.message for problem in read)
    if isinstance(data, dict):
        read_shown_task(data)


@pytest.mark.parametrize(
    ("data", "where", "word"),
    [
        ([], "", "a task"),
        ({}, "", "executors"),
        ({"executors": []}, "executors", "at least one"),
        ({"executors": [{"command": ["x"]}]}, "executors[0]", "image"),
        ({"executors": [{"image": "a", "command": []}]}, "executors[0].command", "at least one word"),
        ({"executors": [{"image": "a", "command": "x"}]}, "executors[0].command", "list"),
        ({"executors": [{"image": "a", "command": [1]}]}, "executors[0].command[0]", "text"),
        ({"executors": [{"image": "a", "command": ["a\0"]}]}, "executors[0].command[0]", "zero"),
        (minimal(inputs=[{"url": "/a"}]), "inputs[0]", "path"),
        (minimal(inputs=[{"path": "/a"}]), "inputs[0]", "url"),
        (minimal(inputs=[{"path": "a", "url": "/a"}]), "inputs[0].path", "absolute path"),
        (minimal(inputs=[{"path": "", "content": "x"}]), "inputs[0].path", "absolute path"),
        (minimal(outputs=[{"path": "", "url": "/o"}]), "outputs[0].path", "absolute path"),
        (minimal(inputs=[{"path": "/a/../b", "url": "/a"}]), "inputs[0].path", "absolute path"),
        (minimal(inputs=[{"path": "/a", "url": "/a", "type": "LINK"}]), "inputs[0].type", "FILE"),
        (minimal(inputs=[{"path": "/a", "content": "x" * (MAX_CONTENT + 1)}]), "inputs[0].content", "at most"),
        (minimal(inputs=[{"path": "/a", "content": "x", "type": "DIRECTORY"}]), "inputs[0].content", "folder"),
        (minimal(outputs=[{"path": "/a"}]), "outputs[0]", "url"),
        (minimal(outputs=[{"path": "/a/*", "url": "/o"}]), "outputs[0]", "path_prefix"),
        (minimal(outputs=[{"path": "/a/*", "url": "/o", "path_prefix": "/b"}]), "outputs[0].path_prefix", "begin"),
        (minimal(resources={"cpu_cores": -1}), "resources.cpu_cores", "negative"),
        (minimal(resources={"ram_gb": float("nan")}), "resources.ram_gb", "number"),
        (minimal(tags={"a": 1}), "tags.a", "text"),
        (minimal(name="\ud800"), "name", "surrogate"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(data: Any, where: str, word: str) -> None:
    task = read_task(data)
    assert isinstance(task, tuple)
    assert any(problem.where == where and word in problem.message for problem in task), task


def test_null_is_the_same_as_not_given() -> None:
    empty = minimal(name=None, inputs=None, outputs=None, resources={"zones": None}, volumes=None, tags={"a": None})
    empty["executors"][0] |= {"env": None, "stdin": None, "ignore_error": None}
    read = read_task(empty)
    assert isinstance(read, TaskDocument)
    assert read.tags == {"a": ""}
    assert read.resources == TaskResources()


def test_an_input_with_a_content_has_no_address() -> None:
    read = read_task(minimal(inputs=[{"path": "/a", "url": "s3://x/y", "content": "hello"}]))
    assert isinstance(read, TaskDocument)
    assert read.inputs == (TaskInput("/a", "", "hello"),)


def test_an_empty_content_is_an_empty_file() -> None:
    read = read_task(minimal(inputs=[{"path": "/a", "content": ""}]))
    assert isinstance(read, TaskDocument)
    assert read.inputs == (TaskInput("/a"),)


def test_what_only_a_server_says_is_passed_over() -> None:
    read = read_task(minimal(id="x", state="COMPLETE", logs=[{"logs": []}], creation_time="now", other=3))
    assert read == TaskDocument((TaskExecutor("alpine", ("true",)),))


@pytest.mark.parametrize(
    ("text", "state"),
    [("RUNNING", TaskState.RUNNING), (None, TaskState.UNKNOWN), ("odd", TaskState.UNKNOWN), (3, TaskState.UNKNOWN)],
)
def test_a_missing_state_is_unknown(text: object, state: TaskState) -> None:
    assert state_named(text) is state


@pytest.mark.parametrize(
    ("wanted", "tags", "match"),
    [
        ([("foo", "bar")], {"foo": "bar"}, True),
        ([("foo", "bar")], {"foo": "bat"}, False),
        ([("foo", "")], {"foo": ""}, True),
        ([("foo", "bar"), ("baz", "bat")], {"foo": "bar", "baz": "bat"}, True),
        ([("foo", "")], {"foo": "bar"}, True),
        ([("foo", "bar"), ("baz", "")], {"foo": "bar", "baz": "bat"}, True),
        ([("foo", "bar")], {}, False),
        ([("foo", "")], {}, False),
    ],
)
def test_tags_match_as_the_table_of_the_specification_says(
    wanted: list[tuple[str, str]], tags: dict[str, str], match: bool
) -> None:
    assert tags_match(tags, wanted) is match
