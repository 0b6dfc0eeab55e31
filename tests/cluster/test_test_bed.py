"""The API server of the test bed is a real one, with what the product relies on switched on."""

import base64
import json

import pytest

from testbed.cluster.api_server import ApiServer, RefusedError

pytestmark = pytest.mark.cluster

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: one}
data: {a: b}
"""


def claims(token: str) -> dict[str, object]:
    body = token.split(".")[1]
    told: dict[str, object] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["kubernetes.io"]
    return told


def test_kubectl_applies_what_it_is_given(api_server: ApiServer, namespace: str) -> None:
    said = api_server.apply(CONFIG, namespace)

    assert said == "configmap/one created\n"
    assert api_server.get(f"/api/v1/namespaces/{namespace}/configmaps/one")["data"] == {"a": "b"}


def test_a_token_bound_to_a_pod_names_its_node(api_server: ApiServer, namespace: str) -> None:
    node = api_server.node()
    api_server.account(namespace, "agent")
    api_server.pod(namespace, "agent-1", node=node, spec={"serviceAccountName": "agent"})

    bound = claims(api_server.account(namespace, "agent", pod="agent-1").token)
    unbound = claims(api_server.account(namespace, "agent").token)

    assert bound["node"]["name"] == node
    assert bound["pod"]["name"] == "agent-1"
    assert "node" not in unbound


def test_an_account_may_only_what_a_role_lets_it(api_server: ApiServer, namespace: str) -> None:
    account = api_server.account(namespace, "reader")
    with pytest.raises(RefusedError) as refused:
        api_server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps", token=account.token)
    api_server.kubectl("create", "role", "reads", "-n", namespace, "--verb=list", "--resource=configmaps")
    binds = ["--role=reads", f"--serviceaccount={namespace}:reader"]
    api_server.kubectl("create", "rolebinding", "reads", "-n", namespace, *binds)

    assert refused.value.status == 403
    assert api_server.kubectl("get", "configmaps", "-n", namespace, config=account.kubeconfig) is not None


def test_a_validating_admission_policy_is_asked(api_server: ApiServer, namespace: str) -> None:
    selects = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    checks = [{"expression": "!object.metadata.name.startsWith('bad')", "message": "bad name"}]
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": checks, "failurePolicy": "Fail"}
    api_server.post(f"{path}ies", {"metadata": {"name": namespace}, "spec": policy})
    binding = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selects}}
    api_server.post(f"{path}ybindings", {"metadata": {"name": namespace}, "spec": binding})

    def create(name: str) -> None:
        api_server.post(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": name}})

    def refuses_within(tries: int) -> str:
        """The policy is in force some hundred milliseconds after it is there."""
        for number in range(tries):
            try:
                create(f"bad-{number}")
            except RefusedError as refused:
                return str(refused)
        return ""

    assert "bad name" in refuses_within(1000)
    create("good")


def test_an_api_server_started_again_still_knows_everything(api_server: ApiServer, namespace: str) -> None:
    api_server.apply(CONFIG, namespace)
    api_server.api.stop()
    api_server.start()

    assert api_server.get(f"/api/v1/namespaces/{namespace}/configmaps/one")["data"] == {"a": "b"}
