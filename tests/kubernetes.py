"""The Kubernetes of `scripts/servers`: its administrator, and what plays the kubelets of its simulated nodes.

The control plane is real: API server, admission, controllers, garbage collector and scheduler. The nodes are not. `SimulatedKubelet` does with a pod what a
kubelet does, as far as pilots need it: it runs the container's command as a process of this machine, without a container, and writes the pod's status.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

import httpx
import yaml
from tests import servers

Fields = dict[str, Any]
MERGE = {"Content-Type": "application/merge-patch+json"}
RIGHTS = Path(__file__).parents[1] / "deploy" / "kubernetes" / "site-agent.yaml"
FOUND, MADE = 200, 201
INVALID, MISSING, ENORMOUS, GREEDY = "Not An Image", "simulated/missing:1", "simulated/enormous:1", "simulated/greedy:1"
"""Images with which the simulated kubelet fails as a real one does: a name that is none, one that no registry has, a container that needs more memory
than its limit, and one that makes its node run out of disk."""
PILOTS = "app.kubernetes.io/managed-by=forestay-site-agent"
_PLACES = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


class Admin:
    """The administrator of the cluster."""

    def __init__(self) -> None:
        self.folder = servers.kubernetes()
        self.address = (self.folder / "address").read_text().strip()
        self.ca = self.folder / "ca.crt"
        token = (self.folder / "admin-token").read_text().strip()
        verify = ssl.create_default_context(cafile=str(self.ca))
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=self.address, verify=verify, headers=headers, trust_env=False, timeout=30)

    def get(self, path: str, **query: str) -> Fields:
        """An object or a list; empty if it does not exist."""
        answer = self.http.get(path, params=query)
        return {} if answer.status_code == httpx.codes.NOT_FOUND else _body(answer)

    def create(self, resource: Fields, namespace: str, **query: str) -> Fields:
        kind = resource["kind"]
        place = _PLACES.get(kind, "/api/v1/namespaces/{}/" + f"{kind.lower()}s").format(namespace)
        return _body(self.http.post(place, json=resource, params=query))

    def patch(self, path: str, body: Fields) -> Fields:
        return _body(self.http.patch(path, json=body, headers=MERGE))

    def delete(self, path: str, **options: Any) -> None:
        answer = self.http.request("DELETE", path, json={"kind": "DeleteOptions", "apiVersion": "v1", **options})
        assert answer.status_code in (200, 202, 404), answer.text

    def evict(self, namespace: str, pod: str) -> None:
        """Evict a pod as `kubectl drain` does."""
        place = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        assert self.http.post(place, json=body).status_code == MADE

    def site(self, folder: Path) -> Site:
        """A namespace of its own with the strictest level of Pod Security, and an agent's token with the rights that the manifest for sites gives."""
        name = f"site-{uuid4().hex[:10]}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, "")
        for resource in yaml.safe_load_all(RIGHTS.read_text()):
            if resource["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
                self.create(resource, name)
        # Pods are refused until the controller has made the account of the namespace.
        deadline = time.monotonic() + 60
        while not self.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"):
            assert time.monotonic() < deadline, "no service account"
            time.sleep(0.05)
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200},
        }
        place = f"/api/v1/namespaces/{name}/serviceaccounts/forestay-site-agent/token"
        token = folder / f"{name}.token"
        token.write_text(_body(self.http.post(place, json=request))["status"]["token"])
        return Site(self, name, token)


@dataclass(frozen=True)
class Site:
    """A namespace of pilots."""

    admin: Admin
    namespace: str
    token: Path

    def pods(self) -> list[Fields]:
        found: list[Fields] = self.admin.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return found

    def job(self, name: str) -> Fields:
        return self.admin.get(f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}")

    def secrets(self) -> list[str]:
        items = self.admin.get(f"/api/v1/namespaces/{self.namespace}/secrets")["items"]
        return [resource["metadata"]["name"] for resource in items]

    def quota(self, **hard: str) -> None:
        spec = {"hard": {name.replace("__", "/").replace("_", "."): amount for name, amount in hard.items()}}
        place = f"/api/v1/namespaces/{self.namespace}/resourcequotas"
        self.admin.create(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}, self.namespace
        )
        deadline = time.monotonic() + 60
        while "hard" not in self.admin.get(f"{place}/q").get("status", {}):
            assert time.monotonic() < deadline, "the quota is not in force"
            time.sleep(0.05)


