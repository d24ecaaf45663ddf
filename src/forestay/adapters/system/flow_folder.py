"""The operator's folder of Python flows, read again when a file in it has changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from forestay.domain.flows.definition.python_flow import PythonFlow
from forestay.formats.flows.python_flow import PythonFile, read_python_flows

Mark = tuple[int, int, int]
"""The attributes by which a change of a file is detected."""


@dataclass(slots=True)
class FlowFolder:
    """Flows by name. If two have the same name, the first file wins; `problems` reports the other."""

    place: Path | None
    problems: tuple[str, ...] = ()
    _read: dict[str, tuple[Mark, PythonFile]] = field(default_factory=dict)

    def flows(self) -> dict[str, PythonFlow]:
        """All present flows."""
        flows: dict[str, PythonFlow] = {}
        problems: list[str] = []
        places = sorted(self.place.glob("*.py")) if self.place is not None else []
        self._read = {name: flow for name, flow in self._read.items() if name in {str(place) for place in places}}
        for place in places:
            try:
                file = self._file(place)
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{place.name}: {error}")
                continue
            problems += [f"{place.name}:{flow}" for flow in file.problems]
            for flow in file.flows:
                if flow.name in flows:
                    problems.append(f"{place.name}: {flows[flow.name].file} already has a flow {flow.name}")
                else:
                    flows[flow.name] = flow
        self.problems = tuple(problems)
        return flows

    def _file(self, place: Path) -> PythonFile:
        about = place.stat()
        mark = (about.st_mtime_ns, about.st_size, about.st_ino)
        known = self._read.get(str(place))
        if known is None or known[0] != mark:
            known = self._read[str(place)] = (mark, read_python_flows(place.read_text("utf-8"), place.name))
        return known[1]
