"""How long workloads wait for their pods."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.job import (
    JobProgress,
    PodsReadyAction,
    PodsReadyConfig,
    Waiting,
    admission_open,
    backoff_s,
    pods_ready_action,
    pods_ready_condition,
)
from slacktide.streams.decisions.queue.queue_order import Condition

SECONDS = st.integers(0, 500)
REASONS = st.sampled_from(["WaitForStart", "WaitForRecovery", "PodsReady", "Started", "Recovered", "odd"])
CONDITIONS = st.none() | st.builds(Condition, REASONS, SECONDS, st.booleans())
CONFIGS = st.builds(PodsReadyConfig, SECONDS, SECONDS, SECONDS, SECONDS, st.none() | st.integers(0, 3))
WAITING = st.builds(Waiting, SECONDS, st.booleans(), st.booleans(), CONDITIONS, st.integers(0, 5), st.none() | SECONDS)


@given(CONFIGS, st.integers(1, 40))
def test_a_backoff_never_falls_below_the_one_before_unless_the_base_is_above_the_maximum(config, count) -> None:
    if config.backoff_base_s <= config.backoff_max_s:
        assert backoff_s(count, config) <= backoff_s(count + 1, config) <= config.backoff_max_s


def test_a_job_without_pods_is_ready_and_one_that_waits_for_its_first_is_not() -> None:
    assert JobProgress(0).pods_ready
    assert not JobProgress(1).pods_ready


def test_only_the_first_backoff_may_be_longer_than_the_maximum() -> None:
    config = PodsReadyConfig(backoff_base_s=60, backoff_max_s=50)

    assert [backoff_s(count, config) for count in (1, 2, 3)] == [60, 50, 50]


@given(WAITING, CONFIGS, SECONDS)
def test_what_is_looked_at_when_it_was_to_be_is_evicted_or_deactivated(one, config, now_s) -> None:
    first = pods_ready_action(one, config, now_s)
    if first.action == "recheck":
        assert first.after_s > 0
        assert pods_ready_action(one, config, now_s + first.after_s - 1).action == "recheck"
        assert pods_ready_action(one, config, now_s + first.after_s).action in {"evict", "deactivate"}


@given(WAITING, CONFIGS, SECONDS)
def test_an_eviction_counts_one_and_never_brings_a_requeue_forward(one, config, now_s) -> None:
    done = pods_ready_action(one, config, now_s)
    if done.action == "evict":
        assert done.requeue_count == one.requeue_count + 1
        assert done.requeue_at_s >= max(now_s, one.requeue_at_s or 0)
        assert config.backoff_limit_count is None or done.requeue_count <= config.backoff_limit_count


@given(WAITING, SECONDS)
def test_without_settings_nothing_is_evicted(one, now_s) -> None:
    assert pods_ready_action(one, None, now_s).action == "none"


@given(CONDITIONS)
def test_a_condition_that_is_written_again_stays_as_it_is(old) -> None:
    for admitted, ready in ((True, True), (True, False), (False, False)):
        status, reason = pods_ready_condition(old, admitted=admitted, ready=ready)
        again = pods_ready_condition(Condition(reason, 0, status), admitted=admitted, ready=ready)
        assert again == (status, reason)


@given(st.lists(CONDITIONS, max_size=4))
def test_admission_is_open_while_all_are_ready_or_nothing_blocks(holding) -> None:
    assert admission_open(block_admission=False, holding=holding)
    assert admission_open(block_admission=True, holding=holding) == all(one and one.status for one in holding)


def test_defaults_are_those_of_kueue() -> None:
    """Half an hour, and a minute that doubles up to an hour."""
    assert PodsReadyConfig() == (1_800, 0, 60, 3_600, False, None)
    assert Waiting(0) == (0, True, False, None, 0, None)
    assert PodsReadyAction("none") == ("none", "", 0, 0, 0, 0)


def test_pods_that_were_ready_once_have_the_time_to_recover_and_an_unknown_reason_waits_for_nothing() -> None:
    config = PodsReadyConfig(recovery_timeout_s=1)

    assert pods_ready_action(Waiting(0, pods_ready=Condition("WaitForRecovery", 10, False)), config, 10) == (
        "recheck", "WaitForRecovery", 1, 0, 0, 0
    )  # fmt: skip
    assert pods_ready_action(Waiting(0, pods_ready=Condition("odd", 10, False)), config, 9_999).action == "none"
