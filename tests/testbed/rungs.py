"""The rungs of the ladder, what each needs of a machine, and the line that would get it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTBED = Path(__file__).parent
KAFKA_VERSION = re.findall(r"<version>([0-9.]+\.[0-9]+)</version>", (TESTBED / "kafka/pom.xml").read_text())[-1]
JAVA_MIN = 17
CANNOT = "this machine cannot: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What a rung misses here."""

    what: str
    get: str
    """The line that would get it."""
    possible: bool
    """Whether ``tests/testbed/setup`` could have got it: then CI takes its absence for a failure."""

    def __str__(self) -> str:
        return f"{self.what}; to get it: {self.get}"


def machine_cannot(why: str) -> None:
    """Skip a test for something that no set-up could add to this machine; the one skip that CI accepts.

    Raises:
        pytest.skip.Exception: always.

    """
    pytest.skip(CANNOT + why)


def cache() -> Path:
    """Where what was fetched once is kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slacktide"


def cluster_program(name: str) -> Path:
    """One of Kubernetes' programs: of ``KUBEBUILDER_ASSETS`` where it is there, as for envtest, else of the cache."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    given = Path(named or "/nowhere") / name
    return given if given.exists() else cache() / "cluster" / "bin" / name


def _being_built() -> bool:
    """Whether CI still has what is written in Go built: the file that says so is there."""
    return Path(os.environ.get("SLACKTIDE_BUILDING") or "/nowhere").exists()


def await_programs() -> None:
    """Return when nobody builds programs any more."""
    while _being_built():
        time.sleep(0.5)


def _unbuilt(*programs: str) -> Lack | None:
    if _being_built():
        return None
    absent = [name for name in programs if not os.access(cluster_program(name), os.X_OK)]
    if not absent:
        return None
    can = shutil.which("go") is not None
    build = "tests/testbed/setup cluster"
    get = build if can else f"install Go (https://go.dev/doc/install) && {build}"
    return Lack(what=", ".join(absent), get=get, possible=can)


def kafka_libs() -> Path:
    """The folder with Apache Kafka's jars, filled by ``tests/testbed/setup kafka``."""
    return cache() / f"kafka-{KAFKA_VERSION}"


def _installs_packages() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _java_version() -> int:
    if shutil.which("java") is None:
        return 0
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found[1]) if found else 0


@functools.cache
def lacks_kafka() -> Lack | None:
    """Java and the jars."""
    if _java_version() < JAVA_MIN:
        get = "apt-get install default-jre-headless maven && make kafka"
        return Lack(what=f"Java {JAVA_MIN} or newer", get=get, possible=_installs_packages())
    if not kafka_libs().is_dir():
        maven = shutil.which("mvn") is not None
        get = "make kafka" if maven else "apt-get install maven && make kafka"
        return Lack(what=f"Apache Kafka {KAFKA_VERSION}'s jars", get=get, possible=maven or _installs_packages())
    return None


