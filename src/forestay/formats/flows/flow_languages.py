"""The flow languages that a server accepts: name, versions, and reader of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forestay.formats.flows.yaml_flow import FlowText, read_flow_text

Files = Mapping[str, bytes]
"""The files that came with a flow, by name."""


@dataclass(frozen=True, slots=True)
class FlowLanguage:
    """One language."""

    versions: tuple[str, ...]
    read: Callable[[str, Files], FlowText]
    """Reads a flow from a text, or returns the errors; other files that came with it may be parts of it."""


def _yaml(text: str, _files: Files) -> FlowText:
    return read_flow_text(text)


LANGUAGES: Mapping[str, FlowLanguage] = {"FORESTAY": FlowLanguage(("1",), _yaml)}
"""By the name of their workflow type. Python flows are not included: code must not be sent to a server."""
PYTHON: Mapping[str, tuple[str, ...]] = {"FORESTAY-PYTHON": ("1",), "PY": ("3",)}
"""The types of Python flows, of which a server runs those in its operator's folder; the second is the reference client's name for them."""
