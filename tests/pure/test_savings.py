"""Savings: laws of the arithmetic, and accounts of samples and outcomes."""

import gzip
import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.main import cli
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import DESCHEDULER
from slacktide.schemas.inventory import Container, Pod, Resources, revision_of
from slacktide.schemas.knob import pod_group
from slacktide.schemas.outcome import NodeOutcome, Spent
from slacktide.schemas.sample import NodeSample, NodeUse, PodUse, Pressure
from slacktide.schemas.topics import OUTCOME, SAMPLE
from slacktide.streams.analysis.replay.lines import records_of
from slacktide.streams.analysis.savings.account import CORE_H, Account, Span, report
from slacktide.streams.analysis.savings.node import Amounts, Batch, Level, Tally, Use, admitted, total
from slacktide.streams.records import Record
from slacktide.streams.samples import SampleReader
from testbed import chains
from testbed.samples import BATCH, FACTS, GIB, SERVICE, START_MS, body_of, sample
from testbed.snapshots import command_text
from testbed.vectors import each_row

GOLDEN = Path(__file__).parents[1] / "replay" / "golden.jsonl.gz"
END_MS = START_MS + 10**7
AMOUNTS = st.builds(Amounts, st.integers(0, 64), st.integers(0, 64))
PODS = st.lists(st.builds(Batch, AMOUNTS, AMOUNTS), max_size=5)
USES = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 8 * GIB)), min_size=1, max_size=12)


def batch(*, milli: int = 4_000, mem_bytes: int = GIB, **changes: Any) -> Pod:
    """A batch pod that requests that much."""
    requests = Resources(batch_cpu_milli=milli, batch_mem_bytes=mem_bytes)
    return msgspec.structs.replace(BATCH, requests=requests, **changes)


def taken(seq: int, cpu_milli: int, mem_bytes: int, *, pods: list[Pod], node: str = "node-1") -> NodeSample:
    """A sample that carries its pods: the batch pod used this much for a second."""
    return sample(
        seq,
        node,
        facts=FACTS,
        pods=pods,
        pods_revision=revision_of(pods),
        use=NodeUse(cpu_milli=1_000 + cpu_milli, mem_bytes=GIB, pressure=Pressure(cpu_some_pct=seq + 0.25)),
        pod_use=[
            PodUse(uid="ls", cpu_milli=1_000, mem_bytes=GIB, periods=10, throttled_periods=seq % 3),
            PodUse(uid="be", cpu_milli=cpu_milli, mem_bytes=mem_bytes, best_effort_group=True),
        ],
    )


def records(samples: list[NodeSample]) -> list[Record]:
    """In the log, at the second of their seq."""
    return [
        chains.logged(body_of(one), SAMPLE, key=one.node, offset=number, at_ms=START_MS + one.seq * 1_000)
        for number, one in enumerate(samples)
    ]


def evicted(at_seq: int, offset: int = 0, **changes: Any) -> Record:
    """The batch pod's eviction, 40 ms after its sample."""
    fields = {"target": pod_group("be"), "age_ms": 40, "spent": Spent(evictions=1)} | changes
    body = chains.evicted(at_seq, "batch", **fields)
    at_ms = START_MS + at_seq * 1_000 + 40
    return chains.logged(body, OUTCOME, key="node-1", offset=offset, at_ms=at_ms)


def tallied(log: list[Record], since_ms: int = START_MS, until_ms: int = END_MS) -> Tally:
    """The sums over all nodes."""
    account = Account(Span(since_ms, until_ms))
    for record in log:
        account.take(record)
    everything = Tally()
    for tally in account.tallies().values():
        everything.add(tally)
    return everything


@given(pods=PODS, room=AMOUNTS)
def test_admitted_use_is_ordered_and_never_more_than_what_was_used(pods: list[Batch], room: Amounts) -> None:
    split, used, asked = admitted(pods, room), total(pod.used for pod in pods), total(pod.request for pod in pods)
    for least, likely, most, all_ in zip(*split, used, strict=True):
        assert 0 <= least <= likely <= most <= all_
    if asked.cpu_milli <= room.cpu_milli and asked.mem_bytes <= room.mem_bytes:
        assert split == (used, used, used)


