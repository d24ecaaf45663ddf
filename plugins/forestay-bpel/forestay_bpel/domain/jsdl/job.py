"""Converts a job definition to a Forestay job, with a note for everything that has no equivalent here."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.definition.job_check import check_job
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Effects
from forestay_bpel.domain.jsdl.definition import CreationFlag, Executing, JobDefinition, JobResources, Staged, Word

_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MADE = re.compile(r"forestay-job:([A-Za-z_][A-Za-z0-9_-]*)/([A-Za-z_][A-Za-z0-9_-]*)")
"""An output of another job of the same run."""
_WORKED_OUT = frozenset(
    {
        "TotalCPUCount", "IndividualCPUCount", "TotalResourceCount", "TotalPhysicalMemory", "IndividualPhysicalMemory",
        "TotalDiskSpace", "IndividualDiskSpace",
    }
)  # fmt: skip
_ULIMITS = {
    "CPUTimeLimit": ("-t", 1),
    "FileSizeLimit": ("-f", 512),
    "CoreDumpLimit": ("-c", 512),
    "DataSegmentLimit": ("-d", 1024),
    "StackSizeLimit": ("-s", 1024),
    "LockedMemoryLimit": ("-l", 1024),
    "OpenDescriptorsLimit": ("-n", 1),
    "VirtualMemoryLimit": ("-v", 1024),
}
"""The shell's option, and how many of JSDL's units one of its units has."""


@dataclass(frozen=True, slots=True)
class ConvertedJob:
    """The job, and the parts of the definition without an equivalent here."""

    name: str
    pattern: JobPattern
    notes: tuple[str, ...] = ()


class NotRunnable(ValueError):
    """A valid definition of a job that cannot be run here."""


def converted_job(job: JobDefinition) -> ConvertedJob:
    """The converted job; `NotRunnable` if there is nothing to run, or it could not be run as intended."""
    run = job.executing
    if run is None or run.executable is None or not run.executable.text.strip():
        raise NotRunnable("the definition has no POSIX or HPC Profile application with an executable")
    notes: list[str] = []
    roots = _roots(job.resources)
    inputs, before = _brought(job.staging, roots)
    outputs, after, outside = _carried(job.staging, roots, notes)
    words = [_path(run.executable, roots), *(_path(argument, roots) for argument in run.arguments)]
    script = _script(run, roots, before, after)
    command = ["sh", "-c", script, *words] if script else words
    if run.user or run.group:
        notes.append("UserName and GroupName: a job runs as the user of its pilot")
    notes += [
        f"{name} is not enforced" for name in run.limits if name not in (*_ULIMITS, "WallTimeLimit", "MemoryLimit")
    ]
    pattern = JobPattern(
        command=tuple(map(_literal, command)),
        environment={
            variable.name: _literal(_path(Word(variable.value, variable.file_system), roots))
            for variable in run.environment
        },
        resources=_resources(job.resources, run, notes),
        inputs=inputs,
        outputs=outputs,
        container=_literal(job.container.strip()),
        effects=Effects.EXTERNAL if outside else Effects.INTERNAL,
        labels={"jsdl.project": job.projects[0][:200]} if job.projects else {},
    )
    wrong = [f"{problem.where}: {problem.message}" for problem in check_job(pattern, ("job",))]
    if wrong:
        raise NotRunnable("; ".join(wrong))
    return ConvertedJob(task_name(job.name or run.name or job.application or "job"), pattern, tuple(notes))


def task_name(text: str) -> str:
    """A name for a task of a run."""
    name = _NAME.sub("-", text).strip("-")[:80] or "job"
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"


def _literal(text: str) -> str:
    return text.replace("${", "$${")


def _roots(resources: JobResources | None) -> dict[str, str]:
    known = resources.file_systems if resources is not None else ()
    return {system.name: system.mount_point.rstrip("/") for system in known if system.mount_point}


def _path(word: Word, roots: dict[str, str]) -> str:
    """A path inside a file system; a file system without a defined location is the job's own folder."""
    root = roots.get(word.file_system, "")
    return f"{root}/{word.text.lstrip('/')}" if root else word.text


