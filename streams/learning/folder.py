"""Folds all services of one partition: minutes and latencies in, profiles and slopes out. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar, get_args

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.proof import PROVEN
from slacktide.schemas.proof import Verdict as ProofVerdict
from slacktide.schemas.service import ServiceMinute, ServiceProfile, ServiceSli
from slacktide.schemas.topics import SERVICE_PROFILE, SERVICE_SLI, SERVICE_SLOPE
from slacktide.streams.learning.fold import ServiceFold, unknown
from slacktide.streams.learning.sums import HOUR_MS, MINUTE_MS, Ignored
from slacktide.streams.proofs import Proofs, reason
from slacktide.streams.records import Out, Record, Writer, dead_letter_of_unwritten, event, letters_of_each, text_of

Of = TypeVar("Of", ServiceMinute, ServiceSli)
SOURCE: Final = "stream"
ELSEWHERE: Final = "elsewhere"
"""The service is of another partition. There its nodes' minutes are; here one node alone would set its slope."""
IGNORED: Final = (
    *get_args(Ignored),
    ELSEWHERE,
    *(reason(verdict) for verdict in get_args(ProofVerdict) if verdict not in PROVEN),
)
"""Why a minute or a latency is in no profile."""
SERVICES_MAX: Final = 5_000
"""Of a partition. With 12 partitions, a cluster has 60,000."""
SUMS_MAX: Final = 100_000
"""Nodes of all services of a partition, in some 40 MB. 10,000 nodes with 30 services each have a quarter of it."""
PUBLISH_MS: Final = MINUTE_MS
"""A service's profile is published at most once in this time, by the worker's clock."""
DUE_SUMS_MAX: Final = 1_000
"""Nodes in the profiles of one call, a few milliseconds of work: samples are answered in the same process. The profiles
of 60,000 nodes of services are a minute's."""
QUIET_MS: Final = HOUR_MS
SILENT_MS: Final = 7 * 24 * HOUR_MS
"""A service without minutes for so long, by append time, is forgotten."""


