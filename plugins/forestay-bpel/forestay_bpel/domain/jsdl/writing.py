"""Job definitions as elements."""

from __future__ import annotations

from forestay_bpel.domain.jsdl.definition import (
    CONTAINER,
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
from forestay_bpel.domain.xml_tree import XmlElement

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
    if job.container:
        application.append(XmlElement(CONTAINER, {}, [job.container], namespaces={"forestay": "urn:forestay:jsdl"}))
    if job.executing is not None:
        application.append(_executing(job.executing))
    if application.children:
        described.append(application)
    if job.resources is not None:
        described.append(_resources(job.resources))
    for staged in job.staging:
        described.append(_staged(staged))
    whole = _new("JobDefinition", **({"id": job.id} if job.id else {}))
    whole.append(described)
    return whole


def _new(name: str, text: str | None = None, space: str = JSDL, /, **attributes: str) -> XmlElement:
    return XmlElement(f"{{{space}}}{name}", attributes, [text] if text else [], namespaces=SPACES)


def _texts(into: XmlElement, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        if text:
            into.append(_new(name, text))


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _executing(executing: Executing) -> XmlElement:
    space = HPC if executing.hpc else POSIX
    out = _new(
        "HPCProfileApplication" if executing.hpc else "POSIXApplication", None, space, **_named("name", executing.name)
    )

    def word(name: str, other_word: Word | None) -> None:
        if other_word is not None:
            out.append(_new(name, other_word.text, space, **_named("filesystemName", other_word.file_system)))

    word("Executable", executing.executable)
    for argument in executing.arguments:
        word("Argument", argument)
    word("Input", executing.input)
    word("Output", executing.output)
    word("Error", executing.error)
    word("WorkingDirectory", executing.working_directory)
    for variable in executing.environment:
        named = {"name": variable.name} | _named("filesystemName", variable.file_system)
        out.append(_new("Environment", variable.value, space, **named))
    for name in LIMITS:
        if name in executing.limits:
            out.append(_new(name, str(executing.limits[name]), space))
    if executing.user:
        out.append(_new("UserName", executing.user, space))
    if executing.group:
        out.append(_new("GroupName", executing.group, space))
    return out


def _named(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


def _resources(resources: JobResources) -> XmlElement:
    out = _new("Resources")
    if resources.hosts:
        out.append(_wrapped("CandidateHosts", *(_new("HostName", host) for host in resources.hosts)))
    for file_system in resources.file_systems:
        system = _new("FileSystem", name=file_system.name)
        _texts(system, {"FileSystemType": file_system.type, "Description": file_system.description, "MountPoint": file_system.mount_point, "MountSource": file_system.mount_source})  # fmt: skip
        if file_system.space is not None:
            system.append(_range("DiskSpace", file_system.space))
        out.append(system)
    if resources.exclusive is not None:
        out.append(_new("ExclusiveExecution", "true" if resources.exclusive else "false"))
    if resources.system or resources.system_version or resources.system_description:
        inner = _new("OperatingSystem")
        if resources.system:
            inner.append(_wrapped("OperatingSystemType", _new("OperatingSystemName", resources.system)))
        _texts(inner, {"OperatingSystemVersion": resources.system_version, "Description": resources.system_description})
        out.append(inner)
    if resources.architecture:
        out.append(_wrapped("CPUArchitecture", _new("CPUArchitectureName", resources.architecture)))
    for name in RANGES:
        if name in resources.ranges:
            out.append(_range(name, resources.ranges[name]))
    return out


def _wrapped(name: str, *inner: XmlElement) -> XmlElement:
    return XmlElement(f"{{{JSDL}}}{name}", {}, inner, namespaces=SPACES)


def _range(name: str, value: RangeValue) -> XmlElement:
    out = _new(name)
    if value.upper is not None:
        out.append(_bound("UpperBoundedRange", value.upper))
    if value.lower is not None:
        out.append(_bound("LowerBoundedRange", value.lower))
    for exact in value.exact:
        epsilon = {} if exact.epsilon is None else {"epsilon": _number(exact.epsilon)}
        out.append(_new("Exact", _number(exact.value), **epsilon))
    for span in value.spans:
        out.append(_wrapped("Range", _bound("LowerBound", span.lower), _bound("UpperBound", span.upper)))
    return out


def _bound(name: str, bound: RangeBound) -> XmlElement:
    return _new(name, _number(bound.value), **({"exclusiveBound": "true"} if bound.exclusive else {}))


def _staged(staged: Staged) -> XmlElement:
    out = _new("DataStaging", **_named("name", staged.name))
    out.append(_new("FileName", staged.file))
    if staged.file_system:
        out.append(_new("FilesystemName", staged.file_system))
    out.append(_new("CreationFlag", staged.flag.value))
    if staged.delete:
        out.append(_new("DeleteOnTermination", "true"))
    for name, uri in (("Source", staged.source), ("Target", staged.target)):
        if uri is not None:
            out.append(_wrapped(name, *([_new("URI", uri)] if uri else [])))
    return out
