"""Memory reclaimed before an eviction, as ``explain`` and the audit tell it."""

from typing import Any

import pytest

from slacktide.deploy.cli.audit import shown
from slacktide.deploy.cli.explain.node_text import node_text
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.outcome import NodeOutcome, PodName, Reclaimed
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.analysis.audit.acts import Act, Choice, what
from slacktide.streams.analysis.explain.carried_out import last_limit
from slacktide.streams.analysis.explain.evictions import evictions_of, notice_findings
from slacktide.streams.analysis.explain.evidence import Finding, Logged, Place
from slacktide.streams.analysis.explain.node import explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.analysis.explain.reclaimed import pod_reclaimed_findings
from slacktide.streams.decisions.evict.node_evict import audited
from testbed.chains import Chain, outcome, outcome_record
from testbed.samples import START_MS

MIB = 1 << 20
POD = PodName(namespace="jobs", name="etl-x2lqp")


def reclaimed(seq: int, freed_mib: int = 60, *, pod: PodName = POD, **changes: Any) -> NodeOutcome:
    its = Reclaimed(
        pod=pod, asked_bytes=64 * MIB, freed_bytes=freed_mib * MIB, writes=4, took_us=31_000,
        ls_mem_before_permille=2, ls_mem_after_permille=4,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "rule": "BEMemoryReclaim",
        "target": f"pod/uid-{pod.name}",
        "origin": "agent",
        "bound": "reclaims",
        "terms": {"used_pct": 66, "threshold_pct": 65, "evict_pct": 70},
        "reclaimed": its,
    }
    return outcome(seq, **fields | changes)


def told(*bodies: NodeOutcome) -> list[Finding]:
    log = node_log(Chain().node, [outcome_record(body, offset) for offset, body in enumerate(bodies)])
    findings = explain_node(log, START_MS + 5_000).findings
    return [one for one in findings if one.name.startswith("memory.")]


def of_pod(*bodies: NodeOutcome) -> list[Finding]:
    place = Place(topic=OUTCOME.name, partition=0, offset=0, logged_ms=START_MS)
    log = [Logged(body=body, place=place) for body in bodies]
    assert evictions_of(log, POD.namespace, POD.name) == []
    assert list(notice_findings(log, POD.namespace, POD.name, START_MS)) == []
    return list(pod_reclaimed_findings(log, POD.namespace, POD.name, 3_600_000))


def test_a_node_tells_the_sum_of_the_last_seconds() -> None:
    other = PodName(namespace="jobs", name="other")
    (one,) = told(reclaimed(1), reclaimed(2, pod=other), reclaimed(3, reason="paused: io_full 0 to 30 permille"))
    assert one.name == "memory.reclaimed"
    assert one.text == (
        "in the last 12 s, 180 MiB were reclaimed (192 MiB asked) from 2 best-effort pods, before any is evicted: 66% "
        "used, threshold 65%; paused: io_full 0 to 30 permille"
    )


@pytest.mark.parametrize(
    ("said", "name", "text"),
    [
        (reclaimed(1, 0, result="dry-run"), "memory.reclaimed", "dry run: 64 MiB would be reclaimed"),
        (reclaimed(1, 0, result="failed", bound="lacks", reason="use cgroup v2"), "memory.not-reclaimed",
         "use cgroup v2"),
    ],
)  # fmt: skip
def test_a_dry_run_and_a_kernel_that_cannot_are_told(said: NodeOutcome, name: str, text: str) -> None:
    (one,) = told(said)
    assert one.name == name
    assert text in one.text


def test_a_pod_tells_its_own_and_counts_no_eviction() -> None:
    (one,) = of_pod(reclaimed(2), reclaimed(1), reclaimed(3, pod=PodName(namespace="jobs", name="other")))
    assert one.text.startswith("in the last 1 h, 120 MiB were reclaimed (128 MiB asked) from it")
    assert of_pod(reclaimed(1, bound="lacks")) == []


def test_it_is_no_outcome_of_the_limit() -> None:
    log = node_log("node-1", [outcome_record(outcome(1), 0), outcome_record(reclaimed(2), 1)])
    last = last_limit(log, START_MS + 3_000)
    assert last is not None
    assert last.body.seq == 1
    assert not reclaimed(1).about_limit


def test_the_audit_lists_it_by_pod() -> None:
    body = decode(encode(reclaimed(1)), NodeOutcome)
    assert audited(body)
    assert not audited(reclaimed(1, 0, result="unchanged"))
    assert what(body) == "reclaimed"
    assert Choice(pod="jobs/etl-x2lqp").wants(body)
    assert not Choice(pod="jobs/other").wants(body)
    listed = shown([Act(partition=0, offset=0, body=body)])
    assert "jobs/etl-x2lqp" in listed
    assert "60 MiB were reclaimed (64 MiB asked) in 31 ms" in listed
    assert "waited for memory 0.2% of the time before, 0.4% after" in listed


def test_the_chain_of_a_node_shows_the_act() -> None:
    text = node_text(explain_node(node_log("node-1", [outcome_record(reclaimed(1))]), START_MS + 3_000))
    assert "BEMemoryReclaim on jobs/etl-x2lqp" in text
    assert "60 MiB were reclaimed (64 MiB asked) in 31 ms" in text
