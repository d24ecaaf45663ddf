"""How the real Snakemake with its own Slurm plugin is called: as a user does, but it looks at its jobs sooner."""

from tests.system.insertion.shell import VERSIONS

SNAKEMAKE = (
    "uv", "tool", "run", "--quiet", "--from", f"snakemake=={VERSIONS['SNAKEMAKE_VERSION']}",
    "--with", f"snakemake-executor-plugin-slurm=={VERSIONS['SNAKEMAKE_SLURM_VERSION']}",
    "snakemake", "--executor", "slurm", "--jobs", "4", "--default-resources", "slurm_account=root", "slurm_partition=main",
    "--latency-wait", "10", "--slurm-init-seconds-before-status-checks", "3",
)  # fmt: skip