@given(pods=PODS, room=AMOUNTS)
def test_no_choice_of_pods_that_fit_uses_more_than_the_most(pods: list[Batch], room: Amounts) -> None:
    """So the least gain is one against any scheduler, however lucky it is."""
    choices = [chosen for size in range(len(pods) + 1) for chosen in combinations(pods, size)]
    requested = [(total(pod.request for pod in chosen), chosen) for chosen in choices]
    fit = [chosen for asked, chosen in requested if asked[0] <= room[0] and asked[1] <= room[1]]
    most = admitted(pods, room).most
    for of in (0, 1):
        assert max(sum(pod.used[of] for pod in chosen) for chosen in fit) <= most[of]


@each_row("pods", "room", "least", "likely", "most")
def test_admitted_use_by_hand(pods: Any, room: Amounts, least: Amounts, likely: Amounts, most: Amounts) -> None:
    """Pods as request and use, each CPU and memory."""
    split = admitted([Batch(Amounts(*request), Amounts(*used)) for request, used in pods], room)
    assert split == (least, likely, most)


@given(pods=PODS, room=AMOUNTS, more=AMOUNTS)
def test_more_room_for_requests_never_admits_less_of_cpu_alone(pods: list[Batch], room: Amounts, more: Amounts) -> None:
    larger = total([room, more])
    lean = [Batch(Amounts(pod.request.cpu_milli, 0), pod.used) for pod in pods]
    before, after = admitted(lean, room), admitted(lean, larger)
    assert all(one <= other for one, other in zip(before.likely, after.likely, strict=True))


@given(uses=USES, milli=st.integers(0, 9_000), cut=st.integers(0, 12))
def test_accounts_add_up_over_time(uses: list[tuple[int, int]], milli: int, cut: int) -> None:
    log = records([taken(seq, *use, pods=[SERVICE, batch(milli=milli)]) for seq, use in enumerate(uses)])
    cut_ms = START_MS + cut * 1_000
    parts = tallied(log, until_ms=cut_ms) if cut else Tally()
    parts.add(tallied(log, since_ms=cut_ms))

    assert parts == tallied(log)


@given(uses=USES, others=USES, milli=st.integers(0, 9_000))
def test_accounts_add_up_over_nodes(uses: list[tuple[int, int]], others: list[tuple[int, int]], milli: int) -> None:
    pods = [SERVICE, batch(milli=milli)]
    one = [taken(seq, *use, pods=pods) for seq, use in enumerate(uses)]
    other = [taken(seq, *use, pods=pods, node="node-2") for seq, use in enumerate(others)]
    both = sorted(one + other, key=lambda taken_: taken_.seq)
    parts = tallied(records(one))
    parts.add(tallied(records(other)))

    assert parts == tallied(records(both))


@given(uses=USES, milli=st.integers(0, 9_000))
def test_the_gain_is_never_more_than_best_effort_use_and_none_without(uses: list[tuple[int, int]], milli: int) -> None:
    made = tallied(records([taken(seq, *use, pods=[SERVICE, batch(milli=milli)]) for seq, use in enumerate(uses)]))
    for of, sums in enumerate((made.cpu, made.mem)):
        assert sums.used == 1_000 * sum(use[of] for use in uses)
        assert 0 <= sums.admitted_least <= sums.admitted_likely <= sums.admitted_most <= sums.used
    none = tallied(records([taken(seq, 0, 0, pods=[SERVICE, batch(milli=milli)]) for seq, _ in enumerate(uses)]))
    assert (none.cpu.used, none.cpu.admitted_least, none.mem.used, none.mem.admitted_least) == (0, 0, 0, 0)


@each_row("milli", "gained_milli")
def test_a_gain_begins_where_native_requests_end(milli: int, gained_milli: int) -> None:
    """Of 4 CPUs the service requests 2, so 2 are left for native requests."""
    made = tallied(records([taken(1, 1_000, GIB, pods=[SERVICE, batch(milli=milli)])]))
    assert made.cpu.used - made.cpu.admitted_likely == gained_milli * 1_000