def _resources(resources: JobResources | None, run: Executing, notes: list[str]) -> Resources:
    ranges = resources.ranges if resources is not None else {}

    def least(name: str) -> int:
        value = ranges[name].least() if name in ranges else None
        return 0 if value is None else math.ceil(value)

    nodes = max(1, least("TotalResourceCount"))
    if resources is not None:
        for entry, name in (
            (resources.hosts, "CandidateHosts"),
            (resources.system or resources.system_version, "OperatingSystem"),
            (resources.architecture, "CPUArchitecture"),
            (resources.exclusive, "ExclusiveExecution"),
        ):
            if entry:
                notes.append(
                    f"{name}: use the settings of the pilots instead; any pilot with enough resources may take the job"
                )
        notes += [f"{name} is not requested" for name in ranges if name not in _WORKED_OUT]
    systems = resources.file_systems if resources is not None else ()
    disk = max([0, *(math.ceil(system.space.least() or 0) for system in systems if system.space is not None)])

    def of_each(name: str) -> int:
        return max(least(f"Individual{name}"), -(-least(f"Total{name}") // nodes))

    return Resources(
        cpus=max(1, of_each("CPUCount")),
        memory=of_each("PhysicalMemory") or run.limits.get("MemoryLimit", 0),
        disk=max(disk, of_each("DiskSpace")),
        wall=run.limits.get("WallTimeLimit") or None,
        nodes=nodes,
    )


def _brought(staging: tuple[Staged, ...], roots: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Inputs by name, and the shell commands for those that share one."""
    inputs: dict[str, str] = {}
    before: list[str] = []
    for place, staged in enumerate(staging):
        if not staged.source:
            continue
        path = _inside(staged, roots)
        if path not in inputs:
            inputs[path] = _source(staged.source)
            continue
        other = f".staged/{place}"
        inputs[other] = _source(staged.source)
        left, right = shlex.quote(path), shlex.quote(other)
        match staged.flag:
            case CreationFlag.APPEND:
                before.append(f"cat {right} >> {left}")
            case CreationFlag.OVERWRITE:
                before.append(f"cp {right} {left}")
            case CreationFlag.DONT_OVERWRITE:
                before.append(f"[ -e {left} ] || cp {right} {left}")
    return inputs, before


def _inside(staged: Staged, roots: dict[str, str]) -> str:
    root = roots.get(staged.file_system)
    if root or staged.file.startswith("/") or ".." in staged.file.split("/"):
        raise NotRunnable(f"{staged.file}: a staged file must be in the job's folder")
    return staged.file


def _source(uri: str) -> str:
    made = _MADE.fullmatch(uri)
    if made is not None:
        return f"${{tasks.{made[1]}.outputs.{made[2]}}}"
    parts = urlsplit(uri)
    return _literal(unquote(parts.path) if parts.scheme == "file" and not parts.netloc else uri)


def _carried(
    staging: tuple[Staged, ...], roots: dict[str, str], notes: list[str]
) -> tuple[dict[str, str], list[str], bool]:
    """Outputs by name, the shell commands that stage them out, and whether a second attempt would have visible effects."""
    outputs: dict[str, str] = {}
    after: list[str] = []
    outside = False
    for staged in staging:
        if staged.target is None:
            continue
        path = _inside(staged, roots)
        outputs[_output_name(staged, outputs)] = path
        parts = urlsplit(staged.target)
        if not staged.target:
            continue
        if parts.scheme not in ("", "file") or parts.netloc or not parts.path.startswith("/"):
            notes.append(f"{staged.file}: kept as an output of the job; {staged.target[:200]} is not written to")
            continue
        left, right = shlex.quote(path), shlex.quote(unquote(parts.path))
        match staged.flag:
            case CreationFlag.APPEND:
                outside = True
                after.append(f"cat {left} >> {right}")
            case CreationFlag.OVERWRITE:
                # Atomic: a reader never sees half a file.
                after.append(f"cp {left} {right}.part$$ && mv -f {right}.part$$ {right}")
            case CreationFlag.DONT_OVERWRITE:
                after.append(f"[ -e {right} ] || {{ cp {left} {right}.part$$ && mv {right}.part$$ {right}; }}")
    return outputs, after, outside


def _output_name(staged: Staged, known: dict[str, str]) -> str:
    wanted = task_name(staged.name or staged.file.rpartition("/")[2].partition(".")[0] or "output")
    return next(name for name in (wanted, *(f"{wanted}-{n}" for n in range(2, 10_000))) if name not in known)


def _script(run: Executing, roots: dict[str, str], before: list[str], after: list[str]) -> str:
    """A shell line around the command; empty if none is needed."""
    streams = "".join(
        f" {sign} {shlex.quote(_path(word, roots))}"
        for sign, word in (("<", run.input), (">", run.output), ("2>", run.error))
        if word is not None
    )
    moved = f"cd {shlex.quote(_path(run.working_directory, roots))} && " if run.working_directory is not None else ""
    limits = list(_limits(run))
    if not (streams or moved or limits or before or after):
        return ""
    made = [f"mkdir -p {shlex.quote(_path(run.working_directory, roots))}"] if run.working_directory is not None else []
    main = f'( {moved}exec "$0" "$@"{streams} )'
    return " && ".join([*made, *before, *limits, main, *after])


def _limits(run: Executing) -> Iterator[str]:
    for name, (option, unit) in _ULIMITS.items():
        if name in run.limits:
            yield f"ulimit {option} {max(1, run.limits[name] // unit) if run.limits[name] else 0}"
