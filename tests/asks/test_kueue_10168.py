"""What another quota would come to is answered before it is applied: on the same workloads, without a cluster."""

import json
from pathlib import Path

from click.testing import CliRunner

from slacktide.agents.files import load_yaml
from slacktide.deploy.cli.main import cli

EXAMPLE = Path("docs/queue-example.yaml")


def evictions(*arguments: str) -> list[str]:
    done = CliRunner().invoke(cli, ["queue", "simulate", str(EXAMPLE), "--json", *arguments])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [one["workload"] for one in lines if one.get("event") == "evicted"]


def test_with_a_larger_quota_nobody_is_preempted(tmp_path) -> None:
    [reports] = [
        one
        for one in load_yaml(EXAMPLE)["items"]
        if (one["kind"], one["metadata"]["name"]) == ("ClusterQueue", "reports")
    ]
    for resource in reports["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        resource["nominalQuota"] = {"cpu": "8", "memory": "32Gi"}[resource["name"]]
    larger = tmp_path / "larger.json"
    larger.write_text(json.dumps(reports))

    assert evictions() == ["office/monthly"]
    assert evictions("--with", str(larger)) == []