ENDED = msgspec.structs.replace(SERVICE, uid="old", phase="Succeeded")
LARGE = msgspec.structs.replace(SERVICE, requests=Resources(cpu_milli=9_000, mem_bytes=GIB))
NATIVE = msgspec.structs.replace(BATCH, requests=Resources(cpu_milli=4_000))


@pytest.mark.parametrize(
    ("pods", "gained_milli"),
    [([SERVICE, ENDED, batch()], 500), ([LARGE, batch()], 1_000), ([SERVICE, NATIVE], 500), ([SERVICE], 0)],
    ids=["an ended pod takes no room", "no room is left", "a native request of a best-effort pod", "an unlisted pod"],
)
def test_room_is_what_other_pods_that_live_do_not_request(pods: list[Pod], gained_milli: int) -> None:
    made = tallied(records([taken(1, 1_000, 0, pods=pods)]))
    assert (made.cpu.used, made.cpu.used - made.cpu.admitted_likely) == (10**6, gained_milli * 1_000)


def test_a_sample_counts_for_no_more_time_than_was_observed() -> None:
    late = msgspec.structs.replace(taken(1, 1_000, 0, pods=[SERVICE, batch()]), interval_ms=3_600_000)
    made = tallied(records([late]))
    assert (made.covered_ms, made.cpu.used, made.busy.time_ms) == (10_000, 10**7, 10_000)


@pytest.mark.parametrize(("before_s", "undecided"), [(60, 0), (80, 1)])
def test_pods_and_facts_are_read_from_shortly_before_the_span(before_s: int, undecided: int) -> None:
    first = taken(1, 1_000, GIB, pods=[SERVICE, batch()])
    second = msgspec.structs.replace(first, seq=1 + before_s, facts=None, pods=None)
    made = tallied(records([first, second]), since_ms=START_MS + (1 + before_s) * 1_000)
    assert (made.samples, made.undecided, made.cpu.used) == (1, undecided, 10**6 * (1 - undecided))


def test_a_record_that_speaks_for_another_node_counts_nothing() -> None:
    (forged,) = records([taken(1, 1_000, GIB, pods=[SERVICE, batch()])])
    assert tallied([msgspec.structs.replace(forged, key=b"node-2")]) == Tally()


def test_a_topic_that_was_made_anew_counts_on() -> None:
    first, second = records([taken(seq, 1_000, 0, pods=[SERVICE, batch()]) for seq in (1, 2)])
    assert tallied([first, msgspec.structs.replace(second, offset=0)]).samples == 2


def test_harm_is_divided_by_whether_best_effort_pods_ran() -> None:
    """From 1% of allocatable CPU on, 40 millicores here, they ran."""
    made = tallied(records([taken(seq, milli, 0, pods=[SERVICE, batch()]) for seq, milli in [(1, 40), (2, 39)]]))
    for harm, throttled, hundredths in ((made.busy, 1, 125), (made.idle, 2, 225)):
        assert (harm.time_ms, harm.ls_periods, harm.ls_throttled) == (1_000, 10, throttled)
        assert harm.cpu_some == Level(weighted=hundredths * 1_000, time_ms=1_000, level_max=hundredths)


def test_what_a_pod_of_the_best_effort_group_is_throttled_harms_nobody() -> None:
    one = taken(1, 100, 0, pods=[SERVICE, batch(), batch(uid="done", phase="Succeeded")])
    ended = PodUse(uid="done", cpu_milli=0, periods=9, throttled_periods=9, best_effort_group=True)
    made = tallied(records([msgspec.structs.replace(one, pod_use=[*one.pod_use, ended])]))
    assert (made.busy.ls_periods, made.busy.ls_throttled) == (10, 1)


