"""Whether CPU burst is on for a node, and which line of the ConfigMap decides it, is one command."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli

AMOUNTS = {"cpu": "8", "memory": "16Gi"}
NODE = {
    "kind": "Node",
    "metadata": {"name": "node-1", "labels": {"burst": "no"}},
    "status": {"capacity": AMOUNTS, "allocatable": {**AMOUNTS}},
}
OFF_BY_LABEL = {"nodeSelector": {"matchLabels": {"burst": "no"}}, "name": "quiet", "policy": "none"}


@pytest.mark.parametrize(
    ("strategies", "value", "source", "state"),
    [
        pytest.param([], "auto", "cluster strategy", "acts", id="on for all"),
        pytest.param([OFF_BY_LABEL], "none", "quiet", "off", id="off for this node"),
    ],
)
def test_the_node_s_burst_is_shown_with_its_source(
    tmp_path: Path, strategies: list[dict[str, object]], value: str, source: str, state: str
) -> None:
    config = {"clusterStrategy": {"policy": "auto"}, "nodeStrategies": strategies}
    policy = {
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config"},
        "data": {"cpu-burst-config": json.dumps(config)},
    }
    files = [tmp_path / "policy.yaml", tmp_path / "node.yaml"]
    for file, content in zip(files, (policy, NODE), strict=True):
        file.write_text(yaml.safe_dump(content))

    done = CliRunner().invoke(cli, ["policy", "effective", str(files[0]), "--node", str(files[1])])
    lines = [line.split(maxsplit=2) for line in done.output.splitlines() if line]

    [found] = [line for line in lines if line[0] == "cpu-burst-config.policy"]
    assert found[1] == value
    assert source in found[2]
    assert next(line[1] for line in lines if line[0] == "CPUBurst") == state
