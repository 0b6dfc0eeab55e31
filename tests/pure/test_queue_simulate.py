"""``slacktide queue simulate``: Kubernetes objects in, what would happen out."""

import json
from pathlib import Path

from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from testbed.scenarios import scenarios


@scenarios("queue_simulate")
def test_queue_simulate(case, tmp_path) -> None:
    (tmp_path / "cluster.yaml").write_text(json.dumps({"kind": "List", "items": case["items"]}))
    arguments = ["queue", "simulate", str(tmp_path / "cluster.yaml"), *case.get("options", ())]
    if more := case.get("more"):
        (tmp_path / "more.yaml").write_text(json.dumps(more[0] if len(more) == 1 else {"kind": "List", "items": more}))
        arguments += ["--with", str(tmp_path / "more.yaml")]
    done = CliRunner().invoke(cli, arguments)

    assert (done.exit_code, done.output.replace(f"{tmp_path}/", "")) == (case["exit"], case["output"])


def test_the_page_shows_what_its_example_comes_to() -> None:
    docs = Path(__file__).parents[2] / "docs"
    done = CliRunner().invoke(cli, ["queue", "simulate", str(docs / "queue-example.yaml")])
    shown = "".join(f"    {line}".rstrip() + "\n" for line in done.stdout.splitlines())
    assert shown in (docs / "queue-simulate.md").read_text()
