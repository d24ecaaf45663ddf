"""Job definitions from elements, and back."""

from __future__ import annotations

import math

from forestay_bpel.domain.jsdl.definition import (
    CONTAINER,
    HPC,
    JSDL,
    LIMITS,
    POSIX,
    RANGES,
    CreationFlag,
    EnvironmentVariable,
    Exact,
    Executing,
    FileSystem,
    JobDefinition,
    JobResources,
    RangeBound,
    RangeSpan,
    RangeValue,
    Staged,
    Word,
)
from forestay_bpel.domain.jsdl.shapes import DocumentError, check_shape
from forestay_bpel.domain.xml_tree import XmlElement

_TRUE = {"true": True, "1": True, "false": False, "0": False}


class JsdlRefused(ValueError):
    """A document that is not valid JSDL, with all of its errors."""

    def __init__(self, wrong: tuple[DocumentError, ...]) -> None:
        super().__init__("; ".join(f"line {error.line}: {error.message}" for error in wrong))
        self.wrong = wrong


def read_definition(element: XmlElement) -> JobDefinition:
    """Read a job definition; `JsdlRefused` with all errors."""
    if element.tag != _j("JobDefinition"):
        raise JsdlRefused((DocumentError(element.line, f"this is {element.name}, not a JobDefinition of JSDL 1.0"),))
    wrong = list(check_shape(element))
    reading = _DefinitionReading(wrong)
    if wrong:
        raise JsdlRefused(tuple(wrong))
    job = reading.definition(element)
    if wrong:
        raise JsdlRefused(tuple(wrong))
    return job


def _j(name: str) -> str:
    return f"{{{JSDL}}}{name}"


def _text(parent: XmlElement | None, tag: str) -> str:
    element = parent.child(tag) if parent is not None else None
    return element.text if element is not None else ""


