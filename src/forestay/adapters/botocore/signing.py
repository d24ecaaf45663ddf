"""Signs S3 URLs (Signature Version 4, in the query), with credentials read from where the settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from forestay.domain.data.storage_element import StorageElement
from forestay.ports.data.storage import Credentials
from forestay.ports.errors import Permanent, Transient
from forestay.ports.secrets import Secrets


class S3Signer:
    """Implements `ports.data.storage.Signer`."""

    def __init__(self, credentials: Mapping[str, Credentials], secrets: Secrets) -> None:
        self._credentials = credentials
        self._secrets = secrets

    def sign(self, element: StorageElement, method: Literal["GET", "PUT", "DELETE"], url: str, seconds: int) -> str:
        try:
            # Importing takes a tenth of a second, and the package is an extra: it is only needed for S3.
            from botocore.auth import S3SigV4QueryAuth  # type: ignore[import-untyped]
            from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
            from botocore.credentials import Credentials as Keys  # type: ignore[import-untyped]
        except ImportError as error:
            raise Permanent("S3 addresses need botocore: pip install 'forestay[s3]'") from error
        where = self._credentials.get(element.name)
        if where is None:
            raise Permanent(f"{element.name} has no credentials in the settings")
        keys = Keys(self._read(where.key, element.name), self._read(where.secret, element.name))
        request = AWSRequest(method=method, url=url)
        S3SigV4QueryAuth(keys, "s3", where.region, expires=seconds).add_auth(request)
        signed: str = request.url
        return signed

    def _read(self, reference: str, element: str) -> str:
        try:
            return self._secrets.read(reference)
        except Transient as error:
            raise Permanent(f"the credentials of {element} are missing: {error}") from None
