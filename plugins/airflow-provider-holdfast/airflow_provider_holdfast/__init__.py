"""Holdfast in Airflow: a connection type, a deferrable operator, its trigger and link, and a listener."""

from typing import Any

__version__ = "0.1.0"


def get_provider_info() -> dict[str, Any]:
    """What Airflow asks every provider for; nothing heavy is imported for it."""
    return {
        "package-name": "airflow-provider-holdfast",
        "name": "Holdfast",
        "description": "Runs jobs and flows on Holdfast, which mends what fails.",
        "versions": [__version__],
        "integrations": [{"integration-name": "Holdfast", "tags": ["service"]}],
        "operators": [{"integration-name": "Holdfast", "python-modules": ["airflow_provider_holdfast.operator"]}],
        "hooks": [{"integration-name": "Holdfast", "python-modules": ["airflow_provider_holdfast.hook"]}],
        "triggers": [{"integration-name": "Holdfast", "python-modules": ["airflow_provider_holdfast.trigger"]}],
        "connection-types": [
            {"hook-class-name": "airflow_provider_holdfast.hook.HoldfastHook", "connection-type": "holdfast"}
        ],
        "extra-links": ["airflow_provider_holdfast.link.HoldfastLink"],
    }
