"""Reads a node's zones and exclusive CPUs from the kernel, and the kubelet's state. Unreadable sources are listed.

One gRPC call over the kubelet's socket, to its podresources API, is made in plain HTTP/2 frames. Reading: RFC 9113, RFC
7541 and gRPC's PROTOCOL-HTTP2; kubernetes v1.34.4, pkg/kubelet/apis/podresources. A gRPC library would add 20 MiB to
each agent.
"""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

import msgspec

from slacktide.agents.files import Stamp, load_yaml, stamp_of
from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.apply import CpusetHolder
from slacktide.agents.node.cgroup.container_cpu import container_groups
from slacktide.agents.node.cgroup.hierarchy import GUARANTEED, Hierarchy
from slacktide.agents.node.cgroup.kernel import processors
from slacktide.agents.node.cgroup.plan import CPUSET_FILE, Cpus
from slacktide.agents.node.zones.kubelet import (
    CPU_STATE,
    MEMORY_STATE,
    KubeletConfig,
    cpu_state,
    kubelet_config,
    memory_state,
)
from slacktide.agents.node.zones.record import DEVICE_STATE, DeviceState, Read, SysZone, held_devices, zoned_devices
from slacktide.schemas.errors import ConfigError, ZonesError
from slacktide.schemas.inventory import Pod, Processor
from slacktide.schemas.sample import Missing
from slacktide.schemas.zones import ZONES_MAX
from slacktide.streams.decisions.cpu_list import cpu_ranges

SOCKET = "pod-resources/kubelet.sock"
METHOD = b"/v1.PodResourcesLister/GetAllocatableResources"
ANSWER_S = 2.0
BYTES_MAX = 16 * 1024 * 1024
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY, _WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x7, 0x8
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED = 0x4, 0x8
_STREAM = 1
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_MESSAGE_HEAD = 5


class _Frame(NamedTuple):
    kind: int
    flags: int
    payload: bytes


def allocatable_resources(path: Path) -> bytes:
    """Call GetAllocatableResources. Return the ``AllocatableResourcesResponse`` in protobuf.

    Raises:
        ZonesError: no answer, an error, or a torn answer.
    """
    headers = (
        b"\x83\x86"  # :method POST, :scheme http
        + _text(b"\x04", METHOD)
        + _text(b"\x01", b"localhost")
        + _text(b"\x0f\x10", b"application/grpc")
        + b"\x00" + _text(_text(b"", b"te"), b"trailers")
    )  # fmt: skip
    # Flow-control windows large enough for the answer, headers, and an empty message.
    question = (
        _PREFACE
        + _frame(_SETTINGS, payload=b"\x00\x04" + BYTES_MAX.to_bytes(4, "big"))
        + _frame(_WINDOW_UPDATE, payload=BYTES_MAX.to_bytes(4, "big"))
        + _frame(_HEADERS, _END_HEADERS, _STREAM, headers)
        + _frame(_DATA, _END_STREAM, _STREAM, bytes(_MESSAGE_HEAD))
    )
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(ANSWER_S)
            line.connect(str(path))
            line.sendall(question)
            answer = _answer(line)
    except (OSError, EOFError, ValueError) as exc:
        raise ZonesError(f"{path}", getattr(exc, "strerror", None) or str(exc)) from exc
    return answer


def _text(name: bytes, value: bytes) -> bytes:
    """Return a literal header field without indexing; its value has fewer than 127 bytes."""
    return name + bytes([len(value)]) + value


def _frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _answer(line: socket.socket) -> bytes:
    """Read the message. Headers are ignored: an answer without a message is an error."""
    data = b""
    for frame in _frames_of_call(line):
        padded, payload = frame.flags & _PADDED, frame.payload
        if frame.kind == _DATA:
            data += payload[1 : len(payload) - payload[0]] if padded else payload
        if len(data) > BYTES_MAX:
            raise ValueError(f"an answer of more than {BYTES_MAX} bytes")
    if not data:
        raise ValueError("the kubelet answered the call with an error")
    message = data[_MESSAGE_HEAD:]
    if data[0] or int.from_bytes(data[1:_MESSAGE_HEAD], "big") != len(message):
        raise ValueError("an incomplete answer")
    return message


def _frames_of_call(line: socket.socket) -> Iterator[_Frame]:
    """Header and data frames to the end of the answer."""
    with line.makefile("rb") as stream:
        while True:
            head = _exactly(stream.read(9), 9)
            size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            payload = _exactly(stream.read(size), size)
            if kind == _SETTINGS and not flags & _ACK:
                line.sendall(_frame(_SETTINGS, _ACK))
            elif kind in {_RST_STREAM, _GOAWAY}:
                raise ValueError("the kubelet ended the call")
            elif kind in {_DATA, _HEADERS}:
                yield _Frame(kind, flags, payload)
                if flags & _END_STREAM:
                    return


def _exactly(found: bytes, size: int) -> bytes:
    if len(found) < size:
        raise EOFError("the kubelet closed the connection")
    return found


KIB = 1024
_SIZES = ((KIB**2, "Gi"), (KIB, "Mi"), (1, "Ki"))


