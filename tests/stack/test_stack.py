"""The stack in Docker, as it ships: from nothing to the first suppression, all restarts, and nothing left behind.

The tests are one story, in their order, and type the commands of docs/docker.md. Only base images are others
(testbed/stack/images.py).
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from slacktide.schemas.command import NodeCommand
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import COMMAND, SAMPLE
from testbed.audit import Audit, records
from testbed.one_machine import eventually
from testbed.stack import daemon
from testbed.stack.compose import FOLDER, PROJECT, Stack, base, documented_commands

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

NODE = "docker"
PATIENCE_S = 120.0
ROOT = Path(__file__).parents[2]
DRIVER, ENTER, START, THREE, EXPLAIN, OUTCOMES, ASK, TOKEN, WITH_PICTURES, END = documented_commands()
WITHOUT_DATA = re.compile(
    "slacktide_(agent_(evictions|records_refused)_total|scheduler_node_refusals|descheduling_|bridge_)"
)
CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    sweep()
    with daemon.running() as docker:
        found = Stack(docker)
        try:
            yield found
        finally:
            found("down", "--volumes")


@pytest.fixture(scope="module")
def audits() -> list[Audit]:
    """Begun with the first suppression."""
    return []


def groups() -> list[Path]:
    """The groups of the stack's pods, in each hierarchy."""
    return [found for found in (CGROUPS / "slacktide", *CGROUPS.glob("*/slacktide")) if found.is_dir()]


def sweep() -> None:
    """Remove the groups of a stack that was killed."""
    for group in groups():
        for inner in sorted(group.glob("**/"), reverse=True):
            inner.rmdir()


def quotas() -> list[str]:
    """What best-effort pods may have, as the kernel has it."""
    files = ("cpu.cfs_quota_us", "cpu.max")
    found = [file for group in groups() for name in files for file in group.glob(f"kubepods/besteffort/{name}")]
    return [text for file in found if not (text := file.read_text().split()[0]).startswith(("-1", "max"))]


def post(stack: Stack, verb: str, body: dict[str, Any]) -> Any:
    url = f"http://127.0.0.1:{stack.ports['SCHEDULER_PORT']}/{verb}"
    request = urllib.request.Request(url, data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def asked(stack: Stack, query: str) -> list[Any]:
    """What the stack's Prometheus has for a query."""
    url = f"http://127.0.0.1:{stack.ports['PROMETHEUS_PORT']}/api/v1/{query}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: list[Any] = json.load(answer)["data"]
        return found


@pytest.mark.story
def test_from_nothing_to_the_first_suppression(stack: Stack, audits: list[Audit]) -> None:
    assert not groups()
    assert stack.typed(DRIVER) in {"cgroupfs\n", "systemd\n"}
    assert f"cd {FOLDER.relative_to(ROOT)}" == ENTER
    stack.typed(START)
    stack.await_well()

    assert eventually(quotas, PATIENCE_S, every_s=0.5), stack("logs", "agent")
    assert eventually(lambda: records(stack.bootstrap, SAMPLE, NodeSample, NODE), PATIENCE_S, every_s=1.0)
    audits.append(Audit(stack.bootstrap, NODE))
    said = eventually(lambda: [one for one in audits[0].outcomes() if one.origin == "stream"], PATIENCE_S, every_s=1.0)
    assert said, "nothing that the stream decided was carried out"


def test_the_agents_image_holds_neither_faust_nor_numpy(stack: Stack) -> None:
    def holds(service: str, package: str) -> bool:
        found = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]) is not None)"
        image = stack.image(service)
        return stack.daemon.run("run", "--rm", "--entrypoint=python", image, "-c", found, package).strip() == "True"

    assert not [package for package in ("faust", "numpy", "aiohttp", "cryptography") if holds("agent", package)]
    assert holds("stream", "faust")
    assert holds("scheduler", "aiohttp")
    assert holds("console", "aiohttp")
    assert not holds("console", "faust")


def test_nobody_but_the_agent_and_the_tree_is_root_and_no_part_can_write_to_its_image(stack: Stack) -> None:
    ours = {name: each for name, each in stack.services().items() if each["image"].startswith("slacktide-")}
    image = stack.daemon.run("inspect", "--format", "{{.Config.User}}", stack.image("agent")).strip()

    assert image == "65532:65532"
    assert {name for name, each in ours.items() if each.get("user") == "0"} == {"agent", "tree"}
    assert all(each["read_only"] and each["cap_drop"] == ["ALL"] for each in ours.values())
    assert {name for name, each in ours.items() if each.get("cap_add")} == {"agent", "tree"}


def test_every_image_has_an_exact_tag(stack: Stack) -> None:
    named = re.findall(r"^ +image: (?:&\w+ )?([^*\s]+)$", (ROOT / "deploy/compose/compose.yaml")
                       .read_text(), flags=re.MULTILINE)  # fmt: skip

    assert len(named) == 8
    assert all(re.search(r":v?\d+\.\d+\.\d+", each) for each in [*named, base()])


def fits_or_is_busy(told: dict[str, Any]) -> bool:
    """Whether the node was let through, or refused because this machine has other work, too."""
    assert not told["Error"]
    refused = {**told["FailedNodes"], **told["FailedAndUnresolvableNodes"]}
    return NODE in told["NodeNames"] or "usage_exceeds_threshold" in refused[NODE]


