"""An agent's state folder: its lock, the boot id, and what is saved for a start without Kafka."""

import asyncio
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from slacktide.agents.files import write_whole
from slacktide.schemas.bounds import PODS_MAX
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import BadMessageError, SlacktideError
from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.message import Message
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import PressureGate
from slacktide.schemas.service import Permille, Service

log = logging.getLogger(__name__)
LOCK_LOOK_S = 0.2
_COUNTER = re.compile(r"[0-9]{1,12}\n?")


class Identity:
    """A boot id, and the folder's lock for the life of the process."""

    def __init__(self, folder: Path, *, start_ms: int) -> None:
        """Lock the folder, which is created if absent, and count this start.

        If the counter is lost, the start time in seconds replaces it. That is above any count, so later ids are higher.

        Raises:
            InUseError: another agent uses the folder.
            SlacktideError: it is unusable.
        """
        self._lock: int | None = _locked(folder)
        file, last = folder / "starts", None
        with suppress(OSError):
            text = file.read_bytes()[:32].decode("ascii", errors="replace")
            last = int(text) if _COUNTER.fullmatch(text) else None
        count = start_ms // 1000 if last is None else last + 1
        try:
            write_whole(file, f"{count}\n".encode())
        except OSError as exc:
            self.release()
            raise SlacktideError(
                f"{file}: cannot write the start counter: {exc.strerror}; give the agent a writable folder with "
                "--state-folder"
            ) from exc
        self.boot_id = f"{count:012d}-{os.urandom(4).hex()}"

    def release(self) -> None:
        """Unlock the folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


class InUseError(SlacktideError):
    """Another agent uses the state folder."""


async def identity_of(folder: Path, stop: asyncio.Event, *, start_ms: int, wait_s: float) -> Identity:
    """Wait up to ``wait_s``, or until ``stop``, for an agent that uses the folder to stop; then lock it.

    Raises as Identity.
    """
    try:
        return Identity(folder, start_ms=start_ms)
    except InUseError:
        if not wait_s:
            raise
        log.info("another agent uses the state folder; waiting for it to stop", extra={"seconds": wait_s})
    for _ in range(round(wait_s / LOCK_LOOK_S)):
        with suppress(TimeoutError):
            async with asyncio.timeout(LOCK_LOOK_S):
                await stop.wait()
        if stop.is_set():
            break
        with suppress(InUseError):
            return Identity(folder, start_ms=start_ms)
    return Identity(folder, start_ms=start_ms)


def _locked(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise SlacktideError(
            f"{folder}: not usable as state folder: {exc.strerror}; give another with --state-folder"
        ) from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(lock)
        raise InUseError(
            f"{folder}: another agent uses this state folder; stop it, or give this agent its own with --state-folder"
        ) from exc
    return lock


M = TypeVar("M", bound=Message)
GATE_KEPT_NS = 30_000_000_000
"""Minimum interval of saving the gate, except at a clean exit."""


class KeptInventory(Message, frozen=True, kw_only=True):
    """The last facts and pods."""

    facts: NodeFacts
    pods: list[Pod]
    from_kafka: bool = msgspec.field(name="told", default=False)


class KeptSlopes(Message, frozen=True, kw_only=True):
    """The last slopes of the node's own services, in thousandths."""

    slopes: Annotated[dict[Service, Permille], msgspec.Meta(max_length=PODS_MAX)]


class State:
    """Five files in the agent's state folder, each replaced atomically. Never raises."""

    def __init__(self, folder: Path) -> None:
        self._policy = folder / "policy.json"
        self._inventory = folder / "inventory.json"
        self._gate = folder / "gate.json"
        self._forecast = folder / "forecast.json"
        self._slopes = folder / "slopes.json"
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

    def slopes(self) -> dict[str, int]:
        """Return the last slopes of the node's own services, in thousandths; empty: none are saved."""
        kept = self._read(self._slopes, KeptSlopes)
        return {} if kept is None else kept.slopes

    def keep_slopes(self, slopes: Mapping[str, int]) -> None:
        """Save these slopes of the node's own services, in thousandths: the largest, if there are very many."""
        if slopes or self._slopes.exists():
            largest = sorted(slopes, key=lambda one: (-slopes[one], one))[:PODS_MAX]
            self._write(self._slopes, KeptSlopes(slopes={one: slopes[one] for one in sorted(largest)}))

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
        "slopes.json",
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


ANNOTATION = "slacktide.io/suspend"
FILE = "suspend"
"""File in the agent's state folder. Creating it suspends the node."""
KEPT = "suspend-annotation"
"""File in the agent's state folder: the last value of the annotation from the API server."""
OFF = "false"
"""The only value of the annotation that does not suspend: a mistyped ``yes`` must not leave limits in force."""
By = Literal["annotation", "file", "policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """What suspends a node."""

    by: By
    reason: str


class Switch:
    """One node's switch. Never raises. If ``watched``, only annotations from the API server count."""

    def __init__(self, folder: Path, *, watched: bool) -> None:
        self._file, self._kept = folder / FILE, folder / KEPT
        self._watched = watched
        self._value = self._read() if watched else None
        self._last: Suspended | None = None

    def shown(self, annotations: Mapping[str, str]) -> None:
        """Record the node's annotations from the API server."""
        value = annotations.get(ANNOTATION)
        if value == self._value:
            return
        self._value = value
        try:
            if value is None:
                self._kept.unlink(missing_ok=True)
            else:
                write_whole(self._kept, value.encode())
        except OSError as exc:
            log.warning("could not be stored for the next start", extra={"file": str(self._kept), "why": str(exc)})

    def suspended(self, annotations: Mapping[str, str], policy: Policy) -> Suspended | None:
        """Return what suspends the node, or None. ``annotations`` count only if none come from the API server."""
        value = self._value if self._watched else annotations.get(ANNOTATION)
        if value is not None and value != OFF:
            return Suspended(by="annotation", reason=f"the node's annotation {ANNOTATION}: {value[:40]!r}")
        with suppress(OSError):
            if self._file.exists():
                return Suspended(by="file", reason=f"the file {self._file}")
        if policy.agent.suspend:
            return Suspended(by="policy", reason='"suspend": true in agent-config of the policy')
        return None

    def changed_to(self, now: Suspended | None) -> bool:
        """Return and log whether this is not what it was."""
        before, self._last = self._last, now
        if now == before:
            return False
        if now is None:
            log.warning("the node is no longer suspended", extra={"before": "" if before is None else before.reason})
        else:
            log.warning("the node is suspended: limits are lifted, no pod is evicted", extra={"by": now.reason})
        return True

    def _read(self) -> str | None:
        with suppress(OSError, UnicodeDecodeError):
            return self._kept.read_text()
        return None
