"""Which nodes exist, their inventory, and which agent of a node to trust. Pure.

The policy's ``node_source`` decides. ``inventory``: nodes with an inventory record in the partition. ``open``: also a
limited number of nodes that only send samples, for machines without a publisher and for recordings.

When samples of several boots arrive, times are append times. A node's own time counts only in this: a lower boot whose
samples are much older or newer than their append time is no second agent. Otherwise, whoever has recorded one sample of
an earlier start, with its proof, could repeat it and silence the node. A higher boot is trusted at once. If a lower
boot sends for longer than ``GRACE_MS``, two agents share one name, and neither is trusted. When only one of them has
sent for ``SILENT_MS``, it is trusted, even if its boot is the lower one. Otherwise, a forged high boot would lock out
the real agent.
"""

from dataclasses import dataclass, field
from typing import Literal

from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import NodeFacts, NodeInventory, with_slope_of
from slacktide.schemas.policy.message import NodeSource
from slacktide.streams.decisions.prediction.mid_forecast import HeldForecast

OPEN_NODES_MAX = 1_000
"""Default per worker. A node takes some 50 KB of its memory."""
UNKNOWN_NODE = "unknown node"
NO_INVENTORY = f"{UNKNOWN_NODE}: no inventory record; is the bridge running?"
FULL = f"{UNKNOWN_NODE}: this worker holds as many nodes as --open-nodes-max allows"


@dataclass(slots=True)
class Described:
    """A node's inventory record. Facts are decoded on first use: most nodes belong to other workers."""

    revision: str
    _value: bytes
    _facts: NodeFacts | None = None
    _offering: tuple[NodeFacts | None, NodeFacts] | None = None

    @property
    def facts(self) -> NodeFacts:
        """Return the node's facts for rules and policy."""
        if self._facts is None:
            self._facts = decode(self._value, NodeInventory).facts
            self._value = b""
        return self._facts

    def offering(self, own: NodeFacts | None) -> NodeFacts:
        """Return the facts that reclaimed resources are computed from. ``own``: of the node's sample.

        Equal facts are the same object: readers compare them by identity.
        """
        if self._offering is None or self._offering[0] is not own:
            found = with_slope_of(self.facts, own)
            before = None if self._offering is None else self._offering[1]
            self._offering = own, found if before is None or found != before else before
        return self._offering[1]


class Nodes:
    """The inventory of all partitions."""

    def __init__(self, open_max: int = OPEN_NODES_MAX) -> None:
        self.source: NodeSource = "open"
        self.open_max = open_max
        self._described: dict[int, dict[str, Described]] = {}
        self._forecasts: dict[int, dict[str, HeldForecast]] = {}
        self._removed: set[str] = set()
        """Nodes whose inventory was removed, while the source is ``open``."""

    def describe(self, partition: int, inventory: NodeInventory, value: bytes) -> None:
        """Keep a node's inventory; it is repeated every minute."""
        self._removed.discard(inventory.node)
        nodes = self._described.setdefault(partition, {})
        known = nodes.get(inventory.node)
        if known is None or known.revision != inventory.revision:
            nodes[inventory.node] = Described(inventory.revision, value)

    def hold_forecast(self, partition: int, node: str, held_forecast: HeldForecast) -> bool:
        """Keep a node's forecast unless there is a newer one; return whether it was kept."""
        nodes = self._forecasts.setdefault(partition, {})
        known = nodes.get(node)
        newer = known is None or held_forecast.order > known.order
        if newer:
            nodes[node] = held_forecast
        return newer

    def forecast_of(self, partition: int, node: str) -> HeldForecast | None:
        """Return a node's newest forecast; None: there is none in this partition."""
        return self._forecasts.get(partition, {}).get(node)

    def drop_forecasts(self, partition: int, node: str | None = None) -> None:
        """Forget a node's forecast; None: all of the partition, which was revoked."""
        if node is None:
            self._forecasts.pop(partition, None)
        else:
            self._forecasts.get(partition, {}).pop(node, None)

    def remove(self, partition: int, node: str) -> None:
        """Remove a node."""
        self.drop_forecasts(partition, node)
        self._described.get(partition, {}).pop(node, None)
        if self.source == "open":
            self._removed.add(node)

    def described(self, partition: int, node: str) -> Described | None:
        """Return a node's inventory; None: there is none in this partition."""
        return self._described.get(partition, {}).get(node)

    def may_exist(self, partition: int, node: str) -> bool:
        """Check whether state may be kept for a node."""
        return self.source == "open" or self.described(partition, node) is not None

    def may_publish(self, partition: int, node: str) -> bool:
        """Check whether a node's figures may be published; those of a removed node were withdrawn."""
        return self.may_exist(partition, node) and node not in self._removed

    def stranger(self, partition: int, node: str, held: int) -> str:
        """Return why no state may be kept for a new node; "" if it may. ``held``: nodes with state in this worker."""
        if self.described(partition, node) is not None:
            return ""
        if self.source == "inventory":
            return NO_INVENTORY
        return "" if held < self.open_max else FULL


GRACE_MS = 2_000
"""Samples of the boot before may arrive for this long: they were in flight at the restart."""
SILENT_MS = 15_000
"""A boot without samples for this long has ended."""
NEAR_MS = 10_000
"""A sample of an agent that runs is observed this near its append time, if the node's clock is right."""
BOOTS_MAX = 8
"""Lower boots that are remembered at once. A node has one, or two by mistake."""

