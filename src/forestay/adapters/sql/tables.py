"""The tables, the same in both dialects.

A document is stored as the bytes of its JSON, since PostgreSQL's text cannot hold every character that JSON can. Beside
it are the searchable fields: derived at each write, never read back into a document.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from forestay.domain.jobs.job_document import FINAL

LAYOUT = 2
"""The layout of the tables; a store with a newer one is refused. Columns that may be empty, indexes and tables are added without another number, so that the release
before works on the same store."""
TAKEN = 4
"""Up to this number, such additions had numbers too: they mean the same layout."""

metadata = MetaData()

# In the order of code points, as SQLite and OpenSearch sort, whatever the database's own language is.
_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
# A separate statement: in a table's definition only SQLAlchemy 2.1 supports it, and beside another engine there may be 2.0.
_OFTEN_REWRITTEN = DDL(  # type: ignore[no-untyped-call]
    "ALTER TABLE %(fullname)s SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)"
).execute_if(dialect="postgresql")

OWN_TEXT = ("tenant", "name", "owner", "team", "specification", "phase", "state")
OWN_NUMBERS = (
    "priority", "expected_runtime", "failures", "releases", "attempt", "generation", "index", "created", "changed",
    "not_before",
)  # fmt: skip
DERIVED_TEXT = ("lane", "resource_class", "pilot", "host", "run", "work")
DERIVED_NUMBERS = (
    "slot", "rank", "retries", "cpus", "memory", "disk", "gpus", "overdue", "notify_due", "exit_code", "ended",
)  # fmt: skip
_MAY_LACK = frozenset(
    {
        "team", "phase", "expected_runtime", "index", "pilot", "host", "overdue", "notify_due", "exit_code", "run", "work",
        "ended",
    }
)  # fmt: skip

jobs = Table(
    "jobs",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("version", BigInteger, nullable=False),
    *(Column(name, _TEXT, nullable=name in _MAY_LACK) for name in OWN_TEXT + DERIVED_TEXT),
    *(Column(name, BigInteger, nullable=name in _MAY_LACK) for name in OWN_NUMBERS + DERIVED_NUMBERS),
    Column("held", Boolean, nullable=False),
    Column("labels", Text().with_variant(JSONB, "postgresql"), info={"json": True}),
    Column("document", LargeBinary, nullable=False),
    listeners=[("after_create", _OFTEN_REWRITTEN)],
)
"""`labels` is a list with one text for each label, the pair of its key and value."""


def _partial(name: str, *columns: str, where: str) -> None:
    """A partial index of the few rows that are searched, so that the many others do not cost anything."""
    Index(name, *(jobs.c[column] for column in columns), postgresql_where=text(where), sqlite_where=text(where))


# A window of candidates is one range of this index. The last three columns let SQLite skip a job without reading its row.
_partial(
    "jobs_queue", "lane", "rank", "id", "slot", "held", "not_before",
    where="state = 'available'",
)  # fmt: skip
_partial("jobs_pilot", "pilot", where="pilot IS NOT NULL")
_partial("jobs_overdue", "overdue", "id", where="overdue IS NOT NULL")
_partial("jobs_notify", "notify_due", "id", where="notify_due IS NOT NULL")
_partial("jobs_run", "run", "created", "id", where='"run" IS NOT NULL')
_partial("jobs_ended", "ended", "id", where="ended IS NOT NULL")
_partial("jobs_running", "tenant", "created", "id", where="state = 'running'")
_partial("jobs_faulted", "tenant", "created", "id", where="state = 'faulted'")
# Ended jobs by time, for history queries. SQLite uses it only for a query that names the final states literally, as `search.conditions` does.
_partial(
    "jobs_over", "tenant", "changed", "id", "state",
    where=" OR ".join(f"state = '{state}'" for state in sorted(FINAL)),
)  # fmt: skip
Index("jobs_created", jobs.c.tenant, jobs.c.created, jobs.c.id)
Index("jobs_owner", jobs.c.tenant, jobs.c.owner, jobs.c.created, jobs.c.id)
Index("jobs_changed", jobs.c.changed, jobs.c.id)
Index("jobs_specification", jobs.c.specification)
Index(
    "jobs_labels", jobs.c.labels,
    postgresql_using="gin", postgresql_ops={"labels": "jsonb_path_ops"}, postgresql_where=text("labels IS NOT NULL"),
).ddl_if(dialect="postgresql")  # fmt: skip

specifications = Table(
    "specifications",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("document", LargeBinary, nullable=False),
    Column("used", BigInteger),
)
"""`used`: when one was last used; rows of an earlier release do not have it."""
Index("specifications_used", specifications.c.used, specifications.c.id)

records = Table(
    "records",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("tenant", _TEXT, nullable=False),
    Column("kind", _TEXT, nullable=False),
    Column("job", _TEXT, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
Index("records_job", records.c.job, records.c.at, records.c.id)
Index("records_kind", records.c.kind, records.c.at, records.c.id)

pilots = Table(
    "pilots",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("tenant", _TEXT, nullable=False),
    Column("state", _TEXT, nullable=False),
    Column("registered", BigInteger, nullable=False),
    Column("document", LargeBinary, nullable=False),
    listeners=[("after_create", _OFTEN_REWRITTEN)],
)
Index("pilots_registered", pilots.c.registered, pilots.c.id)

heartbeat_pages = Table(
    "heartbeats",
    metadata,
    Column("server", _TEXT, nullable=False),
    Column("bucket", Integer, nullable=False),
    Column("document", LargeBinary, nullable=False),
    PrimaryKeyConstraint("server", "bucket"),
    listeners=[("after_create", _OFTEN_REWRITTEN)],
)

documents = Table(
    "documents",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("tenant", _TEXT, nullable=False),
    Column("kind", _TEXT, nullable=False),
    Column("body", LargeBinary, nullable=False),
    listeners=[("after_create", _OFTEN_REWRITTEN)],
)
Index("documents_kind", documents.c.kind, documents.c.id)

STATUS_TEXT = ("tenant", "owner", "kind", "state", "cause", "flow", "run", "instance", "job", "group")
STATUS_NUMBERS = ("at", "due", "changed")
STATUS_TAGS = ("fingerprint", "host", "site", "exit_code")
"""Texts that rows of an earlier release do not have."""

statuses = Table(
    "incident_status",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("version", BigInteger, nullable=False),
    *(Column(name, _TEXT, nullable=False) for name in STATUS_TEXT),
    *(Column(name, BigInteger, nullable=name == "due") for name in STATUS_NUMBERS),
    Column("second", Boolean),
    Column("core_seconds", BigInteger),
    *(Column(name, _TEXT) for name in STATUS_TAGS),
    Column("document", LargeBinary, nullable=False),
    listeners=[("after_create", _OFTEN_REWRITTEN)],
)
"""The statuses of incidents."""
_DUE = text("due IS NOT NULL")
Index("incident_status_due", statuses.c.due, statuses.c.id, postgresql_where=_DUE, sqlite_where=_DUE)
Index("incident_status_at", statuses.c.tenant, statuses.c.at, statuses.c.id)
Index("incident_status_state", statuses.c.tenant, statuses.c.state, statuses.c.at, statuses.c.id)
# Waiting incidents are counted by these columns alone, in the order of the index, without reading the rows.
_WAITS = text("state IN ('held', 'waiting')")
Index(
    "incident_status_inbox_groups",
    *(statuses.c[name] for name in ("tenant", "state", "second", "group", "fingerprint", "cause", "owner", "at", "id", "core_seconds", "host")),
    postgresql_where=_WAITS, sqlite_where=_WAITS,
)  # fmt: skip
Index("incident_status_fingerprint", statuses.c.tenant, statuses.c.fingerprint, statuses.c.at, statuses.c.id)
Index("incident_status_changed", statuses.c.tenant, statuses.c.changed, statuses.c.id)
Index("incident_status_run", statuses.c.run)
# For services that serve every tenant: held and unsettled incidents, of one kind or any.
Index("incident_status_open", statuses.c.state, statuses.c.kind, statuses.c.at, statuses.c.id)
Index("incident_status_job", statuses.c.job)

papers = Table(
    "papers",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("incident", _TEXT, nullable=False),
    Column("kind", _TEXT, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""Incidents, decisions and steps: written once."""
Index("papers_incident", papers.c.incident, papers.c.kind)

audit = Table(
    "audit",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("tenant", _TEXT, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""Pages of the audit log, written once; `last` is the number of a page's last entry."""
Index("audit_last", audit.c.tenant, audit.c.last)

ADDED = (
    jobs.c.run, jobs.c.work, jobs.c.ended, specifications.c.used, statuses.c.second, statuses.c.core_seconds, *(statuses.c[name] for name in STATUS_TAGS),
)  # fmt: skip
ADDED_INDEXES = frozenset(
    {
        "jobs_run", "jobs_ended", "jobs_over", "incident_status_inbox_groups", "incident_status_changed", "incident_status_open", "incident_status_fingerprint",
        "specifications_used",
    }
)  # fmt: skip
"""Columns and indexes that were added after their tables; missing tables are created whole."""

layout = Table("layout", metadata, Column("number", Integer, primary_key=True, autoincrement=False))
