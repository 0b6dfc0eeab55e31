"""What overlays and components change, applied to an API server."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.brokers import running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.manifests import MANIFESTS, SYSTEM, wrote

pytestmark = pytest.mark.cluster

KOORDINATORS = "koordinator-system"
OURS, THEIRS = "ours", "theirs"
Json = dict[str, Any]


def built(server: ApiServer, folder: Path) -> list[Json]:
    """What kubectl makes of a folder with a kustomization."""
    return [each for each in yaml.safe_load_all(server.kubectl("kustomize", str(folder))) if each]


def agent_of(objects: list[Json], name: str = "slacktide-agent") -> Json:
    """How the agent is started."""
    (found,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == ("DaemonSet", name)]
    spec: Json = found["spec"]["template"]["spec"]
    return spec


def relative(folder: Path, start: Path) -> str:
    """Kustomize takes no absolute paths."""
    return os.path.relpath(folder, start.resolve())


def test_before_1_33_agents_may_ask_all_of_a_kubelet(api_server: ApiServer) -> None:
    rules = [
        rule
        for each in built(api_server, MANIFESTS / "overlays/kubelet-before-1.33")
        if each["kind"] == "ClusterRole" and "agent" in each["metadata"]["name"]
        for rule in each["rules"]
    ]

    assert {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]} in rules
    plain = [rule for each in built(api_server, MANIFESTS) for rule in each.get("rules", [])]
    assert "nodes/proxy" not in str(plain)


def with_component(server: ApiServer, folder: Path, *names: str) -> list[Json]:
    """All of Slacktide with components, as a kustomization elsewhere says it."""
    kustomization = {
        "resources": [relative(MANIFESTS, folder)],
        "components": [relative(MANIFESTS / "components" / name, folder) for name in names],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return built(server, folder)


def test_a_kubelet_that_signs_for_itself_is_taken_as_it_is(api_server: ApiServer, tmp_path: Path) -> None:
    changed = with_component(api_server, tmp_path, "kubelet-self-signed")

    assert "--kubelet-insecure" in agent_of(changed)["containers"][0]["args"]
    assert "--kubelet-insecure" not in agent_of(built(api_server, MANIFESTS))["containers"][0]["args"]


def test_with_cert_manager_the_webhook_reads_its_certificate_and_needs_no_right_to_make_one(
    api_server: ApiServer, tmp_path: Path
) -> None:
    changed = {
        (each["kind"], each["metadata"]["name"]): each for each in with_component(api_server, tmp_path, "cert-manager")
    }
    spec = changed["Deployment", "slacktide-webhook"]["spec"]["template"]["spec"]
    certificate = changed["Certificate", "slacktide-webhook"]
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    issued = f"{certificate['metadata']['namespace']}/{certificate['metadata']['name']}"

    assert "--cert-folder=/etc/slacktide/tls" in spec["containers"][0]["args"]
    assert "/etc/slacktide/tls" in {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert secrets["tls"] == certificate["spec"]["secretName"]
    assert certificate["spec"]["dnsNames"] == [f"slacktide-webhook.{SYSTEM}.svc"]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert changed[kind, "slacktide"]["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": issued}
    assert ("Role", "slacktide-webhook") not in changed
    rules = changed["ClusterRole", "slacktide-webhook"]["rules"]
    beyond = [rule for rule in rules if not {"get", "list", "watch"}.issuperset(rule["verbs"])]
    assert beyond == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]


def test_network_policies_are_such_as_an_api_server_takes(api_server: ApiServer, tmp_path: Path) -> None:
    objects = with_component(api_server, tmp_path, "network-policy")
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    file = tmp_path / "policies.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": policies}))
    if SYSTEM not in api_server.kubectl("get", "namespace", "-o", "name"):
        api_server.kubectl("create", "namespace", SYSTEM)
    api_server.kubectl("apply", "-f", str(file))
    kept = json.loads(api_server.kubectl("get", "networkpolicy", "-n", SYSTEM, "-o", "json"))["items"]
    api_server.kubectl("delete", "-f", str(file))

    assert {each["metadata"]["name"]: each["spec"] for each in kept} == {
        each["metadata"]["name"]: each["spec"] for each in policies
    }


def test_a_console_is_such_as_an_api_server_takes(api_server: ApiServer, tmp_path: Path) -> None:
    """Nothing else of Slacktide changes with it."""
    plain = built(api_server, MANIFESTS)
    objects = with_component(api_server, tmp_path, "console", "console-tls")
    console = [each for each in objects if each not in plain]
    if SYSTEM not in api_server.kubectl("get", "namespace", "-o", "name"):
        api_server.kubectl("create", "namespace", SYSTEM)
    said = api_server.kubectl("apply", "--dry-run=server", "-f", "-", given=yaml.safe_dump_all(console))

    assert [line.split()[0] for line in said.splitlines()] == [
        "serviceaccount/slacktide-console",
        "service/slacktide-console",
        "persistentvolumeclaim/slacktide-console",
        "deployment.apps/slacktide-console",
    ]
    assert [each for each in objects if each in plain] == plain


def test_the_webhook_can_be_made_to_ask_for_the_api_servers_certificate(api_server: ApiServer, tmp_path: Path) -> None:
    objects = with_component(api_server, tmp_path, "webhook-clients")
    [spec] = [
        each["spec"]["template"]["spec"]
        for each in objects
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "slacktide-webhook")
    ]
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}

    assert "--client-ca=/etc/slacktide/client-ca/ca.crt" in spec["containers"][0]["args"]
    assert mounts["/etc/slacktide/client-ca"] in {volume["name"] for volume in spec["volumes"] if "configMap" in volume}


def test_each_part_logs_in_to_kafka_as_itself(api_server: ApiServer, tmp_path: Path) -> None:
    """In a Secret that none but the part's user can read; what creates topics is somebody else."""
    objects = with_component(api_server, tmp_path, "scheduler", "console", "queue")
    [where] = [each["data"] for each in objects if each["metadata"]["name"] == "slacktide-kafka"]
    logins = {}
    for each in objects:
        if each["kind"] in ("Deployment", "DaemonSet"):
            spec = each["spec"]["template"]["spec"]
            secrets = {volume["name"]: volume["secret"] for volume in spec["volumes"] if "secret" in volume}
            for container in (*spec.get("initContainers", []), *spec["containers"]):
                for mount in container.get("volumeMounts", []):
                    if mount["mountPath"] == "/etc/slacktide/kafka":
                        logins[container["name"]] = secrets[mount["name"]]["secretName"]
                        user = spec["securityContext"].get("fsGroup") if "securityContext" in spec else 0
                        assert (secrets[mount["name"]]["defaultMode"], user) in ((0o440, 65532), (0o400, 0))

    assert where["SLACKTIDE_KAFKA_CONFIG"] == "/etc/slacktide/kafka/kafka.conf"
    assert where["SLACKTIDE_BOOTSTRAP"]
    parts = ("agent", "bridge", "webhook", "scheduler", "console", "queue", "stream", "topics")
    assert logins == {part: f"slacktide-kafka-{part}" for part in parts}


