"""Parses tasks of GA4GH TES 1.1: strictly for clients' requests, tolerantly for other servers' responses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from forestay.domain.flows.definition.flow_problem import FlowProblem, Place
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
    has_wildcard,
)
from forestay.formats.text.document_fields import Fields

MAX_CONTENT = 4 << 20
"""The most bytes of an input that is sent with the task; the specification requires 128 KiB, and one client sends whole scripts."""
MAX_LIST = 10_000
_MOST = 10**6
"""Cores, or GiB."""

Value = TypeVar("Value")


def read_task(data: object) -> TaskDocument | tuple[FlowProblem, ...]:
    """The task that a client requests, or all errors in it.

    Fields that only a server sets (id, state, logs) and fields unknown to TES are ignored.
    """
    fields = _TaskFields()
    task = fields.task(data, ())
    return tuple(fields.findings) if fields.findings else task


def read_shown_task(data: object) -> TaskDocument:
    """A task as a server shows it, in any view; `ValueError` for anything else.

    Unreadable fields count as missing: servers leave out required fields, or send null for them.
    """
    if not isinstance(data, dict):
        raise ValueError("a task is a record")  # noqa: TRY004 - the sender's mistake, not the caller's
    fields = _TaskFields()
    asked = fields.task(data, ())
    return TaskDocument(
        asked.executors,
        asked.inputs,
        asked.outputs,
        asked.resources,
        asked.volumes,
        asked.tags,
        asked.name,
        asked.description,
        id=_text(data.get("id")),
        state=state_named(data.get("state")),
        creation_time=_text(data.get("creation_time")),
        logs=tuple(_log(record) for record in _records(data.get("logs"))),
    )


def state_named(text: object) -> TaskState:
    """A state; UNKNOWN for anything else."""
    return next((state for state in TaskState if state.value == text), TaskState.UNKNOWN)


class _TaskFields(Fields):
    """Fields of a task; null counts as missing."""

    def task(self, data: object, at: Place) -> TaskDocument:
        record = self._record(data, at, "a task", "executors")
        executors = self._each(record, "executors", at, self._executor)
        if "executors" in record and not executors:
            self.wrong((*at, "executors"), "at least one executor is required")
        resources = record.get("resources")
        return TaskDocument(
            executors=executors,
            inputs=self._each(record, "inputs", at, self._input),
            outputs=self._each(record, "outputs", at, self._output),
            resources=None if resources is None else self._resources(resources, (*at, "resources")),
            volumes=self._each(record, "volumes", at, self._path),
            tags=self._texts_of(record, "tags", at),
            name=self._text_of(record, "name", at),
            description=self._text_of(record, "description", at),
        )

    def _executor(self, data: object, at: Place) -> TaskExecutor:
        record = self._record(data, at, "an executor", "image", "command")
        command = self._each(record, "command", at, self._word_of)
        if "command" in record and not command:
            self.wrong((*at, "command"), "a command has at least one word")
        return TaskExecutor(
            image=self._needed(record, "image", at),
            command=command,
            workdir=self._path_of(record, "workdir", at),
            stdin=self._path_of(record, "stdin", at),
            stdout=self._path_of(record, "stdout", at),
            stderr=self._path_of(record, "stderr", at),
            env=self._texts_of(record, "env", at),
            ignore_error=self._truth_of(record, "ignore_error", at) or False,
        )

    def _input(self, data: object, at: Place) -> TaskInput:
        record = self._record(data, at, "an input", "path")
        content = self._text_of(record, "content", at)
        if len(content.encode(errors="replace")) > MAX_CONTENT:
            self.wrong(
                (*at, "content"), f"at most {MAX_CONTENT} bytes may be sent here; put the file where a URL names it"
            )
        url = "" if content else self._text_of(record, "url", at)
        kind = self._type(record, at)
        if not content and not url:
            # An empty file is sent as an empty content and no URL.
            if record.get("content") is None:
                self.wrong(at, "'url' or 'content' is missing; an input needs one of them")
            elif kind is FileType.DIRECTORY:
                self.wrong((*at, "content"), "a folder cannot be sent here")
        if content and kind is FileType.DIRECTORY:
            self.wrong((*at, "content"), "a folder cannot be sent here")
        return TaskInput(
            path=self._needed_path(record, at),
            url=url,
            content=content,
            type=kind,
            name=self._text_of(record, "name", at),
            description=self._text_of(record, "description", at),
            streamable=self._truth_of(record, "streamable", at),
        )

    def _output(self, data: object, at: Place) -> TaskOutput:
        record = self._record(data, at, "an output", "path", "url")
        path = self._needed_path(record, at)
        prefix = self._path_of(record, "path_prefix", at)
        if has_wildcard(path):
            if not prefix:
                self.wrong(at, "'path_prefix' is missing; an output with a wildcard in its path needs it")
            elif not path.startswith(prefix):
                self.wrong((*at, "path_prefix"), f"the path {path[:200]!r} does not begin with it")
        return TaskOutput(
            path=path,
            url=self._needed(record, "url", at),
            path_prefix=prefix,
            type=self._type(record, at),
            name=self._text_of(record, "name", at),
            description=self._text_of(record, "description", at),
        )

    def _resources(self, data: object, at: Place) -> TaskResources:
        record = self._record(data, at, "resources")
        cores = self._number_of(record, "cpu_cores", at)
        return TaskResources(
            cpu_cores=None if cores is None else math.ceil(cores),
            preemptible=self._truth_of(record, "preemptible", at),
            ram_gb=self._number_of(record, "ram_gb", at),
            disk_gb=self._number_of(record, "disk_gb", at),
            zones=self._each(record, "zones", at, self._word_of),
            backend_parameters=self._texts_of(record, "backend_parameters", at),
            backend_parameters_strict=self._truth_of(record, "backend_parameters_strict", at) or False,
        )

    def _record(self, data: object, at: Place, what: str, *needed: str) -> dict[str, object]:
        record = self.record(data, at, None, what=what)
        values = {name: value for name, value in record.items() if value is not None}
        if isinstance(data, dict):
            for name in needed:
                if name not in values:
                    self.wrong(at, f"{name!r} is missing; {what} needs it")
        return values

    def _each(
        self, record: dict[str, object], name: str, at: Place, read: Callable[[object, Place], Value]
    ) -> tuple[Value, ...]:
        value = record.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.wrong((*at, name), f"expected a list, not {type(value).__name__}")
            return ()
        if len(value) > MAX_LIST:
            self.wrong((*at, name), f"at most {MAX_LIST} are allowed")
            return ()
        return tuple(read(entry, (*at, name, place)) for place, entry in enumerate(value))

    def _text_of(self, record: dict[str, object], name: str, at: Place) -> str:
        return self._whole_text(record[name], (*at, name)) if name in record else ""

    def _whole_text(self, data: object, at: Place) -> str:
        text = self.text(data, at, empty=True)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.wrong(at, "it contains a lone surrogate")
            return "-"
        return text

    def _needed(self, record: dict[str, object], name: str, at: Place) -> str:
        text = self._text_of(record, name, at)
        if name in record and not text:
            self.wrong((*at, name), "expected a text")
        return text

    def _word_of(self, data: object, at: Place) -> str:
        word = self._whole_text(data, at)
        if "\0" in word:
            self.wrong(at, "it contains a zero byte")
        return word

    def _texts_of(self, record: dict[str, object], name: str, at: Place) -> dict[str, str]:
        value = record.get(name)
        if value is None:
            return {}
        texts = self.record(value, (*at, name), None, what="texts by name")
        return {
            self._word_of(key, (*at, name)): "" if value is None else self._word_of(value, (*at, name, key))
            for key, value in texts.items()
        }

    def _path_of(self, record: dict[str, object], name: str, at: Place) -> str:
        return self._path(record[name], (*at, name)) if record.get(name, "") != "" else ""

    def _needed_path(self, record: dict[str, object], at: Place) -> str:
        return self._path(record["path"], (*at, "path")) if "path" in record else ""

    def _path(self, data: object, at: Place) -> str:
        path = self._word_of(data, at)
        if not path.startswith("/") or ".." in path.split("/"):
            self.wrong(at, "an absolute path in the container is required, without ..")
        return path

    def _type(self, record: dict[str, object], at: Place) -> FileType:
        given_type = record.get("type")
        return FileType.FILE if given_type is None else self.one_of(FileType, given_type, (*at, "type"))

    def _truth_of(self, record: dict[str, object], name: str, at: Place) -> bool | None:
        return self.truth(record[name], (*at, name)) if name in record else None

    def _number_of(self, record: dict[str, object], name: str, at: Place) -> float | None:
        number = record.get(name)
        if number is None:
            return None
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= _MOST:
            self.wrong((*at, name), f"a number that is not negative, and at most {_MOST}, is needed here")
            return None
        return number


def _log(data: dict[str, Any]) -> TaskLog:
    metadata = data.get("metadata")
    system_logs = data.get("system_logs")
    return TaskLog(
        logs=tuple(
            ExecutorLog(
                exit_code=_whole(record.get("exit_code")),
                start_time=_text(record.get("start_time")),
                end_time=_text(record.get("end_time")),
                stdout=_text(record.get("stdout")),
                stderr=_text(record.get("stderr")),
            )
            for record in _records(data.get("logs"))
        ),
        outputs=tuple(
            OutputFile(_text(record.get("url")), _text(record.get("path")), _whole(record.get("size_bytes")))
            for record in _records(data.get("outputs"))
        ),
        metadata={key: _text(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {},
        start_time=_text(data.get("start_time")),
        end_time=_text(data.get("end_time")),
        system_logs=tuple(_text(system_log) for system_log in system_logs) if isinstance(system_logs, list) else (),
    )


def _records(data: object) -> list[dict[str, Any]]:
    return [record for record in data if isinstance(record, dict)] if isinstance(data, list) else []


def _text(data: object) -> str:
    return data if isinstance(data, str) else "" if data is None else str(data)


def _whole(data: object) -> int:
    try:
        return int(data) if isinstance(data, int | str) else 0
    except ValueError:
        return 0
