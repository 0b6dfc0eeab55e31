"""The Helm chart: it makes what kustomize makes, refuses wrong values, and installs, upgrades and goes."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from generate.chart import CHART, KUBERNETES, build, files, key_of
from slacktide.agents.cluster.bridge.removal import FINALIZER
from slacktide.deploy.cli.doctor.cluster_checks import AGENT_CPU_MILLI, PARTS_CPU_MILLI
from slacktide.deploy.cli.main import cli
from slacktide.schemas.units import cpu_milli
from testbed.brokers import EmbeddedBroker, running
from testbed.cluster.api_server import ApiServer, Json
from testbed.cluster.bridge_rig import BridgeRig, until
from testbed.cluster.helm import RELEASE, HelmError, helm, rendered
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.streaming_rig import GIB
from testbed.prometheus import promtool
from testbed.rungs import built_program

pytestmark = pytest.mark.cluster
CLASS = "system-cluster-critical"
KAFKA = {"bootstrap": "kafka.kafka.svc:9093", "secured": False}
PLAIN: Json = {
    "kafka": KAFKA,
    "scheduler": {"enabled": False},
    "policy": {"create": False},
    "language": {"keep": False},
}
EMBEDDED: Json = {"kafka": {"embedded": True}}
SECURED = {"kafka": KAFKA | {"secured": True}}
SCHEDULER: Json = {"scheduler": {"enabled": True, "kubeScheduler": {"repository": "kube-scheduler"}}}
CONSOLE: Json = {"console": {"enabled": True}}
EACH: dict[str, tuple[Json, list[str]]] = {
    "nothing": ({}, []),
    "scheduler": (SCHEDULER, ["scheduler"]),
    "console": (CONSOLE, ["console"]),
    "console with TLS": ({"console": {"enabled": True, "tls": True}}, ["console", "console-tls"]),
    "queue, with kinds": ({"queue": {"enabled": True}}, ["queue", "queue-crds"]),
    "queue": ({"queue": {"enabled": True, "crds": False}}, ["queue"]),
    "queue, with pods": ({"queue": {"enabled": True, "pods": True}}, ["queue", "queue-crds", "queue-pods"]),
    "self-signed kubelets": ({"kubelet": {"insecure": True}}, ["kubelet-self-signed"]),
    "older kubelets": ({"kubelet": {"access": "proxy"}}, ["kubelet-before-1.33"]),
    "cert-manager": ({"webhook": {"certManager": True}}, ["cert-manager"]),
    "client certificates": ({"webhook": {"clientCertificates": True}}, ["webhook-clients"]),
    "evictions by load": ({"descheduler": {"evict": True}}, ["evict-by-load"]),
    "no pod without the webhook": ({"webhook": {"failClosed": True}}, ["webhook-required"]),
    "no burstable batch": ({"webhook": {"refuseBurstableBatch": True}}, ["refuse-burstable-batch"]),
    "network policies": ({"networkPolicies": True}, ["network-policy"]),
    "zones": ({"agent": {"zones": True}}, ["zones"]),
    "no SYS_RESOURCE": ({"agent": {"sysResource": False}}, ["without-sys-resource"]),
    "Kafka in plain text": ({"kafka": KAFKA}, ["plain-kafka"]),
}
ALL: Json = {
    "kubelet": {"insecure": True, "access": "proxy"},
    "webhook": {"certManager": True, "clientCertificates": True, "failClosed": True, "refuseBurstableBatch": True},
    "descheduler": {"evict": True},
    "networkPolicies": True,
    "agent": {"zones": True, "sysResource": False},
    "console": {"enabled": True, "tls": True},
    "queue": {"enabled": True, "pods": True},
    "kafka": KAFKA,
    **SCHEDULER,
}
EACH["all of them"] = ALL, list(dict.fromkeys(name for _, components in EACH.values() for name in components))


def kubectl() -> str:
    return str(built_program("kubectl"))


def by_key(objects: list[Json]) -> dict[Any, Json]:
    """Without hooks and tests, and with images as kustomize has them."""
    kept = {}
    for each in objects:
        of_tests = each["metadata"]["name"] == "slacktide-test"
        if not of_tests and "helm.sh/hook" not in each["metadata"].get("annotations", {}):
            for container in containers(each):
                container["image"] = container["image"].replace("kube-scheduler:v1.34.0", "kube-scheduler")
            kept[key_of(each)] = each
    return kept


def classes(made: Iterable[Json]) -> set[str]:
    """Of all parts: with one class none preempts another. Hooks have none: they are no parts."""
    parts = (each for each in made if each["kind"] in {"Deployment", "DaemonSet", "StatefulSet"})
    return {each["spec"]["template"]["spec"]["priorityClassName"] for each in parts}


def containers(each: Json) -> list[Json]:
    spec = each.get("spec", {}).get("template", {}).get("spec", {})
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def test_the_charts_files_are_what_make_chart_writes() -> None:
    for name, text in files(kubectl()).items():
        assert (CHART / name).read_text() == text, f"{name} is behind deploy/kubernetes: make chart"


@pytest.mark.parametrize(("values", "components"), EACH.values(), ids=EACH)
def test_values_make_what_components_make(values: Json, components: list[str]) -> None:
    made = by_key(rendered(PLAIN | SECURED | values))
    wanted = build(kubectl(), ["language", "base"], components)
    del wanted["Namespace", "", SYSTEM]

    assert made == wanted
    assert classes(made.values()) == {CLASS}


@pytest.mark.parametrize(
    ("folder", "values"),
    [
        (".", {}),
        pytest.param("overlays/beside-koordinator", {"besideKoordinator": True}, marks=pytest.mark.nightly),
    ],
)
def test_by_default_it_installs_what_kubectl_apply_does(folder: str, values: Json) -> None:
    """But for the scheduler: only helm knows the cluster's version."""
    wanted = build(kubectl(), [folder])
    scheduler = build(kubectl(), [folder], ["scheduler"]).keys() - wanted.keys()
    del wanted["Namespace", "", SYSTEM]  # helm's --create-namespace makes it
    kafka = {"bootstrap": wanted["ConfigMap", SYSTEM, "slacktide-kafka"]["data"]["SLACKTIDE_BOOTSTRAP"]}
    made = by_key(rendered({"kafka": kafka, **values}))

    assert scheduler <= made.keys()
    assert {key: plain(each) for key, each in made.items() if key not in scheduler} == {
        key: plain(each) for key, each in wanted.items()
    }