def test_whoever_asks_as_a_kube_scheduler_does_is_answered(stack: Stack) -> None:
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "10m"}}}]}
    pod = {"metadata": {"name": "a", "namespace": "default", "uid": "a"}, "spec": spec}
    question = {"Pod": pod, "NodeNames": [NODE, "unknown"]}

    told = post(stack, "filter", question)
    assert "unknown" in told["NodeNames"], "nothing speaks against a node that the log never spoke of"
    assert fits_or_is_busy(told)
    assert {one["Host"] for one in post(stack, "prioritize", question)} == {NODE, "unknown"}


def test_the_console_shows_the_node_to_whoever_has_its_token(stack: Stack) -> None:
    url = f"http://127.0.0.1:{stack.ports['CONSOLE_PORT']}"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, timeout=60)
    headers = {"Authorization": f"Bearer {stack.typed(TOKEN).strip()}"}

    def nodes() -> list[str]:
        asking = urllib.request.Request(f"{url}/api/cluster", headers=headers)
        with urllib.request.urlopen(asking, timeout=60) as answer:
            found: list[str] = json.load(answer)["columns"]["node"]
            return found

    assert eventually(lambda: nodes() == [NODE], PATIENCE_S, every_s=1.0), nodes()


def test_prometheus_scrapes_all_parts_and_has_the_rules(stack: Stack) -> None:
    def up() -> set[str]:
        active: Any = asked(stack, "targets?state=active")
        return {one["labels"]["job"] for one in active["activeTargets"] if one["health"] == "up"}

    assert eventually(lambda: up() == {"agent", "stream", "scheduler", "console"}, PATIENCE_S, every_s=1.0), up()
    rules: Any = asked(stack, "rules")
    assert len(rules["groups"][0]["rules"]) >= 9


def test_every_panel_that_needs_no_trouble_has_data(stack: Stack) -> None:
    """Nobody serves the bridge here. Evictions and bad records: tests/pipeline/test_dashboards.py has that trouble."""
    dashboards = [json.loads(file.read_text()) for file in (ROOT / "deploy/grafana").glob("*.json")]
    queries = {t["expr"] for dashboard in dashboards for panel in dashboard["panels"] for t in panel["targets"]}

    def empty() -> set[str]:
        filled = {
            one: one.replace("$__range_s", "3600").replace("$__range", "1h").replace("$node", NODE) for one in queries
        }
        told: dict[str, Any] = {
            one: asked(stack, f"query?{urlencode({'query': text})}") for one, text in filled.items()
        }
        return {one for one, each in told.items() if not each["result"] and not WITHOUT_DATA.search(one)}

    assert eventually(lambda: not empty(), PATIENCE_S, every_s=2.0), empty()


def test_three_workers_and_one_again(stack: Stack) -> None:
    stack.typed(THREE)
    stack.await_well()
    assert stack("ps", "--quiet", "stream").count("\n") == 3
    stack.up("--scale", "stream=1", "stream")
    assert stack("ps", "--quiet", "stream").count("\n") == 1


def test_what_the_readme_says_to_look_at_is_there(stack: Stack) -> None:
    """What a node's figures come from, its newest outcomes, and what a kube-scheduler would be answered."""
    explained = stack.typed(EXPLAIN)
    outcomes = [json.loads(line) for line in stack.typed(OUTCOMES).splitlines()]

    assert NODE in explained
    assert "batch-cpu" in explained
    assert outcomes
    assert {each["node"] for each in outcomes} == {NODE}
    assert fits_or_is_busy(json.loads(stack.typed(ASK)))
    assert "--profile ui" in WITH_PICTURES, "whose images are not to be had here: not run"


def test_every_service_restarts_in_turn(stack: Stack) -> None:
    lasting = [name for name, each in stack.services().items() if each.get("restart") == "unless-stopped"]
    assert len(lasting) == 10
    for service in lasting:
        stack("restart", service)
        stack.await_well()


@pytest.mark.story
def test_nothing_was_lost(stack: Stack, audits: list[Audit], record_property: Callable[[str, object], None]) -> None:
    """Every sample is in the log, every one in the log is answered, and every act is told once."""
    [audit] = audits
    assert eventually(lambda: not audit.holes(), PATIENCE_S, every_s=1.0), audit.holes()

    samples = {(each.boot_id, each.seq) for each in records(stack.bootstrap, SAMPLE, NodeSample, NODE)}

    def unanswered() -> set[tuple[str, int]]:
        answered = {(each.boot_id, each.seq) for each in records(stack.bootstrap, COMMAND, NodeCommand, NODE)}
        return samples - answered

    assert eventually(lambda: not unanswered(), PATIENCE_S, every_s=1.0), unanswered()
    audit.assert_whole()
    outcomes = audit.outcomes()
    assert {each.boot_id for each in outcomes} >= {boot for boot, _ in samples if (boot, 5) in samples}
    record_property("figures", f"{len(samples)} samples in, all answered; {len(outcomes)} outcomes out, each told once")


@pytest.mark.story
def test_down_leaves_nothing(stack: Stack) -> None:
    stack.typed(END)

    run = stack.daemon.run
    assert not run("ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
    assert not run("volume", "ls", "--quiet")
    assert not run("network", "ls", "--quiet", "--filter", "type=custom")
    assert not groups()
