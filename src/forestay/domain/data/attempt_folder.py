"""The folder that belongs to one attempt of a job, wherever outputs are stored.

A pilot reports where it has put the manifest of an attempt. The report is accepted only if it names this folder: otherwise a
pilot could name files of another tenant, and the server would read them for it.
"""

from __future__ import annotations

from forestay.domain.jobs.job_document import JobDocument, Token
from forestay.domain.jobs.reuse import result_job

MANIFEST = "manifest.json"


def attempt_folder(tenant: str, job: str, token: Token, claim: str, checkpoint: int = 0) -> str:
    """The folder of an attempt, or of one of its checkpoints, below the folder of all outputs."""
    last = f".c{checkpoint}" if checkpoint else ""
    return f"{tenant}/{job}/{token.generation}.{token.attempt}.{claim[:8]}{last}"


def is_own_manifest(path: str, tenant: str, job: str, token: Token, claim: str, checkpoint: int = 0) -> bool:
    """Whether a path on a file system or a storage element is that of the attempt's own manifest, or of that of its checkpoint."""
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts[1:]) or parts[0] in (".", ".."):
        return False
    return path.endswith(f"/{attempt_folder(tenant, job, token, claim, checkpoint)}/{MANIFEST}")


def committed_manifest_is_own(document: JobDocument) -> bool:
    """Whether the committed manifest belongs to the attempt that committed it; for a reused result, to the job that produced it."""
    winner = document.winner
    if winner is None or winner.manifest is None:
        return False
    return is_own_manifest(winner.manifest.path, document.tenant, result_job(document), winner.token, winner.claim)