TWO_BOOTS = "two boots"

Standing = Literal["believed", "older", "two boots"]


@dataclass(slots=True)
class _Sending:
    first_ms: int
    last_ms: int


@dataclass(slots=True)
class Boots:
    """The boots of one node. Times are append times, UTC epoch milliseconds."""

    believed: str = ""
    """The boot whose samples count; "": no sample yet."""
    two: bool = False
    """Whether two agents send samples under this name."""
    last_ms: int = 0
    """Append time of the newest sample of ``believed``."""
    _since_ms: int = 0
    """Append time of its first sample."""
    _others: dict[str, _Sending] = field(default_factory=dict)
    """Boots that sent after ``believed`` began."""
    _beaten: tuple[str, int] = ("", 0)
    """The higher boot that went silent while a lower one kept sending, and its last append time."""
    _far: tuple[str, int] = ("", 0)
    """The lower boot whose sample was last observed far from its append time, and when it was observed."""

    def see(self, boot_id: str, at_ms: int, observed_ms: int) -> Standing:
        """Judge a live sample, appended at ``at_ms``. Samples arrive in partition order, some of them repeatedly."""
        if boot_id == self.believed:
            self._since_ms = self._since_ms or at_ms
            self.last_ms = max(self.last_ms, at_ms)
        elif boot_id > self.believed:
            self._higher(boot_id, at_ms)
        elif at_ms > self._since_ms and self._runs(boot_id, at_ms, observed_ms):
            self._lower(boot_id, at_ms)
        if self._others:
            self._expire(at_ms)
        self.two = self.two and bool(self._others)
        if self.two:
            return "two boots"
        return "believed" if boot_id == self.believed else "older"

    def see_late(self, boot_id: str, at_ms: int, observed_ms: int) -> Standing:
        """Judge a sample that an agent buffered during an outage: an old boot does not mean a second agent."""
        if boot_id > self.believed:
            return self.see(boot_id, at_ms, observed_ms)
        return "believed" if boot_id == self.believed and not self.two else "older"

    def only(self, boot_id: str) -> bool:
        """Check whether this boot is trusted, and no other sends under the node's name."""
        return boot_id == self.believed and not self.two and not self._others

    def saw(self, at_ms: int) -> None:
        """Note a sample of the only boot, as ``see`` does."""
        self._since_ms = self._since_ms or at_ms
        self.last_ms = max(self.last_ms, at_ms)

    def adopt(self, boot_id: str) -> None:
        """Start with the boot that the previous owner trusted; another boot is trusted as soon as it sends."""
        if not self.believed:
            self.believed = boot_id

    @property
    def newest_ms(self) -> int:
        """Return the append time of the newest sample of any boot."""
        return max([self.last_ms, *(one.last_ms for one in self._others.values())])

    @property
    def reason(self) -> str:
        """Return why samples are skipped while two boots send."""
        boots = " and ".join(sorted({self.believed, *self._others}))
        return f"{TWO_BOOTS}: {boots} send samples of this node; stop all of its agents but one"

    def _higher(self, boot_id: str, at_ms: int) -> None:
        if boot_id == self._beaten[0] and at_ms <= self._beaten[1]:
            return  # repeated
        if self.two:
            self._others[self.believed] = _Sending(self._since_ms, self.last_ms)
        self._believe(boot_id, at_ms)

    def _runs(self, boot_id: str, at_ms: int, observed_ms: int) -> bool:
        """Check whether an agent of a lower boot runs: its time is near, or wrong and moves on where it is alone."""
        if abs(at_ms - observed_ms) <= NEAR_MS:
            return True
        (before, before_ms), self._far = self._far, (boot_id, observed_ms)
        return at_ms - self.last_ms >= SILENT_MS and boot_id == before and observed_ms > before_ms

    def _lower(self, boot_id: str, at_ms: int) -> None:
        if at_ms - self.last_ms >= SILENT_MS:
            self._beaten = self.believed, self.last_ms
            self._believe(boot_id, at_ms)
            return
        sending = self._others.get(boot_id)
        if sending is None:
            if len(self._others) == BOOTS_MAX:
                del self._others[min(self._others, key=lambda one: (self._others[one].last_ms, one))]
            self._others[boot_id] = _Sending(at_ms, at_ms)
            return
        sending.last_ms = max(sending.last_ms, at_ms)
        self.two = self.two or sending.last_ms - sending.first_ms > GRACE_MS

    def _believe(self, boot_id: str, at_ms: int) -> None:
        self.believed, self._since_ms, self.last_ms = boot_id, at_ms, at_ms
        self._others.pop(boot_id, None)

    def _expire(self, at_ms: int) -> None:
        begun = {self.believed: self._since_ms} | {boot_id: one.first_ms for boot_id, one in self._others.items()}
        # A boot that ended before a higher one began has restarted.
        begun = {boot_id: first_ms for boot_id, first_ms in begun.items() if at_ms - first_ms > GRACE_MS}
        self._others = {
            boot_id: one
            for boot_id, one in self._others.items()
            if at_ms - one.last_ms < SILENT_MS
            and not any(boot_id < other and one.last_ms <= first_ms for other, first_ms in begun.items())
        }
