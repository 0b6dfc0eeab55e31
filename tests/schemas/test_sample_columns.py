"""A sample in columns: nothing is lost, its head is compared as bytes, and what is bad is named."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.bounds import AMOUNT_MAX, COUNT_MAX, TIME_MS_MAX
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.proof import Verifier
from slacktide.schemas.sample import Limits, LsPressure, NodeSample, PodUse, PressureGate, PressureLook
from slacktide.schemas.sample_columns import SampleColumns
from slacktide.schemas.sample_columns_codec import (
    UnknownPodsError,
    decode_of,
    encoded,
    fields_of,
    head_of,
    identity_of,
    to_sample,
)
from testbed.messages import any_message
from testbed.proofs import LATER_S, cluster_key, key_of
from testbed.samples import BATCH, PODS, SERVICE, keyframe, sample

UIDS = [pod.uid for pod in PODS]


def pod(uid: str) -> Pod:
    return Pod(uid=uid, namespace="n", name=uid)


def read(value: bytes) -> NodeSample:
    return to_sample(value, lambda _: UIDS)


def ordered(given_sample: NodeSample, uids: list[str]) -> NodeSample:
    """Uses in the order of the list, then all others: the order means nothing."""
    named: dict[str, PodUse] = {}
    others = [use for use in given_sample.pod_use if use.uid not in uids or named.setdefault(use.uid, use) is not use]
    return msgspec.structs.replace(given_sample, pod_use=[named[uid] for uid in uids if uid in named] + others)


@st.composite
def lists_and_samples(draw: st.DrawFn) -> tuple[NodeSample, list[Pod]]:
    """Any sample, with a list that names some of its pods and others besides."""
    made = draw(any_message(NodeSample))
    if made.pods is not None:
        uids = [one.uid for one in made.pods]
        made = msgspec.structs.replace(made, pods=[one for at, one in enumerate(made.pods) if one.uid not in uids[:at]])
        pods = made.pods
    else:
        uids = [use.uid for use in made.pod_use]
        pods = [pod(uid) for uid in dict.fromkeys(draw(st.lists(st.sampled_from([*uids, "a", "b", "c"]), max_size=5)))]
    if draw(st.booleans()) and pods:
        uses = draw(st.lists(any_message(PodUse), max_size=4))
        uses = [msgspec.structs.replace(use, uid=draw(st.sampled_from(pods)).uid) for use in uses]
        made = msgspec.structs.replace(made, pod_use=[*made.pod_use, *uses])
    return made, pods


@given(lists_and_samples())
def test_nothing_is_lost(given_sample: tuple[NodeSample, list[Pod]]) -> None:
    made, pods = given_sample
    uids = [one.uid for one in pods]

    back = to_sample(encoded(made, pods), lambda revision: uids if revision == made.pods_revision else None)

    assert back == ordered(made, uids)
    assert encoded(back, pods) == encoded(made, pods)


@given(lists_and_samples())
def test_what_is_written_is_the_message_of_its_topic(given_sample: tuple[NodeSample, list[Pod]]) -> None:
    made, pods = given_sample
    written = encoded(made, pods)

    assert msgspec.json.encode(msgspec.json.decode(written, type=SampleColumns)) == written


@given(lists_and_samples(), lists_and_samples())
def test_heads_are_equal_where_all_that_they_state_is_equal(
    one: tuple[NodeSample, list[Pod]], other: tuple[NodeSample, list[Pod]]
) -> None:
    heads = [written[: head_of(written)] for written in (encoded(*one), encoded(*other))]
    of, its = (decode_of(head) for head in heads)

    assert heads[0].startswith(b'{"of":{')
    assert heads[0].endswith(b',"now":[')
    assert (heads[0] == heads[1]) == (of == its)
    assert (of.node, of.boot_id, of.limits) == (one[0].node, one[0].boot_id, one[0].limits)


def test_the_head_stays_while_only_figures_move() -> None:
    first, second = (encoded(each, PODS) for each in (keyframe(7), sample(8, since_raise_ms=None)))

    assert first[: head_of(first)] == second[: head_of(second)]
    assert second[head_of(second) :] == b"8,1800000008000,1000,1500,4294967296,-1,1000,1073741824,500,2147483648]}"


def test_equal_limits_are_written_in_equal_bytes() -> None:
    """However they were made: a period read from the kernel is the default, but another object."""
    read_from_kernel = Limits(be_cfs_quota_us=110_000, be_cfs_period_us=int("100000"))

    assert encoded(sample(1, limits=read_from_kernel), PODS) == encoded(sample(1), PODS)


def test_the_text_of_a_name_cannot_end_the_head() -> None:
    written = encoded(sample(1, 'x,"now":['), PODS)

    assert decode_of(written[: head_of(written)]).node == 'x,"now":['


def test_a_pod_without_a_group_differs_from_one_of_which_nothing_is_known() -> None:
    made = sample(1, pod_use=[PodUse(uid="be", best_effort_group=True)])
    written = encoded(made, PODS)

    assert written.endswith(b",-1,-1,null,null]}")
    assert decode_of(written[: head_of(written)]).be_group == "01"
    assert read(written) == made


def test_a_group_that_no_list_names_is_rare() -> None:
    made = sample(1, pod_use=[*sample(1).pod_use, PodUse(uid="gone", cpu_milli=3)])

    assert b'],"more":{"others":[{"uid":"gone"' in encoded(made, PODS)
    assert read(encoded(made, PODS)) == made


def test_a_carried_list_goes_before_a_known_one() -> None:
    made = keyframe(1, pods=[BATCH, SERVICE])

    assert {use.uid: use.cpu_milli for use in read(encoded(made, [BATCH, SERVICE])).pod_use} == {"be": 500, "ls": 1000}


def test_without_the_list_whose_sample_it_is_can_be_read() -> None:
    made = sample(5)
    written = encoded(made, PODS)

    with pytest.raises(UnknownPodsError, match=f"{made.pods_revision}.*at `\\$.of.pods_revision` is not known"):
        to_sample(written, lambda _: None)
    of, seq, observed_ms = identity_of(written)
    assert (of.node, of.boot_id, of.facts_revision, of.pods_revision) == (
        made.node, made.boot_id, made.facts_revision, made.pods_revision,
    )  # fmt: skip
    assert (seq, observed_ms) == (5, made.observed_ms)


def test_a_part_of_a_list_is_no_list() -> None:
    """Room for lists beyond a record's size: whoever joins parts does so by revision."""
    part = encoded(keyframe(1), PODS)[:-1] + b',"pods_part":[0,2]}'

    assert msgspec.json.decode(part, type=SampleColumns).pods_part == [0, 2]
    assert read(part).pods is None
    with pytest.raises(UnknownPodsError):
        to_sample(part, lambda _: None)