def test_sums_become_hours_and_percentiles() -> None:
    use = Use(used=10 * CORE_H, admitted_least=1 * CORE_H, admitted_likely=4 * CORE_H, admitted_most=6 * CORE_H,
              lost=3 * CORE_H)  # fmt: skip
    tally = Tally(cpu=use, limit_ages_ms=Counter(range(1, 11)))
    made = report({"a": tally, "b": tally}, Span(0, 1), [], refused=0, unproven=0)
    cpu, limits = made.nodes[0].cpu, made.nodes[0].limits
    assert (cpu.used, cpu.admitted, cpu.gained, cpu.gained_least, cpu.gained_most) == (10, 4, 6, 4, 9)
    assert (cpu.lost, cpu.net, cpu.net_least, cpu.net_most) == (3, 3, 1, 9)
    assert (limits.acts, limits.p50_ms, limits.p95_ms, limits.max_ms) == (10, 5, 10, 10)
    assert (made.all.cpu.net, made.all.limits.acts, made.all.limits.p50_ms) == (6, 20, 5)


def test_a_sample_that_comes_again_counts_once() -> None:
    log = records([taken(1, 1_000, GIB, pods=[SERVICE, batch()])])
    again = [msgspec.structs.replace(log[0], offset=1)]
    assert tallied(log + again) == tallied(log)


def test_what_an_evicted_pod_used_is_lost_before_and_after_the_act_and_once() -> None:
    log = records([taken(seq, 1_000, GIB, pods=[SERVICE, batch()]) for seq in (1, 2, 3)])
    made = tallied([*log[:2], evicted(2), evicted(2, offset=1), log[2]])
    assert (made.evictions, made.eviction_ages_ms) == (1, {40: 1})
    assert (made.cpu.lost, made.mem.lost) == (3 * 1_000 * 1_000, 3 * GIB * 1_000)


def test_what_a_descheduled_pod_used_is_lost_on_its_node() -> None:
    """The descheduler's outcome names the pod alone, and its age is no reaction of a node."""
    log = records([taken(seq, 1_000, GIB, pods=[SERVICE, batch()]) for seq in (1, 2)])
    by_descheduler = msgspec.structs.replace(evicted(2, node=DESCHEDULER), key=DESCHEDULER.encode())
    of_another = msgspec.structs.replace(evicted(2, 1, node=DESCHEDULER, target="pod/x"), key=DESCHEDULER.encode())
    account = Account(Span(START_MS, END_MS, ("node-1",)))
    for record in [*log, by_descheduler, of_another]:
        account.take(record)
    (made,) = account.tallies().values()
    assert (made.evictions, made.eviction_ages_ms, made.cpu.lost) == (1, {}, 2 * 1_000 * 1_000)


@pytest.mark.parametrize("changes", [{"result": "dry-run"}, {"result": "refused"}, {"spent": None, "bound": "frozen"}])
def test_an_act_that_ends_no_pod_loses_nothing(changes: dict[str, Any]) -> None:
    made = tallied([*records([taken(1, 1_000, GIB, pods=[SERVICE, batch()])]), evicted(1, **changes)])
    assert (made.evictions, made.cpu.lost) == (0, 0)


def test_a_container_with_another_id_has_restarted_and_lost_its_work() -> None:
    new, first, second = (batch(containers=[Container(name="main", id=id_)]) for id_ in ("", "a", "b"))
    lists = [[SERVICE, pod] for pod in (new, first, batch(), second, second)]
    log = records([taken(seq, 1_000, GIB, pods=pods) for seq, pods in enumerate(lists, start=1)])
    made, later = tallied(log), tallied(log, since_ms=START_MS + 5_000)
    assert (made.restarts, made.cpu.lost) == (1, 3 * 1_000 * 1_000)
    assert (later.restarts, later.cpu.lost) == (0, 0)


