"""The manifests fit together, and fit the code: names, ports, paths, options."""

import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slacktide.agents.cluster.bridge import bridge
from slacktide.agents.cluster.bridge.removal import FINALIZER
from slacktide.agents.cluster.enrolment import enrolment, issuer
from slacktide.agents.cluster.scheduler import scheduler
from slacktide.agents.cluster.scheduler.pod import SCHEDULER
from slacktide.agents.cluster.webhook import webhook
from slacktide.agents.cluster.webhook.review import BRIDGE, NODE_CLAIM
from slacktide.agents.kubernetes.resource import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SERVICE_ACCOUNTS
from slacktide.agents.listening import ALL
from slacktide.agents.node.proof import PORT
from slacktide.deploy.cli.agent import command as agent_command
from slacktide.deploy.cli.bridge import command as bridge_command
from slacktide.deploy.cli.main import cli
from slacktide.deploy.cli.scheduler import METRICS_PORT
from slacktide.deploy.cli.scheduler import command as scheduler_command
from slacktide.deploy.cli.webhook import command as webhook_command
from slacktide.deploy.console.command import PORT as CONSOLE_PORT
from slacktide.deploy.console.command import command as console_command
from slacktide.deploy.runtime.settings import envvar
from slacktide.schemas.policy.configmap import NAME
from slacktide.schemas.proof import CURRENT, ENROL_AUDIENCE, PREVIOUS
from slacktide.schemas.units import whole
from slacktide.streams.decisions.cores.placement import RESOURCE_CORES
from testbed.cluster.manifests import MANIFESTS, SYSTEM, containers, kustomization, objects, workloads

ROOT = MANIFESTS.parents[1]
FILES = sorted(MANIFESTS.rglob("*.yaml"))
Json = dict[str, Any]


def of_kind(*kinds: str) -> list[Json]:
    return [each for each in objects() if each["kind"] in kinds]


def named(kind: str, name: str) -> Json:
    (found,) = [each for each in of_kind(kind) if each["metadata"]["name"] == name]
    return found


def test_every_file_is_yaml_and_of_some_kustomization_or_an_example() -> None:
    held = {path.resolve() for path in _held(MANIFESTS)}
    for folder in (*MANIFESTS.glob("overlays/*"), *MANIFESTS.glob("components/*")):
        held |= {path.resolve() for path in _held(folder)}
    held |= set(MANIFESTS.glob("examples/*.yaml"))

    for file in FILES:
        assert all(isinstance(each, dict) for each in yaml.safe_load_all(file.read_text()))
    assert held == set(FILES)


def _held(folder: Path) -> Iterator[Path]:
    yield folder / "kustomization.yaml"
    for name in [*kustomization(folder).get("resources", []), *kustomization(folder).get("components", [])]:
        path = folder / name
        if path.is_dir():
            yield from _held(path)
        else:
            yield path


def test_nothing_is_said_twice() -> None:
    found = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects()]

    assert len(found) == len(set(found))


def test_all_lies_in_a_namespace_that_is_made() -> None:
    made = {each["metadata"]["name"] for each in of_kind("Namespace")}

    assert made == {SYSTEM, "koordinator-system"}
    assert {each["metadata"]["namespace"] for each in objects() if "namespace" in each["metadata"]} == made


def test_bindings_and_workloads_name_accounts_that_are_made() -> None:
    made = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in of_kind("ServiceAccount")}
    roles = {(each["kind"], each["metadata"]["name"]) for each in of_kind("Role", "ClusterRole")}
    bound = set()
    for binding in of_kind("RoleBinding", "ClusterRoleBinding"):
        bound |= {(each["namespace"], each["name"]) for each in binding["subjects"]}
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles
    run = {(SYSTEM, each["spec"]["template"]["spec"]["serviceAccountName"]) for each in workloads()}

    assert run == made
    assert bound == made - {(SYSTEM, "slacktide-stream")}


