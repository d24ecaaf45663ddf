"""Runs TLC, the model checker of TLA+, and reads what it prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.model.variants import CHECKS, INVARIANTS, SMALL, SMALL_ARRAY, Variant

HERE = Path(__file__).parent
SERVERS = Path(__file__).parents[3] / "scripts" / "servers"

Value = Any
"""A value of TLA+: texts, numbers, truth values, tuples, frozen sets as sorted tuples, records and functions as dicts."""


@dataclass(frozen=True, slots=True)
class Step:
    """An action, and the state after it."""

    action: str
    state: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Checked:
    """What TLC said of one variant."""

    variant: Variant
    generated: int
    distinct: int
    seconds: float
    violated: str
    """The invariant; empty if all hold."""
    steps: tuple[Step, ...]

    @property
    def promise(self) -> str:
        """What was broken, in words."""
        return (self.steps[-1].state["broken"] or self.violated) if self.steps else ""

    @property
    def as_expected(self) -> bool:
        return self.promise == self.variant.breaks

    @property
    def verdict(self) -> str:
        found = f"broken after {len(self.steps) - 1} steps: {self.promise}" if self.violated else "holds"
        return found if self.as_expected else f"UNEXPECTED: {found}"


def java() -> str | None:
    """A Java to run TLC with; none where there is none."""
    homes = sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    return shutil.which("java") or next((str(home) for home in homes), None)


def tools() -> str:
    """Where the checker is; fetched the first time."""
    subprocess.run([SERVERS, "install", "tlc"], check=True)
    return subprocess.run([SERVERS, "program", "tlc"], check=True, capture_output=True, text=True).stdout.strip()


def configuration(variant: Variant) -> str:
    """What TLC reads beside the module."""
    module = variant.bound.module
    names = {"Pilots": "p", "Jobs": "j", "Elements": "e"}
    constants = ["NoOne = NoOne", *(["Scanner = Scanner"] if module == "Claims" else [])]
    for name, size in variant.bound.sizes:
        if name in names:
            members = [f"{names[name]}{number}" for number in range(1, size + 1)]
            constants += [f"{member} = {member}" for member in members]
            constants.append(f"{name} = {{{', '.join(members)}}}")
        else:
            constants.append(f"{name} = {size}")
    constants += [f"{check} = {'FALSE' if check in variant.without else 'TRUE'}" for check in CHECKS[module]]
    lines = ["SPECIFICATION Spec", "SYMMETRY Symmetry", "CHECK_DEADLOCK FALSE"]
    lines += [f"INVARIANT {name}" for name in INVARIANTS[module]]
    return "\n".join([*lines, "CONSTANTS", *(f"  {line}" for line in constants), ""])


def check(variant: Variant, *, program: str, jar: str) -> Checked:
    """Examine every state of a variant. One worker, breadth first: a trace is a shortest one, and the same in every run."""
    module = variant.bound.module
    with tempfile.TemporaryDirectory(prefix="forestay-model-") as folder:
        shutil.copy(HERE / f"{module}.tla", folder)
        Path(folder, "model.cfg").write_text(configuration(variant))
        # The simple compiler: most runs are over before the other one pays.
        quick = ["-XX:TieredStopAtLevel=1"] if variant.breaks or variant.bound in (SMALL, SMALL_ARRAY) else []
        command = [program, *quick, "-XX:+UseSerialGC", "-Xmx2g", f"-Djava.io.tmpdir={folder}", "-cp", jar, "tlc2.TLC"]
        command += ["-workers", "1", "-seed", "1", "-fp", "1", "-nowarning", "-config", "model.cfg", module]
        began = time.monotonic()
        ran = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: os.nice(max(0, 10 - os.nice(0))),
        )
        seconds = time.monotonic() - began
    counts = re.search(r"(\d+) states generated, (\d+) distinct states found, (\d+) states left", ran.stdout)
    violated = re.search(r"Invariant (\w+) is violated", ran.stdout)
    finished = "No error has been found" in ran.stdout
    if counts is None or not (violated or finished):
        raise RuntimeError(f"TLC could not check {variant.name}:\n{ran.stdout[-4000:]}{ran.stderr[-1000:]}")
    generated, distinct = int(counts[1]), int(counts[2])
    name = violated[1] if violated else ""
    return Checked(variant, generated, distinct, seconds, name, tuple(read_trace(ran.stdout)))


def read_trace(text: str) -> Iterator[Step]:
    """The states of a counter-example, in order."""
    for block in re.split(r"^State \d+: ", text, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        body = re.split(r"\n\n", body)[0]
        action = re.match(r"<(\w+)", head)
        pairs = re.split(r"^/\\ ", body, flags=re.MULTILINE)[1:]
        state = {name.strip(): read_value(value) for name, _, value in (pair.partition("=") for pair in pairs)}
        yield Step(action[1] if action else "", state)


_WORD = re.compile(r'\s*("(?:[^"\\]|\\.)*"|<<|>>|\|->|:>|@@|[\[\]{}(),]|-?\d+|\w+)')


def read_value(text: str) -> Value:
    """A value as TLC prints it."""
    words = [match[1] for match in _WORD.finditer(text)]
    value, rest = _value(words)
    if rest:
        raise ValueError(f"not understood: {' '.join(rest)}")
    return value


def _value(words: list[str]) -> tuple[Value, list[str]]:
    first, rest = words[0], words[1:]
    if first == "<<":
        return _several(rest, ">>")
    if first == "{":
        members, rest = _several(rest, "}")
        return tuple(sorted(members, key=str)), rest
    if first == "(":
        function: dict[str, Value] = {}
        while True:
            key, rest = _value(rest)
            value, rest = _value(rest[1:])  # after :>
            function[str(key)] = value
            separator, rest = rest[0], rest[1:]
            if separator == ")":
                return function, rest
    if first == "[":
        record: dict[str, Value] = {}
        while True:
            key, rest = rest[0], rest[2:]  # after |->
            record[key], rest = _value(rest)
            separator, rest = rest[0], rest[1:]
            if separator == "]":
                return record, rest
    if first.startswith('"'):
        return first[1:-1], rest
    if first in ("TRUE", "FALSE"):
        return first == "TRUE", rest
    return int(first) if first.lstrip("-").isdigit() else first, rest


def _several(words: list[str], end: str) -> tuple[tuple[Value, ...], list[str]]:
    members: list[Value] = []
    while words[0] != end:
        member, words = _value(words)
        members.append(member)
        words = words[1:] if words[0] == "," else words
    return tuple(members), words[1:]