def sys_zones(folder: Path) -> list[SysZone]:
    """Return the online zones, by id. Ids may have gaps. Raises ZonesError if a file is missing, torn or malformed."""
    online = sorted(_cpus(folder / "online"))
    if online and online[-1] >= ZONES_MAX:
        raise ZonesError(f"{folder / 'online'}", f"zone {online[-1]}: accepted: 0 to {ZONES_MAX - 1}")
    return [_zone(folder / f"node{number}", number, online) for number in online]


def _zone(place: Path, number: int, online: list[int]) -> SysZone:
    cpus, mem_bytes = _cpus(place / "cpulist"), _mem_bytes(place / "meminfo")
    hugepages_bytes = {}  # without the folder the kernel has none
    for pages in sorted((place / "hugepages").glob("hugepages-*kB")):
        size_kib = _number(pages.name.removeprefix("hugepages-").removesuffix("kB").encode(), pages)
        unit, name = next((unit, name) for unit, name in _SIZES if size_kib % unit == 0)
        count = _number(_read(pages / "nr_hugepages").strip(), pages / "nr_hugepages")
        hugepages_bytes[f"{size_kib // unit}{name}"] = count * size_kib * KIB
    # One distance for each online zone, ascending by id without gaps.
    row = [_number(word, place / "distance") for word in _read(place / "distance").split()]
    if len(row) != len(online):
        why = f"{len(row)} distances: accepted: {len(online)}, one for each online zone"
        raise ZonesError(f"{place / 'distance'}", why)
    distances = dict(zip(online, row, strict=True))
    return SysZone(
        id=number,
        cpus=cpus,
        mem_bytes=mem_bytes,
        hugepages_bytes=hugepages_bytes,
        distances=distances,
        processors=_processors(place.parent.with_name("cpu"), cpus, number),
    )


@lru_cache(maxsize=ZONES_MAX)
def _processors(folder: Path, cpus: frozenset[int], zone: int) -> Sequence[Processor]:
    """Return a zone's CPUs with their cores. These change only with the CPUs that are online."""
    return [msgspec.structs.replace(one, numa_node=zone) for one in processors(folder, cpus)]


def _mem_bytes(file: Path) -> int:
    for line in _read(file).splitlines():
        words = line.split()
        if len(words) == 5 and words[2] == b"MemTotal:" and words[4] == b"kB":
            return _number(words[3], file) * KIB
    raise ZonesError(f"{file}", "no line MemTotal in kB")


def _cpus(file: Path) -> frozenset[int]:
    try:
        return parse.cpus(_read(file))
    except ValueError as exc:
        raise ZonesError(f"{file}", str(exc)) from exc


def _number(word: bytes, file: Path) -> int:
    if not word.isdigit() or len(word) > 15:
        raise ZonesError(f"{file}", f"{word[:40]!r}: accepted: a number")
    return int(word)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as exc:
        raise ZonesError(f"{file}", exc.strerror or str(exc)) from exc


CONFIG = "config.yaml"
ZONES, CONFIGURATION, DEVICES = "zones", "kubelet configuration", "devices"
ZONE_SOURCES = (ZONES, CPU_STATE, MEMORY_STATE, CONFIGURATION, DEVICES)
TRIES = 3
"""Tries of reading files that the kubelet is writing. Another record follows a second later."""
S = TypeVar("S")


class ZonesReader:
    """Reads a node's zones repeatedly.

    It parses the configuration only when its file changes, since YAML costs most. It requests devices from the kubelet
    only when its checkpoint changes, or if it did not answer.
    """

    def __init__(self, sys_folder: Path, kubelet_folder: Path) -> None:
        self._sys = sys_folder
        self._kubelet = kubelet_folder
        self._config: tuple[Stamp | None, KubeletConfig | None, list[Missing]] | None = None
        self._devices: tuple[Stamp | None, DeviceState | None, list[Missing]] | None = None

    def stamps(self) -> tuple[Stamp | None, ...]:
        """Return when the kubelet's files changed; None: no such file. Cheap."""
        return tuple(stamp_of(self._kubelet / name) for name in (CPU_STATE, MEMORY_STATE, CONFIG, DEVICE_STATE))

    def read(self) -> Read:
        """Read everything as of one time. With a torn state file there are no zones: free resources are unknown."""
        before, read = self.stamps(), self._read()
        for _ in range(TRIES - 1):
            after = self.stamps()
            if after == before:
                break
            before, read = after, self._read()
        return read

    def _read(self) -> Read:
        missing: list[Missing] = []
        zones: list[SysZone] = []
        try:
            zones = sys_zones(self._sys)
        except ZonesError as exc:
            missing.append(Missing(what=ZONES, why=str(exc)))
        cpu = _state(self._kubelet / CPU_STATE, cpu_state, missing)
        memory = _state(self._kubelet / MEMORY_STATE, memory_state, missing)
        known = not missing
        (config, unread), (devices, unasked) = self._configured(), self._devices_held()
        return Read(
            zones=zones if known else [],
            config=config,
            cpu=cpu,
            memory=memory,
            devices=devices,
            missing=[*missing, *unread, *unasked],
        )

    def _configured(self) -> tuple[KubeletConfig | None, list[Missing]]:
        file = self._kubelet / CONFIG
        stamp = stamp_of(file)
        if self._config is None or stamp is None or self._config[0] != stamp:
            missing: list[Missing] = []
            self._config = stamp, _config(file, missing), missing
        return self._config[1:]

    def _devices_held(self) -> tuple[DeviceState | None, list[Missing]]:
        stamp = stamp_of(self._kubelet / DEVICE_STATE)
        if self._devices is None or self._devices[0] != stamp or self._devices[2]:
            missing: list[Missing] = []
            self._devices = stamp, _devices(self._kubelet, missing), missing
        return self._devices[1:]


