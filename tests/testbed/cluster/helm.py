"""Helm, as ``tests/testbed/setup helm`` builds it, and what it makes of the chart."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from testbed.rungs import cluster_program, machine_cannot

from .api_server import ApiServer, Json
from .manifests import MANIFESTS, SYSTEM

CHART = MANIFESTS.parent / "chart"
RELEASE = "slacktide"
VERSION = "1.34.0"
HELM_S = 120.0


class HelmError(Exception):
    """A helm that failed: what it printed."""


def helm(*args: str, server: ApiServer | None = None, given: str | None = None) -> str:
    """Run helm, as the admin of ``server`` where one is given, and return what it printed.

    Raises:
        HelmError: it failed.
        pytest.skip.Exception: it is not there.

    """
    program = cluster_program("helm")
    if not os.access(program, os.X_OK):
        lack = "helm; to get it: tests/testbed/setup helm"
        if shutil.which("go") is None:
            machine_cannot(lack)
        pytest.skip(lack)
    where = [] if server is None else ["--kubeconfig", str(server.kubeconfig)]
    command = [str(program), "--namespace", SYSTEM, *args, *where]
    ran = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=HELM_S)
    if ran.returncode:
        raise HelmError(ran.stderr + ran.stdout)
    return ran.stdout


def rendered(values: Mapping[str, object], *args: str, version: str = VERSION, chart: Path = CHART) -> list[Json]:
    """The objects that the chart makes of values, hooks and tests included."""
    given = yaml.safe_dump(dict(values))
    text = helm("template", RELEASE, str(chart), "--kube-version", version, "--values", "-", *args, given=given)
    return [each for each in yaml.safe_load_all(text) if each]
