"""``slacktide doctor`` against real brokers, and against this machine's control groups in a group of the test's own."""

import asyncio
import concurrent.futures
import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kernel.groups import MOUNT, Groups

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.doctor.machine_facts import is_locked
from slacktide.deploy.cli.main import cli
from slacktide.schemas.topics import SAMPLE, TOPICS
from slacktide.streams.kafka import Sender, create_topics, describe_topics
from slacktide.streams.kafka.admin import set_configs
from slacktide.streams.records import Out
from testbed.brokers import free_port
from testbed.one_machine import eventually, one_machine
from testbed.waiting import soon

NOBODY = 65_534


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Its exit status and its checks by name, from a thread: it brings a loop of its own."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        result = thread.submit(CliRunner().invoke, cli, ["doctor", "--output", "json", *arguments]).result()
    return result.exit_code, {one["check"]: one for one in json.loads(result.stdout)["checks"]}


def log(broker: Any) -> dict[str, Any]:
    """What is said of the log alone."""
    _, checks = doctor("--bootstrap", broker.bootstrap)
    return {name.removeprefix("log."): one for name, one in checks.items() if name.startswith("log.")}


async def retention_ms(broker: Any) -> str:
    return (await describe_topics(broker.cluster, [SAMPLE.name]))[SAMPLE.name].config["retention.ms"]


@pytest.fixture
def groups() -> Iterator[Groups]:
    made = Groups(1)
    try:
        yield made
    finally:
        made.close()


def test_a_broker_without_topics_answers_and_is_not_ready(broker) -> None:
    """The question creates none."""
    told = log(broker)

    assert told["round-trip"]["verdict"] == "ok"
    assert (told["topics"]["verdict"], told["topics"]["found"]) == ("failed", f"{len(TOPICS)} missing")
    assert told["topics"]["advice"] == f"slacktide topics apply --bootstrap {broker.bootstrap}"
    assert asyncio.run(describe_topics(broker.cluster, [topic.name for topic in TOPICS])) == {}


async def test_what_is_written_is_what_is_looked_at(broker) -> None:
    """As the table says; and the newest record's age bears the two clocks out. Nothing is written by the question."""
    await create_topics(broker.cluster)
    assert "clock" not in log(broker)

    sender = Sender(broker.cluster, client_id="test", acks="1", timeout_s=5)
    await sender.connect([SAMPLE.name])
    await sender.send(
        [Out(topic=SAMPLE.name, key=name.encode(), value=b"{}") for name in ("node-1", "node-2", "node-1")]
    )
    sent_ms = SystemClock().wall_ms()
    await sender.close()
    told = log(broker)
    age_s = float(told["clock"]["found"].split(" is ")[1].split()[0])

    assert told["topics"]["verdict"] == "ok"
    assert told["clock"]["verdict"] == "ok"
    assert age_s <= (SystemClock().wall_ms() - sent_ms) / 1000 + 5
    state = (await describe_topics(broker.cluster, [SAMPLE.name]))[SAMPLE.name]
    assert sum(state.end.values()) == 3


def test_the_embedded_broker_is_named_with_what_it_lacks(embedded_broker) -> None:
    told = log(embedded_broker)

    assert "for development" in told["broker"]["advice"]
    assert told["idempotent-producer"]["found"].startswith("no: the broker gives no producer id")
    assert "embedded broker" in told["idempotent-producer"]["advice"]
    assert told["transactions"]["found"] == "no"


@pytest.mark.kafka
async def test_of_apache_kafka_nothing_is_missed_but_what_drifted(kafka_broker) -> None:
    await create_topics(kafka_broker.cluster)
    await set_configs(kafka_broker.cluster, {SAMPLE.name: {"retention.ms": "60000"}})
    await soon(lambda: retention_ms(kafka_broker), "the broker has the setting", enough="60000".__eq__)
    told = log(kafka_broker)

    assert {name: one["found"] for name, one in told.items() if one["verdict"] != "ok"} == {
        "topics": "1 set otherwise"
    }  # fmt: skip
    assert (told["idempotent-producer"]["found"], told["transactions"]["found"]) == ("yes", "yes")


def test_no_broker_is_a_failure_and_no_traceback() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        code, checks = doctor("--bootstrap", f"127.0.0.1:{taken.getsockname()[1]}")

    assert code == 1
    assert checks["log.broker"]["verdict"] == "failed"
    assert "log.topics" not in checks


@pytest.mark.kernel
def test_a_controller_without_the_group_is_told_from_one_that_is_not_mounted(groups: Groups, tmp_path: Path) -> None:
    """The groups of the tests are made in cpu, cpuacct, memory and freezer alone."""
    _, checks = doctor("--kubepods", groups.kubepods, "--state-folder", str(tmp_path))
    mounted = (MOUNT / "cpuset").is_dir()

    found = "not delegated to the best-effort cgroup" if mounted else "absent"
    assert checks["controller.cpuset"]["found"] == found
    assert checks["controller.freezer"]["found"] == "usable"
    assert checks["controller.cpu"]["found"] == "usable"


