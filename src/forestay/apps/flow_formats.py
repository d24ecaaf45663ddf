"""Loads the flow formats of installed packages; the port `FlowFormat` defines what such a package provides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from forestay.domain.flows.definition.flow_format import PACKAGES
from forestay.ports.flows.flow_format import FlowFormat, NotInstalled

if TYPE_CHECKING:
    from forestay.apps.server.http.router import Router

__all__ = ["FormatPackage", "InstalledFormats", "NotInstalled"]
GROUP = "forestay.flow_formats"


class FormatPackage(FlowFormat, Protocol):
    """What a package provides for its format in the processes and on the command line."""

    def routers(self) -> Sequence[Router]:
        """The routes of its documents. They are loaded when a server starts, so readers are imported only inside their functions."""
        ...

    def commands(self) -> Mapping[str, Callable[..., int]]:
        """The sub-commands of `forestay NAME`."""
        ...


class InstalledFormats:
    """Implements the port `FlowFormats`. Packages are looked up only when a format is requested."""

    def get(self, name: str) -> FormatPackage:
        package = _package(name)
        if package is None:
            raise NotInstalled(name)
        return package

    def installed(self) -> Sequence[FormatPackage]:
        return list(self._installed())

    def _installed(self) -> Iterator[FormatPackage]:
        for name in PACKAGES:
            if (package := _package(name)) is not None:
                yield package


@cache
def _package(name: str) -> FormatPackage | None:
    # Slow to import, and not needed by most commands.
    from importlib.metadata import PackageNotFoundError, distribution

    # By the package's name: reading the entry points of all installed packages takes thirty times as long.
    try:
        points = distribution(PACKAGES[name]).entry_points.select(group=GROUP, name=name)
    except PackageNotFoundError:
        return None
    return next((cast("FormatPackage", point.load()) for point in points), None)
