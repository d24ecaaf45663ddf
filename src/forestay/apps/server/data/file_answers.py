"""Responses about files."""

from __future__ import annotations

from forestay.apps.server.http.answers import Out, Time


class ReplicaOut(Out):
    element: str
    path: str
    since: Time | None
    bad: bool
    bad_since: Time | None
    why: str


class FileOut(Out):
    """A logical file and its replicas, in the order in which to try them."""

    name: str
    bytes: int | None
    sha256: str | None
    replicas: list[ReplicaOut]


class FilesOut(Out):
    files: list[FileOut]
    more: bool


class UploadsOut(Out):
    urls: dict[str, str]
    base: str
