"""The rungs of the ladder, what each needs of a machine, and the line that would get it."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTBED = Path(__file__).parent
KAFKA_VERSION = re.findall(r"<version>([0-9.]+\.[0-9]+)</version>", (TESTBED / "kafka/pom.xml").read_text())[-1]
SPARK_VERSION = re.findall(r"pyspark==(\S+)", (TESTBED / "spark/requirements.txt").read_text())[0]
JAVA_MIN = 17
CANNOT = "this machine cannot: "
NIGHTLY = bool(os.environ.get("SLACKTIDE_NIGHTLY"))
"""Whether waits and outages take as long as they are written, and random schedules have several seeds."""


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


OWN_MODULE = {
    "koord-manager": "koordinator",
    "koordlet": "koordinator",
    "kueue": "kueue",
    "kwok": "kwok",
    "metrics-server": "metrics-server",
    "jobset": "operators",
    "mpi-operator": "operators",
}
"""By program, its Go module below ``testbed/go``; all others are of the module ``cluster``."""


@functools.cache
def _digest(module: str) -> str:
    root = TESTBED / "go" / module
    files = sorted((path for path in root.rglob("*") if path.is_file()), key=lambda path: str(path.relative_to(root)))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def built_program(name: str) -> Path:
    """A program that is built here: of ``KUBEBUILDER_ASSETS`` where it is there, as for envtest, else of the cache.

    There it lies under a hash of what it is built from, as ``tests/testbed/setup`` puts it.
    """
    given = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nowhere") / name
    module = OWN_MODULE.get(name, "cluster")
    return given if given.exists() else cache() / "go" / f"{module}-{_digest(module)}" / name


def _being_built() -> bool:
    """Whether CI still has what is written in Go built: the file that says so is there."""
    return Path(os.environ.get("SLACKTIDE_BUILDING") or "/nowhere").exists()


def _absent(programs: tuple[str, ...]) -> list[str]:
    return [name for name in programs if not os.access(built_program(name), os.X_OK)]


def await_built(rung: Rung) -> None:
    """Return when the programs of a rung are there, or nobody builds any more."""
    while _absent(rung.programs) and _being_built():
        time.sleep(0.5)


def _unbuilt(programs: tuple[str, ...], step: str) -> Lack | None:
    if _being_built() or not (absent := _absent(programs)):
        return None
    can = shutil.which("go") is not None
    build = f"tests/testbed/setup {step}"
    get = build if can else f"install Go (https://go.dev/doc/install) && {build}"
    return Lack(what=", ".join(absent), get=get, possible=can)


def kafka_libs() -> Path:
    """The folder with Apache Kafka's jars, filled by ``tests/testbed/setup kafka``."""
    return cache() / f"kafka-{KAFKA_VERSION}"


def spark_home() -> Path:
    """The folder with Spark, unpacked by ``tests/testbed/setup spark``."""
    return cache() / f"spark-{SPARK_VERSION}"


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
        get = "apt-get install default-jre-headless maven && tests/testbed/setup kafka"
        return Lack(what=f"Java {JAVA_MIN} or newer", get=get, possible=_installs_packages())
    if not kafka_libs().is_dir():
        maven = shutil.which("mvn") is not None
        get = "tests/testbed/setup kafka" if maven else "apt-get install maven && tests/testbed/setup kafka"
        return Lack(what=f"Apache Kafka {KAFKA_VERSION}'s jars", get=get, possible=maven or _installs_packages())
    return None


@functools.cache
def lacks_prometheus() -> Lack | None:
    """Prometheus and its promtool, as Debian has them."""
    if (cache() / "prometheus/prometheus").is_file():
        return None
    possible = shutil.which("apt-get") is not None
    return Lack(what="Prometheus", get="tests/testbed/setup prometheus", possible=possible)


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
        return Lack(what=f"root for {kernel}", get="sudo make test-all", possible=False)
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


API = ("etcd", "kube-apiserver", "kubectl", "kube-scheduler", "kube-controller-manager", "helm")
NODE = ("kubelet", "pause", "burn", "devices")
CONTAINERS = {"containerd": "containerd", "runc": "runc", "busybox": "busybox-static"}
"""By program, the package that has it."""


