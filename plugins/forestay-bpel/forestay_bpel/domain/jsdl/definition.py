"""A job definition in JSDL 1.0, with the POSIX and the HPC Profile application."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

JSDL = "http://schemas.ggf.org/jsdl/2005/11/jsdl"
POSIX = "http://schemas.ggf.org/jsdl/2005/11/jsdl-posix"
CONTAINER = "{urn:forestay:jsdl}Container"
"""The image that the application runs in: an element of Forestay's own inside `Application`, which JSDL allows."""
HPC = "http://schemas.ggf.org/jsdl/2006/07/jsdl-hpcpa"

LIMITS = (
    "WallTimeLimit", "FileSizeLimit", "CoreDumpLimit", "DataSegmentLimit", "LockedMemoryLimit", "MemoryLimit", "OpenDescriptorsLimit",
    "PipeSizeLimit", "StackSizeLimit", "CPUTimeLimit", "ProcessCountLimit", "VirtualMemoryLimit", "ThreadCountLimit",
)  # fmt: skip
RANGES = (
    "IndividualCPUSpeed", "IndividualCPUTime", "IndividualCPUCount", "IndividualNetworkBandwidth", "IndividualPhysicalMemory",
    "IndividualVirtualMemory", "IndividualDiskSpace", "TotalCPUTime", "TotalCPUCount", "TotalPhysicalMemory", "TotalVirtualMemory",
    "TotalDiskSpace", "TotalResourceCount",
)  # fmt: skip


class CreationFlag(StrEnum):
    """What happens to an existing file when another is staged to its path."""

    OVERWRITE = "overwrite"
    APPEND = "append"
    DONT_OVERWRITE = "dontOverwrite"


@dataclass(frozen=True, slots=True)
class RangeBound:
    value: float
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Exact:
    value: float
    epsilon: float | None = None


@dataclass(frozen=True, slots=True)
class RangeSpan:
    lower: RangeBound
    upper: RangeBound


@dataclass(frozen=True, slots=True)
class RangeValue:
    """The acceptable values: any of those listed."""

    upper: RangeBound | None = None
    lower: RangeBound | None = None
    exact: tuple[Exact, ...] = ()
    spans: tuple[RangeSpan, ...] = ()

    def least(self) -> float | None:
        """The smallest sufficient amount; ``None`` if not specified."""
        values = [exact.value for exact in self.exact] + [span.lower.value for span in self.spans]
        if self.lower is not None:
            values.append(self.lower.value)
        if not values and self.upper is not None:
            return 0.0
        return min(values, default=None)

    def holds(self, value: float) -> bool:
        """Whether a value is in the range."""
        if any(abs(value - exact.value) <= (exact.epsilon or 0.0) for exact in self.exact):
            return True
        if self.upper is not None and _below(value, self.upper):
            return True
        if self.lower is not None and _above(value, self.lower):
            return True
        return any(_above(value, span.lower) and _below(value, span.upper) for span in self.spans)


def _below(value: float, bound: RangeBound) -> bool:
    return value < bound.value if bound.exclusive else value <= bound.value


def _above(value: float, bound: RangeBound) -> bool:
    return value > bound.value if bound.exclusive else value >= bound.value


@dataclass(frozen=True, slots=True)
class FileSystem:
    name: str
    type: str = ""
    description: str = ""
    mount_point: str = ""
    mount_source: str = ""
    space: RangeValue | None = None


@dataclass(frozen=True, slots=True)
class JobResources:
    hosts: tuple[str, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    exclusive: bool | None = None
    system: str = ""
    """The name of an operating system."""
    system_version: str = ""
    system_description: str = ""
    architecture: str = ""
    ranges: dict[str, RangeValue] = field(default_factory=dict)
    """By the element's name, such as ``TotalCPUCount``."""


@dataclass(frozen=True, slots=True)
class Word:
    """A text, perhaps a path inside a file system."""

    text: str
    file_system: str = ""


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    name: str
    value: str = ""
    file_system: str = ""


@dataclass(frozen=True, slots=True)
class Executing:
    """A POSIX application, or one of the HPC Profile."""

    hpc: bool = False
    name: str = ""
    executable: Word | None = None
    arguments: tuple[Word, ...] = ()
    input: Word | None = None
    output: Word | None = None
    error: Word | None = None
    working_directory: Word | None = None
    environment: tuple[EnvironmentVariable, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    user: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that is staged in before the job, staged out after it, or both."""

    file: str
    file_system: str = ""
    flag: CreationFlag = CreationFlag.OVERWRITE
    delete: bool = False
    source: str | None = None
    """A URI; empty: the file already exists."""
    target: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class JobDefinition:
    name: str = ""
    description: str = ""
    annotations: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    application: str = ""
    """The application's name."""
    application_version: str = ""
    application_description: str = ""
    container: str = ""
    """The image that it runs in; empty for none."""
    executing: Executing | None = None
    resources: JobResources | None = None
    staging: tuple[Staged, ...] = ()
    id: str = ""
