"""A real node on the API server: containerd and kubelet run pods, controller-manager and scheduler make them."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from testbed.brokers import free_port
from testbed.filled import filled, read_filled
from testbed.reaching import needs
from testbed.rungs import built_program

from . import images, traces
from .api_server import ApiServer, Json, flagged
from .programs import Program, answers, unverified

LOCK = Path("/run/lock/slacktide-node")
LOCK_S = 90.0
NODE = "node-0"


def containerd_config(folder: Path, snapshotter: str) -> str:
    return filled("containerd.toml", folder=folder, snapshotter=snapshotter, pause=images.PAUSE)


def snapshotter_for(folder: Path) -> str:
    """An overlay cannot lie on another one."""
    overlay = subprocess.run(["stat", "-fc", "%T", folder], capture_output=True, text=True, check=True).stdout
    return "native" if "overlay" in overlay else "overlayfs"


def network_config(folder: Path) -> Json:
    """A bridge without an address: pods reach one another, and not the host."""
    addresses = {"type": "host-local", "subnet": "10.88.7.0/24", "dataDir": f"{folder}/cni/addresses"}
    bridge = {"type": "bridge", "bridge": traces.BRIDGE, "isGateway": False, "ipMasq": False, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "slacktide", "plugins": [bridge]}


def kubelet_config(folder: Path, port: int, ca: Path, crt: Path, key: Path) -> Json:
    return read_filled("kubelet.yaml", folder=folder, port=port, ca=ca, crt=crt, key=key)


@needs("realnode")
class RealNode(ApiServer):
    """A cluster of one node, ``.name``; pods that it runs are this machine's processes. Root alone can."""

    API_FLAGS: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.name = NODE
        self.kubelet_port = free_port()
        self.kubelet = Program("kubelet", folder / "kubelet.log")
        self.containerd = Program("containerd", folder / "containerd.log")
        self.controllers = Program("kube-controller-manager", folder / "kube-controller-manager.log")
        self.scheduler = Program("kube-scheduler", folder / "kube-scheduler.log")
        self._ports = {"controllers": free_port(), "scheduler": free_port()}
        self._settings = traces.kernel_settings()

    def start(self) -> None:
        """Start all that is not running; return when the node is Ready and pods can be made."""
        self._start_containerd()
        super().start()
        self._start_controllers()
        self.start_kubelet()
        self.wait(lambda: self.exists("/api/v1/namespaces/default/serviceaccounts/default"), "the default account")

    def stop(self) -> None:
        for program in (self.kubelet, self.containerd, self.controllers, self.scheduler):
            program.stop(signal.SIGKILL)
        super().stop()
        traces.remove(self.folder, self._settings)

    def api_command(self) -> list[str]:
        """With what finds the kubelet for logs and exec, and what lets other servers serve APIs."""
        crt, key = self.pki.certificate("kubelet-client", "/O=system:masters/CN=kubelet-client")
        proxy_crt, proxy_key = self.pki.certificate("front-proxy", "/CN=front-proxy")
        flags = {
            "kubelet-preferred-address-types": "Hostname",
            "kubelet-certificate-authority": str(self.ca),
            "kubelet-client-certificate": str(crt),
            "kubelet-client-key": str(key),
            "proxy-client-cert-file": str(proxy_crt),
            "proxy-client-key-file": str(proxy_key),
            "requestheader-client-ca-file": str(self.ca),
            "requestheader-allowed-names": "front-proxy",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        }
        return [*self.naming_itself(), *super().api_command(), *flagged(flags)]

    def naming_itself(self) -> list[str]:
        """What begins a command that finds the node by its name, on loopback: in a mount namespace of its own."""
        hosts = self.folder / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {self.name}\n")
        return ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)]

    def _start_containerd(self) -> None:
        if self.containerd.running:
            return
        cni = self.folder / "cni"
        cni.mkdir(exist_ok=True)
        (cni / "10-slacktide.conflist").write_text(json.dumps(network_config(self.folder)))
        config = self.folder / "containerd.toml"
        config.write_text(containerd_config(self.folder, snapshotter_for(self.folder)))
        self.containerd.spawn(["containerd", "--config", str(config)])
        made = images.make(self.folder / "images")
        self.containerd.await_ready(lambda: self.ctr("version") is not None)
        for tar in made:
            assert self.ctr("images", "import", "--no-unpack", str(tar)) is not None, f"containerd refused {tar.name}"

    def ctr(self, *args: str) -> str | None:
        command = ["ctr", "--address", f"{self.folder}/containerd.sock", "--namespace", "k8s.io", *args]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        return ran.stdout if ran.returncode == 0 else None

    def _start_controllers(self) -> None:
        if not self.controllers.running:
            kcm = self.pki.client(self.folder / "kcm.kubeconfig", self.url, "/CN=system:kube-controller-manager")
            flags = {
                "kubeconfig": str(kcm),
                "leader-elect": "false",
                "bind-address": "127.0.0.1",
                "secure-port": str(self._ports["controllers"]),
                "use-service-account-credentials": "true",
                "service-account-private-key-file": str(self.pki.sa_key),
                "root-ca-file": str(self.ca),
                "flex-volume-plugin-dir": f"{self.folder}/volume-plugins",
            }
            self.controllers.spawn([str(built_program("kube-controller-manager")), *flagged(flags)])
        if not self.scheduler.running:
            kubeconfig = self.pki.client(self.folder / "scheduler.kubeconfig", self.url, "/CN=system:kube-scheduler")
            config = self.folder / "scheduler.yaml"
            config.write_text(filled("kube-scheduler.yaml", kubeconfig=kubeconfig))
            port = str(self._ports["scheduler"])
            flags = {"config": str(config), "bind-address": "127.0.0.1", "secure-port": port}
            self.scheduler.spawn([str(built_program("kube-scheduler")), *flagged(flags)])
        self.controllers.await_ready(lambda: self._healthy(self._ports["controllers"]))
        self.scheduler.await_ready(lambda: self._healthy(self._ports["scheduler"]))

    @staticmethod
    def _healthy(port: int) -> bool:
        return answers(f"https://127.0.0.1:{port}/healthz", unverified())

    def start_kubelet(self) -> None:
        """Start the kubelet unless it runs; return when the node is Ready by a heartbeat of this kubelet."""
        if self.kubelet.running:
            return
        crt, key = self.pki.certificate(
            "kubelet-server", f"/CN=system:node:{self.name}", f"DNS:{self.name},IP:127.0.0.1"
        )
        group = f"/O=system:nodes/CN=system:node:{self.name}"
        kubeconfig = self.pki.client(self.folder / "kubelet.kubeconfig", self.url, group)
        config = self.folder / "kubelet.json"
        config.write_text(json.dumps(kubelet_config(self.folder, self.kubelet_port, self.ca, crt, key)))
        flags = {
            "config": str(config),
            "kubeconfig": str(kubeconfig),
            "hostname-override": self.name,
            "root-dir": f"{self.folder}/kubelet",
        }
        self.kubelet.stop()
        before = self.heartbeat(self.name)
        self.kubelet.spawn([str(built_program("kubelet")), *flagged(flags)])
        self.kubelet.await_ready(lambda: self.heartbeat(self.name) not in {"", before})

    def namespace(self, prefix: str = "test", labels: Mapping[str, str] | None = None) -> str:
        """Make a namespace in which pods can be made: the controllers have given it its default account."""
        name = super().namespace(prefix, labels)
        self.wait(lambda: self.exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"), f"{name}'s account")
        return name

    def pods(self, namespace: str, selector: str = "") -> list[Json]:
        return self.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]

    def group(self, controller: str, pod: Json) -> Path:
        """A pod's control group: by Kubernetes' class, as the kubelet places it."""
        tier = {"Guaranteed": "", "Burstable": "burstable/", "BestEffort": "besteffort/"}[pod["status"]["qosClass"]]
        return traces.CGROUPS / controller / f"kubepods/{tier}pod{pod['metadata']['uid']}"

    def best_effort(self, controller: str) -> Path:
        return traces.CGROUPS / controller / "kubepods/besteffort"

    @property
    def best_effort_quota_us(self) -> int | None:
        """What they may use of 100 ms; None: no limit."""
        quota_us = int((self.best_effort("cpu") / "cpu.cfs_quota_us").read_text())
        return None if quota_us < 0 else quota_us


