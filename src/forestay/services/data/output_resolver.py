"""Resolves references to the outputs of other tasks: from the committed manifests of their jobs, or of the jobs that remade lost ones.

A command gets the path of a file, an input its source: the job that made it and the path in its manifest, so that staged files are checked
against the commit.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.data.attempt_folder import committed_manifest_is_own
from forestay.domain.flows.execution.run_names import job_of
from forestay.domain.flows.execution.task_jobs import with_places
from forestay.domain.jobs.inputs import filled_text
from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import JobStore
from forestay.ports.jobs.results import Results
from forestay.services.data.committed_files import committed_digests
from forestay.services.data.remade_outputs import newest_commits

BULK = 1000
MAX_SHOWN = 1000
"""The most files that are shown to people individually."""


class ResolvedOutput(NamedTuple):
    """One file."""

    place: str
    """Its path."""
    source: str
    """Its source, in the form that an input uses."""


class OutputReference(NamedTuple):
    """An output of a task's round."""

    run: str
    work: str
    output: str


@dataclass(frozen=True, slots=True)
class ResolvedOutputs:
    """The outputs to which an order refers."""

    run: str
    outputs: Mapping[OutputReference, Sequence[ResolvedOutput]]
    elements: Mapping[OutputReference, Mapping[int, ResolvedOutput]]
    """Of a scatter whose elements continue one by one: the file of each requested element that has exactly one."""

    def lacking(self, elements: Iterable[int]) -> list[int]:
        """The elements among these whose inputs are missing."""
        return [at for at in elements if any(at not in known for known in self.elements.values())]

    def places(self, wanted: Mapping[str, object], several: bool) -> object:  # noqa: FBT001 - as the domain asks
        if (known := self.elements.get(wanted_of(wanted, self.run))) is not None:
            return {at: output.place for at, output in known.items()}
        return self._pick(wanted, several, [output.place for output in self.outputs[wanted_of(wanted, self.run)]])

    def sources(self, wanted: Mapping[str, object], several: bool) -> object:  # noqa: FBT001 - as the domain asks
        return self._pick(wanted, several, [output.source for output in self.outputs[wanted_of(wanted, self.run)]])

    def _pick(self, wanted: Mapping[str, object], several: bool, sources: list[str]) -> object:  # noqa: FBT001
        if several or len(sources) > 1:
            return sources
        if not sources:
            raise ValueError(f"{wanted['work']} has no output {wanted['output']}")
        return sources[0]


@dataclass(slots=True)
class OutputResolver:
    """The service."""

    store: JobStore
    results: Results

    async def referred(
        self, tenant: str, run: str, values: Sequence[object], elements: Sequence[int] = (), works: Sequence[str] = ()
    ) -> ResolvedOutputs:
        """Every output that these values refer to; of ``$elements`` those of these elements, made by the rounds ``works`` or else by the named ones.

        A run of another tenant has none. `Permanent` if a manifest that is needed cannot be read.
        """
        outputs: dict[OutputReference, Sequence[ResolvedOutput]] = {}
        for reference in references(values):
            wanted = wanted_of(reference, run)
            count = reference.get("count")
            if wanted not in outputs:
                every = range(count if isinstance(count, int) else 1)
                made = await self._of(tenant, wanted, _works(reference, wanted), every)
                outputs[wanted] = [output for files in made.values() for output in files]
        taken: dict[OutputReference, Mapping[int, ResolvedOutput]] = {}
        for reference in references(values, "$elements"):
            wanted = wanted_of(reference, run)
            made = await self._of(tenant, wanted, works or _works(reference, wanted), elements)
            taken[wanted] = {at: files[0] for at, files in made.items() if len(files) == 1}
        return ResolvedOutputs(run, outputs, taken)

    async def shown(self, tenant: str, run: str, values: Mapping[str, object]) -> Mapping[str, object]:
        """The outputs of a run for display, with the paths of files. Very large sets, and files that cannot be found here, stay references."""
        out: dict[str, object] = {}
        for name, value in values.items():
            out[name] = value
            if all(int(str(reference.get("count", 1))) <= MAX_SHOWN for reference in references([value])):
                with suppress(Permanent, ValueError):
                    out[name] = with_places(value, (await self.referred(tenant, run, [value])).places)
        return out

    async def _of(
        self, tenant: str, wanted: OutputReference, works: Sequence[str], elements: Sequence[int]
    ) -> Mapping[int, Sequence[ResolvedOutput]]:
        """One or more for each of these elements that succeeded; those that the last round did not run are in an earlier one."""
        outputs: dict[int, Sequence[ResolvedOutput]] = {}
        for start in range(0, len(elements), BULK):
            places = elements[start : start + BULK]
            done: dict[str, JobDocument] = {}
            for work in works:
                names = [job_of(wanted.run, work, at) for at in places]
                for name, stored in (await newest_commits(self.store, await self.store.get(names))).items():
                    winner = stored.document.winner
                    if winner is not None and winner.manifest is not None and stored.document.tenant == tenant:
                        done[name] = stored.document
            specifications = await self.store.get_specifications(
                sorted({document.specification for document in done.values()})
            )
            for at in places:
                for work in works:
                    document = done.get(job_of(wanted.run, work, at))
                    if document is not None:
                        named = specifications[document.specification].named_outputs
                        outputs[at] = await self.files_of(document, named.get(wanted.output), wanted)
                        break
        return outputs

    async def files_of(
        self, document: JobDocument, pattern: str | None, wanted: OutputReference
    ) -> list[ResolvedOutput]:
        """The files of an output of a job, by the pattern of its names; `Permanent` if its manifest cannot be read."""
        if pattern is None or document.winner is None or document.winner.manifest is None:
            raise Permanent(f"the jobs of {wanted.work} have no output {wanted.output}")
        manifest = document.winner.manifest
        name = filled_text(pattern, document.parameters, document.index)
        names = [name]
        if not committed_manifest_is_own(document):
            raise Permanent(f"the manifest {manifest.path} is not in the folder of its attempt")
        if glob.has_magic(pattern):
            names = [
                committed_digest
                for committed_digest in await committed_digests(self.results, document)
                if fnmatch.fnmatchcase(committed_digest, name)
            ]
        folder = os.path.dirname(manifest.path)
        return [ResolvedOutput(f"{folder}/{name}", f"job:{document.id}/{name}") for name in names]


def wanted_of(reference: Mapping[str, object], run: str) -> OutputReference:
    return OutputReference(str(reference.get("run", run)), str(reference["work"]), str(reference["output"]))


def references(values: Iterable[object], *kinds: str) -> Iterable[Mapping[str, object]]:
    """The outputs that values refer to, at any depth."""
    for value in values:
        if isinstance(value, Mapping):
            found = [value[kind] for kind in kinds or ("$output", "$outputs") if isinstance(value.get(kind), Mapping)]
            yield from found or references(value.values(), *kinds)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield from references(value, *kinds)


def _works(reference: Mapping[str, object], wanted: OutputReference) -> Sequence[str]:
    """The rounds that made an output, newest first."""
    return [wanted.work, *_texts(reference.get("earlier"))]


def _texts(value: object) -> list[str]:
    return [str(text) for text in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
