"""The format of a flow, and what is known of a flow whose tasks are not known beforehand.

YAML and Python are built in; other formats come with packages of their own. Their names are listed here:
they are stored with flows and runs, and a process without the package says which one to install.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

PYTHON = "python"
PACKAGES: Mapping[str, str] = MappingProxyType({"bpel": "forestay-bpel"})
"""The formats that packages add, each with its package."""


class GrownFlow(Protocol):
    """A flow that grows: a function or a process asks for each task while it runs."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """The hash of its content."""
        ...

    @property
    def params(self) -> Mapping[str, object]:
        """The parameters that have a default."""
        ...

    @property
    def needed(self) -> tuple[str, ...]:
        """The parameters that a run must give."""
        ...

    def as_plain(self) -> dict[str, Any]:
        """The stored form, which a run carries too; the name of the format is one of the keys."""
        ...

    def text(self) -> str:
        """The flow as its author wrote it."""
        ...

    def refusal(self, params: Mapping[str, object]) -> str:
        """Why a run cannot start with these parameters; empty if it can."""
        ...


def format_of(plain: Mapping[str, Any]) -> str:
    """The format of a growing flow, from its plain form; empty for a flow in YAML."""
    return next((name for name in (PYTHON, *PACKAGES) if name in plain), "")


def run_type(name: str) -> str:
    """The type of the workflow in which runs of a format execute, a stored name."""
    return f"{name}-run"