class Folder:
    """Folds one partition, from its profiles in slacktide.service.profile.v1.

    ``proofs``: of minutes; None: none is required. ``mine``: whether a service is of this partition; None: all are.
    """

    def __init__(
        self,
        partition: int,
        profiles: Iterable[Record],
        proofs: Proofs | None = None,
        mine: Callable[[str], bool] | None = None,
    ) -> None:
        self._partition = partition
        self._proofs, self._mine = proofs or Proofs(Writer(SOURCE)), mine
        self._folds = {service: ServiceFold(profile) for service, profile in profiles_of(profiles).items()}
        self._written = {service: fold.folded_to for service, fold in self._folds.items()}
        """Last folded offset of each published profile."""
        self._pending: dict[str, int] = {}
        """Offset of the first minute that is in no published profile, in order."""
        self._again: set[str] = set()
        self._unsure = set(self._folds)
        """Services whose slope a killed worker may have published without the profile, or the other way round."""
        self._published_ms: dict[str, int] = {}
        self._dropped: list[Out] = []
        """Tombstones of services that made room, and dead letters of minutes without proof."""
        self._sums = sum(map(len, self._folds.values()))
        self._appended_ms = self._swept_ms = 0
        self.verdicts: Counter[str] = Counter()
        """Minutes and latencies since the reader of this cleared it, without invalid ones."""

    def __len__(self) -> int:
        return len(self._folds)

    def take(self, records: Iterable[Record], now_ms: int) -> list[Out]:
        """Fold records in order; return dead letters for invalid ones."""
        return letters_of_each(records, self._take, reader=SOURCE, now_ms=now_ms)

    def due(self, now_ms: int) -> list[Out]:
        """Return profiles that are due, each after its slope if that changed; forget silent services."""
        outs = self._dropped + [out for service in self._silent() for out in self._forgotten(service)]
        self._dropped = []
        sums = 0
        for service in [*sorted(self._again), *(one for one in self._pending if self._is_due(one, now_ms))]:
            if sums >= DUE_SUMS_MAX:
                break
            if service not in self._again and service not in self._pending:
                continue
            sums += len(self._folds[service])
            outs += self._outs(service, now_ms)
        return outs

    def cursor(self, position: int) -> int:
        """Return the offset from which to read minutes again, after what is due is published."""
        return next(iter(self._pending.values()), position)

    def overtaken(self, profiles: Iterable[Record]) -> None:
        """Publish again the profiles and slopes that a former worker of the partition overwrote late."""
        for service, profile in profiles_of(profiles).items():
            if service in self._folds and profile.folded_to < self._written.get(service, -1):
                self._again.add(service)

    def _take(self, record: Record) -> None:
        self.verdicts[self._verdict(record)] += 1

    def _verdict(self, record: Record) -> str:
        """Fold a record. Return "folded", or one of ``IGNORED``."""
        if record.topic == SERVICE_SLI.name:
            sli = _keyed(record, decode(record.value, ServiceSli))
            known = self._folds.get(sli.service)
            # It is published with the next minute of the service.
            return "unknown" if known is None else known.take_latency(sli, record.timestamp_ms)
        minute = decode(record.value, ServiceMinute)
        if why := self._proofs.refused(record, self._dropped, minute.node):
            return why
        fold = self._folds.get(_keyed(record, minute).service)
        if fold is None and self._mine is not None and not self._mine(minute.service):
            return ELSEWHERE
        self._appended_ms = max(self._appended_ms, record.timestamp_ms)
        if not self._has_room(fold, minute.node, record.timestamp_ms):
            return "crowded"
        fold = fold or ServiceFold()
        before = len(fold)
        verdict = fold.take(minute, record.offset, record.timestamp_ms)
        if verdict == "folded":
            self._folds[minute.service] = fold
            self._sums += len(fold) - before
            self._pending.setdefault(minute.service, record.offset)
        return verdict

    def _has_room(self, fold: ServiceFold | None, node: str, now_ms: int) -> bool:
        """Check the bounds. A service without minutes for ``QUIET_MS`` is dropped for a new one."""
        if fold is not None and node in fold:
            return True
        if (fold is not None or len(self._folds) < SERVICES_MAX) and self._sums < SUMS_MAX:
            return True
        oldest = min(self._folds, key=lambda service: self._folds[service].observed_ms)
        if now_ms - self._folds[oldest].observed_ms < QUIET_MS:
            return False
        self._dropped += self._forgotten(oldest)
        return True

    def _is_due(self, service: str, now_ms: int) -> bool:
        """Check the interval. A worker's clock that goes back does not stop it."""
        return not 0 <= now_ms - self._published_ms.get(service, -PUBLISH_MS) < PUBLISH_MS

    def _outs(self, service: str, now_ms: int) -> list[Out]:
        """Return the service's slope, if it is new, and its profile; or a dead letter if they cannot be computed."""
        again = service in self._again
        self._again.discard(service)
        self._pending.pop(service, None)
        self._published_ms[service] = now_ms
        fold = self._folds[service]
        before = len(fold)
        try:
            changed = fold.slope_out(self._partition) is not None
            slope, profile = self._slope(fold, service), self._profile(fold, service, fold.profile())
        except Exception as exc:  # noqa: BLE001 - one service's profile: the others are published
            topic, why = SERVICE_PROFILE.name, failure("write a profile", exc)
            letter = dead_letter_of_unwritten(topic, self._partition, service, writer=SOURCE, reason=why, now_ms=now_ms)
            return [letter]
        self._written[service] = fold.folded_to
        self._sums += len(fold) - before
        unsure = service in self._unsure
        self._unsure.discard(service)
        return [slope, profile] if changed or again or unsure else [profile]

    def _slope(self, fold: ServiceFold, service: str) -> Out:
        value = None if fold.published is None else encode(fold.published)
        return event(SERVICE_SLOPE.name, service, value, source=SOURCE, event_id=f"{service}/{fold.folded_to}",
                     event_ms=fold.observed_ms, partition=0)  # fmt: skip

    def _profile(self, fold: ServiceFold, service: str, profile: ServiceProfile | None) -> Out:
        value = None if profile is None else encode(profile)
        return event(SERVICE_PROFILE.name, service, value, source=SOURCE, event_id=f"{service}/{fold.folded_to}",
                     event_ms=fold.observed_ms, partition=self._partition)  # fmt: skip

    def _silent(self) -> list[str]:
        """Return the services to forget; looks once a minute of append time, which does not depend on this clock."""
        if self._appended_ms - self._swept_ms < MINUTE_MS:
            return []
        self._swept_ms = self._appended_ms
        return sorted(
            service for service, fold in self._folds.items() if self._appended_ms - fold.observed_ms > SILENT_MS
        )

    def _forgotten(self, service: str) -> list[Out]:
        fold = self._folds[service]
        outs = [self._profile(fold, service, None)]
        if fold.published is not None or service in self._unsure:
            fold.published = None
            outs.insert(0, self._slope(fold, service))
        self._sums -= len(fold)
        for kept in (self._folds, self._written, self._pending, self._published_ms):
            kept.pop(service, None)
        self._again.discard(service)
        self._unsure.discard(service)
        return outs


def _keyed(record: Record, message: Of) -> Of:
    """Return the message. Raises BadMessageError if its service is not the record's key, or no service's name."""
    kind = type(message).__name__
    if text_of(record.key or b"") != message.service:
        raise BadMessageError(kind, f"the record's key is not its service {message.service!r}")
    if "/" not in message.service:
        raise BadMessageError(kind, f"{message.service!r} is not namespace/owner")
    return message


def profiles_of(records: Iterable[Record]) -> dict[str, ServiceProfile]:
    """Return the last profile of each service. One that cannot be read is empty: it is learned again."""
    found: dict[str, ServiceProfile] = {}
    for record in records:
        service = text_of(record.key or b"")
        found.pop(service, None)
        if isinstance(record.value, bytes):
            found[service] = unknown(service)
            with suppress(BadMessageError):
                profile = decode(record.value, ServiceProfile)
                if profile.service == service:
                    found[service] = profile
    return found
