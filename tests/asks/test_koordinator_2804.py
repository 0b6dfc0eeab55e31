"""A key that Slacktide does not know, and a value that it refuses, are never skipped silently."""

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli


def lint(folder: Path, strategy: dict[str, object], name: str = "slo-controller-config") -> tuple[int, str]:
    """Exit code and output of the command that a pipeline runs before it applies the ConfigMap."""
    data = {"resource-threshold-config": json.dumps({"clusterStrategy": {"enable": True, **strategy}})}
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": name}, "data": data}))
    done = CliRunner().invoke(cli, ["policy", "lint", str(file)])
    return done.exit_code, done.output


def test_what_is_right_passes(tmp_path: Path) -> None:
    assert lint(tmp_path, {"cpuSuppressThresholdPercent": 65})[0] == 0


def test_a_misspelt_key_fails_and_the_right_one_is_named(tmp_path: Path) -> None:
    code, output = lint(tmp_path, {"cpuSupressThresholdPercent": 65})

    assert code == 1
    assert "cpuSupressThresholdPercent" in output
    assert "cpuSuppressThresholdPercent" in output


def test_a_value_out_of_range_fails_with_its_path_and_the_range(tmp_path: Path) -> None:
    code, output = lint(tmp_path, {"cpuSuppressThresholdPercent": 165})

    assert code == 1
    assert "clusterStrategy.cpuSuppressThresholdPercent" in output
    assert "165" in output
    assert "100" in output


def test_a_config_map_that_nothing_reads_fails(tmp_path: Path) -> None:
    code, output = lint(tmp_path, {}, name="slo-controller-conf")

    assert code == 1
    assert "slo-controller-config" in output
