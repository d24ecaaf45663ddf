"""The real servers answer, and are set up as the job store's law needs them."""

import pytest
from opensearchpy import AsyncOpenSearch, ConflictError
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from tests import servers

pytestmark = pytest.mark.live


async def test_opensearch_refuses_a_write_with_an_old_sequence_number() -> None:
    async with AsyncOpenSearch(hosts=list(servers.opensearch()), max_retries=0, timeout=60) as store:
        await store.indices.create(index="smoke", ignore=400)
        try:
            first = await store.index(index="smoke", id="job", body={"state": "available"})
            seen = {"if_seq_no": first["_seq_no"], "if_primary_term": first["_primary_term"]}
            await store.index(index="smoke", id="job", body={"state": "running"}, params=seen)
            with pytest.raises(ConflictError):
                await store.index(index="smoke", id="job", body={"state": "running"}, params=seen)
        finally:
            await store.indices.delete(index="smoke")


async def test_opensearch_without_a_manager_takes_no_write() -> None:
    async with AsyncOpenSearch(hosts=list(servers.opensearch()), max_retries=0, timeout=60) as store:
        settings = await store.nodes.info(metric="settings")
    blocks = {node["settings"]["cluster"]["no_cluster_manager_block"] for node in settings["nodes"].values()}
    assert blocks <= {"write", "all"}


async def test_postgres_answers_and_syncs_its_commits() -> None:
    engine = create_async_engine(make_url(servers.postgres()).set(drivername="postgresql+asyncpg"))
    try:
        async with engine.connect() as connection:
            assert await connection.scalar(text("show fsync")) == "on"
            assert await connection.scalar(text("show synchronous_commit")) == "on"
    finally:
        await engine.dispose()


async def test_temporal_has_its_default_namespace() -> None:
    client = await Client.connect(servers.temporal())
    answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
    assert answer.namespace_info.name == "default"
