"""Settings of the processes: environment variables `FORESTAY_*` override a TOML file named by `FORESTAY_CONFIG`."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from platformdirs import user_cache_path, user_state_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from forestay.apps.config.downstream_settings import DownstreamTable
from forestay.apps.config.external_settings import ExternalSourceTable
from forestay.apps.config.identity_settings import OidcTable
from forestay.apps.config.notification_settings import NotificationChannelTable
from forestay.apps.config.retry_settings import BudgetsTable, RetryPolicyTable, dispatcher_of, retry_policies_of
from forestay.apps.config.storage_settings import ElementTable, elements_of
from forestay.apps.config.unique_names import check_unique
from forestay.domain.exceptions.incidents.dispatcher import Dispatcher
from forestay.domain.exceptions.incidents.exception_policy import ExceptionAction, ExceptionPolicy
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.retry_policy import LevelledRetryPolicy
from forestay.domain.exceptions.safeguards.rate_limit import DAY, MINUTE, RateLimit
from forestay.domain.exceptions.safeguards.safeguards import CORE_HOUR, SafeguardPolicy
from forestay.domain.exceptions.safeguards.storm import StormPolicy
from forestay.ports.errors import Permanent

_LISTS = frozenset({"callback_hosts", "flow_files", "free_tries", "outputs", "peer_hosts", "staging_hosts"})
"""Settings that are lists, written with commas."""
_TABLES = frozenset(
    {
        "retry_policies",
        "budgets",
        "downstreams",
        "external_sources",
        "oidc",
        "notification_channels",
        "storage",
        "unanswered",
    }
)
"""Settings that are tables of the file; in the environment they are written as JSON."""


class Settings(BaseModel):
    """All settings, each with its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str = ""
    """The job store: `sqlite:///FILE`, `postgresql://…`, or `opensearch://HOST:PORT,HOST:PORT/PREFIX?replicas=1`; with TLS `opensearch+https://USER:PASSWORD@HOST:PORT/PREFIX`, with the files `ca`, `certificate` and `key` as further options. If it contains a password, set it in the environment."""
    state: Path = Field(default_factory=lambda: user_state_path("forestay"))
    """Folder for a process's own files: the signing key, the laptop's database."""
    signing_key: Path | None = None
    """File with the key that signs tokens; default `STATE/signing-key`. All servers of a domain share it. If it has several lines, the first key signs, and tokens signed by any of them are valid."""
    certificate: Path | None = None
    """File with the server's certificate and the intermediate certificates; with it the server accepts only TLS. Reloaded when it changes."""
    certificate_key: Path | None = None
    """File with the certificate's private key; default: the certificate's file."""
    client_ca: Path | None = None
    """File with the CA certificates for clients; with it a server refuses every client (pilot, peer or person) without a certificate of that CA."""
    client_crl: Path | None = None
    """File with the revocation list (PEM) of that CA: revoked certificates are refused, and all are refused when the list has expired. Reloaded when it changes."""
    oidc: OidcTable | None = None
    """An OpenID Connect provider whose tokens are accepted beside our own and on whose page people log in; see the how-to on single sign-on."""
    listen: str = "127.0.0.1"
    """The address on which a server listens; `0.0.0.0` for all addresses of the machine."""
    port: int = 8470
    """The port on which a server listens."""
    url: str = ""
    """The address at which pilots and people reach this server; default: from `listen` and `port`."""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """For a reconciler: the port on which Prometheus reads its metrics and those of the whole domain, with a viewer's token; 0: none. A server exposes its own at `/metrics`."""
    otlp: str = Field(default="", pattern=r"^(https?://[^@?#\s]+)?$")
    """Where traces are sent with OTLP over HTTP, for example `http://collector:4318`; empty: nowhere. Requires `forestay[otel]`; see the how-to on traces."""
    otlp_secret: str = Field(default="", pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)?$")
    """Where the bearer token for it is: `env:NAME` or `file:PATH`."""
    otlp_share: float = Field(default=1.0, ge=0, le=1)
    """The fraction of jobs without a trace of their own that are traced; a job submitted with a `traceparent` follows its sampling flag."""
    lineage: str = Field(default="", pattern=r"^(https?://[^@?#\s]+|file:/.+)?$")
    """Where reconcilers send OpenLineage events: an address such as `https://marquez:5000/api/v1/lineage`, or `file:PATH`; empty: nowhere. See the how-to on lineage."""
    lineage_secret: str = Field(default="", pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)?$")
    """Where the bearer token for it is: `env:NAME` or `file:PATH`."""
    lineage_namespace: str = Field(default="forestay", pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,200}$")
    """The namespace of the jobs in these events; the tenant is appended."""
    keep_days: int = Field(default=0, ge=0, le=36_500)
    """Days for which completed jobs and their records are kept; reconcilers remove older ones. 0: forever, and so is everything else."""
    keep_incidents_days: int = Field(default=730, ge=0, le=36_500)
    """Days for which closed incidents and their decisions are kept, over which rules are replayed; at least `keep_days`. 0: forever."""
    keep_keys_days: int = Field(default=365, ge=0, le=36_500)
    """Days in which a submission that is repeated with its idempotency key is recognised, also after its jobs were removed; at least `keep_days`. 0: forever."""
    keep_audit_days: int = Field(default=0, ge=0, le=36_500)
    """Days for which the audit log is kept; at least `keep_days`. 0: forever."""
    lease: int = Field(default=600, ge=2, le=86_400)
    """Seconds for which a silent pilot keeps its claims."""
    token_seconds: int = Field(default=900, ge=5, le=900)
    """Seconds for which a pilot's token is valid."""
    notice: Path | None = None
    """File with a notice to everybody who has a page open, such as "Maintenance on Friday": its first 500 characters stand on top of every page. Read again when it changes."""
    callback_hosts: tuple[str, ...] = ()
    """Hosts to which callbacks may be sent, by name or as `*.domain`, with the prefix `private:` for one on a private network; see the HTTP interface."""
    staging_hosts: tuple[str, ...] = ()
    """Hosts from which inputs may be fetched over HTTP; see the how-to on inputs."""
    peer_hosts: tuple[str, ...] = ()
    """Hosts on which peers of this domain may be; see the how-to on peers."""
    peer_certificate: Path | None = None
    """File with the client certificate for peers whose servers require one, and its key; readable by its owner only."""
    peer_ca: Path | None = None
    """File with the CA certificates trusted for peers; default: the system's."""
    peer_key: Path | None = None
    """File with the key pair that identifies this domain to peers; default `STATE/peer-key`. All processes of a domain share it."""
    tes_containers: Literal["apptainer", "host-paths", "refuse"] = "apptainer"
    """How TES tasks run: in their images with Apptainer, or on the host itself with their paths created there (`host-paths`); `refuse`: not at all."""
    storage: tuple[ElementTable, ...] = ()
    """Storage elements: `name`, `kind` (`file`, `http`, `s3`, `root`), `url` or `path`, `rules`, `sites`, `outputs`; see the explanation of data."""
    downstreams: tuple[DownstreamTable, ...] = ()
    """GA4GH TES servers to which tasks are forwarded: `name`, `url`, `token`, `tenants`, `default`, `most`, `patience`, `callbacks`, `image`; see the explanation of the proxy."""
    notification_channels: tuple[NotificationChannelTable, ...] = ()
    """Notification channels for alerts and for failures that need attention: `name`, `kind` (`mail`, `webhook`, `apprise`) and address; see the how-to on notifications."""
    external_sources: tuple[ExternalSourceTable, ...] = ()
    """Values that rules may ask about as `external.NAME.FIELD`: `name`, one of `url`, `command` and `file`, `fields` with their types, `fresh`; see the explanation of rules."""
    max_body: int = 64 << 20
    """Maximum size of a request in bytes."""
    caller_bytes: int = Field(default=128 << 20, gt=0)
    """Maximum bytes of the bodies that one caller (a person or program of a tenant) sends to a server at the same time."""
    caller_streams: int = Field(default=100, gt=0)
    """Maximum number of event streams and long polls that one caller has open at a server."""
    caller_requests: int = Field(default=16, gt=0)
    """Maximum number of requests with one token that a server works on at the same time; others wait for their turn. Streams and long polls do not count."""
    head_seconds: float = Field(default=10.0, gt=0)
    """Seconds for a client to send the head of a request; slower connections are closed."""
    body_seconds: float = Field(default=30.0, gt=0)
    """Seconds for a client to send a body."""
    scan_every: float = Field(default=1.0, gt=0)
    """Seconds between the reconciler's scans of heartbeats."""

    free_tries: tuple[Annotated[int, Field(ge=0, le=30 * 86_400)], ...] = Field(
        default=(0, 60, 600, 3600), max_length=8
    )
    """Seconds to wait before each retry of a job after an infrastructure failure (a node, the network, a transfer …); these retries are not charged to the job's own attempts. After them its own attempts count. Other failures that may pass are retried once after the last of the job's own attempts, at most after the longest of these waits. Empty: without a rule, nothing is retried beyond the job's own attempts."""

    retry_policies: dict[str, RetryPolicyTable] = Field(default_factory=dict)
    """Retry policies by name: `levels`, each with `wait` and `tries`, and `then`, which is `rollback`, `hold` or `fail`. `default` is the default policy, used where none is named."""
    budgets: BudgetsTable = BudgetsTable()
    """Maximum number of retries of a job by retry policies: `user`, `infrastructure`, and `causes` by cause."""
    unanswered: dict[str, str] = Field(default_factory=dict)
    """What is done about a failure for which no rule concludes, by cause, `*` for any other: `own` (the job's own retry policy, the default), `retry` or `retry NAME`, `rollback`, `hold`, `fail`, or `dispatch`: transient failures are retried by the retry policy, permanent ones are rolled back."""

    temporal: str = ""
    """HOST:PORT of the Temporal server that executes runs; empty: this domain runs jobs only."""
    temporal_program: str = ""
    """For `forestay dev`: the path of Temporal's command line program, unless it is on the `PATH`; `none`: jobs only."""
    temporal_namespace: str = "default"
    """The namespace in Temporal; two domains on one Temporal need two."""
    temporal_ca: Path | None = None
    """File with the CA certificates trusted for Temporal; with it, connections to Temporal use TLS."""
    temporal_certificate: Path | None = None
    """File with the client certificate of this process for Temporal."""
    temporal_certificate_key: Path | None = None
    """File with its private key; default: the certificate's file."""
    temporal_server_name: str = ""
    """The name in Temporal's certificate, if it is not the host of the connection."""
    temporal_keys: Path | None = None
    """File with the keys that encrypt Temporal's payloads: a name and 64 hexadecimal digits per line; the first encrypts. All servers, reconcilers and orchestrators share it. Unset: payloads are not encrypted."""
    task_queue: str = "forestay"
    """The Temporal task queue of this domain's orchestrators."""
    flows: Path | None = None
    """Folder with the Python flows of this domain: its servers offer them by name, its orchestrators run their code. Unset: none."""
    outputs: tuple[Path, ...] = ()
    """Folders in which pilots write outputs and this process can read them; results of tasks are read there."""
    attachments: Path | None = None
    """Folder for attachments of WES runs, which pilots can read; default `STATE/attachments`."""
    flow_files: tuple[Path, ...] = ()
    """Folders whose files flows may list, watch and read, as orchestrators see them; a relative path starts at the first."""
    watch_every: float = Field(default=1.0, gt=0)
    """Seconds between polls of a folder that a flow watches."""
    relay_every: float = Field(default=0.5, gt=0)
    """Seconds between the reconciler's polls for completed jobs of runs."""
    relay_patience: float = Field(default=30.0, gt=0)
    """Seconds for which completions wait to be sent to their run together with others."""
    history_limit: int = Field(default=4000, ge=20, le=8000)
    """Events after which the workflow of a run or shard continues as a new execution."""
    look_after: float = Field(default=600.0, gt=0)
    """Seconds without events after which a run or shard polls the state of its jobs."""

    on_abort: ExceptionAction = ExceptionAction.HOLD
    """What is done about an aborted task of another engine when no rule answers: `ignore`, `hold` (for a person), `fail`."""
    on_timeout: ExceptionAction = ExceptionAction.IGNORE
    """The same for a task past its deadline; what the flow specifies (`then`) is done in any case. Also `retry`."""
    on_resource_unavailable: ExceptionAction = ExceptionAction.HOLD
    """The same for a job that no pilot can take."""
    unavailable_after: float = Field(default=1800.0, gt=0)
    """Seconds for which a job that no live pilot can take may wait before an exception is raised."""
    on_constraint_violation: ExceptionAction = ExceptionAction.IGNORE
    """The same for a running job that exceeded a limit."""
    admin_tenant: str = "default"
    """The administrative tenant: its administrators may stop the actions of rules in all tenants."""
    safeguard_acts: int = Field(default=2_000, ge=0)
    """Maximum number of actions of rules in any ten minutes, all tenants together."""
    safeguard_owner_acts: int = Field(default=500, ge=0)
    """The same for jobs of one owner."""
    safeguard_site_acts: int = Field(default=1_000, ge=0)
    """The same for one site."""
    safeguard_rule_acts: int = Field(default=500, ge=0)
    """The same for one rule."""
    safeguard_tenant_hours: int = Field(default=10_000, ge=0)
    """Maximum core-hours of retries for one tenant in any 24 hours."""
    safeguard_owner_hours: int = Field(default=2_000, ge=0)
    """The same for one owner."""
    safeguard_depth: int = Field(default=8, ge=1)
    """Maximum number of actions that follow from each other."""
    safeguard_by_rule: int = Field(default=5, ge=1)
    """Maximum number of actions of one rule on one job."""
    approvals: Literal["on", "off"] = "on"
    """Whether force-complete, release, removing runs and rules on others' jobs need the approval of another person; `off` for a domain with a single person."""
    storm_failures: int = Field(default=50, ge=2)
    """Failures with one cause, site or host in five minutes that are a storm, if they are also five times the usual number."""

    @model_validator(mode="after")
    def _read_tables(self) -> Self:
        dispatcher_of(self.unanswered, retry_policies_of(self.retry_policies))
        elements_of(self.storage)
        check_unique((table.name for table in self.downstreams), "downstreams")
        if self.certificate is None and (self.certificate_key or self.client_ca):
            raise ValueError("certificate_key and client_ca need certificate")
        if self.client_crl and self.client_ca is None:
            raise ValueError("client_crl needs client_ca")
        check_unique((table.name for table in self.notification_channels), "notification channels")
        check_unique((table.name for table in self.external_sources), "external sources")
        return self

    @property
    def retry_policy_table(self) -> Mapping[str, LevelledRetryPolicy]:
        """All retry policies by name, including the default."""
        return retry_policies_of(self.retry_policies)

    @property
    def dispatcher(self) -> Dispatcher:
        return dispatcher_of(self.unanswered, self.retry_policy_table)

    @property
    def exceptions(self) -> ExceptionPolicy:
        return ExceptionPolicy(
            {
                ExceptionType.ABORT: self.on_abort,
                ExceptionType.TIMEOUT: self.on_timeout,
                ExceptionType.RESOURCE_UNAVAILABLE: self.on_resource_unavailable,
                ExceptionType.CONSTRAINT_VIOLATION: self.on_constraint_violation,
            }
        )

    @property
    def safeguards(self) -> SafeguardPolicy:
        return SafeguardPolicy(
            all_acts=RateLimit(self.safeguard_acts, 10 * MINUTE),
            owner_acts=RateLimit(self.safeguard_owner_acts, 10 * MINUTE),
            site_acts=RateLimit(self.safeguard_site_acts, 10 * MINUTE),
            rule_acts=RateLimit(self.safeguard_rule_acts, 10 * MINUTE),
            tenant_hours=RateLimit(self.safeguard_tenant_hours * CORE_HOUR, DAY),
            owner_hours=RateLimit(self.safeguard_owner_hours * CORE_HOUR, DAY),
            max_depth=self.safeguard_depth,
            max_by_rule=self.safeguard_by_rule,
            approvals=self.approvals == "on",
        )

    @property
    def storms(self) -> StormPolicy:
        return StormPolicy(least=self.storm_failures)

    @property
    def cache(self) -> Path:
        """Folder for files that can be downloaded again."""
        return user_cache_path("forestay")

    @property
    def key_file(self) -> Path:
        return self.signing_key or self.state / "signing-key"

    @property
    def peer_key_file(self) -> Path:
        return self.peer_key or self.state / "peer-key"

    @property
    def attachments_folder(self) -> Path:
        return self.attachments or self.state / "attachments"

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:///{self.state / 'forestay.db'}"

    @property
    def public_url(self) -> str:
        return self.url or f"{'http' if self.certificate is None else 'https'}://{self.listen}:{self.port}"


def load(environment: Mapping[str, str] | None = None, **flags: object) -> Settings:
    """Load the settings: flags override the environment, which overrides the file and the defaults. `Permanent` says what is invalid, and where."""
    environment = os.environ if environment is None else environment
    values: dict[str, object] = {}
    if path := environment.get("FORESTAY_CONFIG"):
        try:
            values |= tomllib.loads(Path(path).read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise Permanent(f"the settings file {path} cannot be read: {error}") from error
    for name in Settings.model_fields:
        if (text := environment.get(f"FORESTAY_{name.upper()}")) is not None:
            values[name] = _read(name, text)
    values |= {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = "; ".join(f"{'.'.join(map(str, details['loc']))}: {details['msg']}" for details in error.errors())
        raise Permanent(f"invalid settings: {lines}") from error


def _read(name: str, text: str) -> object:
    """A setting of the environment."""
    if name in _LISTS:
        return tuple(filter(None, text.split(",")))
    if name not in _TABLES:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise Permanent(f"FORESTAY_{name.upper()} is not valid JSON: {error}") from error
