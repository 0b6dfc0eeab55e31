"""Reads a node's zones, and what its kubelet makes of them. What cannot be read is named, and never guessed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from slacktide.agents.files import load_yaml
from slacktide.agents.node.zones.kubelet_config import KubeletConfig, kubelet_config
from slacktide.agents.node.zones.kubelet_state import CPU_STATE, MEMORY_STATE, cpu_state, memory_state
from slacktide.agents.node.zones.record import Read
from slacktide.agents.node.zones.sysfs import SysZone, sys_zones
from slacktide.schemas.errors import ConfigError, ZonesError
from slacktide.schemas.sample import Missing

CONFIG = "config.yaml"
S = TypeVar("S")


def read_zones(sys_folder: Path, kubelet_folder: Path) -> Read:
    """Read all of it once.

    A zone whose pods cannot be known is no zone to place pods in: with a torn state file there are none.

    Args:
        sys_folder: /sys/devices/system/node.
        kubelet_folder: the kubelet's root directory, /var/lib/kubelet.

    """
    missing: list[Missing] = []
    zones = _zones(sys_folder, missing)
    cpu = _state(kubelet_folder / CPU_STATE, cpu_state, missing)
    memory = _state(kubelet_folder / MEMORY_STATE, memory_state, missing)
    known = not missing
    config = _config(kubelet_folder / CONFIG, missing)
    return Read(zones=zones if known else [], config=config, cpu=cpu, memory=memory, missing=missing)


def _zones(folder: Path, missing: list[Missing]) -> list[SysZone]:
    try:
        return sys_zones(folder)
    except ZonesError as exc:
        missing.append(Missing(what="zones", why=str(exc)))
        return []


def _state(file: Path, parse: Callable[[bytes], S], missing: list[Missing]) -> S | None:
    """Without the file the manager has never held anything."""
    try:
        return parse(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as exc:
        missing.append(Missing(what=file.name, why=f"{file}: {exc.strerror}"))
    except ZonesError as exc:
        missing.append(Missing(what=file.name, why=f"{file.parent}/{exc}"))
    return None


def _config(file: Path, missing: list[Missing]) -> KubeletConfig | None:
    try:
        return kubelet_config(load_yaml(file))
    except ConfigError as exc:
        why = str(exc)
    except ZonesError as exc:
        why = f"{file}: {exc}"
    missing.append(Missing(what="kubelet configuration", why=why))
    return None
