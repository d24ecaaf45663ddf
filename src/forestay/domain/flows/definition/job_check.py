"""The limits of a job in a flow: those of the HTTP interface, so that a job that passes here is accepted there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.definition.flow_problem import FlowProblem, Place
from forestay.domain.jobs.checkpoint import wrong_checkpoint
from forestay.domain.jobs.container_image import image_problem
from forestay.domain.jobs.inputs import wrong_name
from forestay.domain.jobs.requirements import wrong_needs
from forestay.domain.jobs.specification import MAX_NODES, wrong_on_nodes

YEAR = 31_536_000
_BOUNDS = {
    "cpus": (0, 100_000),
    "memory": (0, 2**50),
    "disk": (0, 2**55),
    "gpus": (0, 100_000),
    "wall": (1, YEAR),
    "nodes": (1, MAX_NODES),
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_LABEL = re.compile(r"[A-Za-z0-9._/-]{1,63}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NAME_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
MAX_WORD = 131_072


def check_job(job: JobPattern, here: Place) -> Iterator[FlowProblem]:
    """The errors in a job's own fields."""
    if not job.command or not job.command[0].strip():
        yield FlowProblem((*here, "command"), "the command is empty; write a list of words")
    if len(job.command) > 10_000:
        yield FlowProblem((*here, "command"), "a command has at most 10,000 words")
    for place, word in enumerate(job.command):
        yield from _text(word, (*here, "command", place))
    for name, value in job.environment.items():
        if not _VARIABLE.fullmatch(name):
            yield FlowProblem((*here, "environment", name), "a variable's name has letters, digits and '_'")
        yield from _text(value, (*here, "environment", name))
    for name, (least, most) in _BOUNDS.items():
        amount = getattr(job.resources, name)
        if amount is not None and not least <= amount <= most:
            yield FlowProblem((*here, "resources", name), f"{name} is {least} to {most}, not {amount}")
    if on_nodes := wrong_on_nodes(job, job.resources.nodes):
        yield FlowProblem((*here, "resources", "nodes"), on_nodes)
    if job.container and "${" not in job.container and (why := image_problem(job.container)):
        yield FlowProblem((*here, "container"), why)
    yield from _files(job, here)
    yield from _numbers(job, here)
    yield from (FlowProblem((*here, *at), words) for at, words in wrong_needs(job))
    if job.checkpoint is not None:
        wrong = wrong_checkpoint(job.checkpoint)
        yield from (FlowProblem((*here, "checkpoint", *at), words) for at, words in wrong)
        for place, pattern in enumerate(job.checkpoint.files):
            if "${" in pattern:
                yield FlowProblem((*here, "checkpoint", "files", place), "references are not substituted here")
    if len(job.labels) > 32:
        yield FlowProblem((*here, "labels"), "a job has at most 32 labels")
    for name, value in job.labels.items():
        if not _LABEL.fullmatch(name) or len(value) > 200 or _NAME_CONTROL.search(value):
            yield FlowProblem((*here, "labels", name), "a label is a short name of letters, digits, '.', '_', '/', '-' and a value of at most 200 characters")  # fmt: skip


def _text(text: str, at: Place) -> Iterator[FlowProblem]:
    if _CONTROL.search(text):
        yield FlowProblem(at, "control characters are not allowed")
    if len(text) > MAX_WORD:
        yield FlowProblem(at, f"it is longer than {MAX_WORD} characters; put it into a file")


def _files(job: JobPattern, here: Place) -> Iterator[FlowProblem]:
    for kind in ("inputs", "outputs"):
        files = getattr(job, kind)
        if len(files) > 1000:
            yield FlowProblem((*here, kind), f"a job has at most 1,000 {kind}")
        for name, text in files.items():
            if not text or len(text) > 1000 or _NAME_CONTROL.search(text):
                yield FlowProblem((*here, kind, name), "expected a file name of 1 to 1,000 characters")
            elif kind == "outputs" and (text.startswith("/") or ".." in text.split("/")):
                yield FlowProblem(
                    (*here, kind, name), "an output is a file in the job's folder; no leading '/' and no '..'"
                )
            elif kind == "inputs" and name.endswith("/") and not wrong_name(name[:-1]):
                words = f"write {name[:-1]!r}: what comes from a scatter is put into a folder of this name"
                yield FlowProblem((*here, kind, name), words)
            elif kind == "inputs" and wrong_name(name):
                yield FlowProblem(
                    (*here, kind, name),
                    "an input's name is a file in the job's folder; no leading '/' and no '..'",
                )
    if job.result and (
        len(job.result) > 200 or _NAME_CONTROL.search(job.result) or re.search(r"[*]|^/|(^|/)[.][.](/|$)", job.result)
    ):
        yield FlowProblem((*here, "result"), "the result is one file in the job's folder, without '*'")


def _numbers(job: JobPattern, here: Place) -> Iterator[FlowProblem]:
    if not 1 <= job.retry.max_attempts <= 100:
        yield FlowProblem((*here, "max_attempts"), "a job has 1 to 100 attempts")
    if not 0 <= job.retry.wait <= 86_400:
        yield FlowProblem((*here, "retry_wait"), "the wait before another attempt is 0 seconds to a day")
    if job.expected_runtime is not None and not 1 <= job.expected_runtime <= YEAR:
        yield FlowProblem((*here, "expected_runtime"), "an expected runtime is 1 second to a year")
    if not -1000 <= job.priority <= 1000:
        yield FlowProblem((*here, "priority"), "a priority is -1000 to 1000; higher comes first")
