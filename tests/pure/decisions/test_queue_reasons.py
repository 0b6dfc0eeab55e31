"""Each reason for which a workload waits or is stopped has a text, for Events and for ``slacktide explain job``."""

import ast
import re
from pathlib import Path

import pytest

from slacktide.agents.cluster.queue.status import notice_of
from slacktide.schemas.queue import QueueState
from slacktide.streams.decisions.queue.missing import MEANINGS, UNKNOWN
from slacktide.streams.queue.decider import ADOPTED, DEACTIVATED

ROOT = Path(__file__).parents[3]
CORE = [
    *(f"streams/decisions/queue/{name}.py" for name in
      ("cycle", "flavor_match", "preempt", "preempt_fair", "queue_order", "scheduling")),
    *(f"streams/queue/{name}.py" for name in ("cluster", "decider")),
    "schemas/queue.py",
]  # fmt: skip
WORDS = {
    # Policies and strategies.
    "LowerPriority", "LowerOrNewerEqualPriority", "LessThanInitialShare", "LessThanOrEqualToFinalShare",
    # Effects of taints, and operators.
    "NoSchedule", "NoExecute", "NotIn",
    # Reasons of the condition QuotaReserved, and of PodsReady and Requeued.
    "WaitingForQuota", "WaitingForPreemptedWorkloads", "WaitForStart", "WaitForRecovery", "BackoffFinished",
    # Kueue's for what the core does not do.
    "PendingMigration", "PreemptionFailed", "AdmissionCheck",
}  # fmt: skip


def words(path: str) -> set[str]:
    """All of two capitals at least, such as reasons are."""
    tree = ast.parse((ROOT / path).read_text())
    texts = {one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return {text for text in texts if re.fullmatch(r"([A-Z][a-z]+){2,}", text)}


@pytest.mark.parametrize("path", CORE)
def test_each_reason_of_the_core_has_a_text(path: str) -> None:
    assert words(path) - WORDS <= MEANINGS.keys()


def test_each_reason_of_one_word_has_a_text() -> None:
    assert {DEACTIVATED, ADOPTED, "Stopped"} <= MEANINGS.keys()


def test_an_event_says_why_a_workload_waits_or_stops() -> None:
    def note(phase: str, reason: str) -> str:
        notice = notice_of(QueueState(uid="u", phase=phase, epoch=1, turn=1, reason=reason))  # type: ignore[arg-type]
        assert notice is not None
        return notice.note

    assert note("pending", "NoRoomForAllPods") == (
        "NoRoomForAllPods: Its quota suffices, but the nodes do not have room for all of its pods at once."
    )
    assert note("evicting", "QuotaShrank") == (
        "QuotaShrank: It was stopped, because the batch resources of its nodes fell below its quota."
    )
    assert note("pending", "AdmissionCheck:provision") == (
        "AdmissionCheck: Its ClusterQueue needs the admission check provision, which Slacktide does not execute."
    )
    assert "in use" not in note("pending", "OfALaterVersion")
    assert note("pending", "OfALaterVersion").endswith(UNKNOWN.why)
