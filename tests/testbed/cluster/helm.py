"""Helm, as ``tests/testbed/setup api`` builds it, and what it makes of the chart."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from testbed.rungs import built_program

from .api_server import ApiServer, Json
from .manifests import MANIFESTS, SYSTEM

CHART = MANIFESTS.parent / "chart"
RELEASE = "slacktide"
VERSION = "1.34.0"
HELM_S = 120.0


class HelmError(Exception):
    """A helm that failed: what it printed."""


def helm(*args: str, server: ApiServer | None = None, given: str | None = None) -> str:
    where = [] if server is None else ["--kubeconfig", str(server.kubeconfig)]
    command = [str(built_program("helm")), "--namespace", SYSTEM, *args, *where]
    ran = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=HELM_S)
    if ran.returncode:
        raise HelmError(ran.stderr + ran.stdout)
    return ran.stdout


def rendered(values: Mapping[str, object], *args: str, version: str = VERSION, chart: Path = CHART) -> list[Json]:
    """The objects that the chart makes of values, hooks and tests included."""
    given = yaml.safe_dump(dict(values))
    text = helm("template", RELEASE, str(chart), "--kube-version", version, "--values", "-", *args, given=given)
    return [each for each in yaml.safe_load_all(text) if each]
