"""The files of the stack in Docker agree with one another, and with how a node's groups are named."""

import json
from pathlib import Path, PurePosixPath

import pytest
import yaml

from slacktide.agents.files import load_yaml
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, BURSTABLE, Kubepods
from slacktide.schemas import policy as policies
from slacktide.schemas.kubernetes import described
from testbed.stack.compose import FOLDER, ROOT, documented

MACHINE = {"kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2", "memory": "1Gi"}}}
PODS = {"shop": BURSTABLE, "batch": BEST_EFFORT}


def nested(parent: str) -> PurePosixPath:
    """Where Docker makes a group: systemd's slices lie in those that their names begin with."""
    if not parent.endswith(".slice"):
        return PurePosixPath(parent.lstrip("/"))
    parts = parent.removesuffix(".slice").split("-")
    return PurePosixPath(*(f"{'-'.join(parts[: depth + 1])}.slice" for depth in range(len(parts))))


@pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
def test_each_sample_lies_where_an_agent_looks_for_a_pod_of_its_uid(driver: str, tmp_path: Path) -> None:
    env = documented(driver)
    layout = Kubepods(PurePosixPath(env["KUBEPODS"]))
    pods = described(load_yaml(FOLDER / "pods.yaml"), "pods.yaml", "n", machine=lambda: MACHINE).pods
    for name in PODS:
        (tmp_path / nested(env[f"{name.upper()}_GROUP"])).mkdir(parents=True)

    assert {pod.uid for pod in pods} == PODS.keys()
    for uid, tier in PODS.items():
        assert [found for found, _ in layout.pod_groups(tmp_path, tier)] == [uid]


def test_the_policy_is_a_policy_and_nothing_in_it_is_set_in_vain() -> None:
    assert policies.parse(load_yaml(FOLDER / "policy.yaml"), "policy.yaml").notes == ()


def test_grafana_is_given_the_dashboards_and_the_prometheus_that_they_ask() -> None:
    """Grafana itself is not run here: its files are looked at."""
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    mounted = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    [provider] = yaml.safe_load((FOLDER / "grafana/dashboards.yaml").read_text())["providers"]
    [source] = yaml.safe_load((FOLDER / "grafana/datasources.yaml").read_text())["datasources"]
    dashboards = [json.loads(path.read_text()) for path in (ROOT / "deploy/grafana").glob("*.json")]

    assert all((FOLDER / path).exists() for path in mounted)
    assert provider["options"]["path"] == mounted["../grafana"]
    assert source["url"] == "http://prometheus:9090"
    for dashboard in dashboards:
        assert dashboard["templating"]["list"][0]["query"] == source["type"]
        assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
        boxes = [panel["gridPos"] for panel in dashboard["panels"]]
        cells = [(box["x"] + x, box["y"] + y) for box in boxes for x in range(box["w"]) for y in range(box["h"])]
        assert len(cells) == len(set(cells)), "panels lie over one another"
        assert max(x for x, _ in cells) < 24