class _DefinitionReading:
    def __init__(self, wrong: list[DocumentError]) -> None:
        self.wrong = wrong

    def say(self, element: XmlElement, message: str) -> None:
        self.wrong.append(DocumentError(element.line, f"{element.name}: {message}"))

    def number(self, element: XmlElement, text: str | None = None) -> float:
        given_text = element.text if text is None else text
        try:
            value = float(given_text.strip())
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self.say(element, f"{given_text.strip()[:40]!r} is not a number")
            return 0.0
        return value

    def truth(self, element: XmlElement, text: str | None = None) -> bool:
        given_text = (element.text if text is None else text).strip()
        if given_text not in _TRUE:
            self.say(element, f"{given_text[:40]!r} is neither true nor false")
        return _TRUE.get(given_text, False)

    def definition(self, element: XmlElement) -> JobDefinition:
        described = element.child(_j("JobDescription"))
        assert described is not None  # noqa: S101 - the shape has been checked
        identified = described.child(_j("JobIdentification"))
        application = described.child(_j("Application"))
        resources = described.child(_j("Resources"))
        many = [] if identified is None else identified.elements
        return JobDefinition(
            name=_text(identified, _j("JobName")),
            description=_text(identified, _j("Description")),
            annotations=tuple(xml_element.text for xml_element in many if xml_element.tag == _j("JobAnnotation")),
            projects=tuple(xml_element.text for xml_element in many if xml_element.tag == _j("JobProject")),
            application=_text(application, _j("ApplicationName")),
            application_version=_text(application, _j("ApplicationVersion")),
            application_description=_text(application, _j("Description")),
            container=_text(application, CONTAINER),
            executing=None if application is None else self.executing(application),
            resources=None if resources is None else self.resources(resources),
            staging=tuple(self.staged(xml_element) for xml_element in described.each(_j("DataStaging"))),
            id=element.get("id"),
        )

    def executing(self, application: XmlElement) -> Executing | None:
        posix, hpc = (
            application.child(f"{{{POSIX}}}POSIXApplication"),
            application.child(f"{{{HPC}}}HPCProfileApplication"),
        )
        if posix is not None and hpc is not None:
            self.say(hpc, "an application is of one kind")
        element = posix if posix is not None else hpc
        if element is None:
            return None
        space = element.space

        def word(name: str) -> Word | None:
            child = element.child(f"{{{space}}}{name}")
            return None if child is None else Word(child.text, child.get("filesystemName"))

        limits: dict[str, int] = {}
        for name in LIMITS:
            xml_element = element.child(f"{{{space}}}{name}")
            if xml_element is not None:
                value = self.number(xml_element)
                if value < 0 or value != int(value):
                    self.say(xml_element, "a limit is a whole number")
                limits[name] = int(value)
        return Executing(
            hpc=hpc is element,
            name=element.get("name"),
            executable=word("Executable"),
            arguments=tuple(
                Word(xml_element.text, xml_element.get("filesystemName"))
                for xml_element in element.each(f"{{{space}}}Argument")
            ),
            input=word("Input"),
            output=word("Output"),
            error=word("Error"),
            working_directory=word("WorkingDirectory"),
            environment=tuple(
                EnvironmentVariable(other_element.get("name"), other_element.text, other_element.get("filesystemName"))
                for other_element in element.each(f"{{{space}}}Environment")
            ),
            limits=limits,
            user=_text(element, f"{{{space}}}UserName"),
            group=_text(element, f"{{{space}}}GroupName"),
        )

    def resources(self, element: XmlElement) -> JobResources:
        hosts = element.child(_j("CandidateHosts"))
        exclusive = element.child(_j("ExclusiveExecution"))
        system = element.child(_j("OperatingSystem"))
        kind = system.child(_j("OperatingSystemType")) if system is not None else None
        ranges = {}
        for name in RANGES:
            xml_element = element.child(_j(name))
            if xml_element is not None:
                ranges[name] = self.range(xml_element)
        return JobResources(
            hosts=tuple(xml_element.text for xml_element in hosts.elements) if hosts is not None else (),
            file_systems=tuple(self.file_system(other_element) for other_element in element.each(_j("FileSystem"))),
            exclusive=None if exclusive is None else self.truth(exclusive),
            system=_text(kind, _j("OperatingSystemName")),
            system_version=_text(system, _j("OperatingSystemVersion")),
            system_description=_text(system, _j("Description")),
            architecture=_text(element.child(_j("CPUArchitecture")), _j("CPUArchitectureName")),
            ranges=ranges,
        )

    def file_system(self, element: XmlElement) -> FileSystem:
        space = element.child(_j("DiskSpace"))
        return FileSystem(
            name=element.get("name"),
            type=_text(element, _j("FileSystemType")),
            description=_text(element, _j("Description")),
            mount_point=_text(element, _j("MountPoint")),
            mount_source=_text(element, _j("MountSource")),
            space=None if space is None else self.range(space),
        )

    def bound(self, element: XmlElement | None) -> RangeBound | None:
        if element is None:
            return None
        exclusive = "exclusiveBound" in element.attributes and self.truth(element, element.get("exclusiveBound"))
        return RangeBound(self.number(element), exclusive)

    def range(self, element: XmlElement) -> RangeValue:
        if not element.elements:
            self.say(element, "it says no value")
        spans = []
        for xml_element in element.each(_j("Range")):
            lower, upper = (
                self.bound(xml_element.child(_j("LowerBound"))),
                self.bound(xml_element.child(_j("UpperBound"))),
            )
            assert lower is not None and upper is not None  # noqa: S101, PT018 - the shape has been checked
            if lower.value > upper.value:
                self.say(xml_element, "the lower bound is greater than the upper one")
            spans.append(RangeSpan(lower, upper))
        exact = tuple(
            Exact(
                self.number(xml_element),
                self.number(xml_element, xml_element.get("epsilon")) if "epsilon" in xml_element.attributes else None,
            )
            for xml_element in element.each(_j("Exact"))
        )
        above, below = element.child(_j("LowerBoundedRange")), element.child(_j("UpperBoundedRange"))
        return RangeValue(self.bound(below), self.bound(above), exact, tuple(spans))

    def staged(self, element: XmlElement) -> Staged:
        flag = element.child(_j("CreationFlag"))
        assert flag is not None  # noqa: S101 - the shape has been checked
        if flag.text not in tuple(CreationFlag):
            self.say(flag, f"{flag.text[:40]!r} is not one of {', '.join(CreationFlag)}")
        delete = element.child(_j("DeleteOnTermination"))
        source, target = element.child(_j("Source")), element.child(_j("Target"))
        return Staged(
            file=_text(element, _j("FileName")),
            file_system=_text(element, _j("FilesystemName")),
            flag=CreationFlag(flag.text) if flag.text in tuple(CreationFlag) else CreationFlag.OVERWRITE,
            delete=delete is not None and self.truth(delete),
            source=None if source is None else _text(source, _j("URI")),
            target=None if target is None else _text(target, _j("URI")),
            name=element.get("name"),
        )
