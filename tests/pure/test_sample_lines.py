"""A person reads a sample by the names of its pods."""

from slacktide.deploy.cli.records import sample_lines
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.samples import SampleReader
from testbed.samples import PODS, keyframe, record_of, sample


def test_a_person_reads_a_line_for_each_pod() -> None:
    samples = SampleReader()
    sample_lines(record_of(keyframe(1)), SAMPLE, samples)

    node, *pods = sample_lines(record_of(sample(2)), SAMPLE, samples).splitlines()

    assert node.startswith("2027-01-15T08:00:00.000Z 0:2 node-1 {")
    assert '"use":{"cpu_milli":1500,"mem_bytes":4294967296' in node
    assert pods == [
        '  shop/front {"cpu_milli":1000,"mem_bytes":1073741824}',
        '  jobs/batch {"cpu_milli":500,"mem_bytes":2147483648,"best_effort_group":true}',
    ]
    assert len(pods) == len(PODS)


def test_without_the_list_it_is_shown_as_it_is() -> None:
    assert '"now":[2,' in sample_lines(record_of(sample(2)), SAMPLE, SampleReader())
