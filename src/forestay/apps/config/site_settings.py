"""Settings of a site agent: a TOML file, read once. All invalid settings are reported together, each with its position."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from forestay.domain.jobs.amounts import duration_of, size_of
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import MAX_NODES
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
    nodes: int = Field(default=1, ge=1, le=MAX_NODES)
    """What follows is of each of them. A pilot of several nodes takes jobs that ask for as many, one at a time."""
    cpus: int = Field(default=1, ge=1, le=4096)
    memory: Size = Field(ge=1 << 20, le=1 << 50)
    """Requested from the batch system and offered to jobs."""
    disk: Size | None = Field(default=None, ge=0, le=1 << 55)
    """Offered to jobs; unset: what is free in the pilot's work folder."""
    gpus: int = Field(default=0, ge=0, le=1024)
    """Offered to jobs; request them from the batch system with `options`, except on Kubernetes, where they are requested."""
    slots: int | None = Field(default=None, ge=1, le=1024)
    """Jobs at once; unset: one per CPU."""
    wall: Duration = Field(ge=120, le=30 * 86_400)
    queue: Annotated[str, Field(max_length=200)] | None = None
    """Partition, queue or class; on Kubernetes, a local queue of Kueue."""
    account: Annotated[str, Field(max_length=200)] | None = None
    options: tuple[Annotated[str, Field(max_length=1000)], ...] = ()
    """Further options of the batch system's submit command; on Kubernetes, JSON merge patches of the Job."""
    image: Annotated[str, Field(max_length=500)] = ""
    """The pods' image, if not that of `kubernetes.image`."""

    @property
    def at_once(self) -> int:
        """How many jobs a pilot runs at once."""
        return 1 if self.nodes > 1 else self.slots or self.cpus


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


class NodesTable(_SiteTable):
    """How jobs of several nodes are started."""

    launcher: tuple[Annotated[str, Field(min_length=1, max_length=4096)], ...] = Field(
        default=("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=0"), min_length=1, max_length=50
    )
    """The command that starts the ranks of a job on the nodes of its allocation; the command of a rank is added to it. `{nodes}` and `{cpus}` are what the job asks for."""
    work: Place
    """The work folder of pilots of several nodes, on a file system that the nodes share."""


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


KubernetesName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class TolerationTable(_SiteTable):
    """A taint of nodes that pilots tolerate, with the field names of Kubernetes."""

    key: Annotated[str, Field(max_length=317)] = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: Annotated[str, Field(max_length=63)] = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Empty: all."""


class VolumeTable(_SiteTable):
    """A volume that every pilot mounts: a PersistentVolumeClaim or a Secret of the namespace."""

    path: Place
    """Where the pilot sees it."""
    claim: KubernetesName | None = None
    secret: KubernetesName | None = None
    read_only: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.claim is None) == (self.secret is None):
            raise ValueError("set either claim or secret")
        return self


class KubernetesTable(_SiteTable):
    """How pilots run on Kubernetes: each is a Job with one pod."""

    address: Annotated[str, Field(pattern=r"^(https://\S+)?$")] = ""
    """The API server; unset: the cluster in which the agent itself runs."""
    token_file: Place = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    """File with the agent's token for the API server; read for every request, so that it can be renewed."""
    ca_file: Place = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
    """Certificate authorities of the API server; read again when the file changes."""
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "forestay"
    """The namespace of the pilots."""
    image: Annotated[str, Field(min_length=1, max_length=500)]
    """The pods' image: any with a Python from 3.9 and what jobs need."""
    pull_secrets: tuple[KubernetesName, ...] = Field(default=(), max_length=10)
    """Secrets of the namespace with the right to pull images."""
    service_account: KubernetesName | None = None
    """The pods' service account; its token is never mounted."""
    user: int = Field(default=1000, ge=1, le=2**31 - 2)
    """The pods' user id; never root."""
    group: int = Field(default=1000, ge=1, le=2**31 - 2)
    """The pods' group id, also of the volumes."""
    node_selector: dict[Annotated[str, Field(max_length=317)], Annotated[str, Field(max_length=63)]] = Field(
        default_factory=dict, max_length=50
    )
    """Labels of the nodes on which pilots may run."""
    tolerations: tuple[TolerationTable, ...] = Field(default=(), max_length=50)
    priority_class: KubernetesName | None = None
    gpu_resource: Annotated[str, Field(min_length=1, max_length=317)] = "nvidia.com/gpu"
    """The extended resource that is requested for the `gpus` of a size."""
    volumes: tuple[VolumeTable, ...] = Field(default=(), max_length=50)
    grace: Duration = Field(default=60, ge=1, le=3600)
    """Seconds that a pilot has after SIGTERM, such as when it is preempted."""
    start_patience: Duration = Field(default=600, ge=30, le=86_400)
    """Seconds for which a pod that has a node may fail to start, such as while its image cannot be pulled; later its Job is ended."""
    keep_finished: Duration = Field(default=86_400, ge=600, le=30 * 86_400)
    """Seconds for which a Job stays after its end; an agent that is down for longer does not learn how its pilots ended."""


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
    batch: Literal["slurm", "htcondor", "kubernetes", "pbs", "lsf"] = "slurm"
    """The kind of batch system. Slurm and HTCondor are tested on real installations, Kubernetes on a real control plane with simulated nodes; PBS and LSF are experimental: tested only against the documented output of their commands."""
    spool: Place
    """A folder for the agent only, on a file system that the nodes share; with Kubernetes, any folder that outlives the agent."""
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
    nodes: NodesTable | None = None
    """Required if a size has several nodes."""
    kubernetes: KubernetesTable | None = None
    """Required if `batch` is `kubernetes`."""
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
        if any(size.nodes > 1 for size in self.sizes):
            self._sound_for_several_nodes()
        if self.users.run_as == "submitter":
            self._sound_for_submitters()
        if (self.batch == "kubernetes") != (self.kubernetes is not None):
            raise ValueError('the table kubernetes belongs to batch = "kubernetes", which requires it')
        if self.batch == "kubernetes":
            self._sound_for_kubernetes()
        elif any(size.image for size in self.sizes):
            raise ValueError(f"sizes.image is available with Kubernetes, not with {self.batch}")
        return self

    def _sound_for_several_nodes(self) -> None:
        if self.batch != "slurm":
            raise ValueError(f"sizes.nodes: several nodes are available with Slurm, not with {self.batch}")
        if self.nodes is None:
            raise ValueError("sizes.nodes: the table nodes is required for a size of several nodes")
        if self.users.run_as == "submitter":
            raise ValueError('sizes.nodes: one node is available with users.run_as = "submitter"')
        if any(size.nodes > 1 and size.slots not in (None, 1) for size in self.sizes):
            raise ValueError("sizes.slots: a pilot of several nodes runs one job at a time")

    def _sound_for_kubernetes(self) -> None:
        if LABEL_VALUE.fullmatch(self.site) is None:
            raise ValueError(
                "site: Kubernetes accepts at most 63 letters, digits, dashes, dots and underscores as a label"
            )
        if any(size.account is not None for size in self.sizes):
            raise ValueError("sizes.account: Kubernetes has no accounts")
        if any(size.queue is not None and LABEL_VALUE.fullmatch(size.queue) is None for size in self.sizes):
            raise ValueError("sizes.queue: with Kubernetes, the name of a local queue of Kueue")

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
            nodes=size.nodes,
        )
        return PilotSize(size.name, offers, size.at_once)


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
