"""The connection type `forestay`, and what can be asked through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseHook

from airflow_provider_forestay import server
from airflow_provider_forestay.server import Place, Server


class ForestayHook(BaseHook):
    """Speaks to a Forestay server as the holder of the connection's token."""

    conn_name_attr = "forestay_conn_id"
    default_conn_name = "forestay_default"
    conn_type = "forestay"
    hook_name = "Forestay"

    def __init__(self, forestay_conn_id: str = default_conn_name, *, patience: float = 120.0) -> None:
        super().__init__()
        self.forestay_conn_id = forestay_conn_id
        self.patience = patience

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        return {
            "hidden_fields": ["login"],
            "relabeling": {"password": "Token", "host": "Address", "schema": "http or https"},
            "placeholders": {
                "host": "https://forestay.example.org",
                "extra": '{"token_file": "/etc/airflow/forestay.token"}',
            },
        }

    def get_conn(self) -> Server:
        return Server(Place.of(self.get_connection(self.forestay_conn_id)), self.patience)

    def test_connection(self) -> tuple[bool, str]:
        """The handler of the test button on Airflow's connection page."""
        try:
            reply = self.get_conn().send(server.Ask("GET", "/v1/status"))
        except Exception as error:
            return False, str(error)
        return True, f"Forestay {reply['version']} answers"

    def submit_job(self, job: Mapping[str, Any], *, key: str) -> str:
        """Submit a job; a repetition with the same key submits no second one."""
        return str(self.get_conn().send(server.submit_job(job, key))["jobs"][0]["id"])

    def start_flow(self, flow: str, params: Mapping[str, Any], *, key: str) -> str:
        """Start a run of a stored flow, a Python flow's name, or the text of a flow; the same key starts no second one."""
        asked = self.get_conn()
        if "\n" in flow:
            flow = asked.send(server.store_flow(flow))["version"]
        return str(asked.send(server.start_run(flow, params, key))["id"])

    def look(self, kind: str, name: str) -> dict[str, Any]:
        reply: dict[str, Any] = self.get_conn().send(server.read(kind, name))
        return reply

    def stop(self, kind: str, name: str, reason: str) -> None:
        self.get_conn().send(server.stop(kind, name, reason))
