"""An error in a flow: its position and a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

Place = tuple[str | int, ...]
"""The path in the document: ``("tasks", "align", "command", 2)``."""


@dataclass(frozen=True, slots=True)
class FlowProblem:
    """One error."""

    path: Place
    message: str

    @property
    def where(self) -> str:
        """The path in readable form: ``tasks.align.command[2]``."""
        text = ""
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        return text


_MEANT = {
    **dict.fromkeys(("attempts", "max_retries", "retries", "retry", "tries"), "max_attempts"),
    **dict.fromkeys(("backoff", "retry_delay"), "retry_wait"),
    **dict.fromkeys(("depends", "depends_on", "dependencies", "requires"), "after"),
    **dict.fromkeys(("cores", "cpu", "cpus", "gpus", "mem", "memory", "time", "walltime"), "resources"),
    **dict.fromkeys(("env", "vars"), "environment"),
    **dict.fromkeys(("cmd", "exec"), "command"),
}
"""Names that other systems use."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown name, as the end of a sentence."""
    names = sorted(known)
    meant = _MEANT.get(name.lower())
    if meant in names:
        return f"; did you mean {meant!r}?"
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there is {', '.join(repr(other_name) for other_name in names[:8])}" if names else "; there is none"
