"""A task that is a job or a flow on Forestay. What fails there is recovered there: the task needs no retries of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from airflow.sdk import BaseOperator, conf
from airflow.sdk.exceptions import AirflowException

from airflow_provider_forestay.hook import ForestayHook
from airflow_provider_forestay.link import KEY, ForestayLink, address
from airflow_provider_forestay.server import ForestayError, ending_of
from airflow_provider_forestay.trigger import ForestayTrigger

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context


class ForestaySubmitOperator(BaseOperator):
    """Submits a job, or starts a run of a flow, and waits until it has ended; deferred, it holds no worker meanwhile."""

    template_fields: Sequence[str] = ("job", "flow", "flow_params", "forestay_conn_id")
    operator_extra_links = (ForestayLink(),)
    ui_color = "#dfe8f1"

    def __init__(
        self,
        *,
        job: Mapping[str, Any] | None = None,
        flow: str | None = None,
        flow_params: Mapping[str, Any] | None = None,
        forestay_conn_id: str = ForestayHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        every: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.flow = flow
        self.flow_params = flow_params or {}
        self.forestay_conn_id = forestay_conn_id
        self.deferrable = deferrable
        self.every = every
        self._begun: tuple[str, str] | None = None

    def execute(self, context: Context) -> Any:
        if (self.job is None) == (self.flow is None):
            raise ValueError("give either a job or a flow")
        hook = ForestayHook(self.forestay_conn_id)
        key = _key(context)
        if self.job is not None:
            kind, name = "job", hook.submit_job(_labelled(self.job, context), key=key)
        else:
            kind, name = "run", hook.start_flow(str(self.flow), self.flow_params, key=key)
        self._begun = kind, name
        self.log.info("Forestay has the %s %s", kind, name)
        context["ti"].xcom_push(key=KEY, value=address(hook.get_conn().place.url, kind, name))
        if self.deferrable:
            self.defer(
                trigger=ForestayTrigger(kind, name, self.forestay_conn_id, self.every),
                method_name="execute_complete",
                kwargs={"kind": kind},
            )
        while (ending := ending_of(hook.look(kind, name))) is None:
            time.sleep(self.every)
        return self._ended(kind, ending)

    def execute_complete(self, context: Context, event: dict[str, Any], kind: str = "job") -> Any:
        """The trigger has fired."""
        return self._ended(kind, event)

    def on_kill(self) -> None:
        """The task is stopped while a worker waits: its job or run is cancelled."""
        if self._begun is None:
            return
        kind, name = self._begun
        try:
            ForestayHook(self.forestay_conn_id, patience=10.0).stop(kind, name, "the Airflow task was stopped")
        except Exception as error:
            self.log.warning("the %s %s is not cancelled: %s", kind, name, error)

    def _ended(self, kind: str, ending: Mapping[str, Any]) -> Any:
        words = f"the {kind} {ending['id']} is {ending['state']}"
        if attempts := ending.get("attempts"):
            words += f" after {attempts} attempt(s)"
        if not ending["well"]:
            raise AirflowException(
                f"{words}: {ending.get('reason') or 'no reason given'}; `forestay explain {ending['id']}` says more"
            )
        self.log.info("%s", words)
        return dict(ending)


def _key(context: Context) -> str:
    """The idempotency key: the same for every repetition of a try, so that a restarted worker submits nothing twice."""
    ti = context["ti"]
    return str(uuid5(NAMESPACE_URL, f"airflow:{ti.dag_id}:{ti.run_id}:{ti.task_id}:{ti.map_index}:{ti.try_number}"))


def _labelled(job: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """The job with labels that identify its origin, by which it can be found."""
    ti = context["ti"]
    own = {"airflow-dag": ti.dag_id, "airflow-task": ti.task_id, "airflow-run": ti.run_id}
    labels = {name: str(value)[:200] for name, value in own.items()} | dict(job.get("labels") or {})
    specification = job.get("specification") or {name: value for name, value in job.items() if name != "labels"}
    if "specification" not in job:
        specification = {"name": ti.task_id} | dict(specification)
        return {"specification": specification, "labels": labels}
    return dict(job) | {"labels": labels}


__all__ = ["ForestayError", "ForestaySubmitOperator"]