@pytest.mark.kernel
def test_a_user_who_may_not_write_the_groups_is_told_so(groups: Groups, tmp_path: Path) -> None:
    """What the machine is ready for as root it is not for everybody. As root first: that loads all there is."""
    where = ("--kubepods", groups.kubepods, "--state-folder", str(tmp_path))
    assert doctor(*where)[0] == 0

    os.seteuid(NOBODY)
    try:
        code, checks = doctor(*where)
    finally:
        os.seteuid(0)

    assert code == 1
    assert checks["knob.cpu-quota"]["found"] == "cpu.cfs_quota_us not writable: Permission denied"
    assert checks["capability.CAP_DAC_OVERRIDE"]["advice"].endswith(f"this is user {NOBODY}")
    assert checks["state.folder"]["verdict"] == "failed"


@pytest.mark.kernel
def test_what_is_closed_to_a_user_is_a_failure_and_no_traceback(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "cpu" / "kubepods").mkdir(parents=True)
    closed.chmod(0o700)
    where = ("--cgroup-mount", str(closed), "--state-folder", str(closed / "state"))
    assert doctor(*where)[1]["cgroup.version"]["verdict"] == "ok"

    os.seteuid(NOBODY)
    try:
        code, checks = doctor(*where)
    finally:
        os.seteuid(0)

    assert code == 1
    assert checks["cgroup.version"]["found"] == f"none at {closed}"
    assert "Permission denied" in checks["cgroup.version"]["advice"]


def test_an_agent_that_is_frozen_is_not_ready(tmp_path: Path) -> None:
    """Its processes are there, its groups and its Kafka too: it is asked itself."""
    with one_machine(tmp_path) as (node, up):
        up.wait_logged("ready in")
        port = up.url("agent").rpartition(":")[2]
        where = ("--bootstrap", up.bootstrap, "--metrics-port", port, "--state-folder", str(tmp_path / "state"))
        where += ("--node-name", node.name)
        awake = eventually(lambda: fresh(doctor(*where)[1]))
        by_port = doctor("--metrics-port", port, "--state-folder", str(tmp_path / "other"))[1]
        agent = up.part("agent")
        agent.suspend()
        try:
            code, frozen = doctor(*where)
            silent = eventually(lambda: stale(doctor(*where)[1]))
        finally:
            agent.resume()

    assert awake
    assert by_port["agent.live"]["found"] == f"http://127.0.0.1:{port}"
    assert (code, frozen["agent.live"]["verdict"]) == (1, "failed")
    assert frozen["agent.live"]["found"] == f"http://127.0.0.1:{port}: no answer within 3 s"
    assert silent


def stale(checks: dict[str, Any]) -> bool:
    fresh = checks.get("node.fresh", {"verdict": "", "found": ""})
    return fresh["verdict"] == "failed" and "the workers have marked the node stale" in fresh["found"]


CHURN = """
import fcntl, os, sys
files = [open(os.path.join(sys.argv[1], f"{os.getpid()}-{number}"), "w") for number in range(60)]
print("ready", flush=True)
while True:
    for how in (fcntl.LOCK_EX, fcntl.LOCK_UN):
        for file in files:
            fcntl.flock(file, how)
"""


def test_the_lock_of_a_frozen_agent_is_seen_while_others_come_and_go(tmp_path: Path) -> None:
    """The kernel's list skips a lock now and then: an agent that is frozen would be reported as none."""
    other = [
        subprocess.Popen([sys.executable, "-c", CHURN, tmp_path], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        for _ in range(3)
    ]
    try:
        assert {process.stdout.readline() for process in other if process.stdout} == {b"ready\n"}
        with (tmp_path / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            missed = sum(not is_locked(tmp_path / "lock", Path("/proc")) for _ in range(5_000))
    finally:
        for process in other:
            process.kill()
            process.communicate()

    assert not missed
    assert not is_locked(tmp_path / "lock", Path("/proc"))


def fresh(checks: dict[str, Any]) -> bool:
    return (checks["agent.live"]["verdict"], checks.get("node.fresh", {}).get("verdict")) == ("ok", "ok")


def test_where_no_agent_runs_none_is_missed(tmp_path: Path) -> None:
    """Doctor is asked before the first start, too."""
    checks = doctor("--metrics-port", str(free_port()), "--state-folder", str(tmp_path))[1]

    assert (checks["agent.live"]["verdict"], checks["agent.live"]["found"]) == ("ok", "no agent runs here")
    assert "agent.ready" not in checks
