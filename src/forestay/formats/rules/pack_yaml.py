"""Packs in YAML: patterns with their examples. All errors are reported at once, with line and column."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from forestay.domain.exceptions.causes.cause import Cause, RetryNeed
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.causes.failure_pattern import FailurePattern, MeasureComparison, PatternConditions
from forestay.domain.exceptions.evidence.evidence import (
    MEASURES,
    AttemptStage,
    PreparedEvidence,
    Scheduler,
    Search,
    plain_word,
)
from forestay.domain.exceptions.evidence.linear_regex import compiled, problem_of
from forestay.domain.exceptions.evidence.signals import number_of
from forestay.domain.flows.definition.flow_problem import FlowProblem, Place, did_you_mean
from forestay.formats.flows.yaml_flow import TextProblem, text_problems
from forestay.formats.rules.evidence_json import read_evidence
from forestay.formats.text.yaml_text import read_yaml

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+){0,15}")
_PACK_FIELDS = ("pack", "version", "patterns")
_FIELDS = ("name", "cause", "retry", "confidence", "weight", "when", "words", "advice", "matches", "passes")
_NEEDED = ("name", "cause", "retry", "confidence", "weight", "when", "words", "matches", "passes")
_SEARCH_FIELDS = ("find", "not")
_SEARCHES = ("scheduler_reason", "transfer", "lines", "not_lines", "also", "unless")
WHEN_FIELDS = (
    "exit_code", "signal", "scheduler", "scheduler_state", "scheduler_word", "hold_code", "hold_subcode", "stage", *_SEARCHES, *MEASURES,
)  # fmt: skip
# libyaml's parser is about twenty times as fast, and packs are read at every start of a command.
_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BOUND = re.compile(r"(>=|<=|==|>|<) ?([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(%|B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB|s|min|h|d)?")
_UNITS = {
    "%": 0.01, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
    "s": 1, "min": 60, "h": 3600, "d": 86_400,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fixtures:
    """The evidence that a pattern is tested with."""

    matches: tuple[Mapping[str, Any], ...]
    passes: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class PackPattern:
    """A pattern with its examples and its position."""

    pattern: FailurePattern
    fixtures: Fixtures
    line: int
    written: Mapping[str, Any]
    """The pattern as written."""


@dataclass(frozen=True, slots=True)
class PackText:
    """The result of reading a pack's text: its valid patterns, and the errors."""

    name: str
    version: int
    patterns: tuple[PackPattern, ...]
    problems: tuple[TextProblem, ...]


def read_pack_text(text: str) -> PackText:
    """Read and check one file of a pack."""
    document = read_yaml(text, loader=_FAST)
    reader = _PackReader(list(document.findings))
    if not reader.findings:
        reader.read(document.value)
    patterns = tuple(
        PackPattern(pattern, fixtures, document.position(("patterns", place)).line, written)
        for place, pattern, fixtures, written in reader.patterns
    )
    return PackText(reader.pack, reader.version, patterns, text_problems(document, reader.findings))


def pattern_to_json(pack_pattern: PackPattern) -> dict[str, Any]:
    """A pattern as written, with its pack."""
    return {"pack": pack_pattern.pattern.pack, **pack_pattern.written}


def failed_fixtures(pack_pattern: PackPattern, classifier: Classifier) -> list[str]:
    """The failed fixtures of a pattern, in words."""
    lines = []
    pattern = pack_pattern.pattern
    for number, plain in enumerate(pack_pattern.fixtures.matches, 1):
        evidence = read_evidence(plain)
        if pattern.match(PreparedEvidence(evidence)) is None:
            lines.append(f"{pattern.name}: match {number} is not matched by the pattern")
            continue
        answer = classifier.classify(evidence)
        if answer.cause is not pattern.cause:
            by = f"by {answer.pattern}" if answer.pattern else answer.words
            lines.append(f"{pattern.name}: match {number} is classified as {answer.cause} ({by}), not {pattern.cause}")
    for number, plain in enumerate(pack_pattern.fixtures.passes, 1):
        if pattern.match(PreparedEvidence(read_evidence(plain))) is not None:
            lines.append(f"{pattern.name}: pass {number} is matched, and should not be")
    return lines


