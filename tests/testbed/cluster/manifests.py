"""The manifests of ``deploy/kubernetes``: read without kubectl, and applied to an API server of their own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from testbed.brokers import running

from .api_server import ApiServer, Json, RefusedError

MANIFESTS = Path(__file__).parents[3] / "deploy/kubernetes"
SYSTEM = "slacktide-system"
IN_FORCE_S = 60.0


def kustomization(folder: Path) -> Json:
    """The kustomization of a folder."""
    found: Json = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return found


def objects(folder: Path = MANIFESTS) -> Iterator[Json]:
    """What a folder's kustomization holds, folders below it included; without what it adds (labels, tags)."""
    for name in kustomization(folder)["resources"]:
        path = folder / name
        if path.is_dir():
            yield from objects(path)
        else:
            yield from (each for each in yaml.safe_load_all(path.read_text()) if each)


def workloads() -> list[Json]:
    """What runs."""
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
        until_s = time.monotonic() + IN_FORCE_S
        while not _in_force(server):
            assert time.monotonic() < until_s, "the admission policies do not come into force"
            time.sleep(0.1)
        yield server


@contextlib.contextmanager
def evict_by_load(server: ApiServer) -> Iterator[None]:
    """With the component that lets the bridge evict, once it may."""
    rbac = str(MANIFESTS / "components/evict-by-load/rbac.yaml")
    asked = {"verb": "create", "resource": "pods", "subresource": "eviction"}
    review = {"spec": {"user": f"system:serviceaccount:{SYSTEM}:slacktide-bridge", "resourceAttributes": asked}}
    server.kubectl("apply", "-f", rbac)
    try:
        until_s = time.monotonic() + IN_FORCE_S
        while not server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]:
            assert time.monotonic() < until_s, "the role does not come into force"
            time.sleep(0.1)
        yield
    finally:
        server.kubectl("delete", "-f", rbac)


def _in_force(server: ApiServer) -> bool:
    """Whether policies refuse: rights, which refuse in other words, may come into force after them, or before."""
    node = server.node()
    secret = {"metadata": {"name": "tried"}, "type": "Opaque"}
    label = {"metadata": {"labels": {"tried": "yes"}}}
    asked = (
        (
            "slacktide-webhook",
            "POST",
            f"/api/v1/namespaces/{SYSTEM}/secrets?dryRun=All",
            secret,
            "write only the Secret",
        ),
        ("slacktide-bridge", "PATCH", f"/api/v1/nodes/{node}/status?dryRun=All", label, "must not change labels"),
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
