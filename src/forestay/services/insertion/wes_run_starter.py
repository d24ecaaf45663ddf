"""Starts runs for clients of the Workflow Execution Service, and stores the original request beside each run.

The run is started before the request is recorded: every listed run was started. A repeat of a request with its key returns the same run, and what
is missing is written then.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from forestay.domain.flows.definition.python_flow import PythonFlow
from forestay.domain.flows.execution.run_names import run_keyed
from forestay.domain.jobs.inputs import wrong_name
from forestay.formats.flows.flow_languages import LANGUAGES, PYTHON, FlowLanguage
from forestay.formats.ga4gh.wes_run import RunRequest, with_places
from forestay.ports.clock import Clock
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.jobs.attachments import Attachments
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.run_starter import RunStarter

RUN = "wes-run"
MAX_FILES = 100
MAX_BYTES = 16 << 20
"""The most bytes of all attachments together; larger data belong on a storage element."""


class PythonFlows(Protocol):
    """The flows in the operator's folder."""

    def flows(self) -> Mapping[str, PythonFlow]: ...


class InvalidFlow(Exception):
    """The submitted flow has errors."""

    def __init__(self, problems: tuple[object, ...]) -> None:
        super().__init__(f"the flow has {len(problems)} error(s)")
        self.problems = [str(problem) for problem in problems]


@dataclass(slots=True)
class WesRunStarter:
    """The service."""

    flows: FlowStore
    runs: RunStarter
    store: JobStore
    folder: PythonFlows
    attachments: Attachments
    clock: Clock
    languages: Mapping[str, FlowLanguage] = field(default_factory=lambda: LANGUAGES)

    async def start(
        self, request: RunRequest, files: Mapping[str, bytes], *, tenant: str, owner: str, key: str | None
    ) -> str:
        """Start a run and return its id.

        `InvalidFlow` if the flow has errors, `Permanent` if something else is wrong, `NotFound` if the named flow does not exist, `Conflict` if the key
        was used for another request.
        """
        _check_files(files)
        digest = _digest(request, files)
        own_key = _own(key) if key else None
        if own_key is not None and await self._known(tenant, run_keyed(tenant, owner, own_key), digest):
            return run_keyed(tenant, owner, own_key)
        version = await self._version(request, files, tenant)
        others = {name: content for name, content in files.items() if name != request.url}
        params = request.params
        if others:
            placed = with_places(request.params, await self.attachments.keep(tenant, others))
            assert isinstance(placed, Mapping)  # noqa: S101 - an object was given
            params = placed
        started = await self.runs.start(version, params, tenant=tenant, owner=owner, key=own_key)
        body = {"request": request.as_json(), "digest": digest, "owner": owner, "flow": version}
        record = Record(record_of(started.run), tenant, RUN, started.run, self.clock.now(), body)
        if not (await self.store.add_records([record]))[0]:
            await self._known(tenant, started.run, digest)
        return started.run

    async def started(self, tenant: str, owner: str, key: str) -> bool:
        """Whether a run was requested with this key, and started."""
        return await self.store.get_record(record_of(run_keyed(tenant, owner, _own(key)))) is not None

    async def _known(self, tenant: str, run: str, digest: str) -> bool:
        """Whether this request was accepted before."""
        before = await self.store.get_record(record_of(run))
        if before is None:
            return False
        if before.tenant != tenant or before.body["digest"] != digest:
            raise Conflict("this idempotency key was used for another request; use a new key for a new run")
        return True

    async def _version(self, request: RunRequest, files: Mapping[str, bytes], tenant: str) -> str:
        """The version of the requested flow, which is stored."""
        if request.engine not in ("", "forestay"):
            raise Permanent(f"there is no engine {request.engine[:100]} here; the only engine is forestay")
        python = PYTHON.get(request.type)
        language = self.languages.get(request.type)
        versions = python if python is not None else language.versions if language is not None else None
        if versions is None:
            known = ", ".join(sorted({*self.languages, *PYTHON}))
            raise Permanent(f"workflow type {request.type[:100]} is not supported; supported: {known}")
        if request.type_version not in versions:
            raise Permanent(f"workflow type {request.type} is supported in version {', '.join(versions)}")
        if python is not None:
            return await self.flows.put_python(self._python(request, files), tenant=tenant)
        assert language is not None  # noqa: S101 - seen above
        return await self._sent(language, request, files, tenant)

    async def _sent(self, language: FlowLanguage, request: RunRequest, files: Mapping[str, bytes], tenant: str) -> str:
        """A flow attached to the request, or one that was stored before and is named by its version."""
        if request.url not in files:
            if re.fullmatch(r"[0-9a-f]{64}", request.url):
                await self.flows.plan(tenant, request.url)
                return request.url
            raise Permanent(_not_there(request.url))
        try:
            text = files[request.url].decode()
        except UnicodeDecodeError as error:
            raise Permanent(f"{request.url[:200]} is not text: {error}") from error
        read = language.read(text, files)
        if read.flow is None:
            raise InvalidFlow(read.problems)
        return await self.flows.put(read.flow, tenant=tenant)

    def _python(self, request: RunRequest, files: Mapping[str, bytes]) -> PythonFlow:
        """A flow of the operator's folder, by its name, or by an identical copy of its file: no other code is run."""
        known = self.folder.flows()
        if request.url not in files:
            if request.url in known:
                return known[request.url]
            raise NotFound(f"there is no Python flow {request.url[:100]} in this domain's folder")
        text = files[request.url].decode(errors="replace")
        same = [flow for flow in known.values() if flow.source == text]
        if not same:
            raise Permanent(
                "Python flows are run from this domain's own folder only: ask its operator to put the file there, or send the flow as YAML"
            )
        if len(same) > 1:
            raise Permanent("the file has several flows; give the name of one as workflow_url, without the file")
        return same[0]


def _own(key: str) -> str:
    """The key with a prefix that separates it from the keys of other interfaces."""
    return f"wes:{key}"


def _not_there(url: str) -> str:
    if ":" in url:
        return "flows are not downloaded: attach the file and use its name as workflow_url"
    return f"there is no attachment {url[:200]}; workflow_url names one, or is the version of a stored flow"


def _check_files(files: Mapping[str, bytes]) -> None:
    if len(files) > MAX_FILES:
        raise Permanent(f"a run has at most {MAX_FILES} attachments")
    if sum(map(len, files.values())) > MAX_BYTES:
        raise Permanent(f"the attachments of a run have at most {MAX_BYTES} bytes together")
    for name in files:
        if len(name) > 500 or wrong_name(name) or "\\" in name:
            raise Permanent(f"attachment {name[:100]!r}: expected a relative path, without . or ..")
    for name in files:
        if any(other.startswith(f"{name}/") for other in files):
            raise Permanent(f"attachment {name[:100]!r} is a file and a folder at once")


def _digest(request: RunRequest, files: Mapping[str, bytes]) -> str:
    content = {name: hashlib.sha256(file).hexdigest() for name, file in files.items()}
    plain = orjson.dumps([request.as_json(), content], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(plain).hexdigest()


def record_of(run: str) -> str:
    return f"wes-run:{run}"
