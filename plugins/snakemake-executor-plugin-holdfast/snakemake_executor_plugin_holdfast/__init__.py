"""Runs the jobs of a Snakemake flow on Holdfast. The names here are those that Snakemake looks for."""

from snakemake_executor_plugin_holdfast.executor import Executor
from snakemake_executor_plugin_holdfast.settings import ExecutorSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