@functools.cache
def lacks_api() -> Lack | None:
    """A control plane, kubectl, helm for the chart, and openssl for their keys."""
    return _unbuilt(API, "api") or _lacks_packages({"openssl": "openssl"})


@functools.cache
def lacks_real_node() -> Lack | None:
    """What the API needs, the other programs of Kubernetes, containerd, and root with cgroup v1."""
    if (lack := lacks_api() or lacks_cgroup_v1() or _unbuilt(NODE, "node")) is not None:
        return lack
    plugins = {} if Path("/usr/lib/cni/bridge").exists() else {"cni": "containernetworking-plugins"}
    return _lacks_packages(CONTAINERS | {"ip": "iproute2"} | plugins)


@functools.cache
def lacks_guest_node() -> Lack | None:
    """What a node in QEMU needs: the kernel with its network, Kubernetes' programs, containerd, and root."""
    if (lack := lacks_qemu() or lacks_api() or _unbuilt(NODE, "node")) is not None:
        return lack
    if not list((cache() / "cloud-kernel").glob("lib/modules/**/virtio_net.ko")):
        return Lack(what="QEMU's network", get="tests/testbed/setup cloud-kernel", possible=_installs_packages())
    return _lacks_packages(CONTAINERS | {"ip": "iproute2"})


def _lacks_packages(named: dict[str, str]) -> Lack | None:
    packages = [package for program, package in named.items() if shutil.which(program) is None]
    if not packages:
        return None
    get = f"apt-get install --no-install-recommends {' '.join(packages)}"
    return Lack(what=", ".join(packages), get=get, possible=_installs_packages())


@functools.cache
def lacks_stack() -> Lack | None:
    """Docker, compose, what images are made of, Kafka's jars, and root."""
    if os.geteuid() != 0:
        return Lack(what="root for Docker", get="sudo make test-all", possible=False)
    if absent := [name for name in ("docker/dockerd", "wheels", "prometheus") if not (cache() / name).exists()]:
        get = "tests/testbed/setup docker; tests/testbed/setup prometheus"
        return Lack(what=", ".join(absent), get=get, possible=_installs_packages())
    packages = CONTAINERS | {"iptables": "iptables"}
    return _unbuilt(("compose",), "compose") or _lacks_packages(packages) or lacks_kafka()


@functools.cache
def lacks_netns() -> Lack | None:
    """Root that may make network namespaces, iproute2, iptables and a TUN device."""
    if os.geteuid() != 0:
        return Lack(what="root for network namespaces", get="sudo make test-all", possible=False)
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


@functools.cache
def lacks_metrics_server() -> Lack | None:
    """metrics-server, which is built for one test."""
    return _unbuilt(("metrics-server",), "metrics-server")


@functools.cache
def lacks_kueue() -> Lack | None:
    """Kueue, which is built for a few tests and the bench."""
    return _unbuilt(("kueue",), "kueue")


@functools.cache
def lacks_koordinator() -> Lack | None:
    """Koordinator, which is built for a few tests and the bench."""
    return _unbuilt(("koord-manager", "koordlet"), "koordinator")


@functools.cache
def lacks_kcat() -> Lack | None:
    """kcat, another client of Kafka."""
    return _lacks_packages({"kcat": "kcat"})


@functools.cache
def lacks_operators() -> Lack | None:
    """The operators of JobSet and MPIJob."""
    return _unbuilt(("jobset", "mpi-operator"), "operators")


@functools.cache
def lacks_spark() -> Lack | None:
    """Spark, whose Java is that of Kafka."""
    if not spark_home().is_dir():
        return Lack(what=f"Spark {SPARK_VERSION}", get="tests/testbed/setup spark", possible=True)
    return None


BESIDE = {
    "kcat": lacks_kcat,
    "koordinator": lacks_koordinator,
    "kueue": lacks_kueue,
    "metricsserver": lacks_metrics_server,
    "operators": lacks_operators,
    "spark": lacks_spark,
}
"""By marker, what a few tests need beside their rung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A step of the ladder."""

    name: str
    marker: str = ""
    """Of its tests."""
    folders: tuple[str, ...] = ()
    """Of its tests, where no marker says otherwise."""
    lacks: Callable[[], Lack | None] = lambda: None
    programs: tuple[str, ...] = ()
    """What it needs of the programs that are built here."""
    here: bool = False
    """Whether `make test` runs it: it needs nothing that this machine does not have."""
    stories: bool = False
    """Whether CI runs only its tests that are marked ``story``; `make nightly` runs all."""


