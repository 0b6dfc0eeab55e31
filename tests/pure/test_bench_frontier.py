"""The frontier of utilization: what is computed from its phases."""

import random
import socketserver
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from bench.frontier import generator, load, picture
from bench.frontier.conditions import AGAIN, ALONE, CONDITIONS, Condition
from bench.frontier.measure import rows
from bench.frontier.records import Phase, append, bucket, detectable, quantile_ms, ratio, read
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.main import cli


def phase(block: int, condition: str, latencies_ms: list[float], others_part: float = 0.0) -> Phase:
    counted: dict[int, int] = {}
    for latency_ms in latencies_ms:
        counted[bucket(latency_ms)] = counted.get(bucket(latency_ms), 0) + 1
    return Phase(
        service="nginx",
        batch="spin",
        block=block,
        condition=condition,
        seconds=20.0,
        latencies=counted,
        busy_part=0.5,
        service_cpus=0.5,
        batch_cpus=0.5,
        others_part=others_part,
        own_part=0.01,
        work_per_s=10.0,
        at="2026-11-25T16:00:00+00:00",
    )


@given(st.lists(st.floats(0.02, 60_000), min_size=1), st.floats(0.01, 0.999))
def test_a_quantile_is_exact_to_one_percent(latencies_ms: list[float], part: float) -> None:
    rank = next(n for n in range(1, len(latencies_ms) + 1) if n >= part * len(latencies_ms))
    exact_ms = sorted(latencies_ms)[rank - 1]
    assert quantile_ms([phase(1, ALONE, latencies_ms)], part) == pytest.approx(exact_ms, rel=0.011)


def test_twice_the_latency_is_a_ratio_of_two_in_its_interval() -> None:
    dice = random.Random(7)
    phases = []
    for block in range(1, 6):
        drawn = [dice.lognormvariate(1, 0.5) for _ in range(4_000)]
        phases += [phase(block, ALONE, drawn), phase(block, "weights", [2 * one for one in drawn])]
    low, middle, high = ratio(phases, "weights", ALONE)
    assert low <= middle <= high
    assert middle == pytest.approx(2, rel=0.02)


def test_blocks_that_spread_more_tell_less_apart() -> None:
    def blocks(spread: float) -> list[Phase]:
        made = []
        for block in range(1, 6):
            factor = 1 + spread * (-1) ** block
            made += [phase(block, ALONE, [10.0] * 100), phase(block, AGAIN, [10.0 * factor] * 100)]
        return made

    assert detectable(blocks(0.02), AGAIN, ALONE) < 0.05
    assert detectable(blocks(0.2), AGAIN, ALONE) > 0.2


def test_phases_are_kept_as_they_were(tmp_path) -> None:
    made = [phase(1, ALONE, [1.0, 2.0]), phase(1, "weights", [3.0])]
    for one in made:
        append(tmp_path / "phases.jsonl", one)
    assert read(tmp_path / "phases.jsonl") == made
    assert not read(tmp_path / "absent.jsonl")


def test_a_phase_beside_other_work_does_not_count() -> None:
    assert phase(1, ALONE, [1.0], others_part=0.10).quiet
    assert not phase(1, ALONE, [1.0], others_part=0.11).quiet


@pytest.mark.parametrize("block", [1, 2])
def test_the_load_lasts_as_long_as_the_phase(block: int) -> None:
    phases = load.shape(block, 20.0, 6.0)
    assert sum(seconds for seconds, _ in phases) == pytest.approx(26.0)
    assert {part for _, part in phases if part > 0.5} == set()


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda one: one.name)
def test_each_condition_has_a_policy_that_is_valid_and_acts(condition: Condition, tmp_path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(condition.policy_yaml())
    result = CliRunner().invoke(cli, ["policy", "lint", str(file)])
    assert result.exit_code == 0, result.output


def test_all_that_was_measured_is_in_table_and_picture() -> None:
    phases = [phase(block, one.name, [1.0 + block] * 50) for block in (1, 2) for one in CONDITIONS]
    assert [row.figure for row in rows(phases)] == [f"nginx beside spin: {one.name}" for one in CONDITIONS]
    drawn = picture.picture(phases)
    assert all(one.name in drawn for one in CONDITIONS if one.name not in {ALONE, AGAIN})


class Service(socketserver.ThreadingTCPServer):
    """Answers each request of one byte with ten, while it is well."""

    daemon_threads = True
    health = "well"


class Handler(socketserver.BaseRequestHandler):
    server: Service

    def handle(self) -> None:
        while self.request.recv(1):
            if self.server.health == "closes":
                return
            if self.server.health == "well":
                self.request.sendall(b"x" * 10)


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_service_that_closes_connections_ends_the_measurement(service: Service) -> None:
    """Else its closed connection is readable for ever, and the generator takes a CPU from those it measures."""
    with closing(generator.Generator(service.server_address[1], b"r")) as made:
        service.health = "closes"
        with pytest.raises(ConnectionError, match="closed a connection"):
            made.play(time.monotonic(), 1, [[0.2, 100.0]])


def test_requests_given_up_do_not_hold_connections_of_the_next_play(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "GIVE_UP_S", 0.1)
    with closing(generator.Generator(service.server_address[1], b"r")) as made:
        service.health = "silent"
        asked = made.play(time.monotonic(), 1, [[0.2, 400.0]])
        service.health = "well"
        again = made.play(time.monotonic(), 1, [[0.2, 400.0]])

    assert len(asked) == len(again) > generator.CONNECTIONS
    assert statistics.median(latency_ms for _, latency_ms in again) < min(latency_ms for _, latency_ms in asked)
