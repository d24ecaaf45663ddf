"""Runs the jobs of a Snakemake flow on Forestay. The names here are required by Snakemake."""

from snakemake_executor_plugin_forestay.executor import Executor
from snakemake_executor_plugin_forestay.settings import ExecutorSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