def test_beside_koordinator_agents_in_dry_run_are_changed_like_all_agents() -> None:
    made = by_key(rendered(ALL | {"besideKoordinator": True}))
    wanted = build(kubectl(), ["overlays/beside-koordinator"], EACH["all of them"][1])
    agents = [("DaemonSet", SYSTEM, name) for name in ("slacktide-agent", "slacktide-agent-dry-run")]

    assert [made[key] for key in agents] == [wanted[key] for key in agents]
    assert {"--dry-run", "--kubelet-insecure"} <= {*containers(made[agents[1]])[0]["args"]}


def plain(each: Json) -> Json:
    """Without what keeps it when the release goes, and a policy as what its texts hold."""
    annotations = each["metadata"].get("annotations", {})
    if annotations.pop("helm.sh/resource-policy", None) and not annotations:
        del each["metadata"]["annotations"]
    if each["metadata"]["name"] == "slo-controller-config":
        each["data"] = {name: yaml.safe_load(text) for name, text in each["data"].items()}
    return each


def test_the_default_policy_is_changed_by_a_patch(tmp_path: Path) -> None:
    """As the pages have it: a copy of the file, changed."""
    start, file = tmp_path.resolve(), "slo-controller-config.yaml"
    text = (KUBERNETES / "policy" / file).read_text()
    (start / file).write_text(text.replace('"cpuSuppressThresholdPercent": 95', '"cpuSuppressThresholdPercent": 80'))
    named = {"resources": [os.path.relpath(KUBERNETES, start)], "patches": [{"path": file}]}
    (start / "kustomization.yaml").write_text(yaml.safe_dump(named))
    built = subprocess.run([kubectl(), "kustomize", start], stdout=subprocess.PIPE, text=True, check=True).stdout
    [policy] = [each for each in yaml.safe_load_all(built) if each["metadata"]["name"] == "slo-controller-config"]

    assert '"cpuSuppressThresholdPercent": 80' in policy["data"]["resource-threshold-config"]


