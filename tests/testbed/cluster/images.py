"""Container images made of what this machine has: no registry is asked. Each is a docker-archive tar."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from testbed.rungs import built_program

PAUSE, BUSYBOX, BURN = "localhost/pause:1", "localhost/busybox:1", "localhost/burn:1"
SLACKTIDE = "localhost/slacktide:test"
ROOT = Path(__file__).parents[3]
SITE = "/opt/slacktide"
PYTHON = "docker.io/library/python:3.9"
"""By the name that Koordinator's guide gives; inside is the Python that runs the tests."""
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages"}


class Layer:
    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._bytes, mode="w")  # noqa: SIM115 - closed when it is done
        self._have: set[str] = set()

    def folder(self, name: str, *, owner: int = 0) -> None:
        for at in [*reversed(Path(name).parents), Path(name)]:
            if str(at) not in {".", "/", *self._have}:
                self._have.add(str(at))
                entry = tarfile.TarInfo(str(at).lstrip("/"))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if at.name == "tmp" else 0o755
                entry.uid = entry.gid = owner if at == Path(name) else 0
                self._tar.addfile(entry)

    def file(self, name: str, source: Path) -> None:
        if name in self._have:
            return
        self._have.add(name)
        self.folder(str(Path(name).parent))
        self._tar.add(source.resolve(), name.lstrip("/"), filter=_nobodys)

    def text(self, name: str, text: str) -> None:
        self._have.add(name)
        self.folder(str(Path(name).parent))
        entry = tarfile.TarInfo(name.lstrip("/"))
        entry.size, entry.mode = len(text.encode()), 0o755
        self._tar.addfile(entry, io.BytesIO(text.encode()))

    def link(self, name: str, to: str) -> None:
        if name in self._have:
            return
        self._have.add(name)
        entry = tarfile.TarInfo(name.lstrip("/"))
        entry.type, entry.linkname = tarfile.SYMTYPE, to
        self._tar.addfile(entry)

    def done(self) -> bytes:
        self._tar.close()
        return self._bytes.getvalue()


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Whoever made it; when, Python's compiled files compare with their sources."""
    entry.uid = entry.gid = 0
    entry.mtime = int(entry.mtime)
    entry.uname = entry.gname = ""
    return entry


def shell(layer: Layer) -> None:
    found = shutil.which("busybox")
    assert found, "busybox is not installed"
    layer.file("/bin/busybox", Path(found))
    for applet in subprocess.run([found, "--list"], capture_output=True, text=True, check=True).stdout.split():
        layer.link(f"/bin/{applet}", "busybox")
    for each in ("/tmp", "/proc", "/sys", "/dev", "/etc"):
        layer.folder(each)


def libraries(layer: Layer, program: Path) -> None:
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for path in map(os.path.normpath, re.findall(r"(/\S+) \(0x", told)):  # Java's lead up and down again
        layer.file(path, Path(path))


def program(layer: Layer, name: str, source: Path) -> None:
    layer.file(name, source)
    libraries(layer, source)


def library(layer: Layer, source: Path, name: str) -> None:
    for each in _library(source):
        layer.file(f"{name}/{each.relative_to(source)}", each)
        if ".so" in each.name:
            libraries(layer, each)


def python(layer: Layer) -> None:
    found = Path(sys.executable).resolve()
    program(layer, str(found), found)
    library(layer, folder := Path(sysconfig.get_path("stdlib")), str(folder))
    for name in ("python", "python3"):
        layer.link(f"/bin/{name}", str(found))


def java(layer: Layer) -> None:
    """This machine's Java, with its modules."""
    found = Path(shutil.which("java") or "").resolve()
    library(layer, home := found.parents[1], str(home))
    program(layer, str(found), found)
    layer.link("/bin/java", str(found))


def _library(folder: Path) -> Iterator[Path]:
    for each in sorted(folder.iterdir()):
        if each.is_dir() and each.name not in LEFT_OUT:
            yield from _library(each)
        elif each.is_file() and each.suffix not in {".a", ".o"} and ".opt-" not in each.name:
            yield each


def archive(
    target: Path, name: str, layer: bytes, command: list[str], *, entrypoint: Sequence[str] = (), **environment: str
) -> None:
    digest = hashlib.sha256(layer).hexdigest()
    variables = {"PATH": "/bin:/usr/bin", "PYTHONUNBUFFERED": "1", **environment}
    run = {
        "Entrypoint": list(entrypoint),
        "Cmd": command,
        "Env": [f"{key}={value}" for key, value in variables.items()],
    }
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {"manifest.json": json.dumps(manifest), "config.json": json.dumps(config)}
    with tarfile.open(target, "w") as tar:
        for part, body in [*((part, text.encode()) for part, text in parts.items()), ("layer.tar", layer)]:
            entry = tarfile.TarInfo(part)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))


def _pause(layer: Layer) -> None:
    layer.file("/pause", built_program("pause"))


def _burn(layer: Layer) -> None:
    layer.file("/bin/burn", built_program("burn"))
    shell(layer)


def _python_and_shell(layer: Layer) -> None:
    shell(layer)
    python(layer)


PODS = {
    PAUSE: (_pause, ["/pause"]),
    BUSYBOX: (shell, ["/bin/sh"]),
    BURN: (_burn, ["/bin/burn", "spin", "1"]),
    PYTHON: (_python_and_shell, ["/bin/python"]),
}
"""What is in the image of a name, and what it runs."""


def make(folder: Path, names: Iterable[str] = PODS) -> list[Path]:
    """Write images of the tests' pods into a folder, and return their files."""
    folder.mkdir(exist_ok=True)
    made = []
    for name in names:
        layer, (fill, command) = Layer(), PODS[name]
        fill(layer)
        made.append(folder / f"{name.split('/')[-1].split(':')[0]}.tar")
        archive(made[-1], name, layer.done(), command)
    return made


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} failed:\n{done.stdout}{done.stderr}")


def slacktide(folder: Path, wheel: Path | None = None, name: str = SLACKTIDE) -> Path:
    """Write the product's image: a wheel, that of this checkout if none is given, with what it needs in a cluster."""
    if wheel is None:
        _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "wheel")
        (wheel,) = (folder / "wheel").iterdir()
    site, uv = folder / "site", Path(sys.executable).with_name("uv")
    how = ["--quiet", "--compile-bytecode", "--link-mode=copy", "--constraint", "requirements.lock"]
    wanted = f"slacktide[cluster,stream,console] @ {wheel.as_uri()}"
    _run(uv, "pip", "install", "--python", sys.executable, *how, "--target", site, wanted)
    layer = Layer()
    shell(layer)
    python(layer)
    library(layer, site, SITE)
    run = "import sys; from slacktide.deploy.cli.main import main; sys.exit(main())"
    layer.text("/bin/slacktide", f"#!/bin/sh\nPYTHONPATH={SITE} exec python -c '{run}' \"$@\"\n")
    made = folder / "slacktide.tar"
    archive(made, name, layer.done(), ["/bin/slacktide"])
    return made
