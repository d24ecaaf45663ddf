"""The mapping of a process's partners: a job service by its operations, a job, a constant answer, or a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from forestay_bpel.domain.bpel.adapting import PREFIX

JOBS = "urn:forestay:jobs"


class OperationKind(StrEnum):
    """What an operation does."""

    RUN = "run"
    """Submit a job and answer when it has ended."""
    SUBMIT = "submit"
    """Submit a job and answer with its id; with ``notify`` its end is reported by a message."""
    POLL = "poll"
    """Answer with the state of a job."""
    REGISTER = "register"
    """Request a message at the end of a job."""
    FORGET = "forget"
    """Submit a job without any later message."""
    CANCEL = "cancel"
    ANSWER = "answer"
    """Answer with the content given in the mapping."""
    MANUAL = "manual"
    """Wait for a person's answer."""


NAMES = {
    "run": OperationKind.RUN, "runjob": OperationKind.RUN, "execute": OperationKind.RUN, "executejob": OperationKind.RUN,
    "submit": OperationKind.SUBMIT, "submitjob": OperationKind.SUBMIT,
    "poll": OperationKind.POLL, "status": OperationKind.POLL, "getstatus": OperationKind.POLL, "getjobstatus": OperationKind.POLL, "polljob": OperationKind.POLL,
    "register": OperationKind.REGISTER, "registernotification": OperationKind.REGISTER, "subscribe": OperationKind.REGISTER,
    "forget": OperationKind.FORGET, "submitandforget": OperationKind.FORGET,
    "cancel": OperationKind.CANCEL, "canceljob": OperationKind.CANCEL,
}  # fmt: skip
"""Operations recognised by name unless a mapping defines them."""
NOTIFY = "notify"


@dataclass(frozen=True, slots=True)
class Binding:
    """What an operation of a partner is."""

    kind: OperationKind
    job: str = ""
    """The name of a job definition, if the message has none."""
    notify: str = NOTIFY
    """The operation that reports an end to the process."""
    part: str = "body"
    """The name of the part in answers; empty for a message that is one element."""
    answer: str = ""
    max_attempts: int = 1
    tell: bool = False
    """For ``submit``: whether the end is reported without registration."""


class MappingRefused(ValueError):
    """An invalid mapping."""


_FIELDS = frozenset({"kind", "job", "notify", "part", "answer", "max_attempts"})


@dataclass(frozen=True, slots=True)
class Services:
    """The mapping of a process."""

    bindings: Mapping[str, Mapping[str, Binding]] = field(default_factory=dict)
    """By partner link and operation."""
    plain: Mapping[str, Any] = field(default_factory=dict)

    def binding(self, partner: str, operation: str) -> Binding | None:
        """The binding of an operation, by the mapping or by its name; ``None`` if unknown."""
        known = self.bindings.get(partner.removeprefix(PREFIX), {}).get(operation)
        if known is not None:
            return known
        kind = NAMES.get(operation.lower())
        return None if kind is None else Binding(kind)


def read_services(plain: object) -> Services:
    """Read a mapping: partner links, their operations, and the binding of each. Raises `MappingRefused`."""
    if plain is None:
        return Services()
    links = plain.get("partners") if isinstance(plain, Mapping) else None
    if not isinstance(links, Mapping) or len(plain) != 1:  # type: ignore[arg-type]
        raise MappingRefused("a mapping has one field, partners: partner links by name")
    bindings = {str(link): dict(_operations(str(link), other_link)) for link, other_link in links.items()}
    return Services(bindings, plain)  # type: ignore[arg-type]


def _operations(link: str, value: object) -> Iterator[tuple[str, Binding]]:
    if not isinstance(value, Mapping):
        raise MappingRefused(f"{link}: expected operations by name")
    for name, fields in value.items():
        where = f"{link}.{name}"
        if isinstance(fields, str):
            fields = {"kind": fields}
        if not isinstance(fields, Mapping) or not fields.keys() <= _FIELDS:
            raise MappingRefused(f"{where}: an operation has {', '.join(sorted(_FIELDS))}")
        kind = fields.get("kind") or ("answer" if "answer" in fields else "run" if "job" in fields else "")
        if kind not in tuple(OperationKind):
            raise MappingRefused(f"{where}: kind is one of {', '.join(OperationKind)}")
        tries = fields.get("max_attempts", 1)
        if not isinstance(tries, int) or isinstance(tries, bool) or not 1 <= tries <= 100:
            raise MappingRefused(f"{where}: max_attempts is 1 to 100")
        texts = {
            attribute: fields[attribute] for attribute in ("job", "notify", "part", "answer") if attribute in fields
        }
        if not all(isinstance(text, str) for text in texts.values()):
            raise MappingRefused(f"{where}: {', '.join(texts)} are texts")
        yield str(name), Binding(OperationKind(kind), max_attempts=tries, tell="notify" in texts, **texts)
