"""A node's use is published with its percentiles, so that a short peak does not hide behind an average."""

from slacktide.schemas.codec import decode
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.sample import NodeUse
from slacktide.schemas.topics import METRIC
from testbed.chains import Chain
from testbed.samples import GIB

QUIET, PEAK = 1_000, 3_500
SECONDS, PEAK_SECONDS = 100, 7


def test_a_peak_of_seven_seconds_in_a_hundred_shows_in_the_95th_percentile_and_not_in_the_90th() -> None:
    chain = Chain()
    for seq in range(1, SECONDS + 1):
        cpu = PEAK if seq > SECONDS - PEAK_SECONDS else QUIET
        chain.take(seq, use=NodeUse(cpu_milli=cpu, mem_bytes=4 * GIB))

    last = [record for record in chain.records if record.topic == METRIC.name][-1]
    (aggregate, *_) = decode(last.value, NodeMetric).aggregates
    cpu = aggregate.node_cpu_milli
    assert (cpu.p50, cpu.p90, cpu.p95, cpu.p99) == (QUIET, QUIET, PEAK, PEAK)
    assert QUIET < cpu.avg < (QUIET + PEAK) / 2