PURE = Rung(name="pure", here=True)
PIPELINE = Rung(name="pipeline", folders=("pipeline",), here=True)
LADDER = (
    Rung(name="simulation", folders=("sim",), here=True),
    Rung(name="cgroup v1", marker="kernel", folders=("kernel",), lacks=lacks_cgroup_v1, here=True),
    PURE,
    PIPELINE,
    Rung(name="demo", marker="demo", folders=("demo",)),
    Rung(name="install", marker="install", folders=("install",)),
    Rung(name="Apache Kafka", marker="kafka", lacks=lacks_kafka),
    Rung(name="Prometheus", marker="prometheus", lacks=lacks_prometheus, stories=True),
    Rung(name="browser", marker="browser", folders=("browser",), lacks=lacks_browser, stories=True),
    Rung(name="cgroup v2 (user-mode Linux)", marker="uml", lacks=lacks_uml, stories=True),
    Rung(name="cgroup v2 (QEMU)", marker="qemu", lacks=lacks_qemu, stories=True),
    Rung(name="attack", marker="attack", lacks=lacks_kafka, stories=True),
    Rung(name="attack over networks", marker="netns", lacks=lacks_netns, stories=True),
    Rung(name="Kubernetes API", marker="cluster", lacks=lacks_api, programs=API),
    Rung(name="stack in Docker", marker="stack", lacks=lacks_stack, programs=("compose",), stories=True),
    Rung(name="Kubernetes node", marker="realnode", lacks=lacks_real_node, programs=(*API, *NODE), stories=True),
    Rung(
        name="Kubernetes node, cgroup v2",
        marker="guestnode",
        lacks=lacks_guest_node,
        programs=(*API, *NODE),
        stories=True,
    ),
    Rung(
        name="Kubernetes node, NUMA zones",
        marker="zonednode",
        lacks=lacks_guest_node,
        programs=(*API, *NODE),
        stories=True,
    ),
)
"""In the order in which they run: first what all would wait for in the end, then what costs least."""
COSTLY = ("tests/cluster/", "tests/browser/", "tests/stack/", "tests/demo/", "tests/install/")
"""Folders without a test that runs here."""

_MARKED = pytest.StashKey[list[Rung]]()


def _marked(item: pytest.Item) -> list[Rung]:
    if _MARKED not in item.stash:
        names = {mark.name for mark in item.iter_markers()}
        item.stash[_MARKED] = [rung for rung in LADDER if rung.marker in names]
    return item.stash[_MARKED]


def rung_of(item: pytest.Item) -> Rung:
    """The rung that a test stands on: by the costliest of its markers, else by its broker, else by its folder."""
    if marked := _marked(item):
        return marked[-1]
    if {"broker", "embedded_broker"} & set(getattr(item, "fixturenames", ())):
        return PIPELINE
    folder = item.path.relative_to(TESTBED.parent).parts[0]
    return next((rung for rung in LADDER if folder in rung.folders), PURE)


def lack_of(item: pytest.Item) -> Lack | None:
    """What a test misses here: the first of all that its markers ask for."""
    beside = [lacks for marker, lacks in BESIDE.items() if item.get_closest_marker(marker) is not None]
    asked = [*(rung.lacks for rung in _marked(item)), *beside]
    return next(filter(None, (lacks() for lacks in asked)), None)


def is_wanted(item: pytest.Item, ladder: str) -> bool:
    """Whether a run that goes so far (``--ladder``) has a test."""
    here = rung_of(item).here
    if ladder == "ci":
        only_stories = any(rung.stories for rung in _marked(item)) or item.get_closest_marker("nightly") is not None
        return not here and (not only_stories or item.get_closest_marker("story") is not None)
    return here or ladder == "all"


def of_ladder(ladder: str) -> list[Rung]:
    """The rungs of which such a run has tests."""
    return [rung for rung in LADDER if ladder == "all" or rung.here == (ladder == "here")]
