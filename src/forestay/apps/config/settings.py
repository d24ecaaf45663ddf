"""What an operator sets for the processes: by environment `FORESTAY_*` over a TOML file named by `FORESTAY_CONFIG`."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from platformdirs import user_cache_path, user_state_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from forestay.apps.config.downstream_settings import DownstreamTable, check_downstreams
from forestay.apps.config.identity_settings import OidcTable
from forestay.apps.config.receiver_settings import ReceiverTable, check_receivers
from forestay.apps.config.retry_settings import BudgetsTable, LadderTable, dispatcher_of, ladders_of
from forestay.apps.config.storage_settings import ElementTable, elements_of
from forestay.domain.exceptions.incidents.dispatcher import Dispatcher
from forestay.domain.exceptions.incidents.exception_policy import ExceptionPolicy, HouseCourse
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.ladder import Ladder
from forestay.domain.exceptions.safeguards.brakes import CORE_HOUR, BrakePolicy
from forestay.domain.exceptions.safeguards.rate_limit import DAY, MINUTE, Limit
from forestay.domain.exceptions.safeguards.storm import StormPolicy
from forestay.ports.errors import Permanent

_LISTS = frozenset({"callback_hosts", "flow_files", "free_tries", "outputs", "peer_hosts", "staging_hosts"})
"""Settings that are lists, written with commas."""
_TABLES = frozenset({"ladders", "budgets", "downstreams", "oidc", "receivers", "storage", "unanswered"})
"""Settings that are tables of the file; in the environment they are written as JSON."""


class Settings(BaseModel):
    """All settings, each with its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str = ""
    """Where jobs are kept: `sqlite:///FILE`, `postgresql://…`, or `opensearch://HOST:PORT,HOST:PORT/PREFIX?replicas=1`;
    `opensearch+https://USER:PASSWORD@HOST:PORT/PREFIX` for one with TLS, with the files `ca`, `certificate` and `key` as further options. With a password in it, it belongs in the environment."""
    state: Path = Field(default_factory=lambda: user_state_path("forestay"))
    """Folder for what a process keeps itself: the signing key, the laptop's database."""
    signing_key: Path | None = None
    """File with the key that signs tokens; `STATE/signing-key` unless set. All servers of a domain share it. Of several lines the first signs, and what any has signed is good."""
    certificate: Path | None = None
    """File with the certificate of a server, and those between it and its authority; with it the server speaks TLS alone. Read anew when it changes."""
    certificate_key: Path | None = None
    """File with the certificate's private key; unset: it is in the same file."""
    client_ca: Path | None = None
    """File with the certificates of the authority for clients; with it a server hears nobody, pilot, peer or person, who shows no certificate of that authority."""
    client_crl: Path | None = None
    """File with that authority's list of withdrawn certificates (PEM): who shows one of them is not heard, and nobody is once the list is past its time. Read anew when it changes."""
    oidc: OidcTable | None = None
    """A provider of OpenID Connect, whose tokens are taken beside our own and by whose page people log in; see the how-to on single sign-on."""
    listen: str = "127.0.0.1"
    """The address that a server listens on; `0.0.0.0` for all of the machine's."""
    port: int = 8470
    """The port that a server listens on."""
    url: str = ""
    """How pilots and people reach this server; made from listen and port unless set."""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """Of a keeper: the port where Prometheus reads its figures and those of the whole domain, with a viewer's token; 0: none. A server shows its own at `/metrics`."""
    otlp: str = Field(default="", pattern=r"^(https?://[^@?#\s]+)?$")
    """Where traces are sent by OTLP over HTTP, such as `http://collector:4318`; empty: nowhere. Wants `forestay[otel]`; see the how-to on traces."""
    otlp_secret: str = Field(default="", pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)?$")
    """Where the bearer token for it is: `env:NAME` or `file:PATH`."""
    otlp_share: float = Field(default=1.0, ge=0, le=1)
    """How many of the jobs are traced that came without a trace; one that came with a `traceparent` is traced as that says."""
    lineage: str = Field(default="", pattern=r"^(https?://[^@?#\s]+|file:/.+)?$")
    """Where keepers send OpenLineage's events: an address such as `https://marquez:5000/api/v1/lineage`, or `file:PATH`; empty: nowhere. See the how-to on lineage."""
    lineage_secret: str = Field(default="", pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)?$")
    """Where the bearer token for it is: `env:NAME` or `file:PATH`."""
    lineage_namespace: str = Field(default="forestay", pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,200}$")
    """The namespace of the jobs in these events; the tenant is put behind it."""
    keep_days: int = Field(default=0, ge=0, le=36_500)
    """Days for which jobs that have ended are kept, with what is kept beside them; keepers remove older ones. 0: for ever."""
    lease: int = Field(default=600, ge=2, le=86_400)
    """Seconds a silent pilot keeps its claims."""
    token_seconds: int = Field(default=900, ge=5, le=900)
    """How long a pilot's token lives."""
    callback_hosts: tuple[str, ...] = ()
    """Hosts that callbacks may go to, by name or as `*.domain`, with `private:` before one on a private network; see the HTTP interface."""
    staging_hosts: tuple[str, ...] = ()
    """Hosts that inputs may come from by HTTP; see the how-to on inputs."""
    peer_hosts: tuple[str, ...] = ()
    """Hosts that peers of this domain may be at; see the how-to on peers."""
    peer_certificate: Path | None = None
    """File with the certificate that is shown to peers whose servers ask for one, and its key; for its owner alone."""
    peer_ca: Path | None = None
    """File with the certificates by which peers are trusted; unset: those that everybody trusts."""
    peer_key: Path | None = None
    """File with the key pair by which peers know this domain; `STATE/peer-key` unless set. All processes of a domain share it."""
    tes_containers: Literal["apptainer", "host-paths", "refuse"] = "apptainer"
    """How tasks of TES run: in their images by Apptainer, or on the host itself, with their paths made there for them alone; `refuse`: not at all."""
    storage: tuple[ElementTable, ...] = ()
    """Storage elements: `name`, `kind` (`file`, `http`, `s3`, `root`), `url` or `path`, `rules`, `sites`, `outputs`; see the explanation of data."""
    downstreams: tuple[DownstreamTable, ...] = ()
    """GA4GH TES servers that tasks are sent on to: `name`, `url`, `token`, `tenants`, `default`, `most`, `patience`, `callbacks`, `image`; see the explanation of the proxy."""
    receivers: tuple[ReceiverTable, ...] = ()
    """Who is told of alerts and of what waits for a person: `name`, `kind` (`mail`, `webhook`, `apprise`) and where; see the how-to on notices."""
    matching: Literal["look-ahead", "c3", "c2", "c1", "none"] = "look-ahead"
    """How jobs are brought to their data: by all that is known; or by the paper's schemes, for comparison: per host with waiting for data, per pilot, per host, not at all."""
    max_body: int = 64 << 20
    """Bytes that a request may have."""
    head_seconds: float = Field(default=10.0, gt=0)
    """Seconds for a client to send the head of its first request; one that is slower is hung up on."""
    body_seconds: float = Field(default=30.0, gt=0)
    """Seconds for a client to send a body."""
    scan_every: float = Field(default=1.0, gt=0)
    """Seconds between the keeper's looks at the beats."""

    free_tries: tuple[Annotated[int, Field(ge=0, le=30 * 86_400)], ...] = Field(
        default=(0, 60, 600, 3600), max_length=8
    )
    """How many seconds to wait before each further try of a job that failed by trouble of the infrastructure (a node, the network, a transfer …); they are
    not taken from its own attempts. After them its own attempts count."""

    ladders: dict[str, LadderTable] = Field(default_factory=dict)
    """Ladders by name: `levels`, each with `wait` and `tries`, and `then`, which is `rollback`, `hold` or `fail`. `house` is the one that is meant where none is named."""
    budgets: BudgetsTable = BudgetsTable()
    """How many tries a job may have by ladders: `user`, `infrastructure`, and `causes` by cause."""
    unanswered: dict[str, str] = Field(default_factory=dict)
    """What is done about a fault for which no rule concludes, by cause, `*` for any other: `own` (the job's own retry policy, the default), `ladder` or
    `ladder NAME`, `rollback`, `hold`, `fail`, or `dispatch`: what may pass goes to the ladder, what will not is rolled back."""

    temporal: str = ""
    """Where cases live: HOST:PORT of Temporal; empty: this domain runs jobs only."""
    temporal_program: str = ""
    """Of `forestay dev`: the file of Temporal's command line, unless it is on the path; `none`: jobs only."""
    temporal_namespace: str = "default"
    """The namespace in Temporal; two domains on one Temporal want two."""
    temporal_ca: Path | None = None
    """File with the certificates by which Temporal is trusted; with it, Temporal is spoken to by TLS."""
    temporal_certificate: Path | None = None
    """File with the certificate that this process shows to Temporal."""
    temporal_certificate_key: Path | None = None
    """File with its private key; unset: it is in the same file."""
    temporal_server_name: str = ""
    """What Temporal's certificate must be for, if not the host that is connected to."""
    temporal_keys: Path | None = None
    """File with the keys by which what Temporal keeps is sealed: a name and 64 hexadecimal digits a line, the one that seals first. All servers, keepers and workers share it. Unset: Temporal can read everything."""
    task_queue: str = "forestay"
    """The queue in that namespace from which this domain's workers take their work."""
    flows: Path | None = None
    """Folder of Python flows that this domain runs: its server offers them by name, its workers run their code. Unset: none."""
    outputs: tuple[Path, ...] = ()
    """Folders under which pilots put outputs and this process can read them; results of tasks are read there."""
    attachments: Path | None = None
    """Folder for the files that come with runs of the Workflow Execution Service, which pilots can read; `STATE/attachments` unless set."""
    flow_files: tuple[Path, ...] = ()
    """Folders whose files flows may list, watch and read lines of, as workers see them; a path that is not whole begins at the first."""
    watch_every: float = Field(default=1.0, gt=0)
    """Seconds between looks at a folder that a flow watches."""
    relay_every: float = Field(default=0.5, gt=0)
    """Seconds between the keeper's looks for ended jobs of cases."""
    relay_patience: float = Field(default=30.0, gt=0)
    """Seconds that ends wait to be told to their case together with others."""
    history_limit: int = Field(default=4000, ge=20, le=8000)
    """Events after which a case or shard goes on in a new run."""
    look_after: float = Field(default=600.0, gt=0)
    """Seconds without news after which a case or shard looks itself how its jobs stand."""

    house_abort: HouseCourse = HouseCourse.HOLD
    """What is done about an item of another engine that aborted when no rule answers: `ignore`, `hold` (a person is asked), `fail`."""
    house_timeout: HouseCourse = HouseCourse.IGNORE
    """The same for an item past its deadline; what the flow says of it (`then`) is done in any case. Also `ladder`."""
    house_resource_unavailable: HouseCourse = HouseCourse.HOLD
    """The same for a job that nobody can take."""
    unavailable_after: float = Field(default=1800.0, gt=0)
    """Seconds that a job may wait, which nobody who is alive can take, before that is an exception."""
    house_constraint_violation: HouseCourse = HouseCourse.IGNORE
    """The same for a job that passed a limit while it runs."""
    house_tenant: str = "default"
    """The tenant whose administrators may stop the acts of rules in all tenants."""
    brake_acts: int = Field(default=2_000, ge=0)
    """Acts of rules on faults in any ten minutes, in all tenants together."""
    brake_owner_acts: int = Field(default=500, ge=0)
    """The same on jobs of one owner."""
    brake_site_acts: int = Field(default=1_000, ge=0)
    """The same on one site."""
    brake_rule_acts: int = Field(default=500, ge=0)
    """The same by one rule."""
    brake_tenant_hours: int = Field(default=10_000, ge=0)
    """Core-hours that retries of one tenant's jobs may cost in any 24 hours."""
    brake_owner_hours: int = Field(default=2_000, ge=0)
    """The same for one owner."""
    brake_depth: int = Field(default=8, ge=1)
    """Acts of rules that may follow one from the other."""
    brake_by_rule: int = Field(default=5, ge=1)
    """Acts of one rule on one job."""
    second_person: Literal["on", "off"] = "on"
    """Whether force-complete, release, removing cases and rules on others' jobs need the agreement of a second person; `off` for a domain of one person."""
    storm_faults: int = Field(default=50, ge=2)
    """Faults of one cause, site or host in five minutes that are a storm, if they are also five times what is usual."""

    @model_validator(mode="after")
    def _read_tables(self) -> Self:
        dispatcher_of(self.unanswered, ladders_of(self.ladders))
        elements_of(self.storage)
        check_downstreams(self.downstreams)
        if self.certificate is None and (self.certificate_key or self.client_ca):
            raise ValueError("certificate_key and client_ca are for a server with a certificate")
        if self.client_crl and self.client_ca is None:
            raise ValueError("client_crl is of the authority for clients: set client_ca, too")
        check_receivers(self.receivers)
        return self

    @property
    def ladder_book(self) -> Mapping[str, Ladder]:
        """Every ladder by its name, the house's included."""
        return ladders_of(self.ladders)

    @property
    def dispatcher(self) -> Dispatcher:
        return dispatcher_of(self.unanswered, self.ladder_book)

    @property
    def exceptions(self) -> ExceptionPolicy:
        return ExceptionPolicy(
            {
                ExceptionType.ABORT: self.house_abort,
                ExceptionType.TIMEOUT: self.house_timeout,
                ExceptionType.RESOURCE_UNAVAILABLE: self.house_resource_unavailable,
                ExceptionType.CONSTRAINT_VIOLATION: self.house_constraint_violation,
            }
        )

    @property
    def brakes(self) -> BrakePolicy:
        return BrakePolicy(
            all_acts=Limit(self.brake_acts, 10 * MINUTE),
            owner_acts=Limit(self.brake_owner_acts, 10 * MINUTE),
            site_acts=Limit(self.brake_site_acts, 10 * MINUTE),
            rule_acts=Limit(self.brake_rule_acts, 10 * MINUTE),
            tenant_hours=Limit(self.brake_tenant_hours * CORE_HOUR, DAY),
            owner_hours=Limit(self.brake_owner_hours * CORE_HOUR, DAY),
            max_depth=self.brake_depth,
            max_by_rule=self.brake_by_rule,
            second_person=self.second_person == "on",
        )

    @property
    def storms(self) -> StormPolicy:
        return StormPolicy(least=self.storm_faults)

    @property
    def cache(self) -> Path:
        """Folder for what can be fetched again."""
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
    """Flags before environment before file before defaults. `Permanent` says what is wrong, and where."""
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
        lines = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise Permanent(f"the settings are wrong: {lines}") from error


def _read(name: str, text: str) -> object:
    """A setting of the environment."""
    if name in _LISTS:
        return tuple(filter(None, text.split(",")))
    if name not in _TABLES:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise Permanent(f"FORESTAY_{name.upper()} is no JSON: {error}") from error
