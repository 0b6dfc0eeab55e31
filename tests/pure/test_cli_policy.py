"""``slacktide policy``: exit codes, tables and JSON as an operator meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from slacktide.deploy.cli.main import cli
from testbed.policies import config_map

CPU_LABEL = "node.koordinator.sh/cpu-reclaim-ratio"
MEMORY_LABEL = "node.koordinator.sh/memory-reclaim-ratio"
ANNOTATION = "node.koordinator.sh/colocation-strategy"
POLICY = config_map(
    colocation={
        "enable": True,
        "cpuReclaimThresholdPercent": 70,
        "nodeConfigs": [
            {
                "name": "gpu",
                "nodeSelector": {"matchLabels": {"pool": "gpu"}},
                "memoryReclaimThresholdPercent": 80,
            },
            {
                "name": "west",
                "nodeSelector": {"matchLabels": {"zone": "west"}},
                "metricMemoryCollectPolicy": "usageWithPageCache",
            },
        ],
    },
    threshold={"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cpuset", "cpuEvictThresholdPercent": 60}},
)
NODE = {
    "kind": "Node",
    "metadata": {
        "name": "node-1",
        "labels": {"pool": "gpu", "zone": "west", CPU_LABEL: "0.57", MEMORY_LABEL: "-1"},
        "annotations": {ANNOTATION: '{"midUnallocatedPercent": 20}'},
    },
    "status": {"capacity": {"cpu": 8, "memory": "32Gi"}},
}


def run(*arguments: object, given: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["policy", *map(str, arguments)], input=given)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    policy, node = tmp_path / "policy.yaml", tmp_path / "node.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    node.write_text(yaml.safe_dump(NODE))
    return policy, node


def test_a_good_policy_passes_and_says_what_of_it_is_in_vain_or_not_built(files: tuple[Path, Path]) -> None:
    policy, _ = files
    result = run("lint", policy)

    assert result.exit_code == 0
    assert [line.removeprefix(f"{policy}: ") for line in result.output.splitlines()] == [
        'data["colocation-config"].nodeConfigs[1].metricMemoryCollectPolicy: checked, not yet in effect',
        (
            "resource-threshold-config.cpuEvictThresholdPercent (cluster strategy): no effect: "
            "evictEnabledPriorityThreshold is unset"
        ),
        result.output.splitlines()[-1].removeprefix(f"{policy}: "),
    ]
    assert f"{policy}: valid, version " in result.output


@pytest.mark.parametrize(
    ("misspelt", "line"),
    [
        (
            config_map(threshold={"clusterStrategy": {"enable": True, "cpuSupressThresholdPercent": 60}}),
            (
                'data["resource-threshold-config"].clusterStrategy.cpuSupressThresholdPercent: unknown, ignored; '
                "did you mean cpuSuppressThresholdPercent?"
            ),
        ),
        (
            config_map(**{"resource-treshold-config": "{}"}),
            'data["resource-treshold-config"]: unknown, ignored; did you mean resource-threshold-config?',
        ),
        (
            config_map() | {"metadata": {"name": "slo-controler-config"}},
            (
                "metadata.name: slo-controler-config: no part of Slacktide reads this ConfigMap; did you mean "
                "slo-controller-config?"
            ),
        ),
        (
            config_map() | {"metadata": {}},
            "metadata.name: missing: no part of Slacktide reads this ConfigMap; the bridge reads slo-controller-config",
        ),
    ],
    ids=["key", "key of the data", "name", "no name"],
)
def test_a_misspelt_name_fails_unless_leniency_is_asked_for(tmp_path: Path, misspelt: dict, line: str) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(misspelt))
    strict, lenient = run("lint", policy), run("lint", policy, "--lenient")

    assert (strict.exit_code, lenient.exit_code) == (1, 0)
    assert f"{policy}: {line}" in strict.stdout.splitlines()
    assert f"{policy}: {line}" in lenient.stdout.splitlines()
    assert strict.stderr == "1 name without effect: correct them, or give --lenient\n"


def test_a_bridge_may_read_a_config_map_of_another_name(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(config_map() | {"metadata": {"name": "other"}}))

    assert run("lint", policy, "--name", "other").exit_code == 0


def test_a_bad_policy_fails_with_every_finding(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(config_map(burst={"clusterStrategy": {"policy": "some", "cpuBurstPercent": 0}})))
    result = run("lint", policy)

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        (
            f"{policy}: data[\"cpu-burst-config\"].clusterStrategy.policy: 'some': "
            'accepted: "none" or "auto" or "cpuBurstOnly" or "cfsQuotaBurstOnly"'
        ),
        (
            f'{policy}: data["cpu-burst-config"].clusterStrategy.cpuBurstPercent: 0: '
            "accepted: a whole number from 1 to 10000"
        ),
    ]
    assert result.stderr == "2 findings: the policy is not valid\n"


@pytest.mark.parametrize("content", [None, "{", "kind: Pod"], ids=["no file", "no YAML", "no ConfigMap"])
@pytest.mark.parametrize("command", ["lint", "effective"])
def test_what_is_no_policy_fails_without_a_traceback(
    command: str, content: str | None, files: tuple[Path, Path], tmp_path: Path
) -> None:
    policy = tmp_path / "other.yaml"
    if content is not None:
        policy.write_text(content)
    result = run(command, policy, *(("--node", files[1]) if command == "effective" else ()))

    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert f"{policy}: " in result.output


def test_what_holds_on_a_node_is_told_with_who_said_it(files: tuple[Path, Path]) -> None:
    result = run("effective", files[0], "--node", files[1])
    rows = {tuple(line.split(maxsplit=2)) for line in result.output.splitlines() if "-config." in line}

    assert result.exit_code == 0, result.output
    assert {
        ("colocation-config.enable", "true", "cluster strategy"),
        ("colocation-config.cpuReclaimThresholdPercent", "56", f"label {CPU_LABEL}"),
        ("colocation-config.memoryReclaimThresholdPercent", "80", "node strategy gpu"),
        ("colocation-config.midUnallocatedPercent", "20", f"annotation {ANNOTATION}"),
        ("colocation-config.degradeTimeMinutes", "15", "default"),
        ("colocation-config.batchCPUThresholdPercent", "-", "default"),
        ("resource-qos-config.beClass.*", "(defaults)", "default"),
        ("resource-threshold-config.cpuEvictThresholdPercent", "60", "cluster strategy"),
    } <= rows


def test_the_table_may_be_of_what_somebody_said_alone(files: tuple[Path, Path]) -> None:
    output = run("effective", files[0], "--node", files[1], "--changed").output

    assert "colocation-config.cpuReclaimThresholdPercent" in output
    assert " default\n" not in output


def test_features_say_whether_they_act(files: tuple[Path, Path]) -> None:
    lines = run("effective", files[0], "--node", files[1]).output.splitlines()
    features = [" ".join(line.split()) for line in lines]

    assert {"BECPUSuppress acts", "BECPUSuppress (cpuset) acts"} <= set(features)
    assert "NodeMetricCollect not built yet" in features
    assert "BEMemoryEvict acts" in features
    assert "CPUEvict off evictEnabledPriorityThreshold is unset" in features
    assert "FreeResource off freeClassEnable is false: pods of koord-free get no resources" in features
    assert not any(line.startswith("MemoryQOS") for line in features)


def test_what_is_in_vain_is_called_out(files: tuple[Path, Path]) -> None:
    lines = run("effective", files[0], "--node", files[1]).output.splitlines()
    called_out = [" ".join(line.split()) for line in lines[next(i for i, s in enumerate(lines) if "WITHOUT" in s) :]]

    assert called_out == [
        "WITHOUT EFFECT VALUE FROM BECAUSE",
        (
            "resource-threshold-config.cpuEvictThresholdPercent 60 cluster strategy "
            "evictEnabledPriorityThreshold is unset"
        ),
        "",
        "an earlier node strategy applies instead of these, which also match:",
        "colocation-config: west",
        "",
        "set by the node's own annotations and labels:",
        f"label {MEMORY_LABEL}: '-1' is ignored: accepted: a decimal, 0 or more",
    ]


def test_the_same_as_json_for_machines(files: tuple[Path, Path]) -> None:
    found = json.loads(run("effective", files[0], "--node", files[1], "--output", "json").output)
    fields = {row["field"]: (row["value"], row["source"]) for row in found["fields"]}

    assert found["node"] == "node-1"
    assert fields["colocation-config.cpuReclaimThresholdPercent"] == (56, f"label {CPU_LABEL}")
    assert fields["resource-qos-config.beClass.cpuQOS.groupIdentity"] == (-1, "default")
    assert found["without_effect"] == [
        {
            "field": "resource-threshold-config.cpuEvictThresholdPercent",
            "value": 60,
            "source": "cluster strategy",
            "because": "evictEnabledPriorityThreshold is unset",
        }
    ]
    assert found["shadowed"] == ["colocation-config: west"]


def test_a_node_may_come_in_a_list_of_several(files: tuple[Path, Path]) -> None:
    policy, node = files
    other = NODE | {"metadata": {"name": "node-2"}}
    node.write_text(json.dumps({"kind": "List", "items": [NODE, other]}))

    assert run("effective", policy, "--node", node, "--name", "node-2").output.startswith("node node-2, ")
    assert run("effective", policy, "--node", node).exit_code == 1


def test_what_is_wrong_with_the_node_is_told_by_its_own_path(files: tuple[Path, Path]) -> None:
    policy, node = files
    node.write_text(yaml.safe_dump(NODE | {"status": {"capacity": {"cpu": "many"}}}))
    result = run("effective", policy, "--node", node)

    assert result.exit_code == 1
    assert f"{node}: node.status.capacity.cpu: many: accepted: " in result.output


def test_a_node_may_come_from_kubectl_through_a_pipe(files: tuple[Path, Path]) -> None:
    policy, node = files
    command = [sys.executable, "-m", "slacktide.deploy.cli.main", "policy", "effective", policy, "--node", "-"]
    result = subprocess.run(command, input=node.read_bytes(), capture_output=True, check=True)

    assert result.stdout.startswith(b"node node-1, ")
