"""The button of a task that leads to its job or run, with its story and its incidents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.bases.operatorlink import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

KEY = "forestay_link"


class ForestayLink(BaseOperatorLink):
    """The operator stores the address where Airflow's server reads it."""

    name = "Forestay"

    @property
    def xcom_key(self) -> str:
        return KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        value = XCom.get_value(key=KEY, ti_key=ti_key)
        return value if isinstance(value, str) else ""


def address(url: str, kind: str, name: str) -> str:
    """The address of the page of a job or run, for a browser that is logged in."""
    return f"{url}/{kind}s/{name}"
