"""Reads what a job has committed: its manifest, and small files listed there.

The path comes from a pilot and is not trusted: the manifest must be in the attempt's own folder and have the committed
digest, and the content of a file must have the digest that the manifest gives. A link in that folder to a file of another
tenant therefore reveals nothing that its creator does not know already.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

import orjson

from forestay.domain.data.attempt_folder import committed_manifest_is_own
from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.errors import Permanent
from forestay.ports.jobs.results import Results

MAX_MANIFEST = 16 << 20


async def committed_digests(results: Results, document: JobDocument) -> Mapping[str, str]:
    """The files of a committed manifest and their digests. `Permanent` if it cannot be read, or is not the committed one."""
    winner = document.winner
    if winner is None or winner.manifest is None:
        raise Permanent(f"job {document.id} has no committed outputs")
    manifest = winner.manifest
    if not committed_manifest_is_own(document):
        raise Permanent(f"the manifest {manifest.path} is not in the folder of its attempt")
    folder, name = os.path.split(manifest.path)
    content = await results.read(folder, name, MAX_MANIFEST)
    if content is None:
        raise Permanent(
            f"the manifest {manifest.path} cannot be read here; the setting `outputs` lists the output folders"
        )
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise Permanent(f"{manifest.path} is not the manifest that was committed")
    try:
        return {str(file["path"]): str(file["sha256"]) for file in orjson.loads(content)["files"]}
    except (ValueError, KeyError, TypeError) as error:
        raise Permanent(f"{manifest.path} is not a manifest: {error}") from error


async def committed_file(results: Results, document: JobDocument, name: str) -> bytes | None:
    """The content of a small committed file; None if there is none, or if it is not the file that was committed."""
    if document.winner is None or document.winner.manifest is None:
        return None
    try:
        digest = (await committed_digests(results, document)).get(name)
    except Permanent:
        return None
    content = await results.read(os.path.dirname(document.winner.manifest.path), name)
    if content is None or hashlib.sha256(content).hexdigest() != digest:
        return None
    return content
