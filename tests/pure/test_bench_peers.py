"""The bench's peers answer what the plain reference answers, so that nobody is measured doing something else."""

import itertools
from collections import defaultdict
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from bench.log import POLICY_IN_FORCE
from bench.peers import check, measure, plain_aiokafka, plain_faust, reference
from bench.peers.answer import spread
from bench.stamp import Form, StampedNode

from slacktide.schemas.sample import NodeSample
from testbed import rungs
from testbed.vectors import each_row

MINUTE_MS = 60_000
SECONDS = 150
BEGIN_MS = 1_700_000_040_000
"""A minute of the clock begins."""
HOLES = {20, 21, 70, *range(90, 100)}


def bodies(number: int, form: Form) -> list[bytes]:
    """Two and a half minutes of a node, pods replaced now and then, some seconds lacking."""
    node = StampedNode(number, POLICY_IN_FORCE, replaced_each_s=20, form=form)
    return [node.stamp(BEGIN_MS + second * 1000).value for second in range(SECONDS) if second not in HOLES]


def written(size: measure.Size, form: Form) -> list[NodeSample]:
    """A backlog, read back."""
    bodies = defaultdict(list)
    for one in measure.backlog(size, BEGIN_MS + 12_345, form):
        bodies[one.key].append(one.value)
    return [sample for its in bodies.values() for sample in check.samples_of(its)]


def told(answer: object) -> object:
    """As it is read back."""
    return msgspec.json.decode(msgspec.json.encode(answer))


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize("number", range(3))
def test_plain_aiokafka_answers_the_last_minute(number: int, form: Form) -> None:
    """The running sums come to what the samples of the last 60 s come to."""
    raw = bodies(number, form)
    window = plain_aiokafka.Window()
    read = plain_aiokafka.FORMS[form]()

    wanted = reference.answers(check.samples_of(raw), reference.sliding)
    assert [
        text
        for body, answer in zip(raw, wanted, strict=True)
        if (text := reference.difference(told(window.answer(read(body))), answer))
    ] == []


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize("number", range(3))
def test_plain_faust_answers_the_minute_of_the_clock(number: int, form: Form) -> None:
    """Its tumbling table begins anew with each minute."""
    raw = bodies(number, form)
    minutes: dict[int, dict] = {}
    differences = []
    uids: list[str] = []
    samples = check.samples_of(raw)
    for body, sample, wanted in zip(raw, samples, reference.answers(samples, reference.tumbling), strict=True):
        minute = minutes.setdefault(sample.observed_ms // MINUTE_MS, plain_faust.blank())
        if form == "rows":
            answer = plain_faust.of_rows(minute, plain_faust.Sample.loads(body, serializer="json"))
        else:
            columns = plain_faust.Columns.loads(body, serializer="json")
            uids = uids if columns.pods is None else [pod.uid for pod in columns.pods]
            answer = plain_faust.of_columns(minute, columns, uids)
        differences.append(reference.difference(told(answer), wanted))

    assert set(differences) == {""}


def test_the_reference_drops_what_is_older_than_a_minute() -> None:
    """Of samples a second apart a full window has 60, a tumbling one what its minute has had."""
    node = StampedNode(0, POLICY_IN_FORCE)
    samples = check.samples_of([node.stamp(BEGIN_MS + second * 1000).value for second in range(75)])

    assert [one["samples"] for one in reference.answers(samples, reference.sliding)] == [*range(1, 61), *[60] * 15]
    assert [one["samples"] for one in reference.answers(samples, reference.tumbling)] == [*range(1, 61), *range(1, 16)]


def test_percentiles_are_the_nearest_ranks() -> None:
    """Values that were seen, none in between."""
    assert spread([5, 1, 4, 2, 3]) == {"avg": 3.0, "p50": 3, "p90": 5, "p95": 5, "p99": 5}
    assert spread(range(1, 61)) == {"avg": 30.5, "p50": 30, "p90": 54, "p95": 57, "p99": 60}


@each_row("got", "place")
def test_a_difference_is_named_by_its_place(got: dict, place: str) -> None:
    """So a peer that answers nonsense says where."""
    assert reference.difference(got, {"a": [1.0, 2.0], "b": "x"}).startswith(f"{place}: ")


def test_rounding_is_no_difference() -> None:
    """Sums that run along round elsewhere."""
    assert reference.difference({"a": [1.0, 2.0 + 1e-12]}, {"a": [1, 2]}) == ""


def test_kafka_streams_is_of_the_brokers_version() -> None:
    """Its folder in the cache is looked for by that."""
    pom = Path(measure.__file__).with_name("kafka_streams") / "pom.xml"

    assert f"<artifactId>kafka-streams</artifactId>\n      <version>{rungs.KAFKA_VERSION}</version>" in pom.read_text()


def test_all_peers_read_the_same_minutes() -> None:
    """Half an hour in steps, then seconds from the beginning of a minute on; no hole, and nothing lies ahead of now."""
    size = measure.Size(per_partition=1, seconds=90, runs=1)
    in_rows, seen = (written(size, form) for form in get_args(Form))
    times_ms = sorted({sample.observed_ms for sample in seen})

    assert in_rows == seen
    assert len(seen) == size.backlog
    assert times_ms[measure.HISTORY_STEPS] % MINUTE_MS == 0
    assert times_ms[-1] <= BEGIN_MS + 12_345
    assert times_ms[measure.HISTORY_STEPS] - times_ms[0] >= 30 * MINUTE_MS
    gaps_ms = [after - before for before, after in itertools.pairwise(times_ms)]
    assert gaps_ms == [sample.interval_ms for sample in seen if sample.node == seen[0].node][1:]
