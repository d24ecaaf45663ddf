"""A Python exception as evidence of why something failed."""

from __future__ import annotations

import platform
import traceback
from typing import Any

LONGEST = 8_000
"""Characters of the traceback and of what a process printed; their ends are kept."""


def evidence_of_error(error: BaseException, **more: object) -> dict[str, Any]:
    """Evidence for `report`: the type, the end of the traceback, and of a process its exit code and what it printed."""
    kind = type(error)
    text = "".join(traceback.format_exception(error))
    evidence: dict[str, Any] = {
        "exception": f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__,
        "log_tail": text[-LONGEST:],
        "node": platform.node(),
    }
    code = getattr(error, "returncode", None)
    if isinstance(code, int):
        evidence["exit_code"] = code
    printed = getattr(error, "stderr", None) or getattr(error, "output", None)
    if isinstance(printed, bytes):
        printed = printed.decode(errors="replace")
    if isinstance(printed, str) and printed:
        evidence["log_tail"] = f"{evidence['log_tail']}\n{printed}"[-LONGEST:]
    return evidence | {name: value for name, value in more.items() if value not in (None, "")}
