"""Exlets as files beside the flows of their worklets: a worklet that is named by a file gets the version of the flow in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exlets.exlet import Exlet, PlaybookStep
from forestay.domain.exlets.primitive import CompensateAction, Select, Worklet, worklets_of
from forestay.formats.rules.exlet_json import ExletText, read_exlet_text

ENDINGS = (".yaml", ".yml", ".json")
TYPES: Sequence[str] = tuple(one.value for one in ExceptionType)


def read_exlet_of_type(text: str, type_: str | None) -> ExletText:
    """Read and check an exlet, also for a type of exception by its name, which is one of `TYPES`."""
    return read_exlet_text(text, ExceptionType(type_) if type_ else None)


def worklet_files(exlet: Exlet) -> Sequence[str]:
    """The files that an exlet names in the place of versions, each once."""
    named = (one.flow for step in exlet.steps for one in worklets_of(step.do))
    return list(dict.fromkeys(flow for flow in named if flow.endswith(ENDINGS)))


def with_versions(exlet: Exlet, versions: Mapping[str, str]) -> Exlet:
    """The exlet with the versions of its worklets in the place of their files."""

    def known(worklet: Worklet) -> Worklet:
        return replace(worklet, flow=versions.get(worklet.flow, worklet.flow))

    def changed(step: PlaybookStep) -> PlaybookStep:
        match step.do:
            case CompensateAction(worklets):
                return replace(step, do=CompensateAction(tuple(known(one) for one in worklets)))
            case Select(worklet):
                return replace(step, do=Select(known(worklet)))
            case _:
                return step

    return replace(exlet, steps=tuple(changed(step) for step in exlet.steps))