def test_facts_and_pods_can_stay_undecoded() -> None:
    fields = fields_of(encoded(keyframe(1), PODS), lambda _: None)

    assert bytes(fields["pods"]) == msgspec.json.encode(keyframe(1).pods)
    assert bytes(fields["facts"]) == msgspec.json.encode(keyframe(1).facts)


def changed(path: str, value: Any) -> bytes:
    """A sample with one place of it set."""
    body = json.loads(encoded(sample(1), PODS))
    place = body
    *folders, last = path.split("/")
    for folder in folders:
        place = place[folder]
    place[int(last) if isinstance(place, list) else last] = value
    return json.dumps(body, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        pytest.param("now/0", None, "in 0..9007199254740992 - at `$.now[0]`, seq: the value is null", id="seq"),
        pytest.param("now/0", COUNT_MAX + 1, "at `$.now[0]`, seq: the value is 9007199254740993", id="seq beyond"),
        pytest.param("now/1", -1, f"in 0..{TIME_MS_MAX} - at `$.now[1]`, observed_ms: the value is -1", id="time"),
        pytest.param("now/3", AMOUNT_MAX + 1, "`int | null` in 0..1125899906842624 - at `$.now[3]`", id="cpu"),
        pytest.param("now/4", -1, "at `$.now[4]`, mem_bytes: the value is -1", id="mem"),
        pytest.param("now/5", None, "at `$.now[5]`, since_raise_ms: the value is null", id="since"),
        pytest.param("now/8", -1, "at `$.now[8]`, cpu_milli of pod 1: the value is -1", id="one of a pod's two"),
        pytest.param("now/9", AMOUNT_MAX + 1, "at `$.now[9]`, mem_bytes of pod 1: the value is", id="a pod's memory"),
        pytest.param("now/6", 1.5, "got `float` - at `$.now[6]`: the value is 1.5", id="fraction"),
        pytest.param("now/6", "1", 'Expected `int | null`, got `str` - at `$.now[6]`: the value is "1"', id="text"),
        pytest.param("now/6", -2, "Expected `int` >= -1 - at `$.now[6]`: the value is -2", id="below all"),
        pytest.param("now", [1, 2], "length >= 6 - at `$.now`", id="too few"),
        pytest.param("now", [1, 2, 3, 4, 5, 6], "0 numbers of pods, `$.of.be_group` 2 and", id="none"),
        pytest.param("of/clock_epoch", -1, "Expected `int` >= 0 - at `$.of.clock_epoch`: the value is -1", id="of"),
        pytest.param("of/limits", {"be_cfs_quota_us": -2}, "limits.be_cfs_quota_us`: the value is -2", id="quota"),
        pytest.param("of/be_group", "0x", 'at `$.of.be_group`: the value is "0x"', id="group"),
        pytest.param("of/be_group", "1", "4 numbers of pods, `$.of.be_group` 1", id="short group"),
        pytest.param("of/now", "seq", "Invalid enum value 'seq' - at `$.of.now`", id="other numbers"),
        pytest.param("psi", [1.0], "length >= 5 - at `$.psi`", id="psi"),
        pytest.param("psi", [1.0, 2.0, -1.0, 0.0, 0.0], ">= 0.0 - at `$.psi[2]`: the value is -1.0", id="psi range"),
        pytest.param("throttled", [2, 1, 1], "a place below 2 and two numbers - at `$.throttled[0]`", id="place"),
        pytest.param("throttled", [0, 1], "a place below 2 and two numbers - at `$.throttled[0]`", id="no triple"),
    ],
)  # fmt: skip
def test_a_bad_field_is_named_with_its_value_and_range(path: str, value: Any, why: str) -> None:
    with pytest.raises(BadMessageError) as caught:
        read(changed(path, value))

    assert why in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"null",
        b"{}",
        b'{"of":{}}',
        b'{"of":{"node":"n"},"now":[',
        b'{"of":{"node":"n","now":[1]},"now":[1]}',
    ],
)
def test_what_is_no_sample_in_columns_is_refused(value: bytes | None) -> None:
    with pytest.raises(BadMessageError):
        read(value)  # type: ignore[arg-type]


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_by_one_error(raw: bytes) -> None:
    written = encoded(sample(1), PODS)
    for value in (raw, written[: head_of(written)] + raw, written[:-1] + raw):
        with contextlib.suppress(BadMessageError):
            read(value)
            identity_of(value)