def answer(*arguments: str | Path) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["savings", *map(str, arguments), "--output", "json"])
    assert done.exit_code == 0, done.output
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_a_recorded_file_gives_the_sums_of_its_own_figures(tmp_path: Path) -> None:
    """Its batch pods request exactly what the service leaves, so native requests would have admitted them all."""
    reader = SampleReader()
    with gzip.open(GOLDEN) as lines:
        next(lines)
        records = list(records_of(lines, str(GOLDEN)))
    samples = [reader.read(one) for one in records if one.topic == SAMPLE.name]
    once = {(one.node, one.boot_id, one.seq): one for one in samples}
    core_h = sum(
        (use.cpu_milli or 0) * min(one.interval_ms, 10_000)
        for one in once.values()
        for use in one.pod_use
        if use.best_effort_group
    ) / 3.6e9  # fmt: skip
    made = answer(GOLDEN)
    assert made["all"]["cpu"]["used"] == pytest.approx(core_h) != 0
    assert (made["all"]["cpu"]["gained"], made["all"]["mem"]["gained"]) == (0, 0)
    assert (made["all"]["samples"], made["all"]["undecided"]) == (len(samples), 0)
    outcomes = [decode(one.value, NodeOutcome) for one in records if one.topic == OUTCOME.name]
    applied = [one for one in outcomes if one.result == "applied"]
    assert made["all"]["limits"]["acts"] == sum(one.pod is None for one in applied)

    (tmp_path / "answer.json").write_text(json.dumps(made))
    assert answer(GOLDEN, "--from-offsets", tmp_path / "answer.json") == made


def test_files_that_follow_each_other_give_the_account_of_the_whole(tmp_path: Path) -> None:
    """The later one begins with samples of the earlier one, as exports do, and is named first."""
    head, *lines, _ = gzip.decompress(GOLDEN.read_bytes()).splitlines()
    times = [json.loads(line)["timestamp_ms"] for line in lines]
    policies = sum(b'"slacktide.policy.v1"' in line for line in lines)
    cut_ms = times[len(times) // 2]
    earlier = [line for at, (line, ms) in enumerate(zip(lines, times, strict=True)) if at < policies or ms < cut_ms]
    spans = {"a": (earlier, {"until_ms": cut_ms}), "b": (lines, {"since_ms": cut_ms})}
    for name, (kept, span) in spans.items():
        first = json.dumps(json.loads(head) | span).encode()
        end = json.dumps({"records": len(kept)}).encode()
        (tmp_path / name).write_bytes(b"\n".join([first, *kept, end, b""]))
    whole, both = answer(GOLDEN), answer(tmp_path / "b", tmp_path / "a")
    alone = answer(tmp_path / "b")["all"]["samples"]

    assert (both["all"], both["read"]) == (whole["all"], whole["read"])
    assert 0 < alone < whole["all"]["samples"]


def test_records_that_are_gone_are_named(tmp_path: Path) -> None:
    made = answer(GOLDEN)
    made["read"][-1]["records"] += 1
    (tmp_path / "answer.json").write_text(json.dumps(made))
    done = CliRunner().invoke(cli, ["savings", str(GOLDEN), "--from-offsets", str(tmp_path / "answer.json")])
    assert done.exit_code == 1
    assert f"{made['read'][-1]['topic']} {made['read'][-1]['partition']}:" in done.output


def test_an_earlier_answer_brings_its_nodes_along_and_takes_no_others(tmp_path: Path, snapshot) -> None:
    file = tmp_path / "answer.json"
    file.write_text("[]")
    no_answer = CliRunner().invoke(cli, ["savings", "--from-offsets", str(file)])
    made = answer(GOLDEN, "--node", "virtual-1")
    file.write_text(json.dumps(made))
    again = [str(GOLDEN), "--from-offsets", str(file)]
    assert answer(*again) == made
    other_node = CliRunner().invoke(cli, ["savings", *again, "--node", "virtual-2"])
    assert f"{command_text(no_answer, tmp_path)}\n\n{command_text(other_node, tmp_path)}" == snapshot


def test_csv_has_a_row_for_each_node_and_one_for_all(snapshot) -> None:
    head, *rows = CliRunner().invoke(cli, ["savings", str(GOLDEN), "--output", "csv"]).stdout.splitlines()
    assert "\n".join([head, *(row.partition(",")[0] for row in rows)]) == snapshot
