"""A test that waits for something fails in time, and shows what came instead."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PARTS = {"agent", "bridge", "publish", "queue", "scheduler", "sli", "stream", "up", "webhook"}
"""Commands that serve /metrics, each on a port of its own unless an argument names another."""


@functools.cache
def parsed(file: Path) -> ast.Module:
    """Its syntax."""
    return ast.parse(file.read_text())


def calls(*folders: str) -> Iterator[tuple[str, ast.Call]]:
    """Each call in these folders, and where it stands."""
    for folder in folders:
        for file in sorted((TESTS / folder).rglob("*.py")):
            for node in ast.walk(parsed(file)):
                if isinstance(node, ast.Call):
                    yield f"{file.relative_to(TESTS)}:{node.lineno}", node


def test_no_part_takes_a_port_that_another_run_on_the_machine_may_have() -> None:
    """A part whose port is taken ends at once, and its test waits in vain."""
    fixed = [
        place
        for place, call in calls(".")
        if ast.unparse(call.func).endswith("Popen")
        and "SLACKTIDE" in (said := ast.unparse(call))
        and any(f"'{part}'" in said for part in PARTS)
        and "--metrics-port" not in said
    ]

    assert fixed == [], "use testbed.parts.running_part"


def test_the_log_of_each_process_is_kept() -> None:
    """What ended it stands there."""
    thrown_away = [
        place
        for place, call in calls("pipeline", "attack", "testbed/cluster")
        if ast.unparse(call.func).endswith("Popen") and "stderr=subprocess.DEVNULL" in ast.unparse(call)
    ]

    assert thrown_away == []


BUSY_S = 60
"""A machine that is busy takes so much longer; on another one a longer limit costs nothing."""
WAITS = {"soon", "eventually", "until", "wait_for", "timeout", "wait_logged"}


def limits(node: ast.AST) -> Iterator[ast.expr]:
    """For how long something is waited for: of a call, of a function's default, of a loop."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in WAITS:
        yield from [*node.args, *(one.value for one in node.keywords if one.arg == "within_s")]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        names = [*node.args.posonlyargs, *node.args.args][::-1], node.args.kwonlyargs
        values = node.args.defaults[::-1], node.args.kw_defaults
        for some, defaults in zip(names, values, strict=True):
            yield from (one for name, one in zip(some, defaults, strict=False) if name.arg == "within_s" and one)
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp) and "monotonic() -" in ast.unparse(node.left):
        yield from node.comparators
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        yield from [node.value.right] if ast.unparse(node.targets[0]) == "until_s" else []


def test_no_wait_is_given_up_before_a_busy_machine_is_done() -> None:
    """Who waits for a state may wait long; what must come soon, or not at all, is a promise that has a name."""
    found = [
        f"{file.relative_to(TESTS)}:{limit.lineno}"
        for file in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(parsed(file))
        for limit in limits(node)
        if isinstance(limit, ast.Constant) and type(limit.value) in {int, float} and 1 <= limit.value < BUSY_S
    ]

    assert found == []


def endless(node: ast.AST) -> Iterator[ast.While]:
    """Loops that only await, without a deadline of their own or around them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AsyncWith) and "timeout(" in ast.unparse(child.items[0]):
            continue
        if isinstance(child, ast.While) and not isinstance(child.test, ast.Constant):
            said = ast.unparse(child)
            if "await" in said and "assert" not in said and "monotonic" not in said:
                yield child
        yield from endless(child)


def test_no_wait_for_kafka_is_without_an_end() -> None:
    """It would run into the limit of pytest, which shows nothing of what came."""
    files = sorted((TESTS / "pipeline").glob("*.py"))
    found = [f"{file.name}:{loop.lineno}" for file in files for loop in endless(parsed(file))]

    assert found == [], "use testbed.waiting.soon"