@pytest.mark.parametrize(("version", "proxy"), [("1.32.9", True), ("1.33.0", False)])
def test_agents_get_nodes_proxy_only_where_kubelets_are_older_than_1_33(version: str, *, proxy: bool) -> None:
    made = rendered({"kafka": KAFKA}, version=version)

    assert ("nodes/proxy" in str([each for each in made if each["kind"] == "ClusterRole"])) == proxy


def test_by_default_it_is_secured_and_has_a_scheduler_of_the_clusters_version() -> None:
    made = by_key(rendered({"kafka": {"bootstrap": "k:9093"}}, version="1.33.4"))
    [image] = [
        one["image"]
        for one in containers(made["Deployment", SYSTEM, "slacktide-scheduler"])
        if one["name"] == "kube-scheduler"
    ]

    assert image == "registry.k8s.io/kube-scheduler:v1.33.4"
    assert "SLACKTIDE_KAFKA_CONFIG" in made["ConfigMap", SYSTEM, "slacktide-kafka"]["data"]


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"kafka": {"bootstrap": ""}}, "kafka.bootstrap is empty"),
        ({"kafka": KAFKA | {"embedded": True}}, "leave kafka.bootstrap empty"),
    ],
)
def test_an_address_is_refused_with_what_to_set(wrong: Json, where: str) -> None:
    with pytest.raises(HelmError, match=where):
        rendered({"kafka": KAFKA} | wrong)


def test_the_preflight_knows_what_the_charts_parts_request() -> None:
    parts = {each["kind"]: [] for each in rendered({"kafka": KAFKA}) if each["kind"] in {"Deployment", "DaemonSet"}}
    for each in rendered({"kafka": KAFKA}):
        if each["kind"] in parts:
            spec = each["spec"]["template"]["spec"]["containers"]
            requests = sum(cpu_milli(one["resources"]["requests"]["cpu"]) for one in spec)
            parts[each["kind"]].append(requests * each["spec"].get("replicas", 1))

    assert {kind: sum(each) for kind, each in parts.items()} == {
        "DaemonSet": AGENT_CPU_MILLI,
        "Deployment": PARTS_CPU_MILLI,
    }


def test_a_consoles_volume_may_be_of_a_class_and_prometheus_reads_its_metrics_with_the_token() -> None:
    console = {"enabled": True, "tls": True, "storage": {"size": "9Gi", "gib": 7, "class": "fast"}}
    made = by_key(rendered({"kafka": KAFKA, "console": console, "monitoring": {"podMonitor": True}}))
    claim = made["PersistentVolumeClaim", SYSTEM, "slacktide-console"]["spec"]
    [endpoint] = made["PodMonitor", SYSTEM, "slacktide-console"]["spec"]["podMetricsEndpoints"]
    [container] = containers(made["Deployment", SYSTEM, "slacktide-console"])

    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "9Gi")
    assert "--store-gib=7" in container["args"]
    assert endpoint["port"] in {one["name"] for one in container["ports"]}
    assert endpoint["authorization"] == {"credentials": {"name": "slacktide-console", "key": "token"}}
    assert endpoint["scheme"] == "https"
    plain = by_key(rendered({"kafka": KAFKA, "monitoring": {"podMonitor": True}}))
    assert not [key for key in plain if "console" in key[2]]


def test_it_goes_into_the_namespace_that_its_policies_name_and_no_other() -> None:
    with pytest.raises(HelmError, match="install with --namespace slacktide-system"):
        rendered({"kafka": KAFKA}, "--namespace", "other")


