"""Figure: how much the loop spares the service, from the demo's own report."""

import json

from bench.process import SLACKTIDE, Running
from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged, told

CONTROLLED_S = 15
WITHIN_S = 240.0
FACTOR = 1.3


def measure(rig: Rig) -> list[Row]:
    """One run of the demo."""
    report_file = rig.folder / "demo.json"
    command = [SLACKTIDE, "demo", "--plain", "--seconds", str(CONTROLLED_S), "--report", str(report_file)]
    command += ["--no-console"]  # what is measured is the loop
    rig.say(f"slowdown: {' '.join(command[1:4])} {CONTROLLED_S}")
    with Running(rig, "demo", command) as demo:
        code = demo.wait_end(WITHIN_S)
    if not report_file.exists():
        raise CannotRunError(f"the demo ended with exit code {code} and wrote no report:\n{demo.last_words()}")
    return _rows(json.loads(report_file.read_text()))


def _rows(report: dict) -> list[Row]:
    slow, reaction, use = report["ls_slowdown"], report["reaction_ms"], report["utilization"]
    mode = f"{report['mode']} node"
    if slow["controlled"] is None or slow["uncontrolled"] is None:
        raise CannotRunError(f"the demo measured no slowdown: {slow}")
    said = f"{slow['controlled']:.2f} x, uncontrolled {slow['uncontrolled']:.2f} x"
    if slow["weights"] is not None:
        said += f", weights {slow['weights']:.2f} x"
    return [
        judged(
            "LS slowdown, controlled",
            f"<= uncontrolled / {FACTOR}",
            f"{said}: ratio {slow['uncontrolled'] / slow['controlled']:.2f}; {mode}",
            met=slow["controlled"] * FACTOR <= slow["uncontrolled"],
            n="3 blocks",
            **report,
        ),
        told(
            "demo: reaction, utilization",
            f"p50 {reaction['p50']} ms, p99 {reaction['p99']} ms; LS alone {use['ls_alone']}, together "
            f"{use['colocated']}; decided by stream {report['decided_by']['stream']}, guard "
            f"{report['decided_by']['guard']}",
            n=reaction["n"],
        ),
    ]