def test_roles_name_what_they_mean() -> None:
    for role in of_kind("Role", "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}


def test_selectors_find_the_pods() -> None:
    """Labels that the kustomizations add to templates, and selectors, which they leave alone."""
    parts = {each["metadata"]["name"] for each in workloads()}
    for each in [*workloads(), *of_kind("PodDisruptionBudget", "Service")]:
        selector = each["spec"]["selector"]
        labels = selector.get("matchLabels", selector)
        part = labels["app.kubernetes.io/component"]
        added = kustomization(MANIFESTS / "base" / part)["labels"] + kustomization(MANIFESTS / "base")["labels"]

        assert f"slacktide-{part}" == each["metadata"]["name"]
        assert each["metadata"]["name"] in parts
        assert labels.items() <= {key: text for one in added for key, text in one["pairs"].items()}.items()
        assert all(one["includeTemplates"] for one in added)


def test_the_image_is_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert kustomization(MANIFESTS / "base")["images"] == [{"name": "slacktide", "newTag": version}]
    assert {container["image"] for _, container in containers()} == {"slacktide"}


@pytest.mark.parametrize("container", [pytest.param(each, id=each["name"]) for _, each in containers()])
def test_containers_run_commands_with_options_that_there_are(container: Json) -> None:
    words = [*container["command"], *container.get("args", [])]
    command: Any = cli
    while words[1:] and not words[1].startswith("--"):
        command = command.get_command(None, words.pop(1))
    known = {option for parameter in command.params for option in parameter.opts}
    variables = {parameter.envvar for parameter in command.params}

    assert words[0] == "slacktide"
    assert command.params
    assert {word.partition("=")[0] for word in words[1:]} <= known
    assert {one["name"] for one in container.get("env", []) if "value" in one} <= variables
    assert envvar("--bootstrap") in variables
    assert container["envFrom"] == [{"configMapRef": {"name": "slacktide-kafka"}}]
    data = named("ConfigMap", "slacktide-kafka")["data"]
    [folder] = [one["mountPath"] for one in container["volumeMounts"] if one["name"].startswith("kafka")]
    assert list(data) == [envvar("--bootstrap"), envvar("--kafka-config")]
    assert data[envvar("--kafka-config")] == f"{folder}/kafka.conf"


def test_ports_are_those_that_the_commands_open() -> None:
    for name, container in containers():
        if "ports" not in container:
            continue
        module = importlib.import_module(f"slacktide.deploy.cli.{container['command'][1]}")
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        given = dict(word.removeprefix("--").partition("=")[::2] for word in container["args"])

        assert ports["metrics"] == int(given.get("metrics-port", module.METRICS_PORT)), name
        assert given["metrics-host"] == ALL
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {"metrics"}


def test_the_api_server_finds_the_webhook() -> None:
    default = {parameter.name: parameter.default for parameter in webhook_command.params}
    (port,) = named("Service", "slacktide-webhook")["spec"]["ports"]
    container = named("Deployment", "slacktide-webhook")["spec"]["template"]["spec"]["containers"][0]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    found: dict[str, list[tuple[str, int]]] = {}
    for configuration in of_kind("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert configuration["metadata"]["name"] == "slacktide"
        for each in configuration["webhooks"]:
            path = each["clientConfig"]["service"].pop("path")
            found.setdefault(path, []).append((each["failurePolicy"], each["timeoutSeconds"]))
            assert each["clientConfig"]["service"] == {"name": "slacktide-webhook", "namespace": SYSTEM, "port": 443}

    assert port["port"] == 443
    assert ports[port["targetPort"]] == default["port"] == 8443
    assert found == {
        "/mutate-pods": [("Ignore", 2), ("Fail", 5)],
        "/validate-evictions": [("Fail", 5)],
        "/check-policy": [("Ignore", 5)],
    }


def test_the_namespaces_left_out_are_those_that_the_webhook_leaves_out() -> None:
    """A namespace is asked about by one of both: it needs the webhook, or it does not."""
    label = {"key": "slacktide.io/webhook", "values": ["required"]}
    for configuration, operator in zip(
        named("MutatingWebhookConfiguration", webhook.CONFIGURATION)["webhooks"], ("NotIn", "In"), strict=True
    ):
        left_out, required = configuration["namespaceSelector"]["matchExpressions"]

        assert left_out == {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": [webhook.SYSTEM_NAMESPACE, SYSTEM],
        }
        assert required == {**label, "operator": operator}


def test_rights_by_name_are_for_the_names_in_the_code() -> None:
    by_name = {
        (resource, name)
        for role in of_kind("Role", "ClusterRole")
        for rule in role["rules"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ())
    }
    policy = {each.name: each.default for each in bridge_command.params}
    asked = dict(
        argument.removeprefix("--").split("=")
        for _, one in containers()
        for argument in one.get("args", ())
        if "=" in argument
    )

    assert by_name == {
        ("daemonsets", asked["daemon-set"].removeprefix(f"{SYSTEM}/")),
        ("deployments", asked["deployment"].removeprefix(f"{SYSTEM}/")),
        *((right.plural, bridge.NAME) for right in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, SERVICE_ACCOUNTS)),
        ("leases", bridge.NAME),
        ("namespaces", SYSTEM),
        ("secrets", webhook.SECRET),
        ("secrets", enrolment.SECRET),
        ("secrets", issuer.SECRET),
        ("configmaps", enrolment.CONFIG_MAP),
        ("configmaps", policy["policy_name"]),
        ("mutatingwebhookconfigurations", webhook.CONFIGURATION),
        ("validatingwebhookconfigurations", webhook.CONFIGURATION),
    }
    assert named("Service", webhook.NAME)
    assert policy["policy_namespace"] == "koordinator-system"


def test_the_bridge_may_write_the_finalizer_that_the_code_writes() -> None:
    (validation,) = named("ValidatingAdmissionPolicy", "slacktide-bridge-finalizer")["spec"]["validations"]

    assert validation["expression"].count(f"'{FINALIZER}'") == 2
    assert f"request.name == '{bridge.NAME}'" in validation["expression"]


def test_the_fence_is_for_whoever_of_ours_evicts_and_asks_for_the_claim_that_the_code_reads() -> None:
    fence, check = named("ValidatingWebhookConfiguration", "slacktide")["webhooks"]
    policy = named("ValidatingAdmissionPolicy", "slacktide-agent-evictions")["spec"]
    by_agents = f"request.userInfo.username == 'system:serviceaccount:{SYSTEM}:slacktide-agent'"
    agent, bridge = (f"system:serviceaccount:{SYSTEM}:slacktide-{name}" for name in ("agent", "bridge"))

    assert bridge == BRIDGE
    assert [each["expression"] for each in fence["matchConditions"]] == [
        f"request.userInfo.username in ['{agent}', '{bridge}']"
    ]
    assert [each["expression"] for each in policy["matchConditions"]] == [by_agents]
    assert f"'{NODE_CLAIM}'" in policy["validations"][0]["expression"]
    assert [each["expression"] for each in check["matchConditions"]] == [f"request.name == '{NAME}'"]


def test_the_kube_scheduler_asks_the_extender_beside_it_about_every_pod() -> None:
    folder = MANIFESTS / "components/scheduler"
    made = {each["kind"]: each for each in objects(folder)}
    config = yaml.safe_load(made["ConfigMap"]["data"]["config.yaml"])
    own, asking = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    default = {each.name: each.default for each in scheduler_command.params}
    (profile,), (extender, binder) = config["profiles"], config["extenders"]

    assert (profile["schedulerName"], profile["percentageOfNodesToScore"]) == (SCHEDULER, 100)
    assert extender.pop("urlPrefix") == f"http://{default['host']}:{default['port']}"
    assert extender.pop("weight") > 0
    assert extender == {
        "filterVerb": scheduler.FILTER,
        "prioritizeVerb": scheduler.PRIORITIZE,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "1s",
    }, "and no managedResources"
    assert binder == {
        "urlPrefix": f"http://{default['host']}:{default['port']}",
        "bindVerb": scheduler.BIND,
        "nodeCacheCapable": True,
        "httpTimeout": "10s",
        "managedResources": [{"name": RESOURCE_CORES, "ignoredByScheduler": True}],
    }, "and not ignorable: such pods wait"
    assert own["command"] == ["slacktide", "scheduler"]
    assert f"--metrics-port={METRICS_PORT}" in own["args"]
    assert own["ports"] == [{"name": "metrics", "containerPort": METRICS_PORT}]
    assert {each["image"] for each in (own, asking)} == {"slacktide", "kube-scheduler"}
    assert kustomization(folder)["images"] == kustomization(MANIFESTS / "base")["images"]
    assert made["Deployment"]["spec"]["replicas"] == 2
    mounts = {each["name"]: each["mountPath"] for each in asking["volumeMounts"]}
    assert asking["args"][0] == f"--config={mounts['config']}/config.yaml"


def test_the_console_is_one_replica_with_a_token_and_room_for_its_history() -> None:
    made = {each["kind"]: each for each in objects(MANIFESTS / "components/console")}
    pod = made["Deployment"]["spec"]["template"]
    spec, [container] = pod["spec"], pod["spec"]["containers"]
    given = dict(word.removeprefix("--").partition("=")[::2] for word in container["args"])
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    [port] = made["Service"]["spec"]["ports"]

    assert container["command"] == ["slacktide", "console"]
    assert set(given) <= {option.removeprefix("--") for one in console_command.params for option in one.opts}
    assert container["envFrom"] == [{"configMapRef": {"name": "slacktide-kafka"}}]
    assert container["ports"] == [{"name": "console", "containerPort": CONSOLE_PORT}]
    assert given["listen"] == f"[{ALL}]:{CONSOLE_PORT}"
    assert {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {"/live"}
    assert "replicas" not in made["Deployment"]["spec"]
    assert made["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}, "two never write to one history"
    assert given["token-file"] == f"{mounts['token']}/token"
    assert given["store"].startswith(mounts["history"])
    assert volumes["history"]["persistentVolumeClaim"]["claimName"] == made["PersistentVolumeClaim"]["metadata"]["name"]
    storage = made["PersistentVolumeClaim"]["spec"]["resources"]["requests"]["storage"]
    assert whole(storage) > 1.2 * (int(given["store-gib"]) << 30)
    assert spec["automountServiceAccountToken"] is made["ServiceAccount"]["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {made["Service"]["metadata"]["name"], port["port"]} == {"slacktide-console", CONSOLE_PORT}
    assert made["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    images = kustomization(MANIFESTS / "components/console")["images"]
    assert images == kustomization(MANIFESTS / "base")["images"]


def test_no_service_speaks_through_the_environment_that_settings_come_from() -> None:
    assert all(each["spec"]["template"]["spec"]["enableServiceLinks"] is False for each in workloads())


def test_own_parts_are_not_for_others_to_preempt_and_none_of_them_preempts_another() -> None:
    """Their priority is one, in each component too; tests of the chart ask the same of what it renders."""
    optional = [each for file in MANIFESTS.glob("components/*/*.yaml") for each in yaml.safe_load_all(file.read_text())]
    parts = [*workloads(), *(each for each in optional if each["kind"] == "Deployment")]
    classes = {each["metadata"]["name"]: each["spec"]["template"]["spec"]["priorityClassName"] for each in parts}

    assert set(classes.values()) == {"system-cluster-critical"}
    assert {"slacktide-agent", "slacktide-console", "slacktide-queue", "slacktide-scheduler"} <= classes.keys()


def test_containers_are_locked_down_but_for_what_an_agent_needs() -> None:
    for name, container in containers():
        security = container["securityContext"]
        added = security["capabilities"].get("add", [])

        assert security["capabilities"]["drop"] == ["ALL"]
        assert not security["allowPrivilegeEscalation"]
        assert security["readOnlyRootFilesystem"]
        assert "privileged" not in security
        assert container["resources"]["limits"]["memory"]
        assert added == (["DAC_OVERRIDE", "KILL", "SYS_RESOURCE"] if name == "slacktide-agent" else [])


def test_an_agents_token_is_bound_to_its_pod_and_lies_where_it_is_looked_for() -> None:
    spec = named("DaemonSet", "slacktide-agent")["spec"]["template"]["spec"]
    volume = next(each["projected"] for each in spec["volumes"] if each["name"] == "token")
    mount = next(each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "token")
    apiserver = importlib.import_module("slacktide.agents.node.apiserver")

    assert spec["automountServiceAccountToken"] is False
    assert mount["mountPath"] == str(apiserver.ACCOUNT)
    assert volume["sources"][0]["serviceAccountToken"] == {"path": "token", "expirationSeconds": 3600}


def args_of(kind: str, name: str) -> dict[str, str]:
    container = named(kind, name)["spec"]["template"]["spec"]["containers"][0]
    return dict(word.removeprefix("--").partition("=")[::2] for word in container["args"])


def test_agents_enrol_where_the_bridge_listens_with_a_token_for_it_alone() -> None:
    spec = named("DaemonSet", "slacktide-agent")["spec"]["template"]["spec"]
    volume = next(each["projected"] for each in spec["volumes"] if each["name"] == "enrolment")
    mount = next(each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "enrolment")
    defaults = {parameter.name: str(parameter.default) for parameter in agent_command.params}
    token, authorities = volume["sources"]
    (port,) = named("Service", enrolment.SERVICE)["spec"]["ports"]
    bridged = args_of("Deployment", "slacktide-bridge")
    ports = named("Deployment", "slacktide-bridge")["spec"]["template"]["spec"]["containers"][0]["ports"]

    assert token["serviceAccountToken"]["audience"] == ENROL_AUDIENCE
    assert authorities["configMap"]["name"] == enrolment.CONFIG_MAP
    assert "optional" not in authorities["configMap"]
    assert authorities["configMap"]["items"] == [{"key": enrolment.BUNDLE_KEY, "path": "ca.crt"}]
    assert f"{mount['mountPath']}/token" == defaults["enrol_token"]
    assert f"{mount['mountPath']}/ca.crt" == defaults["enrol_ca"]
    assert port["port"] == PORT == int(bridged["enrol-port"])
    assert {"name": port["targetPort"], "containerPort": PORT} in ports
    assert args_of("DaemonSet", "slacktide-agent")["enrol-url"] == f"https://{enrolment.SERVICE}.{SYSTEM}.svc:{PORT}"
    assert f"{enrolment.SERVICE}.{SYSTEM}.svc" in enrolment.names_of(SYSTEM)
    assert spec["serviceAccountName"] == issuer.ACCOUNT


def test_agents_get_keys_and_only_bridge_and_workers_have_those_of_the_cluster() -> None:
    assert args_of("Deployment", "slacktide-bridge")["node-proof"] == "required"
    mounted = {
        workload["metadata"]["name"]
        for workload in workloads()
        for volume in workload["spec"]["template"]["spec"]["volumes"]
        if issuer.SECRET in str(volume)
    }
    readers = {
        role["metadata"]["name"]
        for role in of_kind("Role", "ClusterRole")
        for rule in role["rules"]
        if "secrets" in rule["resources"] and issuer.SECRET in rule.get("resourceNames", [issuer.SECRET])
        if set(rule["verbs"]) - {"create"}
    }
    spec = named("Deployment", "slacktide-stream")["spec"]["template"]["spec"]
    volume = next(each for each in spec["volumes"] if each["name"] == "node-proof")
    mount = next(each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "node-proof")

    assert mounted == {"slacktide-stream"}
    assert readers == {"slacktide-bridge"}
    current, previous = (source["secret"] for source in volume["projected"]["sources"])
    assert current == {"name": issuer.SECRET, "items": [{"key": CURRENT, "path": CURRENT}]}
    assert previous["name"] == issuer.SECRET
    assert previous["items"] == [{"key": PREVIOUS, "path": PREVIOUS}]
    assert previous["optional"]
    assert volume["projected"]["defaultMode"] == 0o440
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsUser"]
    assert mount["mountPath"] == args_of("Deployment", "slacktide-stream")["proof-keys"]
    for name in (issuer.SECRET, enrolment.SECRET):
        assert "data" not in named("Secret", name)


def test_the_example_policy_is_valid_and_is_the_one_that_up_starts_with() -> None:
    example = yaml.safe_load((MANIFESTS / "policy/slo-controller-config.yaml").read_text())
    shipped = yaml.safe_load((ROOT / "deploy/cli/policy.yaml").read_text())

    assert example == shipped


def test_network_policies_name_the_parts_and_their_ports() -> None:
    """Every port of every container is reached by somebody, and no policy opens one that there is not."""
    policies = objects(MANIFESTS / "components/network-policy")
    optional = [
        each
        for part in ("scheduler", "console")
        for each in objects(MANIFESTS / "components" / part)
        if each["kind"] == "Deployment"
    ]
    opened = {}
    for policy in policies:
        selector = policy["spec"]["podSelector"]
        assert selector["matchLabels"]["app.kubernetes.io/name"] == "slacktide"
        assert policy["metadata"]["namespace"] == SYSTEM
        [parts] = [one["values"] for one in selector.get("matchExpressions", [])] or [["all"]]
        part = selector["matchLabels"].get("app.kubernetes.io/component", parts[0])
        assert policy["metadata"]["name"] == ("slacktide" if part == "all" else f"slacktide-{part}")
        opened[part] = {port["port"] for rule in policy["spec"].get("ingress", []) for port in rule["ports"]}
    named = {
        each["metadata"]["name"].removeprefix("slacktide-"): {
            port["name"]: port["containerPort"]
            for container in each["spec"]["template"]["spec"]["containers"]
            if container.get("command", [""])[0] == "slacktide"  # a kube-scheduler has probes only, its node's own
            for port in container.get("ports", [])
        }
        for each in [*workloads(), *optional]
    }

    assert opened.pop("all") == {"metrics"}
    assert [part for part, ports in named.items() if "metrics" not in ports] == ["console"], "it has one port for all"
    for part, ports in named.items():
        others = {number for name, number in ports.items() if name != "metrics"}
        assert others == opened.get(part, set()), part
    assert opened.keys() <= named.keys()