@pytest.mark.prometheus
def test_its_alerts_are_such_as_prometheus_takes(tmp_path: Path) -> None:
    monitoring = {"podMonitor": True, "prometheusRule": True, "dashboards": True}
    made = by_key(rendered({"kafka": KAFKA, "monitoring": monitoring}))
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(made["PrometheusRule", SYSTEM, "slacktide"]["spec"]))
    code, said = promtool("check", "rules", file)
    boards = [each for (kind, _, name), each in made.items() if kind == "ConfigMap" and "dashboard" in name]

    assert (code, "SUCCESS" in said) == (0, True), said
    assert len(boards) == 2
    assert all(yaml.safe_load(text)["panels"] for each in boards for text in each["data"].values())


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """An API server of its own: nothing there ends a namespace that was deleted, so none is used twice."""
    with running(ApiServer) as api:
        yield api


def install(
    server: ApiServer,
    values: Json,
    *args: str,
    chart: Path = CHART,
    how: str = "install",
    preflight: bool = False,  # nothing runs its pod here
) -> None:
    given = yaml.safe_dump({**values, "preflight": preflight})
    helm(how, RELEASE, str(chart), "--values", "-", *args, server=server, given=given)


@pytest.fixture
def installed(server: ApiServer, tmp_path: Path) -> ApiServer:
    """The chart installed, with a CRD of an older version, which has one column less."""
    older = tmp_path / "chart"
    shutil.copytree(CHART, older)
    file = older / "templates/language.yaml"
    lines = file.read_text().splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if "How long ago it was reported." in line)
    file.write_text("".join(lines[:at] + lines[at + 4 :]))
    install(server, {"kafka": KAFKA, "language": {"keep": False}}, "--create-namespace", chart=older)
    return server


def test_an_upgrade_renews_crds_and_leaves_what_the_parts_filled_in(installed: ApiServer) -> None:
    webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/slacktide"
    secret = f"/api/v1/namespaces/{SYSTEM}/secrets/slacktide-node-proof"
    entries = installed.get(webhooks)["webhooks"]
    entries[0]["clientConfig"]["caBundle"] = "bm9uZQ=="
    installed.patch(webhooks, {"webhooks": entries})
    installed.patch(secret, {"data": {"current": "a2V5"}})
    before = columns(installed)
    install(installed, {"kafka": KAFKA, "language": {"keep": False}}, "--no-hooks", how="upgrade")

    assert "Updated" not in before
    assert "Updated" in columns(installed)
    assert installed.get(webhooks)["webhooks"][0]["clientConfig"]["caBundle"] == "bm9uZQ=="
    assert installed.get(secret)["data"] == {"current": "a2V5"}
    helm("rollback", RELEASE, "1", "--no-hooks", server=installed)
    assert "Updated" not in columns(installed)
    assert installed.get(secret)["data"] == {"current": "a2V5"}


