"""The facts about a job's completion that are sent to its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from forestay.domain.jobs.job_document import JobDocument, State
from forestay.ports.jobs.results import Results
from forestay.services.data.committed_files import committed_file

WELL = frozenset({State.COMPLETED, State.FORCED_COMPLETE})


@dataclass(slots=True)
class CompletionFacts:
    """The service."""

    results: Results

    async def facts(self, document: JobDocument) -> dict[str, Any]:
        """Exit code and result of the only job of a round."""
        last = document.winner or document.last
        out: dict[str, Any] = {"exit_code": last.exit_code if last else None}
        if document.flow_ref is not None and document.flow_ref.result:
            result = await self.result(document, document.flow_ref.result)
            if result is not None:
                out["result"] = result
        return out

    async def result(self, document: JobDocument, file: str) -> Any:
        """The content of a result file of a job's winner; text if it is not JSON. None: there is no such file."""
        content = await committed_file(self.results, document, file)
        if content is None:
            return None
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError:
            return content.decode(errors="replace")


def ended_well(document: JobDocument) -> bool:
    """Whether a job succeeded: cancelled jobs, and those that someone declared failed, did not."""
    return document.state in WELL


def why(document: JobDocument) -> str:
    """Why a job did not succeed, in a few words."""
    last = document.last
    if document.state is State.CANCELLED or last is None:
        note = document.history[-1].note if document.history else ""
        return f"job {document.id} was {document.state}" + (f": {note}" if note else "")
    how = f"signal {last.signal}" if last.signal else f"exit code {last.exit_code}"
    return f"job {document.id} {document.state} after {document.attempt} attempt(s): {last.reason}, {how}"
