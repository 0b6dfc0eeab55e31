"""What stands beside the code agrees with it: hooks, workflow, licence, version."""

import os
import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_hooks_run_what_the_makefile_has() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"].split() for repo in config["repos"] for hook in repo["hooks"]]

    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    assert {target for _, target in entries} == {"lint", "imports", "types"} <= TARGETS
    assert {make for make, _ in entries} == {"make"}


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text())
    (job,) = workflow["jobs"].values()

    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_issue_forms_have_what_a_form_needs() -> None:
    forms = [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]

    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text())
        asked = [one for one in form["body"] if one["type"] != "markdown"]
        assert {"name", "description", "body"} <= set(form), path.name
        assert len({one["id"] for one in asked}) == len(asked) > 0, path.name
        assert all(one["attributes"]["label"] for one in asked), path.name


def test_the_licence_is_the_one_that_the_project_names() -> None:
    text = (ROOT / "LICENSE").read_text()

    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_image_is_built_with_the_files_that_the_project_names() -> None:
    """Else its build fails: a name in pyproject.toml that the Dockerfile does not copy."""
    needed = {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"]}
    copied = re.findall(r"^COPY (.+) \./$", (ROOT / "deploy/image/Dockerfile").read_text(), re.MULTILINE)
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines()}

    assert needed <= {name for names in copied for name in names.split()}
    assert needed <= kept


def test_the_image_has_every_folder_that_the_command_line_imports() -> None:
    """The console was in no image, and its part ended at its start."""
    rooms = {f"deploy/{name}" for name in ("cli", "console", "demo", "runtime", "virtual")}
    sources = "\n".join(path.read_text() for room in rooms for path in (ROOT / room).rglob("*.py"))
    folders = {f"deploy/{name}" for name in re.findall(r"from slacktide\.deploy\.(\w+)", sources)}
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines()}

    assert rooms <= folders <= kept


def test_pages_name_the_version_that_the_project_has() -> None:
    pages = {name: (ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md", "CHANGELOG.md")}

    assert [name for name, text in pages.items() if PROJECT["version"] not in text] == []