class _PackReader:
    def __init__(self, findings: list[FlowProblem]) -> None:
        self.findings = findings
        self.pack = ""
        self.version = 0
        self.patterns: list[tuple[int, FailurePattern, Fixtures, Mapping[str, Any]]] = []

    def wrong(self, path: Place, message: str) -> None:
        self.findings.append(FlowProblem(path, message))

    def read(self, value: object) -> None:
        if not isinstance(value, dict):
            self.wrong((), "a pack is a mapping with pack, version and patterns")
            return
        self.known(value, _PACK_FIELDS, _PACK_FIELDS, ())
        name = value.get("pack", "")
        if "pack" in value and not (isinstance(name, str) and _NAME.fullmatch(name)):
            self.wrong(("pack",), "a pack's name consists of lower-case words joined by hyphens")
        self.pack = str(name)
        version = value.get("version", 1)
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            self.wrong(("version",), "a version is a whole number from 1")
        else:
            self.version = version
        patterns = value.get("patterns", [])
        if not isinstance(patterns, list):
            self.wrong(("patterns",), "this must be a list")
            return
        names: dict[str, int] = {}
        for place, pattern in enumerate(patterns):
            self.pattern(pattern, ("patterns", place), place)
            if isinstance(pattern, dict) and isinstance(pattern.get("name"), str):
                if pattern["name"] in names:
                    self.wrong(
                        ("patterns", place, "name"), f"there is a pattern {pattern['name']!r} in this file already"
                    )
                names[pattern["name"]] = place

    def known(self, value: Mapping[str, Any], fields: tuple[str, ...], needed: tuple[str, ...], path: Place) -> None:
        for name in value:
            if name not in fields:
                self.wrong((*path, name), f"there is no field {name!r}{did_you_mean(name, fields)}")
        for name in needed:
            if name not in value:
                self.wrong(path, f"{name!r} is missing")

    def pattern(self, value: object, path: Place, place: int) -> None:
        if not isinstance(value, dict):
            self.wrong(path, "a pattern is a mapping")
            return
        before = len(self.findings)
        self.known(value, _FIELDS, _NEEDED, path)
        name = value.get("name", "")
        if "name" in value and not (isinstance(name, str) and _NAME.fullmatch(name)):
            self.wrong((*path, "name"), "a name consists of lower-case words joined by hyphens")
        cause = self.one_of(value, "cause", tuple(str(other_cause) for other_cause in Cause), path)
        retry = self.one_of(value, "retry", tuple(str(other_retry) for other_retry in RetryNeed), path)
        confidence = self.between(value, "confidence", 0.0, 1.0, path)
        weight = self.between(value, "weight", 0, 100, path)
        for text in ("words", "advice"):
            if text in value and not (isinstance(value[text], str) and value[text].strip()):
                self.wrong((*path, text), "this must be a text")
        when = self.when(value.get("when", {}), (*path, "when"))
        fixtures = Fixtures(self.fixtures(value, "matches", path), self.fixtures(value, "passes", path))
        if len(self.findings) == before and when is not None:
            pattern = FailurePattern(
                name, Cause(cause), RetryNeed(retry), confidence, int(weight), when, value["words"].strip(), str(value.get("advice", "")).strip(), self.pack,
            )  # fmt: skip
            self.patterns.append((place, pattern, fixtures, value))

    def one_of(self, value: Mapping[str, Any], field: str, known: tuple[str, ...], path: Place) -> str:
        choice = value.get(field, known[0])
        if choice not in known:
            self.wrong((*path, field), f"there is no {field} {choice!r}{did_you_mean(str(choice), known)}")
        return str(choice)

    def between(self, value: Mapping[str, Any], field: str, least: float, most: float, path: Place) -> float:
        number = value.get(field, least)
        if not isinstance(number, int | float) or isinstance(number, bool) or not least <= number <= most:
            self.wrong((*path, field), f"this is a number from {least} to {most}")
            return least
        return float(number)

    def fixtures(self, value: Mapping[str, Any], field: str, path: Place) -> tuple[Mapping[str, Any], ...]:
        fixtures = value.get(field)
        if field not in value:
            return ()
        if not isinstance(fixtures, list) or not fixtures:
            self.wrong((*path, field), "this is a list of one or more evidence records")
            return ()
        for place, fixture in enumerate(fixtures):
            if not isinstance(fixture, dict):
                self.wrong((*path, field, place), "an evidence record is a mapping")
        return tuple(fixture for fixture in fixtures if isinstance(fixture, dict))

    def when(self, value: object, path: Place) -> PatternConditions | None:
        if not isinstance(value, dict) or not value:
            self.wrong(path, "this says what must hold: one field or more")
            return None
        self.known(value, WHEN_FIELDS, (), path)
        searches = {name: self.searches(value, name, path) for name in _SEARCHES}
        scheduler = [
            text for text in self.texts(value, "scheduler", path) if self.among(text, Scheduler, (*path, "scheduler"))
        ]
        stage = [text for text in self.texts(value, "stage", path) if self.among(text, AttemptStage, (*path, "stage"))]
        if not any(name in value for name in WHEN_FIELDS if name not in ("scheduler", "stage", "unless", "not_lines")):
            self.wrong(path, "a scheduler, a stage, 'not_lines' or 'unless' alone does not indicate a cause")
        return PatternConditions(
            exit_code=self.wholes(value, "exit_code", path),
            hold_code=self.wholes(value, "hold_code", path),
            hold_subcode=self.wholes(value, "hold_subcode", path),
            scheduler_state=self.words(value, "scheduler_state", path),
            scheduler_word=self.words(value, "scheduler_word", path),
            scheduler_reason=searches["scheduler_reason"],
            transfer=searches["transfer"],
            lines=searches["lines"],
            not_lines=searches["not_lines"],
            also=searches["also"],
            unless=searches["unless"],
            signal=self.signals(value, path),
            scheduler=frozenset(Scheduler(name) for name in scheduler),
            stage=frozenset(AttemptStage(name) for name in stage),
            compare=tuple(
                comparison
                for name in MEASURES
                if name in value and (comparison := self.compare(value[name], name, path))
            ),
        )

    def among(self, name: str, known: type[Scheduler] | type[AttemptStage], path: Place) -> bool:
        names = [str(choice) for choice in known]
        if name not in names:
            self.wrong(path, f"there is no {name!r}{did_you_mean(name, names)}")
        return name in names

    def listed(self, value: Mapping[str, Any], field: str) -> list[tuple[Place, Any]]:
        if field not in value:
            return []
        listed = value[field]
        return [((place,), entry) for place, entry in enumerate(listed)] if isinstance(listed, list) else [((), listed)]

    def texts(self, value: Mapping[str, Any], field: str, path: Place) -> list[str]:
        texts = []
        for at, text in self.listed(value, field):
            if isinstance(text, str) and text:
                texts.append(text)
            else:
                self.wrong((*path, field, *at), "this must be a text; put it into quotes")
        return texts

    def words(self, value: Mapping[str, Any], field: str, path: Place) -> frozenset[str]:
        return frozenset(plain_word(text) for text in self.texts(value, field, path)) - {""}

    def wholes(self, value: Mapping[str, Any], field: str, path: Place) -> frozenset[int]:
        numbers = set()
        for at, number in self.listed(value, field):
            if isinstance(number, int) and not isinstance(number, bool):
                numbers.add(number)
            else:
                self.wrong((*path, field, *at), "this must be a whole number")
        return frozenset(numbers)

    def signals(self, value: Mapping[str, Any], path: Place) -> frozenset[int]:
        numbers = set()
        for at, signal in self.listed(value, "signal"):
            number = number_of(str(signal)) if isinstance(signal, int | str) and not isinstance(signal, bool) else None
            if number is None:
                self.wrong((*path, "signal", *at), f"there is no signal {signal!r}; write 9 or SIGKILL")
            else:
                numbers.add(number)
        return frozenset(numbers)

    def searches(self, value: Mapping[str, Any], field: str, path: Place) -> tuple[Search, ...]:
        searches = []
        for at, entry in self.listed(value, field):
            place = (*path, field, *at)
            if not isinstance(entry, dict):
                if self.expression(entry, place):
                    searches.append(Search(entry))
                continue
            self.known(entry, _SEARCH_FIELDS, _SEARCH_FIELDS, place)
            usable = [self.expression(entry[name], (*place, name)) for name in _SEARCH_FIELDS if name in entry]
            if usable == [True, True]:
                searches.append(Search(entry["find"], entry["not"]))
        return tuple(searches)

    def expression(self, expression: object, path: Place) -> bool:
        """Whether a regular expression can be used."""
        if not isinstance(expression, str) or not expression:
            problem = "it must be a text; put it into quotes"
        elif not (problem := problem_of(expression)) and compiled(expression).search(b""):
            problem = "it matches an empty line, and so every line"
        if problem:
            self.wrong(path, f"this expression cannot be used: {problem}")
        return not problem

    def compare(self, value: object, measure: str, path: Place) -> MeasureComparison | None:
        match = _BOUND.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            self.wrong((*path, measure), "expected a comparison such as '>=0.95', '<100 MB' or '>0'")
            return None
        return MeasureComparison(measure, match[1], float(match[2]) * _UNITS.get(match[3] or "B", 1))
