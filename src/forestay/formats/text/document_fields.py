"""Reads the fields of a document and continues after an error, so that all errors are reported at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeVar

from forestay.domain.flows.definition.flow_problem import FlowProblem, Place, did_you_mean
from forestay.domain.jobs.amounts import duration_of, size_of, whole_of

__all__ = ["Fields", "depth_of", "duration_of", "size_of"]

Choice = TypeVar("Choice", bound=StrEnum)


def depth_of(data: object) -> int:
    """How deep a JSON value is nested."""
    depth, level = 0, [data]
    while level:
        depth += 1
        level = [
            inner
            for entry in level
            if isinstance(entry, dict | list)
            for inner in (entry.values() if isinstance(entry, dict) else entry)
        ]
    return depth


class Fields:
    """Reads values and collects their errors."""

    def __init__(self) -> None:
        self.findings: list[FlowProblem] = []

    def wrong(self, at: Place, message: str) -> None:
        self.findings.append(FlowProblem(at, message))

    def record(
        self, data: object, at: Place, known: Iterable[str] | None, *, what: str, needed: Iterable[str] = ()
    ) -> dict[str, object]:
        """A record; with ``known`` no other fields are allowed in it."""
        if not isinstance(data, dict):
            self.wrong(at, f"{what}: expected an object, not {_shown(data)}")
            return {}
        for name in needed:
            if name not in data:
                self.wrong(at, f"{name!r} is missing; {what} needs it")
        if known is None:
            return data
        names = list(dict.fromkeys(known))
        for name in data:
            if name not in names:
                self.wrong((*at, name), f"{what} has no field {name!r}{did_you_mean(name, names)}")
        return {name: value for name, value in data.items() if name in names}

    def text(self, data: object, at: Place, *, empty: bool = False) -> str:
        if not isinstance(data, str) or (not data and not empty):
            self.wrong(at, f"expected a text, not {_shown(data)}")
            return "-"
        return data

    def condition(self, data: object, at: Place) -> str:
        """A condition; ``true`` and ``false`` may be written without quotes."""
        if isinstance(data, bool):
            return "true" if data else "false"
        return self.text(data, at, empty=True) if data != "" else ""

    def texts(self, data: object, at: Place) -> list[str]:
        if not isinstance(data, list):
            self.wrong(at, f"expected a list, not {_shown(data)}")
            return []
        return [self.text(record, (*at, place)) for place, record in enumerate(data)]

    def words(self, data: object, at: Place) -> list[str]:
        """Words of a command: numbers and booleans may be written without quotes."""
        if not isinstance(data, list) or not data:
            self.wrong(at, f"expected a list of words, not {_shown(data)}")
            return []
        return [self._word(record, (*at, place)) for place, record in enumerate(data)]

    def _word(self, data: object, at: Place) -> str:
        if isinstance(data, str):
            return data
        if isinstance(data, int | float):
            return json.dumps(data)
        self.wrong(at, f"expected a word, not {_shown(data)}")
        return "-"

    def words_by_name(self, data: object, at: Place) -> dict[str, str]:
        record = self.record(data, at, None, what="texts by name")
        return {name: self._word(value, (*at, name)) for name, value in record.items()}

    def texts_by_name(self, data: object, at: Place) -> dict[str, str]:
        record = self.record(data, at, None, what="texts by name")
        return {name: self.text(value, (*at, name)) for name, value in record.items()}

    def whole(self, data: object, at: Place) -> int:
        whole = whole_of(data)
        if whole is None:
            self.wrong(at, f"expected an integer, not {_shown(data)}")
            return 1
        return whole

    def truth(self, data: object, at: Place) -> bool:
        if not isinstance(data, bool):
            self.wrong(at, f"expected true or false, not {_shown(data)}")
            return True
        return data

    def number_in(self, read: Callable[[object], int], data: object, at: Place) -> int:
        try:
            return read(data)
        except ValueError as why:
            self.wrong(at, f"{why}, not {_shown(data)}")
            return 1

    def one_of(self, kind: type[Choice], data: object, at: Place) -> Choice:
        members = list(kind)
        for member in members:
            if data == member.value:
                return member
        names = ", ".join(member.value for member in members)
        hint = did_you_mean(data, [member.value for member in members]) if isinstance(data, str) else ""
        self.wrong(at, f"one of {names} is expected, not {_shown(data)}{hint if 'did' in hint else ''}")
        return members[0]


def _shown(data: object) -> str:
    if data is None:
        return "nothing"
    text = json.dumps(data, default=str)
    return text if len(text) <= 40 else text[:37] + "..."
