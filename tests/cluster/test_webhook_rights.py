"""What the webhook's account can make of its rights: what its certificate needs, and nothing else."""

import base64
from typing import Any

import pytest

from testbed.cluster.api_server import Account, ApiServer, RefusedError
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.webhook import CONFIGURATIONS

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
JSON_PATCH = "application/json-patch+json"
MUTATING, VALIDATING = (
    f"{CONFIGURATIONS}/{kind}webhookconfigurations/slacktide" for kind in ("mutating", "validating")
)
NOTHING_ELSE = "may change only clientConfig.caBundle"
EVERYTHING = [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"], "scope": "*"}]
SECRETS = f"/api/v1/namespaces/{SYSTEM}/secrets"


@pytest.fixture(scope="module")
def account(applied: ApiServer) -> Account:
    return applied.account(SYSTEM, "slacktide-webhook")


def patched(server: ApiServer, account: Account, path: str, *changes: Json) -> Json:
    body: Any = [{"op": "add", **change} for change in changes]
    return server.request("PATCH", path, body, token=account.token, kind=JSON_PATCH)


@pytest.mark.parametrize("path", [MUTATING, VALIDATING])
def test_it_sets_the_authority_that_signed_its_certificate(applied: ApiServer, account: Account, path: str) -> None:
    bundle = base64.b64encode(applied.ca.read_bytes()).decode()
    where = "/webhooks/0/clientConfig/caBundle"

    first = patched(applied, account, path, {"path": where, "value": bundle})
    then = patched(applied, account, path, {"op": "remove", "path": where})

    assert first["webhooks"][0]["clientConfig"]["caBundle"] == bundle
    assert "caBundle" not in then["webhooks"][0]["clientConfig"]


@pytest.mark.parametrize("path", [MUTATING, VALIDATING])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"path": "/webhooks/0/rules", "value": EVERYTHING}, id="rules"),
        pytest.param({"path": "/webhooks/0/rules/0/resources/0", "value": "configmaps"}, id="a resource more"),
        pytest.param({"path": "/webhooks/0/namespaceSelector", "value": {"matchLabels": {"a": "b"}}}, id="namespaces"),
        pytest.param({"path": "/webhooks/0/objectSelector", "value": {"matchLabels": {"a": "b"}}}, id="objects"),
        pytest.param({"path": "/webhooks/0/timeoutSeconds", "value": 30}, id="timeout"),
        pytest.param({"path": "/webhooks/0/matchPolicy", "value": "Exact"}, id="match policy"),
        pytest.param({"path": "/webhooks/0/clientConfig/service/namespace", "value": "default"}, id="another service"),
        pytest.param({"path": "/webhooks/0/clientConfig/service/path", "value": "/x"}, id="another path"),
        pytest.param(
            {"path": "/webhooks/0/clientConfig", "value": {"url": "https://evil.example.org/"}}, id="another server"
        ),
        pytest.param(
            {"path": "/webhooks/0/matchConditions", "value": [{"name": "never", "expression": "false"}]}, id="condition"
        ),
        pytest.param({"path": "/webhooks/0/name", "value": "other.example.org"}, id="name"),
        pytest.param({"path": "/webhooks", "value": []}, id="none"),
    ],
)
def test_it_changes_nothing_else(applied: ApiServer, account: Account, path: str, change: Json) -> None:
    with pytest.raises(RefusedError, match=NOTHING_ELSE):
        patched(applied, account, path, change)


def test_it_changes_no_failure_policy_and_adds_no_webhook(applied: ApiServer, account: Account) -> None:
    another = applied.get(MUTATING)["webhooks"][0] | {"name": "second.example.org"}
    for path, value in (("/webhooks/0/failurePolicy", "Fail"), ("/webhooks/-", another)):
        with pytest.raises(RefusedError, match=NOTHING_ELSE):
            patched(applied, account, MUTATING, {"path": path, "value": value})
    with pytest.raises(RefusedError, match=NOTHING_ELSE):
        patched(applied, account, VALIDATING, {"path": "/webhooks/0/failurePolicy", "value": "Ignore"})
    with pytest.raises(RefusedError, match="must not change labels, annotations or other metadata"):
        patched(applied, account, MUTATING, {"path": "/metadata/labels", "value": {"a": "b"}})


def test_a_wider_role_does_not_lift_it(applied: ApiServer, account: Account) -> None:
    applied.kubectl(
        "create", "clusterrole", "wide-webhook", "--verb=*", "--resource=mutatingwebhookconfigurations",
        "--resource=validatingadmissionpolicybindings",
    )  # fmt: skip
    subject = f"--serviceaccount={SYSTEM}:slacktide-webhook"
    applied.kubectl("create", "clusterrolebinding", "wide-webhook", "--clusterrole=wide-webhook", subject)
    other = {"metadata": {"name": "other"}, "webhooks": []}
    try:
        for method, path, body in (("DELETE", MUTATING, None), ("POST", MUTATING.rpartition("/")[0], other)):
            with pytest.raises(RefusedError, match="may change only its own webhook configurations"):
                applied.request(method, path, body, token=account.token)
    finally:
        applied.kubectl("delete", "clusterrolebinding/wide-webhook", "clusterrole/wide-webhook")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"type": "kubernetes.io/service-account-token"}, id="a token of another account"),
        pytest.param({"metadata": {"name": "other"}}, id="another name"),
        pytest.param({"type": "Opaque"}, id="another type"),
    ],
)
def test_it_makes_no_secret_but_its_certificate(applied: ApiServer, account: Account, changes: Json) -> None:
    named = {"name": "slacktide-webhook-tls", "annotations": {"kubernetes.io/service-account.name": "slacktide-bridge"}}
    metadata = named if changes.get("type") == "kubernetes.io/service-account-token" else {"name": named["name"]}
    empty = {"tls.crt": "", "tls.key": ""}
    body = {"metadata": metadata, "type": "kubernetes.io/tls", "data": empty} | changes
    with pytest.raises(RefusedError, match="may write only the Secret slacktide-webhook-tls, of type"):
        applied.request("POST", SECRETS, body, token=account.token)


def test_it_makes_and_changes_its_certificates_secret(applied: ApiServer, account: Account) -> None:
    empty = {"tls.crt": "", "tls.key": ""}
    body = {"metadata": {"name": "slacktide-webhook-tls"}, "type": "kubernetes.io/tls", "data": empty}
    applied.kubectl("delete", "secret", "slacktide-webhook-tls", "-n", SYSTEM, "--ignore-not-found")
    made = applied.request("POST", f"{SECRETS}?dryRun=All", body, token=account.token)

    assert made["type"] == "kubernetes.io/tls"
