"""Docker's daemon for tests: folders, a socket and networks of its own; the machine's firewall is left alone."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from testbed.cluster.programs import Program
from testbed.reaching import needs
from testbed.rungs import cache

SUBNETS = "base=10.211.0.0/16,size=24"
STOP_S = 30.0


@needs("stack")
class Daemon:
    """One daemon, whose client is ``docker``, a command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = f"unix://{folder}/docker.sock"
        self.docker = [str(cache() / "docker/docker"), "--host", self.socket]
        self._program = Program("dockerd", folder / "dockerd.log")

    def start(self) -> None:
        folder = self.folder
        command = [str(cache() / "docker/dockerd"), f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
        command += [f"--pidfile={folder}/pid", f"--host={self.socket}", f"--config-file={folder}/none.json"]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"]
        command += [f"--default-address-pool={SUBNETS}", f"--userland-proxy-path={cache()}/docker/docker-proxy"]
        (folder / "none.json").write_text("{}")
        self._program.start(command, self._answers)

    def stop(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            if ids := self.run("ps", "--all", "--quiet").split():
                self.run("rm", "--force", "--volumes", *ids)
            self.run("network", "prune", "--force")
        self._program.stop(signal.SIGTERM, STOP_S)
        for mount in reversed(_mounts(self.folder)):
            subprocess.run(["umount", "--lazy", mount], check=False)

    def run(self, *arguments: str, within_s: float = 120) -> str:
        command = [*self.docker, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=within_s).stdout

    def _answers(self) -> bool:
        return subprocess.run([*self.docker, "version"], capture_output=True, check=False).returncode == 0


def _mounts(folder: Path) -> list[str]:
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [mount for mount in mounts if mount.startswith(f"{folder}/")]


@contextlib.contextmanager
def running() -> Iterator[Daemon]:
    # On a disk: layers of images need a file system that overlays can stand on.
    folder = Path(tempfile.mkdtemp(prefix="slacktide-docker-", dir="/var/tmp"))
    daemon = Daemon(folder)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)
        assert not os.path.lexists(folder)
