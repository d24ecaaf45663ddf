"""The user's settings, and the description of this executor for Snakemake. Snakemake reads the annotations of the settings as they are written."""

from dataclasses import dataclass, field
from typing import Optional

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

DAY = 86_400


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Options on Snakemake's command line, or in its environment. The token itself is not one of them: it is in a file or in `FORESTAY_TOKEN`."""

    server: Optional[str] = field(  # noqa: UP045 - Snakemake reads this spelling
        default=None,
        metadata={"help": "Address of the Forestay server, or several with commas between.", "env_var": True},
    )
    token_file: Optional[str] = field(  # noqa: UP045
        default=None,
        metadata={"help": "File with your token, readable by you alone.", "env_var": True},
    )
    team: Optional[str] = field(  # noqa: UP045
        default=None, metadata={"help": "The team that the jobs are accounted to.", "env_var": True}
    )
    when_exhausted: Optional[str] = field(  # noqa: UP045
        default="fail",
        metadata={
            "help": "What becomes of a job that no rule knows how to fix: fail, or hold. One that is held waits for a person, and Snakemake waits with it.",
            "env_var": True,
            "choices": ["fail", "hold"],
        },
    )
    container: Optional[str] = field(  # noqa: UP045
        default=None,
        metadata={
            "help": "The image that every job runs in: Snakemake itself must be in it, or be on a folder that the pilots mount. A rule's resource `forestay_container` names another.",
            "env_var": True,
        },
    )
    patience: Optional[int] = field(  # noqa: UP045
        default=DAY,
        metadata={
            "help": "Seconds for which a server that does not answer is tried when a job is to be submitted.",
            "env_var": True,
        },
    )
    fresh: bool = field(
        default=False,
        metadata={
            "help": "Do not wait for jobs of an earlier run that still do the same work: cancel them, and begin anew.",
            "env_var": True,
        },
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=False,  # a command is stored and shown; these may be secrets
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
)
