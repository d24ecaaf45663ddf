"""Playbooks as files beside the flows of their worklets: a worklet that is named by a file gets the version of the flow in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.playbooks.action import CompensateAction, Select, Worklet, worklets_of
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep
from forestay.formats.rules.playbook_json import PlaybookText, read_playbook_text

ENDINGS = (".yaml", ".yml", ".json")
TYPES: Sequence[str] = tuple(exception_type.value for exception_type in ExceptionType)


def read_playbook_of_type(text: str, type_: str | None) -> PlaybookText:
    """Read and check a playbook, optionally for an exception type by its name, which is one of `TYPES`."""
    return read_playbook_text(text, ExceptionType(type_) if type_ else None)


def worklet_files(playbook: Playbook) -> Sequence[str]:
    """The files that a playbook names instead of versions, each once."""
    named = (worklet.flow for step in playbook.steps for worklet in worklets_of(step.do))
    return list(dict.fromkeys(flow for flow in named if flow.endswith(ENDINGS)))


def with_versions(playbook: Playbook, versions: Mapping[str, str]) -> Playbook:
    """The playbook with the files of its worklets replaced by their versions."""

    def known(worklet: Worklet) -> Worklet:
        return replace(worklet, flow=versions.get(worklet.flow, worklet.flow))

    def changed(step: PlaybookStep) -> PlaybookStep:
        match step.do:
            case CompensateAction(worklets):
                return replace(step, do=CompensateAction(tuple(known(other_worklet) for other_worklet in worklets)))
            case Select(worklet):
                return replace(step, do=Select(known(worklet)))
            case _:
                return step

    return replace(playbook, steps=tuple(changed(step) for step in playbook.steps))
