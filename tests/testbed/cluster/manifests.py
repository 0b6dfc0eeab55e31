"""The manifests of ``deploy/kubernetes``: read without kubectl, and applied to an API server of their own."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from testbed.brokers import running

from .api_server import Account, ApiServer, Json, RefusedError

MANIFESTS = Path(__file__).parents[3] / "deploy/kubernetes"
SYSTEM = "slacktide-system"
IN_FORCE_S = 60.0


def kustomization(folder: Path) -> Json:
    return yaml.safe_load((folder / "kustomization.yaml").read_text())


def objects(folder: Path = MANIFESTS) -> Iterator[Json]:
    """What a folder's kustomization holds, folders below it included; without what it adds (labels, tags)."""
    for name in kustomization(folder)["resources"]:
        path = folder / name
        if path.is_dir():
            yield from objects(path)
        else:
            yield from (each for each in yaml.safe_load_all(path.read_text()) if each)


def workloads() -> list[Json]:
    return [each for each in objects() if each["kind"] in {"Deployment", "DaemonSet"}]


def containers() -> Iterator[tuple[str, Json]]:
    """Each container with its workload's name, those that run first included."""
    for workload in workloads():
        spec = workload["spec"]["template"]["spec"]
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield workload["metadata"]["name"], container


@contextlib.contextmanager
def applied(make: Callable[[Path], ApiServer] = ApiServer) -> Iterator[ApiServer]:
    """An API server on which ``kubectl apply -k deploy/kubernetes`` was run, once its policies are in force."""
    with running(make) as server:
        server.kubectl("apply", "-k", str(MANIFESTS))
        server.wait(lambda: _in_force(server), "the admission policies are in force", IN_FORCE_S)
        yield server


@contextlib.contextmanager
def evict_by_load(server: ApiServer) -> Iterator[None]:
    """With the component that lets the bridge evict, once it may."""
    rbac = str(MANIFESTS / "components/evict-by-load/rbac.yaml")
    asked = {"verb": "create", "resource": "pods", "subresource": "eviction"}
    review = {"spec": {"user": f"system:serviceaccount:{SYSTEM}:slacktide-bridge", "resourceAttributes": asked}}
    server.kubectl("apply", "-f", rbac)
    try:
        reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        server.wait(lambda: server.post(reviews, review)["status"]["allowed"], "the role is in force", IN_FORCE_S)
        yield
    finally:
        server.kubectl("delete", "-f", rbac)


def _in_force(server: ApiServer) -> bool:
    """Whether policies refuse: rights, which refuse in other words, may come into force after them, or before."""
    node = server.node()
    secret = {"metadata": {"name": "tried"}, "type": "Opaque"}
    label = {"metadata": {"labels": {"tried": "yes"}}}
    secrets, status = f"/api/v1/namespaces/{SYSTEM}/secrets?dryRun=All", f"/api/v1/nodes/{node}/status?dryRun=All"
    asked = (
        ("slacktide-webhook", "POST", secrets, secret, "write only the Secret"),
        ("slacktide-bridge", "PATCH", status, label, "must not change labels"),
    )
    try:
        return all(
            why in _refusal(server, method, path, body, server.account(SYSTEM, account).token)
            for account, method, path, body, why in asked
        )
    finally:
        server.delete(f"/api/v1/nodes/{node}")


def _refusal(server: ApiServer, method: str, path: str, body: Json, token: str) -> str:
    try:
        server.request(method, path, body, token=token)
    except RefusedError as refused:
        return str(refused)
    return ""


def wrote(server: ApiServer, account: Account, node: str, cpu: str) -> str:
    """What is said of an attempt to write batch resources; "": nothing, it was written."""
    amounts = {"kubernetes.io/batch-cpu": cpu}
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    try:
        server.request("PATCH", f"/api/v1/nodes/{node}/status", body, token=account.token)
    except RefusedError as refused:
        return str(refused)
    return ""
