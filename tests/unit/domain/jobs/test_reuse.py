"""The key of a result: the same only if everything that the result can depend on is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.jobs.inputs import JobInput
from forestay.domain.jobs.job_document import FlowRef, JobDocument
from forestay.domain.jobs.job_secrets import SecretReference
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.reuse import (
    NO_FLOW,
    NOT_ASKED,
    ReuseExplanation,
    differing,
    named_files,
    never_reused,
    reuse_fields,
    reuse_key,
    why_run,
)
from forestay.domain.jobs.specification import Effects, RetryPolicy, RunnerKind, Specification

SPEC = Specification(
    "s", "t", "align", ("align", "{sample}"), {"MODE": "fast"}, inputs=(JobInput("in", "/x"),), outputs=("out",)
)
Asked = tuple[Specification, dict[str, object], int | None, dict[str, str], dict[str, str]]
BASE: Asked = (SPEC, {"sample": "a"}, 3, {"in": "d1"}, {"/data/a": "d2"})
TEXT = st.text(max_size=4)
ASKED = st.tuples(
    st.builds(
        lambda command, environment, container, outputs: replace(
            SPEC, command=tuple(command), environment=environment, container=container, outputs=tuple(outputs)
        ),
        st.lists(TEXT, min_size=1, max_size=3),
        st.dictionaries(TEXT, TEXT, max_size=2),
        TEXT,
        st.lists(TEXT, max_size=2),
    ),
    st.dictionaries(TEXT, TEXT | st.integers() | st.lists(TEXT, max_size=2), max_size=2),
    st.none() | st.integers(0, 3),
    st.dictionaries(TEXT, TEXT, max_size=2),
    st.dictionaries(TEXT, TEXT, max_size=2),
)


def key(asked: Asked) -> str:
    return reuse_key(asked[0].tenant, reuse_fields(*asked))


def changed(**fields: Any) -> Asked:
    return (replace(SPEC, **fields), *BASE[1:])


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (changed(command=("align", "-v", "{sample}")), "command"),
        (changed(environment={"MODE": "slow"}), "environment MODE"),
        (changed(environment={"MODE": "fast", "MORE": ""}), "environment MORE"),
        (changed(container="image:2"), "container"),
        (changed(outputs=("out", "log")), "outputs"),
        (changed(named_outputs={"bam": "out"}), "outputs"),
        (changed(extra={"new": 1}), "specification"),
        (changed(secrets={"DB": SecretReference("file", "db")}), "secret DB"),
        ((SPEC, BASE[1], 4, *BASE[3:]), "index"),
        ((*BASE[:3], {"in": "d9"}, BASE[4]), "input in"),
        ((*BASE[:3], {"other": "d1"}, BASE[4]), "input other"),
        ((*BASE[:4], {"/data/a": "d9"}), "file /data/a"),
    ],
)
def test_each_thing_that_differs_makes_another_key_and_is_named(asked: Asked, field: str) -> None:
    assert key(asked) != key(BASE)
    assert field in differing(reuse_fields(*asked), reuse_fields(*BASE))


def test_a_parameter_is_named_with_the_command_that_it_changes() -> None:
    asked = (SPEC, {"sample": "b"}, *BASE[2:])
    assert differing(reuse_fields(*asked), reuse_fields(*BASE)) == ["command", "parameter sample"]


def test_what_the_result_cannot_depend_on_is_no_part_of_it() -> None:
    assert key(changed(resources=Resources(cpus=8), retry=RetryPolicy(3), id="other", name="renamed")) == key(BASE)


def test_owners_have_keys_of_their_own() -> None:
    """A pilot of one owner could have written the result."""
    fields = [reuse_fields(*BASE, owner=owner) for owner in ("ann", "bob")]
    assert reuse_key("t", fields[0]) != reuse_key("t", fields[1])
    assert differing(*fields) == ["owner"]


def test_tenants_have_keys_of_their_own() -> None:
    assert key(changed(tenant="u")) != key(BASE)


@given(ASKED, ASKED)
def test_two_jobs_have_one_key_only_if_nothing_differs(first: Asked, second: Asked) -> None:
    fields = [reuse_fields(*asked) for asked in (first, second)]
    assert (key(first) == key(second)) == (differing(*fields) == [])
    same_inputs = first[3] == second[3] and first[4] == second[4] and first[1] == second[1] and first[2] == second[2]
    same_spec = first[0] == second[0]
    if key(first) == key(second):
        assert same_inputs
    if same_inputs and same_spec:
        assert key(first) == key(second)


def test_effects_outside_are_never_reused() -> None:
    assert never_reused(SPEC) == ""
    for spec in (replace(SPEC, effects=Effects.EXTERNAL), replace(SPEC, effects=Effects.RESUMABLE)):
        assert "would be missing" in never_reused(spec)
    assert never_reused(replace(SPEC, runner=RunnerKind.WARM))


def test_paths_are_found_however_deep_they_are() -> None:
    assert sorted(named_files({"a": "/x", "b": {"c": ["/y", 1, {"d": "/z"}]}, "e": "no/path", "f": None})) == [
        "/x",
        "/y",
        "/z",
    ]


@pytest.mark.parametrize(("flow", "why"), [(FlowRef("r", "w", "v", 0, 0, 1), NOT_ASKED), (None, NO_FLOW)])
def test_a_job_says_why_no_result_was_looked_for(flow: FlowRef | None, why: str) -> None:
    document = JobDocument("j", "t", "s", "align", "ada", 1, 1, Resources(), flow_ref=flow)
    assert why_run(document) == ReuseExplanation(None, why)
