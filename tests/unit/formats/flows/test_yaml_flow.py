"""Flows in YAML: what is wrong is said with its line and column, all at once; what is right comes back as it was."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts.flow_schema import PLACE, described
from tests.sizes import examples
from tests.unit.domain.flows.generated import flows

from forestay.domain.flows.definition.flow import Flow
from forestay.domain.flows.definition.flow_check import check_flow
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.definition.flow_version import flow_as_plain, flow_from_plain, version_of
from forestay.domain.jobs.resources import Resources
from forestay.formats.flows.flow_json import check_document, flow_to_json, read_flow
from forestay.formats.flows.flow_schema import flow_schema
from forestay.formats.flows.yaml_flow import read_flow_text, write_flow_text
from forestay.formats.text.yaml_text import read_yaml

EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.yaml"))


@cache
def schema() -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(flow_schema())


def read(text: str) -> Flow:
    flow_text = read_flow_text(text)
    assert flow_text.problems == ()
    assert flow_text.flow is not None
    return flow_text.flow


def flow_of(tasks: str, more: str = "") -> str:
    """A flow with these tasks, from line 4 on."""
    return f"forestay: 1\nname: f\ntasks:\n{tasks}\n{more}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_flow(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    flow = read(text)
    assert flow.name == example.stem
    schema().validate(read_yaml(text).value)
    assert read(write_flow_text(flow)) == flow


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


@settings(max_examples=examples(100))
@given(flows())
def test_every_flow_comes_back_as_it_was(flow: Flow) -> None:
    assert check_flow(flow) == []
    plain = json.loads(json.dumps(flow_to_json(flow)))
    schema().validate(plain)
    assert flow_from_plain(plain) == flow
    again, findings = check_document(plain)
    assert findings == []
    assert again == flow
    assert version_of(flow_from_plain(plain)) == version_of(flow)


def test_the_published_schema_is_current() -> None:
    assert PLACE.read_text(encoding="utf-8") == described()


def test_the_version_is_the_content() -> None:
    flow = read(flow_of("  a: {command: [x], environment: {B: '1', A: '2'}}\n  b: {command: [y]}"))
    same = read(flow_of("  a: {environment: {A: '2', B: '1'}, run: [x]}\n  b: {command: ['y'], after: []}"))
    other_order = read(flow_of("  b: {command: [y]}\n  a: {command: [x], environment: {A: '2', B: '1'}}"))
    assert version_of(flow) == version_of(same)
    assert version_of(flow) != version_of(other_order)
    assert flow_as_plain(flow)["tasks"]["a"] == {"command": ["x"], "environment": {"A": "2", "B": "1"}}


def test_values_are_written_as_people_write_them() -> None:
    text = """
  a:
    run: sort < in | uniq
    after: b
    resources: {cpus: 2, memory: 4 GiB, disk: 1.5 GB, wall: 90 min}
    expected_runtime: 2 h
    retry_wait: 30 s
    max_attempts: 3
    deadline: 1 d
    environment: {N: 5, DEBUG: true}
    when: true
  b: {command: [sleep, 5, 0.5]}"""
    a, b = read(flow_of(text)).tasks
    assert isinstance(a.pattern, JobPattern)
    assert isinstance(b.pattern, JobPattern)
    assert a.pattern.command == ("sh", "-c", "sort < in | uniq")
    assert a.pattern.resources == Resources(cpus=2, memory=4 << 30, disk=1_500_000_000, wall=5400)
    assert (a.pattern.expected_runtime, a.pattern.retry.wait, a.after) == (7200, 30, ("b",))
    assert a.deadline is not None
    assert a.deadline.seconds == 86_400
    assert a.pattern.environment == {"N": "5", "DEBUG": "true"}
    assert b.pattern.command == ("sleep", "5", "0.5")


SHAPE = [
    ("name: f\ntasks: {a: {command: [x]}}", "1:1: add 'forestay: 1'"),
    ("forestay: 2\nname: f\ntasks: {a: {command: [x]}}", "1:1: forestay: add 'forestay: 1'"),
    ("forestay: true\nname: f\ntasks: {a: {command: [x]}}", "add 'forestay: 1'"),
    ("forestay: 1\ntasks: {a: {command: [x]}}", "1:1: 'name' is missing"),
    ("[1]", "1:1: a flow: expected an object"),
    (flow_of("  a: {comand: [x]}"), "4:3: tasks.a: it has no kind"),
    (flow_of("  a: {command: [x], affter: [b]}"), "4:21: tasks.a.affter: a task has no field 'affter'; did you mean 'after'?"),
    (flow_of("  a: {command: [x], flow: y}"), "4:3: tasks.a: it is command and flow at once"),
    (flow_of("  a: x"), "4:3: tasks.a: a task is a record"),
    (flow_of("  a: {command: x}"), "4:7: tasks.a.command: expected a list of words, not \"x\""),
    (flow_of("  a: {command: []}"), "4:7: tasks.a.command: expected a list of words"),
    (flow_of("  a: {command: [[x]]}"), "4:17: tasks.a.command[0]: expected a word"),
    (flow_of("  a: {command: [x], resources: {cores: 2}}"), "4:33: tasks.a.resources.cores: resources has no field 'cores'"),
    (flow_of("  a: {command: [x], resources: {memory: 4 gigs}}"), "4:33: tasks.a.resources.memory: a size is"),
    (flow_of("  a: {command: [x], deadline: soon}"), "4:21: tasks.a.deadline: a time is"),
    (flow_of("  a: {command: [x], retries: 3}"), "4:21: tasks.a.retries: a task has no field 'retries'; did you mean 'max_attempts'?"),
    (flow_of("  a: {command: [x], effects: extrenal}"), "not \"extrenal\"; did you mean 'external'?"),
    (flow_of("  a: {command: [x], wait: 1}"), "expected true or false"),
    (flow_of("  a: {command: [x], max_attempts: many}"), "expected an integer"),
    (flow_of("  a: {command: [x], after: {b: c}}"), "expected a list"),
    (flow_of("  a: {command: [x], scatter: {v: {range: 5}}}"), "a range is [first, end]"),
    (flow_of("  a: {command: [x], scatter: {v: {files: x, lines: y}}}"), "one of range, files, lines, watch"),
    (flow_of("  a: {command: [x], scatter: {v: {files: x, until: {}}}}"), "only a watch has an end"),
    (flow_of("  a: {command: [x], compensate: {environment: {}}}"), "a compensation has one of command, run"),
    (flow_of("  a: {loop: {tasks: {b: {command: [x]}}}}"), "4:7: tasks.a.loop: 'at_most' is missing"),
    (flow_of("  a: {choose: {branches: {x: {tasks: {b: {command: [x]}}}}}}"), "'when' is missing"),
    (flow_of("  a: {merge: [1]}"), "values by name: expected an object"),
    (flow_of("  a: {flow: 5}"), "expected a text"),
    (flow_of("  a: {command: [x], tolerate: 1.5}"), "expected an integer"),
    (flow_of("  a: {command: [x], labels: {x: [1]}}"), "expected a word"),
    (flow_of("  a: {command: [x], when: 5}"), "expected a text"),
    (flow_of("  a: {command: [x], secrets: {T: {file: a, vault: b}}}"), "tasks.a.secrets.T: expected file:NAME"),
    (flow_of("  a: {command: [x], secrets: {T: {file: a, as: link}}}"), "expected file:NAME"),
    (flow_of("  a: {command: [x], secrets: {T: 5}}"), "expected file:NAME"),
    (flow_of("  a: {command: [x], secrets: [a]}"), "secrets by variable: expected an object"),
]  # fmt: skip
"""Documents of a wrong shape, and a part of what is said about them."""

INNER = "flows: {i: {name: i, params: {need: null, may: 1}, tasks: {t: {command: [x]}}, outputs: {o: 1}}}"
LOOP = "  l:\n    loop:\n      at_most: 3\n      until: %s\n      tasks:\n        in1: {command: [x], result: r.json}\n"
MEANING = [
    (flow_of("  a: {command: [x], container: 'ftp://x'}"), "no runtime knows such an image"),
    (flow_of("  a: {command: [x], scatter: {s: [1]}, container: 'tool:${s}'}"), "it is the same for all jobs of a scatter"),
    (flow_of("  a: {command: [x], after: [bb]}\n  b: {command: [x]}"), "4:29: tasks.a.after[0]: there is no task 'bb'; did you mean 'b'?"),
    (flow_of("  a: {command: [x], after: [a]}"), "cannot come after itself"),
    (flow_of("  a: {command: [x], after: [b]}\n  b: {command: [x], after: [c]}\n  c: {command: [x], after: [a]}"), "4:3: tasks.a: tasks wait for each other: a → b → c → a"),
    (flow_of("  a: {command: [x], after: [a2]}\n  a2: {command: [x], after: [a]}\n  late: {command: [x], after: [a]}"), "6:3: tasks.late: the task can never be reached: it comes after 'a'"),
    (flow_of("  a: {command: ['${tasks.b.state}']}\n  b: {command: ['${tasks.a.state}']}"), "tasks wait for each other: a → b → a"),
    (flow_of("  a: {command: [x], when: 'false'}"), "tasks.a.when: the task can never be reached"),
    (flow_of("  a: {command: [x], when: 1 == 2 and params.x == 1}"), "the flow has no parameter 'x'"),
    (flow_of("  a: {command: [x], when: 'params.x =='}"), "tasks.a.when: the condition cannot be read: it ends where a value is expected"),
    (flow_of("  a: {command: ['${params.smaple}']}", "params: {sample: 1}"), "4:17: tasks.a.command[0]: ${params.smaple}: the flow has no parameter 'smaple'; did you mean 'sample'?"),
    (flow_of("  a: {command: ['${sample}']}"), "${sample}: nothing has this name here"),
    (flow_of("  a: {command: ['${index}']}"), "${index}: nothing has this name here"),
    (flow_of("  a: {command: ['${a b}']}"), "is not a reference"),
    (flow_of("  a: {command: ['${a']}"), "a '${' has no '}'"),
    (flow_of("  a: {command: [x, '${tasks.bb.state}']}\n  b: {command: [x]}"), "4:20: tasks.a.command[1]: ${tasks.bb.state}: there is no task 'bb'; did you mean 'b'?"),
    (flow_of("  a: {command: ['${tasks.a.state}']}"), "cannot refer to itself"),
    (flow_of("  a: {command: ['${tasks.b.result.n}']}\n  b: {command: [x]}"), "task 'b' has no result; add 'result: FILE'"),
    (flow_of("  a: {command: ['${tasks.b.output.n}']}\n  b: {command: [x]}"), "a task has no 'output'; did you mean 'outputs'?"),
    (flow_of("  a: {command: ['${tasks.b.outputs.bma}']}\n  b: {command: [x], outputs: {bam: x}}"), "has no output 'bma'; did you mean 'bam'?"),
    (flow_of("  a: {command: ['${tasks.b.exit_code}']}\n  b: {command: [x], scatter: {v: [1]}}"), "is scattered, so it has many"),
    (flow_of("  a: {command: [x], inputs: {f: ''}}"), "expected a text"),
    (flow_of("  a: {command: ['${previous.a.state}']}"), "only inside a loop"),
    (flow_of(LOOP % "previous.in2.state == 'x'"), "the loop has no task 'in2'; did you mean 'in1'?"),
    (flow_of(LOOP % "tasks.in1.result.n > 1" + "  after: {command: ['${tasks.in1.result.n}']}"), "task 'in1' is inside 'l' and not visible here"),
    (flow_of(LOOP % "tasks.in1.result.n > 1" + "  after: {command: [x], after: [in1]}"), "is not in the same block"),
    (flow_of(LOOP % "true" + "  in1: {command: [x]}"), "there is another task 'in1' at tasks.l.loop.tasks.in1"),
    (flow_of("  l: {loop: {at_most: 0, tasks: {a: {command: [x]}}}}"), "a loop has a bound"),
    (flow_of("  l: {loop: {at_most: 3, tasks: {}}}"), "the loop is empty"),
    (flow_of("  l: {loop: {at_most: 3, while: 'false', tasks: {a: {command: [x]}}}}"), "can never be reached"),
    (flow_of("  c: {choose: {branches: {}}}"), "the choice is empty"),
    (flow_of("  c: {choose: {branches: {b: {when: 'true', tasks: {}}}}}"), "the branch is empty"),
    (flow_of("  c: {choose: {branches: {b: {when: 1 > 2, tasks: {t: {command: [x]}}}}}}"), "the branch can never be reached"),
    (flow_of("  a: {command: [x], scatter: {v: []}}"), "there is nothing to scatter over"),
    (flow_of("  a: {command: [x], scatter: {v: {range: [3, 3]}}}"), "the range from 3 to 3"),
    (flow_of("  a: {command: [x], scatter: {v: {range: [0, 3, 0]}}}"), "the step is 0"),
    (flow_of("  a: {command: [x], scatter: {v: words}}"), "expected a list, or a reference"),
    (flow_of("  a: {command: [x], scatter: {index: [1]}}"), "is a reserved name"),
    (flow_of("  a: {command: [x], scatter: {v: {watch: '*'}}}"), "the watch has no end"),
    (flow_of("  a: {command: [x], scatter: {v: {watch: '*', until: {count: 3}}, w: [1]}}"), "cannot be combined"),
    (flow_of("  a: {merge: {x: 1}, scatter: {v: [1]}}"), "only jobs and sub-flows can be scattered"),
    (flow_of("  a: {command: [x], environment: {A: '${v}'}, scatter: {v: [1]}}"), "FORESTAY_PARAM_V"),
    (flow_of("  a: {command: [x], tolerate: 1}"), "there is no scatter"),
    (flow_of("  a: {command: [x], deadline: 0}"), "4:21: tasks.a.deadline: a deadline is 1 second to a year, not 0 s"),
    (flow_of("  a: {command: [x], deadline: -5}", "deadline: 0"), "tasks.a.deadline: a deadline is"),
    (flow_of("  a: {merge: {x: 1}, compensate: {command: [x]}}"), "only tasks that run jobs or a flow can be compensated"),
    (flow_of("  a: {command: [x], wait: false, compensate: {command: [x]}}"), "the flow does not wait for this task"),
    (flow_of("  a: {command: [x], compensate: {command: ['${tasks.nope.state}'], tries: 0}}"), "tried 1 to 100 times"),
    (flow_of("  a: {merge: {}}"), "there is nothing to merge"),
    (flow_of("  a: {flow: j, params: {need: 1}}\n  b: {flow: i, params: {need: 1}}", INNER), "there is no sub-flow 'j' under 'flows'"),
    (flow_of("  b: {flow: i}", INNER), "needs the parameter 'need'"),
    (flow_of("  b: {flow: i, domain: 'over there', params: {need: 1}}", INNER), "a domain is 'any', or the name of a peer"),
    (flow_of("  b: {flow: i, params: {need: 1, maay: 2}}", INNER), "has no parameter 'maay'; did you mean 'may'?"),
    (flow_of("  b: {command: [x]}", INNER), "no task runs the sub-flow 'i'"),
    (flow_of("  b: {flow: i, params: {need: 1}}\n  c: {command: ['${tasks.b.outputs.p}']}", INNER), "has no output 'p'"),
    (flow_of("  a b: {command: [x]}"), "a task's name has letters"),
    (flow_of("  a: {command: [x], priority: 2000}"), "a priority is -1000 to 1000"),
    (flow_of("  a: {command: [x], resources: {cpus: -1}}"), "cpus is 0 to 100000"),
    (flow_of("  a: {command: [x], max_attempts: 0}"), "1 to 100 attempts"),
    (flow_of("  a: {command: [x], outputs: {o: /etc/x}}"), "tasks.a.outputs.o: an output is a file in"),
    (flow_of("  a: {command: [x], outputs: {o: a/../../x}}"), "an output is a file in"),
    (flow_of("  a: {command: [x], inputs: {../x: y}}"), "an input's name is a file in"),
    (flow_of("  a: {command: [x], inputs: {parts/: y}}"), "write 'parts': what comes from a scatter is put into a folder"),
    (flow_of("  a: {command: [x], result: ../r.json}"), "the result is one file in"),
    (flow_of("  a: {command: [x], environment: {'A-B': x}}"), "a variable's name"),
    (flow_of("  a: {command: [x], secrets: {DB: 'file:../x'}}"), "tasks.a.secrets.DB: a secret in a file is a name"),
    (flow_of("  a: {command: [x], secrets: {DB: '${params.x}'}}"), "there is no source"),
    (flow_of("  a: {command: [x], secrets: {T: {vault: secret/app#token}}}"), "tasks.a.secrets.T: a secret in Vault is MOUNT"),
    (flow_of("  a: {command: [x], secrets: {T: {file: a}}, environment: {T: x}}"), "the environment sets this variable"),
    (flow_of("  a: {command: [x]}", "outputs: {o: '${tasks.b.state}'}"), "outputs.o: ${tasks.b.state}: there is no task 'b'"),
    ("forestay: 1\nname: f\ntasks: {}", "there are no tasks"),
]  # fmt: skip
"""Documents of the right shape that say something wrong."""


@pytest.mark.parametrize(("text", "words"), SHAPE + MEANING)
def test_what_is_wrong_is_said_with_its_place(text: str, words: str) -> None:
    flow_text = read_flow_text(text)
    assert flow_text.flow is None
    assert any(words in str(problem) for problem in flow_text.problems), [
        str(problem) for problem in flow_text.problems
    ]


@pytest.mark.parametrize("text", [text for text, _ in SHAPE + MEANING] + [path.read_text() for path in EXAMPLES])
def test_schema_and_reader_agree(text: str) -> None:
    value = read_yaml(text).value
    _, findings = read_flow(value)
    assert schema().is_valid(value) == (findings == []), findings


def test_all_errors_are_reported_at_once() -> None:
    text = flow_of(
        "  a: {command: ['${params.x}'], afer: [b]}\n"
        "  b: {command: [y, '${tasks.c.state}'], deadline: 0}\n"
        "  d: {loop: {at_most: 0, tasks: {}}}"
    )
    lines = [problem.line for problem in read_flow_text(text).problems]
    assert lines == [4, 4, 5, 5, 6, 6]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 2.0, "", "x", "5 s", "4 GiB", "${params.a}", "true"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["x", "when", "tasks", "file"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


def places(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a document."""
    found_places = [at]
    if isinstance(value, dict):
        found_places += [place for key, entry in value.items() for place in places(entry, (*at, key))]
    elif isinstance(value, list):
        found_places += [place for key, entry in enumerate(value) for place in places(entry, (*at, key))]
    return found_places


@settings(max_examples=examples(200))
@given(flows(), st.data())
def test_whatever_is_spoilt_schema_and_reader_agree_and_nothing_breaks(flow: Flow, data: st.DataObject) -> None:
    document = json.loads(json.dumps(flow_to_json(flow)))
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from([place for place in places(document) if place]))
        holder = document
        for step in way:
            holder = holder[step]
        change = data.draw(st.sampled_from(["replace", "remove", "rename"]))
        if change == "replace":
            holder[last] = data.draw(JSON)
        elif change == "remove":
            del holder[last]
        elif isinstance(holder, dict):
            holder[data.draw(st.sampled_from(["when", "command", "run", "flow", "range", "watch", "nope"]))] = (
                holder.pop(last)
            )
    _, findings = read_flow(document)
    assert schema().is_valid(document) == (findings == []), findings
    _, problems = check_document(document)
    assert all(problem.message for problem in problems)
    text = read_flow_text(json.dumps(document))
    assert len(text.problems) == len(problems)
