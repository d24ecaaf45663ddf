"""Settings of a site agent: a TOML file, read once. All invalid settings are reported together, each with its position."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from forestay.domain.jobs.amounts import duration_of, size_of
from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.fleet import PilotSize, SubmissionPace, Thresholds
from forestay.ports.errors import Permanent
from forestay.services.sites.site_policy import UNIX_NAME, OwnUsers, SitePolicy

Size = Annotated[int, BeforeValidator(size_of)]
"""Bytes, or such as `4 GiB`."""
Duration = Annotated[int, BeforeValidator(duration_of)]
"""Seconds, or such as `90 min`."""
Word = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._@+-]+$")]
PLENTY = 2**55
"""The amount of a resource that the operator does not limit: the pilot detects the actual one."""


def _whole(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("use an absolute path, the same on the nodes and for the agent")
    return path


Place = Annotated[Path, AfterValidator(_whole)]


class _SiteTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PaceTable(_SiteTable):
    """Limits on requests to the scheduler."""

    per_minute: int = Field(default=60, ge=1, le=10_000)
    """Pilots submitted in any minute."""
    at_once: int = Field(default=20, ge=1, le=1000)
    """Pilots submitted in one poll."""
    first_wait: Duration = Field(default=30, ge=1, le=3600)
    """Seconds to wait after pilots were refused or ended before they registered; doubled each time."""
    longest_wait: Duration = Field(default=1800, ge=1, le=3600)
    commands: float = Field(default=2.0, gt=0, le=100)
    """Commands sent to the batch system per second, on average."""


class SizeTable(_SiteTable):
    """One kind of pilot."""

    name: Word = "standard"
    cpus: int = Field(default=1, ge=1, le=4096)
    memory: Size = Field(ge=1 << 20, le=1 << 50)
    """Requested from the batch system and offered to jobs."""
    disk: Size | None = Field(default=None, ge=0, le=1 << 55)
    """Offered to jobs; unset: what is free in the pilot's work folder."""
    gpus: int = Field(default=0, ge=0, le=1024)
    """Offered to jobs; request them from the batch system with `options`."""
    slots: int | None = Field(default=None, ge=1, le=1024)
    """Jobs at once; unset: one per CPU."""
    wall: Duration = Field(ge=120, le=30 * 86_400)
    queue: Annotated[str, Field(max_length=200)] | None = None
    """Partition, queue or class."""
    account: Annotated[str, Field(max_length=200)] | None = None
    options: tuple[Annotated[str, Field(max_length=1000)], ...] = ()
    """Further options of the batch system's submit command."""


class PilotTable(_SiteTable):
    """How pilots are started; the same for every size."""

    python: str = "python3"
    """Any Python from 3.9 on the nodes; nothing needs to be installed there."""
    work: str = ""
    """Local disk of the nodes; unset: the pilot's own folder in the temporary folder."""
    certificate: str = ""
    """File with the pilots' certificate and its key, as the nodes see it, for servers that require one; readable by its owner only."""
    idle_exit: Duration = Field(default=300, ge=1)
    """Seconds without work after which a pilot exits."""
    time_margin: Duration = Field(default=60, ge=1)
    """Seconds before the end of its allocation in which a pilot claims nothing."""
    arguments: tuple[Annotated[str, Field(max_length=4096)], ...] = ()
    """Further options of the pilot, such as those of its cache. Everyone can see them: no secrets."""


UnixName = Annotated[str, Field(pattern=f"^{UNIX_NAME.pattern}$")]


class UsersTable(_SiteTable):
    """As which Unix users jobs run."""

    run_as: Literal["agent", "submitter"] = "agent"
    """`agent`: all pilots run as the agent's user and take the jobs of all. `submitter`: each pilot runs as the Unix user of one owner and takes that owner's jobs only."""
    names: dict[Word, UnixName] = Field(default_factory=dict, max_length=100_000)
    """The Unix users of owners."""
    same_name: bool = False
    """An owner who is not in `names` is the Unix user of the same name; without it, there are no pilots for that owner."""
    max_pilots: int | None = Field(default=None, ge=1, le=9000)
    """Maximum number of pilots of one owner; unset: those of the site."""
    group: UnixName = "forestay-users"
    """The launcher accepts the members of this Unix group only."""
    folder: Annotated[str, Field(pattern=r"^(/|\{home\}/)[A-Za-z0-9._/{}@-]+$")] = "{home}/.forestay/pilots"
    """A folder of each user's own, on a file system that the nodes share; `{user}` and `{home}` stand for the user's name and home."""
    program: Place | None = None
    """The pilot as one file that only root can change, where the nodes find it."""
    launcher: tuple[Annotated[str, Field(min_length=1, max_length=4096)], ...] = Field(
        default=("/usr/bin/sudo", "-n", "/usr/libexec/forestay-launch"), min_length=1, max_length=10
    )
    """The command that starts the launcher as root."""


