"""A page's commands run in their order, in a checkout of their own, as its reader runs them."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from testbed.rungs import built_program

from .api_server import ApiServer
from .manifests import MANIFESTS
from .told import Command

PATIENCE_S = 60.0
COMMAND_S = 600.0


def checkout(folder: Path) -> Path:
    """Make a folder the repository's root, as far as the pages go."""
    shutil.copytree(MANIFESTS, folder / "deploy/kubernetes")
    return folder


def follow(server: ApiServer, root: Path, asked: Iterable[Command], **environment: str) -> None:
    """Run commands one after the other, each until it does and prints what the page shows."""
    path = f"{built_program('kubectl').parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "PATH": path, **environment}
    for command in asked:
        if command.refused and command.text.startswith("kubectl patch "):
            # Policies are in force a moment after they were applied; what was changed until then would stay so.
            _until_it_fits(given, root, replace(command, text=f"{command.text} --dry-run=server"))
        _until_it_fits(given, root, command)


def _until_it_fits(environment: Mapping[str, str], root: Path, command: Command) -> None:
    # What was made is not made again.
    until_s = time.monotonic() + (PATIENCE_S if command.refused or command.needs_a_node else 0)
    while True:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.text],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        if (done.returncode != 0) is command.refused and command.fits(done.stdout or done.stderr):
            break
        assert time.monotonic() < until_s, f"{command.text}\n{done.returncode}: {done.stdout}{done.stderr}"
        time.sleep(0.2)