def test_only_with_plain_kafka_no_part_logs_in(api_server: ApiServer, tmp_path: Path) -> None:
    optional = ("scheduler", "console", "queue")
    objects = with_component(api_server, tmp_path, *optional, "plain-kafka")
    [where] = [each["data"] for each in objects if each["metadata"]["name"] == "slacktide-kafka"]

    assert list(where) == ["SLACKTIDE_BOOTSTRAP"]
    assert "slacktide-kafka-" not in str(objects)
    assert "/etc/slacktide/kafka" not in str(objects)
    assert "/etc/slacktide/node-proof" in str(objects)


@pytest.fixture(scope="module")
def both() -> Iterator[ApiServer]:
    """A cluster that Koordinator has, as far as its names go, with Slacktide beside it; a node for each."""
    with running(ApiServer) as server:
        server.kubectl("apply", "-k", str(MANIFESTS / "language"))
        server.account(KOORDINATORS, "koord-manager")
        server.kubectl("create", "clusterrole", "koord-manager", "--verb=*", "--resource=nodes,nodes/status")
        subject = f"--serviceaccount={KOORDINATORS}:koord-manager"
        server.kubectl("create", "clusterrolebinding", "koord-manager", "--clusterrole=koord-manager", subject)
        server.kubectl("apply", "-k", str(MANIFESTS / "overlays/beside-koordinator"))
        server.node(OURS, labels={"colocation-agent": "slacktide"})
        server.node(THEIRS)
        bridge, until_s = server.account(SYSTEM, "slacktide-bridge"), time.monotonic() + 60
        while not wrote(server, bridge, THEIRS, str(time.monotonic_ns() % 10_000)):
            assert time.monotonic() < until_s, "the policies do not come into force"
            time.sleep(0.1)
        yield server


def test_each_writes_batch_resources_of_its_own_nodes(both: ApiServer) -> None:
    bridge = both.account(SYSTEM, "slacktide-bridge")
    manager = both.account(KOORDINATORS, "koord-manager")

    assert wrote(both, bridge, OURS, "1100") == ""
    assert wrote(both, manager, THEIRS, "1200") == ""
    assert "are Koordinator's: it lacks the label" in wrote(both, bridge, THEIRS, "1300")
    assert "are Slacktide's: it has the label" in wrote(both, manager, OURS, "1400")


def test_koordinator_may_still_write_all_else_of_any_node(both: ApiServer) -> None:
    manager = both.account(KOORDINATORS, "koord-manager")
    body = {"status": {"capacity": {"koordinator.sh/gpu-core": "100"}}}

    assert both.request("PATCH", f"/api/v1/nodes/{OURS}/status", body, token=manager.token)


def test_beside_koordinator_slacktide_leaves_what_is_koordinators(both: ApiServer) -> None:
    objects = built(both, MANIFESTS / "overlays/beside-koordinator")
    kinds = {each["kind"] for each in objects}

    assert kinds.isdisjoint({"CustomResourceDefinition", "PriorityClass", "MutatingWebhookConfiguration"})
    assert KOORDINATORS not in {each["metadata"].get("namespace", each["metadata"]["name"]) for each in objects}
    assert agent_of(objects)["nodeSelector"] == {"colocation-agent": "slacktide"}
    trying = agent_of(objects, "slacktide-agent-dry-run")
    assert trying["nodeSelector"] == {"colocation-agent": "slacktide-dry-run"}
    assert "--dry-run" in trying["containers"][0]["args"]


def test_beside_koordinator_the_bridge_reads_a_policy_of_its_own(both: ApiServer) -> None:
    bridge = both.account(SYSTEM, "slacktide-bridge")

    def reads(namespace: str) -> bool:
        asked = {"verb": "watch", "resource": "configmaps", "namespace": namespace, "name": "slo-controller-config"}
        review = {"spec": {"resourceAttributes": asked}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(both.request("POST", path, review, token=bridge.token)["status"]["allowed"])

    assert reads(SYSTEM)
    assert not reads(KOORDINATORS)
