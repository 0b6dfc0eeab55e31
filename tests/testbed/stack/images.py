"""What no registry is asked for: images by the names that the stack gives, made of what this machine has.

``python`` holds the Python that runs the tests, its pip, and the wheels of the lock file, which pip and uv are told of
in their own files. ``apache/kafka`` holds Maven Central's jars and is set up by the same class as the official one,
``prom/prometheus`` Debian's binary. Instead of Debian or Alpine there is busybox in each.
"""

import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from zipfile import ZipFile

import pip
from numpy._core import _multiarray_umath

from testbed.cluster.images import Layer, archive, java, libraries, library, program, shell
from testbed.filled import FILES
from testbed.rungs import cache, kafka_libs

NOBODY, KAFKA_USER = 65534, 1000


def wheels() -> Path:
    return cache() / "wheels"


def _python(layer: Layer) -> None:
    """As the official image has it: in /usr/local, with pip. Python finds its library by where it is itself."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here, there = Path(sysconfig.get_path("stdlib")), f"/usr/local/lib/{version}"
    program(layer, f"/usr/local/bin/{version}", Path(sys.executable).resolve())
    for name in ("python", "python3"):
        layer.link(f"/usr/local/bin/{name}", version)
    library(layer, here, there)
    # What compiled wheels expect of a system.
    for compiled in (Path(sys.executable).with_name("uv"), Path(_multiarray_umath.__file__)):
        libraries(layer, compiled)

    library(layer, Path(pip.__file__).parent, f"{there}/site-packages/pip")
    layer.text("/usr/local/bin/pip", '#!/bin/sh\nexec python -m pip "$@"\n')
    for each in sorted(wheels().iterdir()):
        layer.file(f"/wheels/{each.name}", each)
    layer.text("/etc/pip.conf", "[global]\nno-index = true\nfind-links = /wheels\ndisable-pip-version-check = true\n")
    layer.text("/etc/uv/uv.toml", 'no-index = true\nfind-links = ["/wheels"]\n')


def _loaded_by_zstd(layer: Layer) -> None:
    """What the compiled library loads that lies in the jar for zstd."""
    built_for = {"x86_64": "amd64"}.get(platform.machine(), platform.machine())
    [jar] = kafka_libs().glob("zstd-jni-*.jar")
    with ZipFile(jar) as packed, tempfile.TemporaryDirectory() as folder:
        [name] = [one for one in packed.namelist() if one.startswith(f"linux/{built_for}/") and one.endswith(".so")]
        libraries(layer, Path(packed.extract(name, folder)))


def _kafka(layer: Layer) -> None:
    java(layer)
    library(layer, kafka_libs(), "/opt/kafka/libs")
    _loaded_by_zstd(layer)
    # The broker unpacks its library for zstd into /tmp.
    for folder in ("/opt/kafka/config", "/mnt/shared/config", "/var/lib/kafka/data", "/tmp"):
        layer.folder(folder, owner=KAFKA_USER)
    layer.text("/etc/kafka/docker/server.properties", "# Not used: the environment holds all.\n")
    for name in ("log4j2.yaml", "tools-log4j2.yaml"):
        layer.text(f"/etc/kafka/docker/{name}", (FILES / "kafka-logs.yaml").read_text())
    layer.text("/etc/kafka/docker/run", (FILES / "kafka-run").read_text())


def _prometheus(layer: Layer) -> None:
    for name in ("prometheus", "promtool"):
        program(layer, f"/bin/{name}", cache() / "prometheus" / name)
    layer.folder("/prometheus", owner=NOBODY)


MADE = {"python": _python, "apache/kafka": _kafka, "prom/prometheus": _prometheus}
CHANGES = {
    "python": ["CMD python3"],
    "apache/kafka": [f"USER {KAFKA_USER}", 'CMD ["/etc/kafka/docker/run"]', "ENV CLUSTER_ID=c2xhY2t0aWRlLXN0YWNrMQ"],
    "prom/prometheus": [
        f"USER {NOBODY}",
        'ENTRYPOINT ["/bin/prometheus"]',
        'CMD ["--config.file=/etc/prometheus/prometheus.yml","--storage.tsdb.path=/prometheus"]',
    ],
}
"""What the official images say of how they are run."""
PATH = "ENV PATH=/usr/local/bin:/usr/bin:/bin"


def layer_of(name: str) -> bytes:
    layer = Layer()
    shell(layer)
    MADE[name](layer)
    return layer.done()


def kafka_archive(folder: Path, tagged: str) -> Path:
    """The same for containerd: a docker-archive in the folder, under its official name."""
    made = folder / "kafka.tar"
    archive(made, tagged, layer_of("apache/kafka"), ["/etc/kafka/docker/run"])
    return made


def load(docker: list[str], tagged: str) -> None:
    """Give the daemon one image under its official name, such as ``apache/kafka:4.1.2``."""
    name = tagged.partition(":")[0]
    changes = [word for change in [PATH, *CHANGES[name]] for word in ("--change", change)]
    subprocess.run([*docker, "import", *changes, "-", tagged], input=layer_of(name), check=True, capture_output=True)
