"""Forestay in Airflow: a connection type, a deferrable operator, its trigger and link, and a listener."""

from typing import Any

__version__ = "0.1.0"


def get_provider_info() -> dict[str, Any]:
    """What Airflow asks every provider for; nothing heavy is imported for it."""
    return {
        "package-name": "airflow-provider-forestay",
        "name": "Forestay",
        "description": "Runs jobs and flows on Forestay, which fixes what fails.",
        "versions": [__version__],
        "integrations": [{"integration-name": "Forestay", "tags": ["service"]}],
        "operators": [{"integration-name": "Forestay", "python-modules": ["airflow_provider_forestay.operator"]}],
        "hooks": [{"integration-name": "Forestay", "python-modules": ["airflow_provider_forestay.hook"]}],
        "triggers": [{"integration-name": "Forestay", "python-modules": ["airflow_provider_forestay.trigger"]}],
        "connection-types": [
            {"hook-class-name": "airflow_provider_forestay.hook.ForestayHook", "connection-type": "forestay"}
        ],
        "extra-links": ["airflow_provider_forestay.link.ForestayLink"],
    }
