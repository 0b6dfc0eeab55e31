"""``docker compose`` on the file that ships, and the commands of docs/docker.md, against a daemon of the tests' own."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slacktide.schemas.connection import Cluster
from testbed.brokers import free_port
from testbed.cluster.installed import has
from testbed.one_machine import eventually
from testbed.rungs import built_program

from .daemon import Daemon
from .images import MADE, load

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/compose"
PROJECT = "slacktide"
PORTS = {"KAFKA_PORT": "9092", "SCHEDULER_PORT": "8444", "CONSOLE_PORT": "9470", "PROMETHEUS_PORT": "9090"}
"""That the stack has on this machine, as .env and docs/docker.md have them."""
PATIENCE_S = 180.0


def documented(driver: str) -> dict[str, str]:
    """The lines of .env that are for a cgroup driver, as whoever follows its comments would have them."""
    _, _, told = (FOLDER / ".env").read_text().partition(f"\n# {driver}, ")
    block, _, _ = told.partition("\n\n")
    lines = [line.removeprefix("# ") for line in block.splitlines()[1:4]]
    return dict(line.split("=", 1) for line in lines)


def documented_commands() -> list[str]:
    """The commands of docs/docker.md for the stack, line by line."""
    section, _, _ = (ROOT / "docs/docker.md").read_text().partition("\n## What is tested\n")
    return [line.partition("   #")[0].strip() for line in section.splitlines() if line.startswith("    ")]


class Stack:
    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.ports = {name: free_port() for name in PORTS}
        driver = daemon.run("info", "--format", "{{.CgroupDriver}}").strip()
        given = documented(driver) | {name: str(port) for name, port in self.ports.items()}
        given |= {} if has("SYS_RESOURCE") else {"WOKEN_BY": "CHOWN"}
        # Without buildx, which is no part of Debian's Docker.
        given |= {"DOCKER_HOST": daemon.socket, "DOCKER_BUILDKIT": "0", "DOCKER_CONFIG": str(self._client())}
        given["PATH"] = f"{Path(daemon.docker[0]).parent}:{os.environ['PATH']}"
        self._environment = os.environ | given
        for service in self.services().values():
            if (image := str(service["image"])).partition(":")[0] in MADE:
                load(daemon.docker, image)
        load(daemon.docker, base())

    def _client(self) -> Path:
        plugins = self.daemon.folder / "client/cli-plugins"
        plugins.mkdir(parents=True)
        (plugins / "docker-compose").symlink_to(built_program("compose"))
        return plugins.parent

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports['KAFKA_PORT']}"

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.bootstrap)

    def services(self) -> Mapping[str, dict[str, Any]]:
        return json.loads(self("config", "--format", "json"))["services"]

    def __call__(self, *arguments: str, within_s: float = 300) -> str:
        return self._run(["docker", "compose", *arguments], within_s)

    def typed(self, line: str) -> str:
        """What a line prints in a shell in the stack's folder, for the ports that it has there."""
        for name, port in PORTS.items():
            line = line.replace(f"127.0.0.1:{port}", f"127.0.0.1:{self.ports[name]}")
        return self._run(["bash", "-c", line], 500)

    def _run(self, command: list[str], within_s: float) -> str:
        done = subprocess.run(
            command, cwd=FOLDER, env=self._environment, capture_output=True, text=True, check=False, timeout=within_s
        )
        if done.returncode:
            raise RuntimeError(f"{command}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    def up(self, *arguments: str) -> None:
        self("up", "--detach", *arguments, within_s=500)
        self.await_well()

    def await_well(self) -> None:
        assert eventually(lambda: not self.unwell(), PATIENCE_S, every_s=1.0), self.unwell()

    def unwell(self) -> list[str]:
        told = [json.loads(line) for line in self("ps", "--all", "--format", "json").splitlines()]
        return [
            f"{each['Name']}: {each['State']} {each['Health']}"
            for each in told
            if (each["State"], each["ExitCode"]) != ("exited", 0)
            and (each["State"] != "running" or each["Health"] not in {"", "healthy"})
        ]

    def image(self, service: str) -> str:
        return str(self.services()[service]["image"])


def base() -> str:
    first = next(
        line for line in (ROOT / "deploy/image/Dockerfile").read_text().splitlines() if line.startswith("FROM")
    )
    return first.split()[1]
