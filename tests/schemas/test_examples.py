"""The example records: each decodes, keeps to its schema, and together they tell one true story."""

from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from slacktide.schemas import heartbeat, topics
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import KEEP, NodeCommand, NodesKept
from slacktide.schemas.inventory import NodeInventory, revision_of
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy, versioned
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.score import NodeScore
from slacktide.streams.decisions.resources.batch_resource import batch_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad
from slacktide.streams.decisions.suppress.cpu_suppress import Decision, decide
from slacktide.streams.samples import SampleReader
from slacktide.streams.worker.published import node_score
from testbed.messages import check
from testbed.samples import raw_record

SCHEMAS = Path(__file__).parents[2] / "schemas"
KINDS = {topic.name: topic.message for topic in topics.TOPICS} | {heartbeat.KIND: heartbeat.Heartbeat, KEEP: NodesKept}
FILES = sorted((SCHEMAS / "examples").glob("*/*.json"))
EACH = pytest.mark.parametrize("path", [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in FILES])


M = TypeVar("M", bound=Message)


def record(topic: topics.Topic, number: int, kind: type[M]) -> M:
    assert topic.message is kind
    return decode((SCHEMAS / "examples" / topic.name / f"{number}.json").read_bytes(), kind)


def sample(number: int) -> NodeSample:
    reader = SampleReader()
    folder = SCHEMAS / "examples" / topics.SAMPLE.name
    [*_, found] = [reader.read(raw_record(body(folder / f"{each}.json"), key=b"")) for each in (1, number)]
    return found


def body(file: Path) -> bytes:
    return msgspec.json.format(file.read_bytes(), indent=-1)


def command(number: int) -> NodeCommand:
    return record(topics.COMMAND, number, NodeCommand)


def outcome(number: int) -> NodeOutcome:
    return record(topics.OUTCOME, number, NodeOutcome)


def decided(number: int) -> Decision:
    """What the decision core says of an example sample, by the story's node, pods and policy."""
    keyframe = sample(1)
    assert keyframe.facts is not None
    assert keyframe.pods is not None
    return decide(sample(number), keyframe.facts, keyframe.pods, record(topics.POLICY, 1, Policy))


@EACH
def test_an_example_is_read_and_written_unchanged(path: Path) -> None:
    """Nothing in it goes unread, and nothing is written that could be left out."""
    raw = path.read_bytes()
    kind = KINDS[path.parent.name]

    assert msgspec.json.format(encode(decode(raw, kind)), indent=2) == raw.rstrip()


@EACH
def test_an_example_keeps_to_the_checked_in_schema(path: Path) -> None:
    schema = msgspec.json.decode((SCHEMAS / "jsonschema" / f"{path.parent.name}.json").read_bytes())

    check(msgspec.json.decode(path.read_bytes()), schema)


def test_each_message_has_three_examples_and_no_other_folder_stands_beside_them() -> None:
    found = {folder.name: sorted(each.name for each in folder.iterdir()) for folder in (SCHEMAS / "examples").iterdir()}

    assert found == {name: ["1.json", "2.json", "3.json"] for name in KINDS}


def test_the_revisions_name_the_content() -> None:
    keyframe, inventory = sample(1), record(topics.INVENTORY, 1, NodeInventory)

    assert keyframe.facts == inventory.facts
    assert keyframe.facts_revision == inventory.revision == revision_of(inventory.facts)
    assert keyframe.pods_revision == revision_of(keyframe.pods)
    for number in (1, 2, 3):
        policy = record(topics.POLICY, number, Policy)
        assert policy.version == versioned(policy).version


def test_the_first_answer_is_what_the_decision_core_says_and_it_was_applied() -> None:
    (hold,) = command(1).hold

    assert (decided(1).answer, decided(1).limits, decided(1).bound) == ("set", hold.limits, hold.bound)
    assert decided(1).terms == hold.terms == outcome(1).terms
    assert (outcome(1).result, outcome(1).after, outcome(1).command_id) == ("applied", hold.limits, hold.id)


def test_the_second_sample_was_skipped_so_the_guard_applied_its_own() -> None:
    assert (command(2).answer, command(2).reason) == ("skipped", "no pods")
    assert (outcome(2).origin, outcome(2).after, outcome(2).terms) == ("guard", decided(2).limits, decided(2).terms)
    assert outcome(2).before == sample(2).limits


def test_the_third_answer_keeps_what_the_sample_saw() -> None:
    kept = decode((SCHEMAS / "examples" / KEEP / "1.json").read_bytes(), NodesKept)
    assert decided(3).answer == "keep"
    assert (sample(3).node, sample(3).boot_id, sample(3).seq) in kept.kept
    assert sample(3).limits == outcome(2).after


def test_the_answer_that_came_twice_was_refused_once() -> None:
    assert (outcome(3).result, outcome(3).reason, outcome(3).command_id) == ("refused", "repeated", command(1).id)


@pytest.mark.parametrize(("number", "of_metric"), [(1, 1), (2, 3)])
def test_batch_resources_follow_from_the_averages(number: int, of_metric: int) -> None:
    keyframe, metric = sample(1), record(topics.METRIC, of_metric, NodeMetric)
    assert keyframe.facts is not None
    load = NodeLoad(facts=keyframe.facts, pods=keyframe.pods or [], metrics=metric.pods, system=metric.system_use)
    figure = batch_resource(load, record(topics.POLICY, 1, Policy).colocation)
    published = record(topics.ALLOCATABLE, number, NodeAllocatable)

    assert (published.batch_cpu_milli, published.batch_mem_bytes) == (figure.cpu_milli, figure.mem_bytes)
    assert (published.cpu_terms, published.mem_terms) == tuple(because.terms for because in figure.because)


@pytest.mark.parametrize(("number", "of_metric", "of_sample"), [(1, 1, 1), (2, 3, 3)])
def test_score_terms_follow_from_what_was_published(number: int, of_metric: int, of_sample: int) -> None:
    keyframe, policy = sample(1), record(topics.POLICY, 1, Policy)
    metric, allocatable = (
        record(topics.METRIC, of_metric, NodeMetric),
        record(topics.ALLOCATABLE, number, NodeAllocatable),
    )
    assert keyframe.facts is not None
    said = node_score(metric, allocatable, sample(of_sample), keyframe.facts, keyframe.pods or [], policy)

    assert record(topics.SCORE, number, NodeScore) == said
