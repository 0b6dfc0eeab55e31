"""Eviction credit for the descheduler, granted by the governor as to a node.

Credit is granted only on request, and only to the newest epoch, so that a former leader gets none.
"""

from __future__ import annotations

from collections.abc import Callable

from slacktide.agents.clock import Clock
from slacktide.agents.credit_account import CreditAccount
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import DESCHEDULER, EvictionCredit
from slacktide.schemas.errors import failure
from slacktide.schemas.outcome import Spent
from slacktide.schemas.topics import CREDIT
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record

ToDeadLetter = Callable[[Record, str], None]


class Account:
    """The account of one term. ``to_dead_letter`` receives invalid records, each with the reason."""

    def __init__(self, bootstrap: Cluster, epoch: int, to_dead_letter: ToDeadLetter, clock: Clock) -> None:
        self.boot_id = f"{epoch:012}-bridge"
        """Identifies the account; later terms sort higher."""
        self._credit_account = CreditAccount(self.boot_id)
        reader = TailReader(bootstrap, (CREDIT.name,), client_id="slacktide-bridge-credit")
        self._following = Following(reader, away="no pod is descheduled", clock=clock)
        self._to_dead_letter = to_dead_letter
        self._clock = clock
        self._read_ns = clock.mono_ns()
        """What was not read by then had not arrived."""

    @property
    def trouble(self) -> str:
        """Why credit cannot be read; "": it can."""
        return self._following.trouble

    @property
    def spent(self) -> Spent:
        """Spent credit."""
        return Spent(evictions=self._credit_account.spent, epoch=self._credit_account.epoch)

    async def run(self) -> None:
        """Read credit until cancelled."""
        await self._following.run(self._begun, self._receive)

    def ready(self, namespace: str) -> bool:
        """Return whether a pod of the namespace may be evicted now."""
        return self._credit_account.ready(self._clock.mono_ns(), namespace)

    def reserve(self) -> None:
        """Reserve credit before the request to the API server."""
        self._credit_account.reserve(self._clock.mono_ns())

    def settle(self, *, goes: bool) -> None:
        """Settle the reservation: whether the pod was evicted, or may have been."""
        self._credit_account.settle(goes=goes)

    def _begun(self) -> None:
        self._read_ns = self._clock.mono_ns()

    async def _receive(self, records: list[Record], now_s: float) -> None:
        for record in records:
            if record.key == DESCHEDULER.encode() and record.value is not None:
                try:
                    self._credit_account.receive(decode(record.value, EvictionCredit), self._read_ns)
                except Exception as exc:  # noqa: BLE001 - one record stops nothing
                    self._to_dead_letter(record, failure("count credit", exc))
        self._read_ns = round(now_s * 1e9)