class SiteSettings(_SiteTable):
    """All settings of a site agent."""

    site: Word
    servers: tuple[Annotated[str, Field(pattern=r"^https?://\S+$")], ...] = Field(min_length=1)
    """Addresses of servers, as the agent and the nodes reach them."""
    token_file: Place
    """File with a token of the role `site`; read for every request, so that it can be renewed."""
    ca_file: Place | None = None
    """Certificates to trust instead of the system's."""
    certificate: Place | None = None
    """File with the agent's certificate and its key, for servers that require one; readable by its owner only."""
    batch: Literal["slurm", "htcondor", "pbs", "lsf"] = "slurm"
    """The kind of batch system. Slurm and HTCondor are tested on real installations; PBS and LSF are experimental: tested only against the documented output of their commands."""
    spool: Place
    """A folder for the agent only, on a file system that the nodes share."""
    outputs: Place
    """Where pilots write outputs."""
    min_pilots: int = Field(default=0, ge=0, le=100_000)
    max_pilots: int = Field(ge=0, le=9000)
    """Maximum number of pilots of this site, including those that wait in the scheduler's queue."""
    min_idle: int = Field(default=0, ge=0, le=100_000)
    """Idle pilots kept ready in addition to those that jobs need."""
    every: Duration = Field(default=10, ge=1, le=600)
    """Seconds between polls."""
    settle: Duration = Field(default=120, ge=0, le=3600)
    """Seconds for which a submission of a crashed agent may still arrive at the batch system."""
    idle_patience: Duration = Field(default=60, ge=0)
    """Seconds for which jobs may wait while pilots are idle before more pilots are submitted for them."""
    queue_wait: Duration = Field(default=7 * 86_400, ge=60, le=30 * 86_400)
    """Seconds for which a pilot may wait in the scheduler's queue; later it can no longer register."""
    pace: PaceTable = PaceTable()
    pilot: PilotTable = PilotTable()
    users: UsersTable = UsersTable()
    sizes: tuple[SizeTable, ...] = Field(min_length=1, max_length=100)
    """The kinds of pilots, preferred first: a job gets the first one that it fits into."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.min_pilots > self.max_pilots:
            raise ValueError("min_pilots is greater than max_pilots")
        names = [size.name for size in self.sizes]
        if len(set(names)) < len(names):
            raise ValueError("two sizes have the same name")
        for size in self.sizes:
            if size.wall <= self.pilot.time_margin:
                raise ValueError(f"size {size.name}: wall must be longer than the pilot's time_margin")
        if self.users.run_as == "submitter":
            self._sound_for_submitters()
        return self

    def _sound_for_submitters(self) -> None:
        if self.batch != "slurm":
            raise ValueError(f'users.run_as = "submitter" is available with Slurm, not with {self.batch}')
        if self.users.program is None:
            raise ValueError("users.program is required: the pilot's file, which only root can change")
        if self.min_pilots or self.min_idle:
            raise ValueError("min_pilots and min_idle must be 0: no pilot is started before it is known for whom")
        if self.pilot.certificate:
            raise ValueError("pilot.certificate cannot be used: its file has one owner, and pilots run as many users")

    @property
    def own_users(self) -> OwnUsers | None:
        """The Unix users of owners, if jobs run as them."""
        users = self.users
        return OwnUsers(users.names, users.same_name) if users.run_as == "submitter" else None

    @property
    def policy(self) -> SitePolicy:
        """The policy by which the agent decides."""
        return SitePolicy(
            thresholds=Thresholds(self.max_pilots, self.min_pilots, self.min_idle, self.users.max_pilots),
            sizes=tuple(self._size(size) for size in self.sizes),
            pace=SubmissionPace(self.pace.per_minute, self.pace.at_once, self.pace.first_wait, self.pace.longest_wait),
            every=self.every,
            settle=self.settle,
            idle_patience=self.idle_patience,
            secret_seconds=self.queue_wait,
            own_users=self.own_users,
        )

    def _size(self, size: SizeTable) -> PilotSize:
        offers = Resources(
            cpus=size.cpus,
            memory=size.memory,
            disk=PLENTY if size.disk is None else size.disk,
            gpus=size.gpus,
            wall=size.wall - self.pilot.time_margin,
        )
        return PilotSize(size.name, offers, size.slots or size.cpus)


def load_site(path: Path) -> SiteSettings:
    """Read the file; `Permanent` says what is invalid, and where."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Permanent(f"the settings file {path} cannot be read: {error}") from error
    return read_site(values, str(path))


def read_site(values: Mapping[str, object], name: str) -> SiteSettings:
    """The settings of a file that was read; `Permanent` lists everything that is invalid."""
    try:
        return SiteSettings.model_validate(values)
    except ValidationError as error:
        lines = "; ".join(
            f"{'.'.join(map(str, details['loc'])) or 'file'}: {details['msg']}" for details in error.errors()
        )
        raise Permanent(f"invalid settings in {name}: {lines}") from error
