"""Saves policy, facts and pods for a start without Kafka."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from slacktide.agents.files import write_whole
from slacktide.agents.node.suspend import KEPT
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.message import Message
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import PressureGate

log = logging.getLogger(__name__)
M = TypeVar("M", bound=Message)
GATE_KEPT_NS = 30_000_000_000
"""Minimum interval of saving the gate, except at a clean exit."""


class KeptInventory(Message, frozen=True, kw_only=True):
    """The last facts and pods."""

    facts: NodeFacts
    pods: list[Pod]
    from_kafka: bool = msgspec.field(name="told", default=False)


class State:
    """Four files in the agent's state folder, each replaced atomically. Never raises."""

    def __init__(self, folder: Path) -> None:
        self._policy = folder / "policy.json"
        self._inventory = folder / "inventory.json"
        self._gate = folder / "gate.json"
        self._forecast = folder / "forecast.json"
        self._written: dict[Path, bytes] = {}
        self._gate_ns = -GATE_KEPT_NS

    def policy(self) -> Policy | None:
        """Return the last valid policy; None: none is saved."""
        return self._read(self._policy, Policy)

    def inventory(self) -> KeptInventory | None:
        """Return the last facts and pods; None: none are saved."""
        return self._read(self._inventory, KeptInventory)

    def gate(self) -> PressureGate | None:
        """Return the gate of rule ``cpu_pressure``; None: none is saved."""
        return self._read(self._gate, PressureGate)

    def forecast(self) -> NodeForecast | None:
        """Return the node's usage models; None: none are saved."""
        return self._read(self._forecast, NodeForecast, again=True)

    def keep_forecast(self, forecast: NodeForecast) -> None:
        """Save the models. They always differ, so the last ones are not compared."""
        self._write(self._forecast, forecast, again=True)

    def keep_gate(self, gate: PressureGate, mono_ns: int | None = None) -> None:
        """Save the gate of rule ``cpu_pressure``, at least 30 s apart by ``mono_ns``; None: at exit, always write."""
        if mono_ns is not None:
            if mono_ns - self._gate_ns < GATE_KEPT_NS:
                return
            self._gate_ns = mono_ns
        self._write(self._gate, gate)

    def keep_policy(self, policy: Policy) -> None:
        """Save the policy in force."""
        self._write(self._policy, policy)

    def keep_inventory(self, facts: NodeFacts, pods: Sequence[Pod], *, from_kafka: bool = False) -> None:
        """Save facts and pods; ``from_kafka``: the facts come from Kafka."""
        self._write(self._inventory, KeptInventory(facts=facts, pods=list(pods), from_kafka=from_kafka))

    def _read(self, path: Path, kind: type[M], *, again: bool = False) -> M | None:
        try:
            content = path.read_bytes()
            found = decode(content, kind)
        except FileNotFoundError:
            return None
        except (OSError, BadMessageError) as exc:
            log.warning("the stored state is lost", extra={"file": str(path), "why": str(exc)})
            return None
        if not again:
            self._written[path] = content
        return found

    def _write(self, path: Path, message: Message, *, again: bool = False) -> None:
        content = encode(message)
        if self._written.get(path) == content:
            return
        try:
            write_whole(path, content)
        except OSError as exc:
            log.warning("could not be stored for the next start", extra={"file": str(path), "why": str(exc)})
            return
        if not again:
            self._written[path] = content


def forget(folder: Path) -> None:
    """Delete the state folder, or empty a mounted volume, so that no later installation uses it. Never raises."""
    names = (
        "starts",
        "policy.json",
        "inventory.json",
        "gate.json",
        "forecast.json",
        "knobs.json",
        "cgroup-originals.json",
        "proof-key.json",
        KEPT,
    )
    for file in [*(folder / name for name in names), *folder.glob("machine-*.yaml")]:
        with suppress(OSError):
            file.unlink()
    shutil.rmtree(folder / "spool", ignore_errors=True)
    with suppress(OSError):
        (folder / "lock").unlink()
        folder.rmdir()
