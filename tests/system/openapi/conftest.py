"""One ground for the tests of this folder: to start it takes longer than to ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.system.openapi.ground import Ground, ground


@pytest.fixture(scope="session")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    async with ground("postgresql", tmp_path_factory.mktemp("openapi")) as made:
        yield made