def _state(file: Path, parse: Callable[[bytes], S], missing: list[Missing]) -> S | None:
    """Parse a state file. Without it the manager has never assigned anything."""
    try:
        return parse(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as exc:
        missing.append(Missing(what=file.name, why=f"{file}: {exc.strerror}"))
    except ZonesError as exc:
        missing.append(Missing(what=file.name, why=f"{file.parent}/{exc}"))
    return None


def _devices(folder: Path, missing: list[Missing]) -> DeviceState | None:
    """Read devices. Without a checkpoint no device plugin has registered. Zones are published without devices, too."""
    try:
        held = held_devices((folder / DEVICE_STATE).read_bytes())
        return DeviceState(zones=zoned_devices(allocatable_resources(folder / SOCKET)), held=held)
    except FileNotFoundError:
        return None
    except OSError as exc:
        why = f"{folder / DEVICE_STATE}: {exc.strerror}"
    except ZonesError as exc:
        why = str(exc)
    missing.append(Missing(what=DEVICES, why=why))
    return None


def _config(file: Path, missing: list[Missing]) -> KubeletConfig | None:
    try:
        return kubelet_config(load_yaml(file))
    except ConfigError as exc:
        why = str(exc)
    except ZonesError as exc:
        why = f"{file}: {exc}"
    missing.append(Missing(what=CONFIGURATION, why=why))
    return None


def whole_cpus(limit_milli: int | None) -> int:
    """Return the number of CPUs of a limit; 0: no limit, or not whole CPUs."""
    return 0 if not limit_milli or limit_milli % 1000 else limit_milli // 1000


class ExclusiveCpus:
    """Exclusive CPUs of pods on one node. Without ``kubelet_folder`` only cpusets are read."""

    def __init__(self, hierarchy: Hierarchy, kubelet_folder: Path | None) -> None:
        self._hierarchy = hierarchy
        self._file = None if kubelet_folder is None else kubelet_folder / CPU_STATE
        self._stamp: Stamp | None = None
        self._of_file: Mapping[str, str] | None = None

    @property
    def watched(self) -> bool:
        """Whether there is a kubelet file to watch."""
        return self._file is not None

    def changed(self) -> bool:
        """Return whether the kubelet's file has changed since it was read. Cheap."""
        return self._file is not None and stamp_of(self._file) != self._stamp

    def look(self, pods: Sequence[Pod]) -> Mapping[str, str]:
        """Return the CPU lists such as ``2-3``, by pod uid. If the file is torn, the last valid content counts."""
        if self._file is not None:
            self._stamp = stamp_of(self._file)
            with suppress(OSError, ZonesError):
                held = cpu_state(self._file.read_bytes())
                self._of_file = {uid: cpu_ranges(cpus) for uid, cpus in held.exclusive.items() if cpus}
            if self._stamp is not None and self._of_file is not None:
                return self._of_file
        return {uid: cpu_ranges(cpus) for uid, cpus in self._of_cpusets(pods)}

    def _of_cpusets(self, pods: Sequence[Pod]) -> Iterator[tuple[str, Cpus]]:
        """Exclusive CPUs by cpuset: a Guaranteed container with as many CPUs as it requests, and not all CPUs."""
        root = self._hierarchy.cpuset
        # CPUs that a scheduler chose are in the pod's annotation.
        guaranteed = [pod for pod in pods if pod.kube_qos == "Guaranteed" and not pod.cpuset]
        wanted = [pod for pod in guaranteed if any(whole_cpus(one.limits.cpu_milli) for one in pod.containers)]
        if root is None or not wanted:
            return
        allowed = CpusetHolder(self._hierarchy, root).allowed()
        groups: dict[str, str] = {}
        with suppress(OSError):
            groups = dict(self._hierarchy.pod_groups(GUARANTEED))
        for pod in wanted:
            if pod.uid not in groups:
                continue
            found = Cpus()
            there = container_groups(self._hierarchy, root, PurePosixPath(groups[pod.uid]), pod)
            for container in pod.containers:
                if container.name in there:
                    with suppress(OSError, ValueError):
                        cpus = parse.cpus((root / there[container.name] / CPUSET_FILE).read_bytes())
                        if cpus < allowed and len(cpus) == whole_cpus(container.limits.cpu_milli):
                            found |= cpus
            if found:
                yield pod.uid, found
