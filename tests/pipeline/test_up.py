"""``slacktide up``: the whole stack on one (virtual) machine, its files, its failures, its end."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from slacktide.agents.node.state import Identity
from slacktide.deploy.runtime.endpoints import Endpoints
from slacktide.schemas.health import Health
from testbed.one_machine import (
    CPUS,
    NODE,
    SLACKTIDE,
    Up,
    VirtualNode,
    eventually,
    inventory,
    is_gone,
    one_machine,
    policy,
)


def records(up: Up, topic: str) -> list[dict]:
    """All records of a topic."""
    command = [SLACKTIDE, "topics", "tail", topic, "--bootstrap", up.bootstrap, "--since", "1h"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines()]


def outcomes(up: Up) -> list[dict]:
    """All outcomes in the log."""
    return records(up, "outcome")


def decided_by_the_stream(up: Up, after_ms: int = 0) -> bool:
    done = [one for one in outcomes(up) if one["origin"] == "stream" and one["result"] in {"applied", "unchanged"}]
    return any(one["acted_ms"] > after_ms for one in done)


def test_it_becomes_ready_decides_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The loop closes: batch work that would eat everything is held. A stop takes less than 10 s and all processes."""
    with one_machine(tmp_path) as (node, up):
        up.wait_logged(r"ready in \d+\.\d s")
        assert up.logged("`slacktide topics tail TOPIC`; kcat 1.7 from Debian cannot read the embedded broker")
        up.wait_logged(r"first applied decision \d+\.\d s after the start, by the \w+: no limit -> \d+ millicores")
        assert node.quota_us is not None
        assert eventually(lambda: decided_by_the_stream(up))
        parts = [up.part(name) for name in ("broker", "agent", "stream")]

        code, took_s = up.stop()
        assert (code, took_s < 10) == (0, True), up.text()
        assert all(is_gone(part) for part in parts)
        assert node.quota_us is not None, "what is in force stays in force"


def test_ctrl_c_is_a_stop_and_lifts_the_limit_where_asked(tmp_path: Path) -> None:
    """Here with the shipped policy. A virtual node has neither PSI nor threads, so that a quota holds its pods."""
    with one_machine(tmp_path, "--restore-on-exit", policy=False) as (node, up):
        up.wait_logged("first applied decision")
        assert node.quota_us is not None

        assert up.stop(signal.SIGINT)[0] == 0
        assert node.quota_us is None


def test_each_part_may_be_killed_and_the_loop_closes_again(tmp_path: Path) -> None:
    """The others run on. When the stack itself is killed it has no moment to stop anything: the kernel does."""
    with one_machine(tmp_path) as (node, up):
        up.wait_logged("ready in")
        for name in ("agent", "stream"):
            others = {part.pid for part in up.children()} - {up.part(name).pid}
            up.part(name).kill()
            up.wait_logged(rf"{name} ended \(killed by SIGKILL\); restarting it")
            up.wait_logged(rf"{name} is ready again after \d+\.\d s")
            assert others < {part.pid for part in up.children()}
            back_ms = max((one["acted_ms"] for one in outcomes(up)), default=0)
            assert eventually(lambda since_ms=back_ms: decided_by_the_stream(up, since_ms)), up.text()

        parts = {up.part("agent").pid, up.part("stream").pid}
        up.part("broker").kill()
        up.wait_logged(r"the embedded broker ended \(killed by SIGKILL\); restarting it, without its former records")
        up.wait_logged("topics created", times=2)
        assert eventually(lambda: decided_by_the_stream(up)), up.text()
        assert parts < {part.pid for part in up.children()}
        assert eventually(lambda: records(up, "policy")), "the operator's files are published anew"
        assert any(one["origin"] == "guard" for one in outcomes(up)), "meanwhile the node decided itself"
        assert node.quota_us is not None

        left = up.children()
        up.process.kill()
        assert len(left) == 3
        assert eventually(lambda: all(is_gone(part) for part in left))


