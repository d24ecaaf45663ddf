"""A flow format that an optional package adds, such as WS-BPEL.

The package registers an object that implements `FlowFormat` as an entry point of the group ``forestay.flow_formats``,
under the name of the format. It adds to a server's attack surface and start-up time only where it is installed and
used: each method imports what it returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from forestay.domain.flows.definition.flow_format import PACKAGES, GrownFlow
from forestay.ports.errors import Permanent

CALLBACK_MARKS: Mapping[str, str] = MappingProxyType({"soap": "bpel"})
"""The fragments of callback addresses whose engines are notified in their own format, each with that format; a stored name."""


class NotInstalled(Permanent):
    """The package of a format is not installed in this process."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name.upper()} needs the package {PACKAGES[name]}, which is not installed here: pip install 'forestay[{name}]'"
        )


class CallbackBody(NamedTuple):
    """The body of a callback to an engine on a job's completion."""

    content: bytes
    headers: Mapping[str, str]


class FlowFormat(Protocol):
    """What a package provides for its format."""

    @property
    def pure_modules(self) -> tuple[str, ...]:
        """Modules that workflows share instead of loading copies: they use no clock and do no I/O, and have no state."""
        ...

    def read(self, plain: Mapping[str, Any]) -> GrownFlow:
        """A stored flow from its plain form."""
        ...

    def workflow(self) -> type[Any]:
        """The workflow in which runs execute; `run_type` names it."""
        ...

    def callback(self, facts: Mapping[str, object]) -> CallbackBody:
        """The completion of a job, for an engine of this format."""
        ...


class FlowFormats(Protocol):
    """The formats of this process."""

    def get(self, name: str) -> FlowFormat:
        """The format of this name; `NotInstalled`."""
        ...

    def installed(self) -> Sequence[FlowFormat]: ...


class NoFormats:
    """The formats of a process that reads only YAML and Python."""

    def get(self, name: str) -> FlowFormat:
        raise NotInstalled(name)

    def installed(self) -> Sequence[FlowFormat]:
        return ()
