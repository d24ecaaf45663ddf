"""Requirements in CEL: what holds for which pilot, and every error with its place."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from forestay.adapters.cel.requirements import CelRequirements
from forestay.domain.jobs.resources import Resources
from forestay.domain.pilots.pilot import DEVICES, FEATURES, Pilot, pilot_class

GIB = 1 << 30


def pilot(extra: Mapping[str, object], host: str = "n1") -> Pilot:
    named = {FEATURES: {"os": "el9", "arch": "x86_64", "scratch": "nvme"}, **extra}
    return Pilot("p", "t", host, "north", 1, Resources(cpus=8, memory=64 * GIB, gpus=2), 60, 0, extra=named)


A100 = {DEVICES: [{"name": "GPU-1", "vendor": "nvidia", "model": "A100", "memory": 40 * GIB}]}
MIXED = {DEVICES: [{"name": "a", "model": "A100"}, {"name": "b", "model": "T4"}]}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('gpu.model in ["A100", "H100"] && os == "el9"', True),
        ('gpu.model == "T4"', False),
        ('"T4" in gpu.models', False),
        ('gpu.vendor == "nvidia" && gpu.memory >= 32 * 1024 * 1024 * 1024', True),
        ('features["scratch"] == "nvme"', True),
        ('features["infiniband"] == "yes"', False),
        ('!("infiniband" in features)', True),
        ('arch.startsWith("x86") && cpus >= 8 && gpu.count == 2', True),
        ('host == "n1" || site == "south"', True),
    ],
)
def test_holds(text: str, holds: bool) -> None:
    requirements = CelRequirements()
    assert requirements.problems(text) == ()
    assert requirements.holds(text, pilot_class(pilot(A100)).facts) is holds


def test_several_models_are_all_named() -> None:
    assert CelRequirements().holds('"T4" in gpu.models', pilot_class(pilot(MIXED)).facts)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('gpu.modle == "A100"', 1, 4, "gpu.model"),
        ('os == "el9" &&\n  cpu > 3', 2, 3, "did you mean cpus?"),
        ('os = "el9"', 1, 4, "use =="),
        ("cpus", 1, 1, "must be bool; this is int"),
        ('cpus == "8"', 1, 6, "no matching overload"),
        ('gpu.models.exists(m, m == "A100")', 1, 11, "exists() is not available"),
    ],
)
def test_every_error_has_its_place(text: str, line: int, column: int, words: str) -> None:
    problems = CelRequirements().problems(text)
    assert problems, text
    assert words in " ".join(problem.message for problem in problems)
    assert (line, column) in [(problem.line, problem.column) for problem in problems]


def test_pilots_that_differ_in_their_host_alone_are_of_one_class() -> None:
    assert pilot_class(pilot(A100)).id == pilot_class(pilot(A100, "n2")).id
    assert pilot_class(pilot(A100)).id != pilot_class(pilot(MIXED)).id