def test_a_console_shows_the_machine_and_its_end_is_no_end_of_the_loop(tmp_path: Path) -> None:
    """It starts once the loop is ready, again when it ends, and stops with the others."""
    with one_machine(tmp_path, console=True) as (_, up):
        url = up.wait_logged(r"^console: (http\S+)")[1]
        assert up.logged("ready in")
        assert eventually(lambda: NODE in nodes_shown(url)), up.text()
        assert (tmp_path / "state/console/history.sqlite").exists()
        up.part("console").kill()
        up.wait_logged(r"console ended \(killed by SIGKILL\); restarting it")
        up.wait_logged(r"console is ready again")
        assert eventually(lambda: NODE in nodes_shown(url)), up.text()
        code, took_s = up.stop()
        assert (code, took_s < 10) == (0, True), up.text()
        assert up.children() == []


def nodes_shown(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/api/cluster", timeout=60) as answer:
        names: list[str] = json.load(answer)["columns"]["node"]
        return names


def test_without_the_extra_there_is_no_console_and_one_line_about_it(tmp_path: Path) -> None:
    without = (
        "import sys; sys.modules['aiohttp'] = None; from slacktide.deploy.cli.main import main; main(sys.argv[2:])"
    )
    through = (sys.executable, "-P", "-c", f"{without}; main(sys.argv[2:])")
    with one_machine(tmp_path, console=True, through=through) as (_, up):
        up.wait_logged("first applied decision")
        assert up.messages.count("the console is not installed: pip install 'slacktide[console]'") == 1
        assert up.stop()[0] == 0


def test_a_bad_file_is_refused_and_the_last_good_one_stays_in_force(tmp_path: Path) -> None:
    """The refusal names file, field, value and what is accepted. What has no effect is said, once."""
    with one_machine(tmp_path) as (node, up):
        up.wait_logged("first applied decision")
        node.policy.write_text(json.dumps(policy(cpuSuppressThresholdPercent=165)))
        refused = up.wait_logged("cpuSuppressThresholdPercent: 165: accepted: a whole number from 0 to 100").string
        assert refused.startswith(f"{node.policy}: ")
        assert refused.endswith(f"the last valid {node.policy} stays in force")

        bad = inventory()
        bad["items"][0]["status"]["capacity"]["cpu"] = "many"
        node.inventory.write_text(json.dumps(bad))
        refused = up.wait_logged("status.capacity.cpu: many: accepted: ", process="agent").string
        assert refused.endswith(f"the last valid {node.inventory} stays in force")
        assert sum(line["message"] == "policy in force" for line in up.lines) == 1
        assert node.quota_us is not None
        assert node.quota_us <= 0.65 * CPUS * 100_000, "the policy of before holds best-effort pods"

        by_cpuset = policy(cpuSuppressPolicy="cpuset")
        by_cpuset["data"]["system-config"] = "{}"
        node.policy.write_text(json.dumps(by_cpuset))
        up.wait_logged("system-config.*: not yet in effect")
        node.policy.touch()
        node.inventory.write_text(json.dumps(inventory()))
        up.wait_logged("inventory in force", process="agent", times=2)

        node.policy.write_text(json.dumps(policy(enable=False)))
        assert eventually(lambda: node.quota_us is None), up.text()
        assert sum("not yet in effect" in message for message in up.messages) == 1


def test_a_bad_policy_at_the_first_start_ends_it_with_the_reason(tmp_path: Path) -> None:
    node = VirtualNode(tmp_path)
    node.policy.write_text("kind: Secret")
    with Up(tmp_path, *node.arguments, "--policy", str(node.policy)) as up:
        assert up.process.wait(60) == 1
        assert up.messages == [f"{node.policy}: kind: 'Secret': accepted: \"ConfigMap\""]


def test_a_bad_policy_at_a_later_start_leaves_the_one_that_was_in_force(tmp_path: Path) -> None:
    """In force in the whole loop: the stream decides by it, too."""
    with one_machine(tmp_path) as (node, up):
        up.wait_logged("policy in force", process="agent")
        assert up.stop()[0] == 0
        node.policy.write_text("kind: Secret")
        with Up(tmp_path, *node.arguments, "--policy", str(node.policy)) as again:
            again.wait_logged("kind: 'Secret': accepted: \"ConfigMap\"\nthe last valid .* stays in force")
            again.wait_logged("ready in")
            assert eventually(lambda: decided_by_the_stream(again)), again.text()
            assert node.quota_us is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--cgroup-mount", "."], "no cgroup hierarchy: ", id="no control groups"),
        pytest.param(
            ["--kubepods", "nowhere"], "no such cgroup; give the cgroup of all pods with --kubepods", id="no such group"
        ),
        pytest.param(["--node-name", "beta"], "no Node beta", id="an inventory of another node"),
    ],
)
def test_what_cannot_work_ends_it_before_anything_starts(tmp_path: Path, arguments: list[str], said: str) -> None:
    with one_machine(tmp_path, *arguments) as (_, up):
        assert up.process.wait(60) == 1
        assert len(up.messages) == 1
        assert said in up.messages[0]