def test_it_takes_over_what_kubectl_applied_where_it_is_asked_to(server: ApiServer) -> None:
    server.kubectl("apply", "-k", str(CHART.parent / "kubernetes"))
    with pytest.raises(HelmError, match="cannot be imported into the current release"):
        install(server, {"kafka": KAFKA}, "--no-hooks")
    install(server, SECURED, "--no-hooks", "--take-ownership", "--install", how="upgrade")
    agent = f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets/slacktide-agent"

    assert server.get(agent)["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE
    assert "slacktide-kafka-agent" in str(server.get(agent)["spec"])
    install(server, {"kafka": KAFKA}, "--no-hooks", how="upgrade")
    assert "slacktide-kafka-agent" not in str(server.get(agent)["spec"]), "nothing is left of the old values"


def columns(server: ApiServer) -> list[str]:
    crd = server.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodemetrics.slo.koordinator.sh")
    return [one["name"] for one in crd["spec"]["versions"][0]["additionalPrinterColumns"]]


def hooks(values: Json) -> list[Json]:
    return [each for each in rendered(values) if "helm.sh/hook" in each["metadata"].get("annotations", {})]


def test_the_hooks_are_such_as_an_api_server_takes(api_server: ApiServer) -> None:
    if SYSTEM not in api_server.kubectl("get", "namespace", "-o", "name"):
        api_server.kubectl("create", "namespace", SYSTEM)
    said = api_server.kubectl("apply", "--dry-run=server", "-f", "-", given=yaml.safe_dump_all(hooks(SECURED)))

    assert [line.split()[0] for line in said.splitlines()] == [
        "serviceaccount/slacktide-preflight",
        "clusterrole.rbac.authorization.k8s.io/slacktide-preflight",
        "clusterrolebinding.rbac.authorization.k8s.io/slacktide-preflight",
        "pod/slacktide-test-cluster",
        "pod/slacktide-test-topics",
        "job.batch/slacktide-preflight",
        "job.batch/slacktide-topics-plan",
    ]


def test_the_preflight_tries_the_login_of_each_secret_that_a_part_reads() -> None:
    [job] = [each for each in hooks(SECURED) if each["kind"] == "Job" and "preflight" in each["metadata"]["name"]]
    logins = {one["secret"]["secretName"] for one in volumes(job) if one["name"].startswith("login-")}
    parts = {one["secret"]["secretName"] for each in by_key(rendered(SECURED)).values() for one in volumes(each)}

    assert "--kafka-logins" in containers(job)[0]["command"]
    assert logins == {name for name in parts if name.startswith("slacktide-kafka-")}


def volumes(each: Json) -> list[Json]:
    """Of Secrets that a workload mounts."""
    found = each.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", [])
    return [one for one in found if "secret" in one]


def test_the_preflight_has_the_rights_that_its_checks_take_and_does_not_count_itself(api_server: ApiServer) -> None:
    made = [each for each in hooks(PLAIN) if each["metadata"]["name"] == "slacktide-preflight"]
    if SYSTEM not in api_server.kubectl("get", "namespace", "-o", "name"):
        api_server.kubectl("create", "namespace", SYSTEM)
    api_server.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(made))
    [command] = [one["command"][1:] for each in made for one in containers(each)]
    where = {"KUBECONFIG": str(api_server.account(SYSTEM, "slacktide-preflight").kubeconfig)}
    api_server.pod(SYSTEM, "slacktide-preflight", spec={"containers": [{"name": "main", "image": "none"}]})
    result = CliRunner().invoke(cli, [*command, "--output", "json"], env=where)
    api_server.delete(f"/api/v1/namespaces/{SYSTEM}/pods/slacktide-preflight?gracePeriodSeconds=0")
    api_server.kubectl("delete", "-f", "-", given=yaml.safe_dump_all(made))
    verdicts = {one["check"]: one["verdict"] for one in json.loads(result.stdout)["checks"]}

    # Other tests' nodes have no kubelets, and one of their namespaces has a LimitRange.
    others = {"cluster.kubelet-certificates", "cluster.limit-ranges"}
    assert {check for check, verdict in verdicts.items() if verdict != "ok"} <= others
    assert others <= verdicts.keys()


def test_an_embedded_kafka_is_such_as_an_api_server_takes_and_one_replica(api_server: ApiServer) -> None:
    if SYSTEM not in api_server.kubectl("get", "namespace", "-o", "name"):
        api_server.kubectl("create", "namespace", SYSTEM)
    made = [each for each in rendered(EMBEDDED) if each["metadata"]["name"] == "slacktide-kafka"]
    said = api_server.kubectl("apply", "--dry-run=server", "-f", "-", given=yaml.safe_dump_all(made))
    [kafka] = [each for each in made if each["kind"] == "StatefulSet"]
    [image] = [one["image"] for one in containers(kafka)]
    compose = yaml.safe_load((CHART.parent / "compose/compose.yaml").read_text())

    assert {line.split()[0] for line in said.splitlines()} == {
        "networkpolicy.networking.k8s.io/slacktide-kafka",
        "configmap/slacktide-kafka",
        "service/slacktide-kafka",
        "statefulset.apps/slacktide-kafka",
    }
    assert (kafka["spec"]["replicas"], image) == (1, compose["services"]["kafka"]["image"])