@functools.cache
def lacks_cgroup_v1() -> Lack | None:
    """Root and a writable cgroup v1 hierarchy with the cpu controller."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    cpu = [mount[1] for mount in mounts if mount[2] == "cgroup" and "cpu" in mount[3].split(",")]
    if not cpu:
        return Lack(what="a cgroup v1 hierarchy with cpu", get="boot with cgroup v1 mounted", possible=False)
    if os.geteuid() != 0 or not os.access(cpu[0], os.W_OK):
        return Lack(what="root with writable cgroups", get="sudo make test", possible=False)
    return None


def _lacks_guest(kernel: str) -> Lack | None:
    """An x86-64 machine, and root: the kernel's root file system is this machine's."""
    if os.uname().machine != "x86_64":
        return Lack(what=f"an x86-64 machine for {kernel}", get="run on x86-64", possible=False)
    if os.geteuid() != 0:
        return Lack(what=f"root for {kernel}", get="sudo make test", possible=False)
    return None


@functools.cache
def lacks_uml() -> Lack | None:
    """User-mode Linux."""
    if (lack := _lacks_guest("user-mode Linux")) is not None:
        return lack
    if shutil.which("linux.uml") is None:
        get = "apt-get install user-mode-linux"
        return Lack(what="user-mode Linux", get=get, possible=_installs_packages())
    return None


@functools.cache
def lacks_qemu() -> Lack | None:
    """QEMU, and a kernel to boot in it."""
    if (lack := _lacks_guest("QEMU")) is not None:
        return lack
    fetch = "tests/testbed/setup cloud-kernel"
    if shutil.which("qemu-system-x86_64") is None or not Path("/usr/lib/qemu/virtiofsd").exists():
        get = f"apt-get install --no-install-recommends qemu-system-x86 && {fetch}"
        return Lack(what="QEMU with virtiofsd, as Debian 12 has them", get=get, possible=_installs_packages())
    if not (cache() / "cloud-kernel").is_dir():
        return Lack(what="a kernel for QEMU", get=fetch, possible=_installs_packages())
    return None


@functools.cache
def lacks_cluster() -> Lack | None:
    """Etcd, kube-apiserver and kubectl, and openssl for their keys."""
    if (lack := _unbuilt("etcd", "kube-apiserver", "kubectl")) is not None:
        return lack
    if shutil.which("openssl") is None:
        return Lack(what="openssl", get="apt-get install openssl", possible=_installs_packages())
    return None


@functools.cache
def lacks_real_node() -> Lack | None:
    """What the API needs, the other programs of Kubernetes, containerd, and root with cgroup v1."""
    unbuilt = _unbuilt("kube-controller-manager", "kube-scheduler", "kubelet", "metrics-server", "pause", "burn")
    if (lack := lacks_cluster() or lacks_cgroup_v1() or unbuilt) is not None:
        return lack
    named = {"containerd": "containerd", "runc": "runc", "busybox": "busybox-static", "ip": "iproute2"}
    packages = [package for program, package in named.items() if shutil.which(program) is None]
    packages += [] if Path("/usr/lib/cni/bridge").exists() else ["containernetworking-plugins"]
    if packages:
        get = f"apt-get install --no-install-recommends {' '.join(packages)}"
        return Lack(what=", ".join(packages), get=get, possible=_installs_packages())
    return None


@functools.cache
def lacks_guest_node() -> Lack | None:
    """What a node in QEMU needs: the kernel with its network, Kubernetes' programs, containerd, and root."""
    if (lack := lacks_qemu() or lacks_cluster() or _unbuilt("kubelet", "pause", "burn", "devices")) is not None:
        return lack
    if not list((cache() / "cloud-kernel").glob("lib/modules/**/virtio_net.ko")):
        return Lack(what="QEMU's network", get="tests/testbed/setup cloud-kernel", possible=_installs_packages())
    return _lacks_packages({"containerd": "containerd", "runc": "runc", "busybox": "busybox-static", "ip": "iproute2"})


def _lacks_packages(named: dict[str, str]) -> Lack | None:
    """By program, the package that has it."""
    packages = [package for program, package in named.items() if shutil.which(program) is None]
    if not packages:
        return None
    get = f"apt-get install --no-install-recommends {' '.join(packages)}"
    return Lack(what=", ".join(packages), get=get, possible=_installs_packages())


@functools.cache
def lacks_stack() -> Lack | None:
    """Docker, compose, what images are made of, and root."""
    if os.geteuid() != 0:
        return Lack(what="root for Docker", get="sudo make test", possible=False)
    wanted = ["docker/dockerd", "wheels", "prometheus"] + ([] if _being_built() else ["compose"])
    absent = [name for name in wanted if not (cache() / name).exists()]
    if absent and shutil.which("go") is None:
        return Lack(what=", ".join(absent), get="install Go (https://go.dev/doc/install)", possible=False)
    if absent:
        get = "tests/testbed/setup docker; tests/testbed/setup prometheus"
        return Lack(what=", ".join(absent), get=get, possible=_installs_packages())
    named = {"containerd": "containerd", "runc": "runc", "busybox": "busybox-static", "iptables": "iptables"}
    if (lack := _lacks_packages(named)) is not None:
        return lack
    return lacks_kafka()


