"""Prometheus' own tools, as ``tests/testbed/setup prometheus`` has unpacked them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.rungs import cache, machine_cannot


def tool(name: str) -> str:
    """Where ``promtool`` or ``prometheus`` is.

    Raises:
        pytest.skip.Exception: it is not there.

    """
    found = cache() / "prometheus" / name
    if not found.is_file():
        lack = "Debian's Prometheus; to get it: tests/testbed/setup prometheus"
        if shutil.which("apt-get") is None:
            machine_cannot(lack)
        pytest.skip(lack)
    return str(found)


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Its exit code, and what it said."""
    command = [tool("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
