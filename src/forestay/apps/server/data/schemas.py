"""Requests about files, with all limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from forestay.apps.server.http.schemas import INT64, Id, Model, Reason, Word, one_line


class UploadIn(Model):
    path: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(one_line)]
    bytes: int = Field(default=0, ge=0, le=INT64)


class UploadsIn(Model):
    job: Id
    claim: Id
    files: list[UploadIn] = Field(min_length=1, max_length=1000)
    checkpoint: int = Field(default=0, ge=0, le=INT64)
    """The number of the checkpoint that they belong to; 0: they are outputs."""


FileName = Annotated[str, Field(min_length=1, max_length=1200), AfterValidator(one_line)]
ElementPathIn = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(one_line)]


class ReplicaIn(Model):
    name: FileName
    element: Word
    path: ElementPathIn | None = None
    bytes: int | None = Field(default=None, ge=0, le=INT64)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    reason: Reason = ""


class ReplicaOutIn(Model):
    name: FileName
    element: Word
    path: ElementPathIn | None = None
    reason: Reason = ""


class MarkIn(Model):
    name: FileName
    element: Word
    path: ElementPathIn | None = None
    bad: bool = True
    reason: Reason = ""
