"""Requirements of jobs evaluated by cel-expr-python: a small environment of their own, over what pilots advertise."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]

from forestay.adapters.cel.conditions import assignments, told
from forestay.domain.rules.condition import check_bounds
from forestay.ports.jobs.requirements import Requirements
from forestay.ports.rules.conditions import ConditionProblem

_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("os", "arch", "host", "site", "gpu.model", "gpu.vendor"), cel.Type.STRING),
    **dict.fromkeys(("cpus", "memory", "disk", "gpu.count", "gpu.memory"), cel.Type.INT),
    "gpu.models": cel.Type.List(cel.Type.STRING),
    "features": cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
}
_ADVICE = 'use one of os, arch, host, site, cpus, memory, disk, gpu.model, gpu.models, gpu.vendor, gpu.count, gpu.memory, features["NAME"]'
_WALKS = re.compile(r"\.\s*(all|exists|exists_one|filter|map)\s*\(")
_MOST_KEPT = 10_000


class CelRequirements(Requirements):
    """Implements the port `Requirements`."""

    def __init__(self) -> None:
        self._environment = cel.NewEnv(variables=_FIELDS)
        self._known: dict[str, Any] = {}
        """The compiled texts, or their problems."""

    def problems(self, text: str) -> Sequence[ConditionProblem]:
        known = self._of(text)
        return known if isinstance(known, tuple) else ()

    def holds(self, text: str, facts: Mapping[str, object]) -> bool:
        known = self._of(text)
        if isinstance(known, tuple):
            return False
        try:
            value = known.eval(activation=self._environment.Activation(dict(facts))).value()
        except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError, KeyError):
            return False
        return value is True

    def _of(self, text: str) -> Any:
        known = self._known.get(text)
        if known is None:
            while len(self._known) >= _MOST_KEPT:
                self._known.pop(next(iter(self._known)))
            known = self._known[text] = self._compiled(text)
        return known

    def _compiled(self, text: str) -> Any:
        wrong = [ConditionProblem(0, 0, message) for message in check_bounds(text)]
        if wrong:
            return tuple(wrong)
        for match in _WALKS.finditer(text):
            line, column = text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start())
            wrong.append(ConditionProblem(line, column, f"{match[1]}() is not available here; use in, == and &&"))
        try:
            compiled = self._environment.compile(text)
        except (RuntimeError, ValueError) as error:
            return (*wrong, *(assignments(text) or told(error, _FIELDS, _ADVICE)))
        if compiled.return_type() != cel.Type.BOOL:
            kind = compiled.return_type().name().lower()
            wrong.append(ConditionProblem(1, 1, f"a requirement must be bool; this is {kind}"))
        return tuple(wrong) or compiled