def test_every_part_and_hook_names_the_embedded_kafka_and_none_waits_for_it_before_it_is_there() -> None:
    addresses = by_key(rendered(EMBEDDED))["ConfigMap", SYSTEM, "slacktide-kafka"]["data"]
    named = {
        each["metadata"]["name"]: "slacktide-kafka.slacktide-system.svc:9092" in str(each) for each in hooks(EMBEDDED)
    }

    assert addresses == {"SLACKTIDE_BOOTSTRAP": "slacktide-kafka.slacktide-system.svc:9092"}, "in plain text"
    assert named == {"slacktide-preflight": False, "slacktide-test-cluster": True, "slacktide-test-topics": True}


@pytest.mark.parametrize("embedded", [True, False])
def test_only_an_evaluation_is_upgraded_without_pods_beside_those_that_they_replace(*, embedded: bool) -> None:
    values = EMBEDDED if embedded else PLAIN
    made = by_key(rendered(CONSOLE | values)).values()
    given = [each for each in made if each["kind"] == "Deployment"]
    strategies = {each["metadata"]["name"]: each["spec"].get("strategy") for each in given}

    assert strategies.pop("slacktide-console") == {"type": "Recreate"}
    surge = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}} if embedded else None
    assert set(map(str, strategies.values())) == {str(surge)}
    assert classes(made) == {CLASS}


def test_a_user_reads_that_an_embedded_kafka_is_for_evaluation(server: ApiServer) -> None:
    given = yaml.safe_dump(EMBEDDED)
    how = ["--create-namespace", "--no-hooks", "--values", "-"]
    notes = helm("install", RELEASE, str(CHART), *how, server=server, given=given).partition("NOTES:")[2]
    later = helm("upgrade", RELEASE, str(CHART), "--dry-run=server", "--values", "-", server=server, given=given)

    assert "FOR EVALUATION ONLY" in notes
    assert "slacktide-kafka.slacktide-system.svc:9092" in notes
    assert "name: slacktide-topics-plan" in later, "it is there now, and is asked"


def test_where_the_preflight_does_not_succeed_nothing_of_the_release_is_there(server: ApiServer) -> None:
    with pytest.raises(HelmError, match="failed pre-install"):
        install(server, {"kafka": KAFKA}, "--create-namespace", "--timeout=3s", preflight=True)

    assert left(server) == ["secret/sh.helm.release.v1.slacktide.v1", "job.batch/slacktide-preflight"]


@pytest.fixture
async def selling(installed: ApiServer, embedded_broker: EmbeddedBroker) -> AsyncIterator[BridgeRig]:
    embedded_broker.apply_topics(3)
    async with BridgeRig(installed, embedded_broker.bootstrap).streaming() as rig:
        yield rig


async def test_uninstalled_while_a_bridge_sells_it_leaves_what_the_namespace_takes_along(selling: BridgeRig) -> None:
    server, node = selling.cluster, selling.cluster.node()
    selling.say(node, cpu=2_000, mem=GIB)
    selling.replica("leads", deployment=f"{SYSTEM}/slacktide-bridge")
    await until(lambda: selling.resources(node)["allocatable"])
    assert FINALIZER in str(server.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/slacktide-bridge"))
    helm("uninstall", RELEASE, server=server)
    await until(lambda: selling.resources(node) == {"capacity": {}, "allocatable": {}}, 60)
    await until(lambda: left(server) == ["lease.coordination.k8s.io/slacktide-bridge"], 60)


def left(server: ApiServer) -> list[str]:
    """What is there of Slacktide: of every kind that the chart makes, and of CRDs."""
    kinds = "sa,secret,configmap,service,deploy,ds,pdb,role,rolebinding,resourcequota,job,pod,lease"
    cluster_kinds = "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding"
    hooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration,priorityclass"
    named = server.kubectl("get", f"{cluster_kinds},{hooks}", "-o", "name")
    named += server.kubectl("get", kinds, "--all-namespaces", "-o", "name")
    return [one for one in named.splitlines() if "slacktide" in one or "koord" in one or "slo-" in one]