def test_a_machine_without_pods_is_offered_the_sample(tmp_path: Path) -> None:
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup/cgroup.controllers").write_text("cpu memory")
    with Up(tmp_path, "--cgroup-mount", str(tmp_path / "cgroup")) as up:
        assert up.process.wait(60) == 1
        assert up.logged("no cgroup contains pods: .*; to try Slacktide without pods: slacktide up --sample$")


def test_a_part_that_never_starts_ends_it_with_the_reason(tmp_path: Path) -> None:
    """Here: another agent has the state folder."""
    other = Identity(tmp_path / "state", start_ms=0)
    with one_machine(tmp_path) as (_, up):
        assert up.process.wait(60) == 1
        assert up.logged("another agent uses this state folder", process="agent")
        assert up.logged("agent ended 5 times before it was ready; the last time: exit code 1")
        assert up.children() == []
    other.release()


def test_who_answers_on_a_parts_port_is_not_taken_for_the_part(tmp_path: Path) -> None:
    """As another ``slacktide up`` on the machine does."""
    with Endpoints("127.0.0.1", 0, Health()) as other:
        port = other.url.rpartition(":")[2]
        with one_machine(tmp_path, "--metrics-port", port) as (_, up):
            assert up.process.wait(60) == 1
            assert up.logged(f"127.0.0.1:{port}: Address already in use", process="agent")
            assert up.logged("agent ended 5 times before it was ready; the last time: exit code 1")
            assert not up.logged("ready in ")


def test_without_an_inventory_it_describes_the_machine_and_says_so(tmp_path: Path) -> None:
    """And without its Kafka it waits, with the agent at work."""
    with VirtualNode(tmp_path) as node:
        arguments = [text for text in node.arguments if text not in {"--inventory", str(node.inventory)}]
        with Up(tmp_path, *arguments, "--bootstrap", "127.0.0.1:1") as up:
            up.wait_logged(f"no --inventory: node {NODE} is this machine with all its CPUs and memory, without pods")
            up.wait_logged("inventory in force", process="agent")
            assert up.stop()[0] == 0


def test_dry_run_writes_nothing_and_says_what_it_would_do(tmp_path: Path) -> None:
    with one_machine(tmp_path, "--dry-run") as (node, up):
        up.wait_logged("first dry-run decision .*: no limit would change")

        assert node.quota_us is None


@pytest.mark.kafka
def test_an_existing_kafka_is_used_and_left_running(tmp_path: Path, kafka_broker) -> None:
    """No broker of its own; topics are created on a cluster that has none."""
    with one_machine(tmp_path, "--bootstrap", kafka_broker.bootstrap) as (node, up):
        up.wait_logged("ready in")
        up.wait_logged("first applied decision")
        assert len(up.children()) == 2
        assert up.stop()[0] == 0

        assert kafka_broker.running
        assert node.quota_us is not None
