"""Job definitions as elements."""

from __future__ import annotations

from forestay.domain.flows.jsdl.definition import (
    HPC,
    JSDL,
    LIMITS,
    POSIX,
    RANGES,
    Executing,
    JobDefinition,
    JobResources,
    RangeBound,
    RangeValue,
    Staged,
    Word,
)
from forestay.domain.flows.xml_tree import XmlElement

SPACES = {"jsdl": JSDL, "posix": POSIX, "hpcp": HPC}


def definition_element(job: JobDefinition) -> XmlElement:
    """A job definition as `read_definition` reads it."""
    described = _new("JobDescription")
    identified = _new("JobIdentification")
    _texts(identified, {"JobName": job.name, "Description": job.description})
    for name, values in (("JobAnnotation", job.annotations), ("JobProject", job.projects)):
        for value in values:
            identified.append(_new(name, value))
    if identified.children:
        described.append(identified)
    application = _new("Application")
    version = job.application_version
    _texts(application, {"ApplicationName": job.application, "ApplicationVersion": version, "Description": job.application_description})  # fmt: skip
    if job.executing is not None:
        application.append(_executing(job.executing))
    if application.children:
        described.append(application)
    if job.resources is not None:
        described.append(_resources(job.resources))
    for one in job.staging:
        described.append(_staged(one))
    whole = _new("JobDefinition", **({"id": job.id} if job.id else {}))
    whole.append(described)
    return whole


def _new(name: str, text: str | None = None, space: str = JSDL, /, **attributes: str) -> XmlElement:
    return XmlElement(f"{{{space}}}{name}", attributes, [text] if text else [], namespaces=SPACES)


def _texts(into: XmlElement, given: dict[str, str]) -> None:
    for name, text in given.items():
        if text:
            into.append(_new(name, text))


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _executing(given: Executing) -> XmlElement:
    space = HPC if given.hpc else POSIX
    out = _new("HPCProfileApplication" if given.hpc else "POSIXApplication", None, space, **_named("name", given.name))

    def word(name: str, one: Word | None) -> None:
        if one is not None:
            out.append(_new(name, one.text, space, **_named("filesystemName", one.file_system)))

    word("Executable", given.executable)
    for one in given.arguments:
        word("Argument", one)
    word("Input", given.input)
    word("Output", given.output)
    word("Error", given.error)
    word("WorkingDirectory", given.working_directory)
    for variable in given.environment:
        named = {"name": variable.name} | _named("filesystemName", variable.file_system)
        out.append(_new("Environment", variable.value, space, **named))
    for name in LIMITS:
        if name in given.limits:
            out.append(_new(name, str(given.limits[name]), space))
    if given.user:
        out.append(_new("UserName", given.user, space))
    if given.group:
        out.append(_new("GroupName", given.group, space))
    return out


def _named(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


def _resources(given: JobResources) -> XmlElement:
    out = _new("Resources")
    if given.hosts:
        out.append(_wrapped("CandidateHosts", *(_new("HostName", one) for one in given.hosts)))
    for one in given.file_systems:
        system = _new("FileSystem", name=one.name)
        _texts(system, {"FileSystemType": one.type, "Description": one.description, "MountPoint": one.mount_point, "MountSource": one.mount_source})  # fmt: skip
        if one.space is not None:
            system.append(_range("DiskSpace", one.space))
        out.append(system)
    if given.exclusive is not None:
        out.append(_new("ExclusiveExecution", "true" if given.exclusive else "false"))
    if given.system or given.system_version or given.system_description:
        inner = _new("OperatingSystem")
        if given.system:
            inner.append(_wrapped("OperatingSystemType", _new("OperatingSystemName", given.system)))
        _texts(inner, {"OperatingSystemVersion": given.system_version, "Description": given.system_description})
        out.append(inner)
    if given.architecture:
        out.append(_wrapped("CPUArchitecture", _new("CPUArchitectureName", given.architecture)))
    for name in RANGES:
        if name in given.ranges:
            out.append(_range(name, given.ranges[name]))
    return out


def _wrapped(name: str, *inner: XmlElement) -> XmlElement:
    return XmlElement(f"{{{JSDL}}}{name}", {}, inner, namespaces=SPACES)


def _range(name: str, given: RangeValue) -> XmlElement:
    out = _new(name)
    if given.upper is not None:
        out.append(_bound("UpperBoundedRange", given.upper))
    if given.lower is not None:
        out.append(_bound("LowerBoundedRange", given.lower))
    for one in given.exact:
        epsilon = {} if one.epsilon is None else {"epsilon": _number(one.epsilon)}
        out.append(_new("Exact", _number(one.value), **epsilon))
    for span in given.spans:
        out.append(_wrapped("Range", _bound("LowerBound", span.lower), _bound("UpperBound", span.upper)))
    return out


def _bound(name: str, given: RangeBound) -> XmlElement:
    return _new(name, _number(given.value), **({"exclusiveBound": "true"} if given.exclusive else {}))


def _staged(given: Staged) -> XmlElement:
    out = _new("DataStaging", **_named("name", given.name))
    out.append(_new("FileName", given.file))
    if given.file_system:
        out.append(_new("FilesystemName", given.file_system))
    out.append(_new("CreationFlag", given.flag.value))
    if given.delete:
        out.append(_new("DeleteOnTermination", "true"))
    for name, uri in (("Source", given.source), ("Target", given.target)):
        if uri is not None:
            out.append(_wrapped(name, *([_new("URI", uri)] if uri else [])))
    return out
