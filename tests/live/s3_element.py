"""The real S3 server as a storage element of a test: a folder of its own in the bucket, credentials by reference."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.servers import address

KEY, SECRET = "FORESTAY_TEST_S3_KEY", "FORESTAY_TEST_S3_SECRET"


def s3_table(name: str = "cloud", **more: Any) -> dict[str, Any]:
    """The element as settings have it."""
    address(KEY), address(SECRET)
    bucket = f"{address('FORESTAY_TEST_S3')}/{address('FORESTAY_TEST_S3_BUCKET')}"
    return {
        "name": name,
        "kind": "s3",
        "url": f"{bucket}/t-{uuid4().hex[:10]}",
        "private": True,
        "access_key": f"env:{KEY}",
        "secret_key": f"env:{SECRET}",
        **more,
    }
