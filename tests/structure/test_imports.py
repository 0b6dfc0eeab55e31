"""Who loads what: import rules, and what a process has in memory."""

import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("faust", "mode", "numpy", "kubernetes_asyncio", "aiohttp", "cryptography", "rich")


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after the code."""
    report = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "module", ["slacktide.agents.node.loop", "slacktide.deploy.cli.agent", "slacktide.deploy.cli.main"]
)
def test_a_node_agent_loads_nothing_that_it_does_not_need(module: str) -> None:
    """It runs on every node: Faust, numpy and Kubernetes' models would be tens of megabytes each."""
    assert loaded_by(f"import {module}") & set(HEAVY) == set()


def test_the_agent_command_itself_stays_as_lean() -> None:
    code = "from slacktide.deploy.cli.main import main\ntry: main(['agent', '--help'])\nexcept SystemExit: pass"

    assert loaded_by(code) & set(HEAVY) == set()


def test_the_door_to_kafka_is_as_lean() -> None:
    """Agents load it."""
    assert loaded_by("import slacktide.streams.kafka") & set(HEAVY) == set()


@pytest.mark.parametrize(
    "module", ["slacktide.streams", "slacktide.streams.worker", "slacktide.streams.decisions.suppress.cpu_suppress"]
)
def test_thinking_needs_neither_faust_nor_kafka(module: str) -> None:
    assert loaded_by(f"import {module}") & {*HEAVY, "aiokafka"} - {"numpy"} == set()


def test_a_decision_needs_no_numpy() -> None:
    """Nor anything else that a guard on a node would have to load."""
    loaded = loaded_by("import slacktide.streams.decisions.node_decision")

    assert loaded & {*HEAVY, "aiokafka", "asyncio"} == set()


def test_imports_go_one_way() -> None:
    """All contracts in pyproject.toml hold."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-3000:]


def test_no_modules_form_a_circle() -> None:
    """An import for a type counts, too. ``prepare`` raises a CycleError that names the circle."""
    graph = grimp.build_graph("slacktide.schemas", "slacktide.streams", "slacktide.agents", "slacktide.deploy")
    assert len(graph.modules) > 300
    TopologicalSorter({one: graph.find_modules_directly_imported_by(one) for one in graph.modules}).prepare()


def test_offsets_are_asked_for_by_time_in_one_place() -> None:
    """Where times are clamped: the client refuses a negative one."""
    asking = [path for path in (ROOT / "streams" / "kafka").glob("*.py") if ".offsets_for_times(" in path.read_text()]
    assert [path.name for path in asking] == ["reader.py"]