def test_the_first_of_two_heads_counts_for_every_reader() -> None:
    """So that whoever compares the head and whoever decodes it find the same node."""
    written = encoded(sample(1), PODS)
    other = encoded(sample(2, "node-2"), PODS)
    twice = written[:-1] + b"," + other[1:]

    assert read(twice).node == decode_of(twice[: head_of(twice)]).node == "node-1"
    assert read(twice).seq == 1


def test_looks_at_pressure_are_the_same_in_columns_as_in_rows() -> None:
    look = PressureLook(span_us=1, ls_cpu_us=2, be_cpu_us=3, idle_us=4, cpu_stall_us=5, mem_stall_us=6, throttled_us=7)
    made = sample(1, ls_pressure=LsPressure(gate=PressureGate(base_permille=9, closed=True), looks=[look]))
    assert read(encoded(made, PODS)).ls_pressure == made.ls_pressure


def test_what_is_rare_stands_right_behind_the_figures_or_is_refused() -> None:
    body = json.loads(encoded(sample(1, ls_lately_cpu_milli=7), PODS))
    late = {name: body[name] for name in ("of", "now")} | {"psi": [0.0] * 5, "more": body["more"]}

    with pytest.raises(BadMessageError, match="more` does not stand right behind"):
        read(json.dumps(late, separators=(",", ":")).encode())


def test_a_proof_is_of_one_topic() -> None:
    written, topic = encoded(sample(1), PODS), "slacktide.node.sample.v2"
    headers = (("ce_id", b"1"), key_of("node-1").header(topic, written))
    verifier = Verifier([cluster_key()])
    now_ms = (LATER_S - 60) * 1_000

    assert verifier.check(topic, b"node-1", written, headers, now_ms) == "ok"
    assert verifier.check("slacktide.node.sample.backfill.v2", b"node-1", written, headers, now_ms) == "forged"
    assert verifier.check(topic, b"node-1", written[:-1] + b" }", headers, now_ms) == "forged"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"9,1,0", b"9,2,0", r"in 0..1 - at `$.looks[1]`, closed: the value is 2"),
        (b",500,0", b",8001,0", r"in 0..8000 - at `$.looks[6]`, pause_ms: the value is 8001"),
        (b",500,0", b",500", "`$.looks` has 7 numbers; accepted: 8 of the gate, and 7 of each look"),
        (b"9,1,0", b"-9,1,0", "`$.looks[0]`"),
    ],
)
def test_a_bad_number_of_the_gate_is_named(old: bytes, new: bytes, why: str) -> None:
    made = encoded(sample(1, ls_pressure=LsPressure(gate=PressureGate(base_permille=9, closed=True), looks=[])), PODS)
    assert b'"looks":[9,1,0,0,0,0,500,0]' in made
    with pytest.raises(BadMessageError) as raised:
        read(made.replace(old, new))
    assert why in str(raised.value)


def test_looks_behind_other_fields_are_refused() -> None:
    made = encoded(sample(1, ls_pressure=LsPressure(gate=PressureGate(), looks=[])), PODS)
    body = msgspec.json.decode(made)
    late = {name: body[name] for name in ("of", "now")} | {"psi": [0.0] * 5, "looks": body["looks"]}

    with pytest.raises(BadMessageError, match="looks` does not stand right behind"):
        read(msgspec.json.encode(late))