@dataclass
class Container:
    """A pod's process."""

    process: subprocess.Popen[bytes]
    log: Path
    began: float
    deadline: float | None
    ended: float | None = None
    """When it was told to stop."""


@dataclass
class SimulatedKubelet:
    """The kubelets of all simulated nodes, as a thread. `deaf` are nodes of which nothing is heard any more."""

    admin: Admin
    folder: Path = field(default_factory=lambda: Path(mkdtemp(prefix="forestay-kubelet-")))
    deaf: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._containers: dict[str, Container] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="simulated kubelet", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        for container in self._containers.values():
            _signal(container, signal.SIGKILL)
            container.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            try:
                pods = self.admin.get("/api/v1/pods", fieldSelector="spec.nodeName!=", labelSelector=PILOTS)["items"]
            except httpx.HTTPError:
                continue  # the API server is away: a kubelet waits
            for pod in pods:
                if pod["spec"]["nodeName"] not in self.deaf:
                    try:
                        self._sync(pod)
                    except (httpx.HTTPError, OSError, AssertionError) as error:
                        self.errors.append(repr(error))

    def _sync(self, pod: Fields) -> None:
        """One pod, as far as it has come."""
        uid, phase = pod["metadata"]["uid"], pod["status"]["phase"]
        deleted = pod["metadata"].get("deletionTimestamp")
        container = self._containers.get(uid)
        if phase in ("Succeeded", "Failed"):
            if deleted and not pod["metadata"].get("finalizers"):
                self._remove(pod)
        elif container is None:
            if deleted:
                self._status(pod, "Failed")
                self._remove(pod)
            elif phase == "Pending":
                self._start(pod)
        elif container.process.poll() is not None:
            self._ended(pod, container)
        elif deleted or (container.deadline is not None and time.monotonic() > container.deadline):
            self._stop(pod, container)

    def _start(self, pod: Fields) -> None:
        spec = pod["spec"]["containers"][0]
        if spec["image"] == INVALID:
            self._waits(
                pod, "InvalidImageName", f'Failed to apply default image tag "{INVALID}": couldn\'t parse image name'
            )
            return
        if spec["image"] == MISSING:
            self._waits(pod, "ImagePullBackOff", f'Back-off pulling image "{MISSING}": ErrImagePull: not found')
            return
        try:
            environment = {each["name"]: self._value(pod, each) for each in spec.get("env", ())}
        except LookupError as error:
            self._waits(pod, "CreateContainerConfigError", str(error))
            return
        places = self._volumes(pod)
        folder = _placed(spec.get("workingDir", "/"), places)
        log = self.folder / f"{pod['metadata']['uid']}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [_placed(word, places) for word in spec["command"]],
                cwd=folder,
                env={
                    "PATH": os.environ["PATH"],
                    **{name: _placed(value, places) for name, value in environment.items()},
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wall = pod["spec"].get("activeDeadlineSeconds")
        now = time.monotonic()
        self._containers[pod["metadata"]["uid"]] = Container(process, log, now, None if wall is None else now + wall)
        self._status(pod, "Running", {"running": {"startedAt": _now()}}, startTime=_now())
        if spec["image"] in (ENORMOUS, GREEDY):
            os.killpg(process.pid, signal.SIGKILL)

    def _stop(self, pod: Fields, container: Container) -> None:
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or pod["spec"]["terminationGracePeriodSeconds"])
        if container.ended is None:
            container.ended = time.monotonic()
            _signal(container, signal.SIGTERM)
        elif time.monotonic() > container.ended + grace:
            _signal(container, signal.SIGKILL)

    def _ended(self, pod: Fields, container: Container) -> None:
        code = container.process.returncode
        image = pod["spec"]["containers"][0]["image"]
        last = container.log.read_bytes()[-2048:].decode(errors="replace")
        end: Fields = {"exitCode": code if code >= 0 else 128 - code, "reason": "Completed" if code == 0 else "Error"}
        end |= {"startedAt": _now(), "finishedAt": _now()} | ({"message": last} if code else {})
        more: Fields = {}
        if image == ENORMOUS:
            end["reason"] = "OOMKilled"
        elif image == GREEDY:
            words = (
                "The node was low on resource: ephemeral-storage. Threshold quantity: 6442450944, available: 5120Mi. "
            )
            target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": words}
            more = {"reason": "Evicted", "message": words, "conditions": [*pod["status"].get("conditions", ()), target]}
        elif (
            container.deadline is not None
            and container.ended is not None
            and not pod["metadata"].get("deletionTimestamp")
        ):
            more = {
                "reason": "DeadlineExceeded",
                "message": "Pod was active on the node longer than the specified deadline",
            }
        self._status(pod, "Succeeded" if code == 0 else "Failed", {"terminated": end}, **more)
        del self._containers[pod["metadata"]["uid"]]

    def _value(self, pod: Fields, variable: Fields) -> str:
        if "value" in variable:
            return str(variable["value"])
        wanted = variable["valueFrom"]["secretKeyRef"]
        secret = self.admin.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{wanted['name']}")
        if wanted["key"] not in secret.get("data", {}):
            raise LookupError(f'secret "{wanted["name"]}" not found')
        return base64.b64decode(secret["data"][wanted["key"]]).decode()

    def _volumes(self, pod: Fields) -> dict[str, str]:
        """The folders of this machine that stand for the pod's volumes, by the paths at which the pod sees them."""
        places: dict[str, str] = {}
        for mount in pod["spec"]["containers"][0].get("volumeMounts", ()):
            volume = next(each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
            claim = volume.get("persistentVolumeClaim")
            # A claim is one folder for all pods; the other volumes are each pod's own.
            folder = self.folder / (claim["claimName"] if claim else f"{pod['metadata']['uid']}-{volume['name']}")
            folder.mkdir(exist_ok=True)
            if "configMap" in volume:
                name = volume["configMap"]["name"]
                found = self.admin.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{name}")
                for file, content in found.get("binaryData", {}).items():
                    (folder / file).write_bytes(base64.b64decode(content))
            places[mount["mountPath"]] = str(folder)
        return places

    def _waits(self, pod: Fields, reason: str, message: str) -> None:
        self._status(pod, "Pending", {"waiting": {"reason": reason, "message": message}})

    def _status(self, pod: Fields, phase: str, state: Fields | None = None, **more: Any) -> None:
        name, image = pod["spec"]["containers"][0]["name"], pod["spec"]["containers"][0]["image"]
        status: Fields = {"phase": phase, **more}
        if state is not None:
            status["containerStatuses"] = [
                {
                    "name": name,
                    "image": image,
                    "imageID": "",
                    "ready": "running" in state,
                    "restartCount": 0,
                    "state": state,
                }
            ]
        place = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
        with contextlib.suppress(FileNotFoundError):
            self.admin.patch(place, {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status})

    def _remove(self, pod: Fields) -> None:
        place = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self.admin.delete(place, gracePeriodSeconds=0, preconditions={"uid": pod["metadata"]["uid"]})


def _body(answer: httpx.Response) -> Fields:
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise FileNotFoundError(answer.text)
    assert answer.is_success, answer.text
    body: Fields = answer.json()
    return body


def _placed(text: str, places: Mapping[str, str]) -> str:
    for path, folder in places.items():
        if text == path or text.startswith(f"{path}/"):
            return folder + text.removeprefix(path)
    return text


def _signal(container: Container, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(container.process.pid, number)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def names(items: Iterable[Fields]) -> list[str]:
    return [resource["metadata"]["name"] for resource in items]
