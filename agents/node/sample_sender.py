"""Sends samples of any size: plain, else compressed, else without pods and facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from slacktide.agents.node.envelopes import of_sample
from slacktide.schemas.bounds import PODS_MAX
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import RecordRefusedError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.sample import Missing, NodeSample
from slacktide.schemas.sample_columns import SampleFormat
from slacktide.schemas.topics import SAMPLE, SAMPLE_COLUMNS
from slacktide.streams.kafka import COMPRESSED_BYTES_MAX, PLAIN_BYTES_MAX, Placed, Sender
from slacktide.streams.records import Out

ROOM_BYTES = 1_024
"""Part of a record's size limit for key, headers and framing."""


class SampleSender:
    """Sends one node's samples in order. It connects for compressed records when the first one is due."""

    def __init__(
        self, bootstrap: Cluster, *, client_id: str, sign: Callable[[Out], Out], sample_format: SampleFormat
    ) -> None:
        self._sign = sign
        self._columns = sample_format == "v2"
        self._topic = SAMPLE_COLUMNS.name if self._columns else SAMPLE.name
        self._plain = Sender(bootstrap, client_id=client_id, acks=SAMPLE.acks)
        self._compressed = Sender(bootstrap, client_id=client_id, acks=SAMPLE.acks, compress=True)
        self.too_large = ""
        """Why the last pod list could not be sent; "": it was sent."""

    @property
    def connected(self) -> bool:
        """Whether ``send`` may be called."""
        return self._plain.connected

    async def connect(self) -> None:
        """Connect again. Raises LogError if Kafka is unavailable, or has no topic for samples."""
        await self._plain.connect([self._topic])

    def out_of(self, sample: NodeSample, pods: Sequence[Pod]) -> Out:
        """Return the unsigned record of a sample; ``pods``: those that it refers to."""
        return of_sample(sample, pods if self._columns else None)

    async def send(self, sample: NodeSample, pods: Sequence[Pod]) -> Placed:
        """Send one sample and wait for its acknowledgement. Drop pods and facts if it is too large.

        Raises:
            RecordRefusedError: Kafka refuses it in every form.
            LogError: it was not acknowledged in time.
        """
        why = ""
        for form, listed in _forms(sample, pods):
            try:
                placed = await self._in_some_coding(_named(form, why) if why else form, listed)
            except RecordRefusedError as exc:
                why = str(exc)
            else:
                if why or sample.pods is not None:
                    self.too_large = why and f"{why}: the sample is sent without its pods, and workers answer `skipped`"
                return placed
        self.too_large = why
        raise RecordRefusedError(why)

    async def close(self) -> None:
        """Disconnect."""
        await self._plain.close()
        await self._compressed.close()

    async def _in_some_coding(self, sample: NodeSample, pods: Sequence[Pod]) -> Placed:
        if (count := _count(sample, pods)) > PODS_MAX:
            raise RecordRefusedError(f"sample of {count:,} pods exceeds {PODS_MAX:,}")
        out = self._sign(self.out_of(sample, pods))
        size, refused = len(out.value or b""), ""
        for sender, limit in ((self._plain, PLAIN_BYTES_MAX), (self._compressed, COMPRESSED_BYTES_MAX)):
            if size + ROOM_BYTES > limit:
                refused = f"sample of {size:,} bytes exceeds {limit:,}"
                continue
            try:
                if not sender.connected:
                    await sender.connect([self._topic])
                [placed] = await sender.send([out])
            except RecordRefusedError as exc:
                refused = str(exc)
            else:
                return placed
        raise RecordRefusedError(refused)


def _forms(sample: NodeSample, pods: Sequence[Pod]) -> Iterator[tuple[NodeSample, Sequence[Pod]]]:
    """The sample, then one without pods and facts, which a worker answers ``skipped`` so that the node decides."""
    yield sample, pods
    if sample.pods is not None or sample.facts is not None or _count(sample, pods) > PODS_MAX:
        yield msgspec.structs.replace(sample, pods=None, facts=None, pod_use=sample.pod_use[:PODS_MAX]), ()


def _count(sample: NodeSample, pods: Sequence[Pod]) -> int:
    return max(len(sample.pod_use), len(pods))


def _named(sample: NodeSample, why: str) -> NodeSample:
    return msgspec.structs.replace(sample, missing=[*sample.missing, Missing(what="pods", why=why)])