def _claim(lock: int) -> None:
    until_s = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until_s:
                raise RuntimeError(f"another run has this machine's one node for {LOCK_S:g} s: see {LOCK}") from None
            time.sleep(0.2)
        else:
            return


def _sweep(told: str) -> None:
    """Remove what a run left that was killed before it could."""
    if told:
        left = json.loads(told)
        traces.remove(Path(left["folder"]), left["settings"])
        shutil.rmtree(left["folder"], ignore_errors=True)
    if traces.kubepods():
        raise RuntimeError(f"a kubelet has {traces.kubepods()[0]}: tests cannot make a node of a machine that is one")


@contextlib.contextmanager
def running_node() -> Iterator[RealNode]:
    """The machine's one real node; all of it is gone afterwards, and had this process been killed, by the next."""
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _claim(lock)
        _sweep(os.pread(lock, 65536, 0).decode())
        folder = Path(tempfile.mkdtemp(prefix="slacktide-node-", dir="/var/tmp"))
        os.pwrite(lock, json.dumps({"folder": str(folder), "settings": traces.kernel_settings()}).encode(), 0)
        node = RealNode(folder)
        try:
            node.start()
            yield node
        finally:
            node.stop()
            shutil.rmtree(folder, ignore_errors=True)
            os.ftruncate(lock, 0)
    finally:
        os.close(lock)