@functools.cache
def lacks_netns() -> Lack | None:
    """Root that may make network namespaces, iproute2, iptables and a TUN device."""
    if os.geteuid() != 0:
        return Lack(what="root for network namespaces", get="sudo make test", possible=False)
    named = {"ip": "iproute2", "iptables": "iptables"}
    if (lack := _lacks_packages(named)) is not None:
        return lack
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    if tried.returncode or not Path("/dev/net/tun").exists():
        return Lack(what="network namespaces with TUN devices", get="run where the kernel has them", possible=False)
    return None


@functools.cache
def lacks_browser() -> Lack | None:
    """Debian's Chromium, and a font with Chinese characters."""
    if shutil.which("chromium") is None:
        get = "apt-get install --no-install-recommends chromium fonts-wqy-microhei"
        return Lack(what="Chromium", get=get, possible=_installs_packages())
    return None


LACKS = {
    "browser": lacks_browser,
    "kafka": lacks_kafka,
    "attack": lacks_kafka,
    "netns": lacks_netns,
    "kernel": lacks_cgroup_v1,
    "uml": lacks_uml,
    "qemu": lacks_qemu,
    "cluster": lacks_cluster,
    "realnode": lacks_real_node,
    "guestnode": lacks_guest_node,
    "zonednode": lacks_guest_node,
    "stack": lacks_stack,
}
"""By marker."""

BUILT = ("cluster", "realnode", "guestnode", "zonednode", "stack")
"""What runs on programs that are built here: by marker."""

COMPUTING = ("pure", "simulation")
"""What waits for nothing."""

RUNGS = (
    "pure",
    "pipeline",
    "simulation",
    "cgroup v1",
    "cgroup v2 (user-mode Linux)",
    "cgroup v2 (QEMU)",
    "Apache Kafka",
    "attack",
    "attack over networks",
    "Kubernetes API",
    "stack in Docker",
    "Kubernetes node",
    "Kubernetes node, cgroup v2",
    "Kubernetes node, NUMA zones",
    "browser",
    "install",
)
"""In the order in which they run: what costs least tells first."""
BY_MARKER = {
    "stack": RUNGS[10],
    "guestnode": RUNGS[12],
    "zonednode": RUNGS[13],
    "realnode": RUNGS[11],
    "cluster": RUNGS[9],
    "netns": RUNGS[8],
    "attack": RUNGS[7],
    "kafka": RUNGS[6],
    "qemu": RUNGS[5],
    "uml": RUNGS[4],
    "kernel": RUNGS[3],
    "browser": RUNGS[14],
    "install": RUNGS[15],
}
APART = {"tests/cluster/v2": RUNGS[12], "tests/cluster/numa": RUNGS[13]}
"""Rungs that `make test` runs by themselves, by the folder that its other run ignores."""
BY_FOLDER = {
    "pipeline": RUNGS[1],
    "demo": RUNGS[1],
    "sim": RUNGS[2],
    "kernel": RUNGS[3],
    "browser": RUNGS[14],
    "install": RUNGS[15],
}


def rung_of(item: pytest.Item) -> str:
    """The rung that a test stands on: by its markers, else by its broker, else by its folder."""
    for marker, rung in BY_MARKER.items():
        if item.get_closest_marker(marker) is not None:
            return rung
    if {"broker", "embedded_broker"} & set(getattr(item, "fixturenames", ())):
        return BY_FOLDER["pipeline"]
    folder = item.path.relative_to(TESTBED.parent).parts[0]
    return BY_FOLDER.get(folder, RUNGS[0])
