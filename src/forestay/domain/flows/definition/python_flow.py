"""A flow written as a Python function: a run is pinned to its source, and carries it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LANGUAGE = 1


@dataclass(frozen=True, slots=True)
class PythonFlow:
    """One function of a source file."""

    name: str
    """The function's name."""
    source: str
    """The whole file."""
    file: str = ""
    """Its name, for messages."""
    params: Mapping[str, object] = field(default_factory=dict)
    """The function's parameters with a default, a value of JSON types."""
    needed: tuple[str, ...] = ()
    """Those without a default."""
    description: str = ""

    @property
    def version(self) -> str:
        """The hash of the file's content and the function's name."""
        return hashlib.sha256(json.dumps([self.name, self.source]).encode()).hexdigest()

    def text(self) -> str:
        return self.source

    def refusal(self, params: Mapping[str, object]) -> str:
        """Never refuses: a function checks its parameters itself."""
        return ""

    def as_plain(self) -> dict[str, Any]:
        """The stored form, which a run carries too."""
        return {
            "forestay": LANGUAGE,
            "name": self.name,
            "python": self.source,
            "file": self.file,
            "params": dict(self.params),
            "needed": list(self.needed),
            "description": self.description,
        }


def python_from_plain(plain: Mapping[str, Any]) -> PythonFlow:
    return PythonFlow(
        name=plain["name"],
        source=plain["python"],
        file=plain.get("file", ""),
        params=plain.get("params", {}),
        needed=tuple(plain.get("needed", ())),
        description=plain.get("description", ""),
    )
