"""What the pages name is there: links and anchors, files, topics, metrics with their labels, commands, options."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from prometheus_client.metrics import MetricWrapperBase

from generate import pictures
from generate.reference import derived
from slacktide.deploy.cli import savings_report as savings
from slacktide.deploy.cli.main import cli
from slacktide.schemas.command import KEEP
from slacktide.schemas.heartbeat import KIND
from slacktide.schemas.topics import BY_NAME
from testbed.pictures import shown, words_of
from testbed.prometheus import all_metrics

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EACH_PAGE = pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
ROOMS = ("agents", "deploy", "docs", "generate", "schemas", "streams", "tests")
ENDS = {"counter": "_total", "histogram": "", "gauge": ""}
END_OF_COMMAND = {"|", "||", "&&", ";", ">", "<", "#"}
FOREIGN = {
    "--cgroup-parent",
    "--proxy-client-cert-file",
    "--pod-max-in-unschedulable-pods-duration",
    "--only",
    "--minutes",
}
"""Options that pages name of Docker, a kube-scheduler and the benches."""


def anchors(page: Path) -> set[str]:
    """As a forge makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EACH_PAGE
def test_each_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page

        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@EACH_PAGE
def test_each_file_that_is_named_is_there(page: Path) -> None:
    for name in re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w./-]*)`", page.read_text()):
        assert (ROOT / name).exists(), name


@EACH_PAGE
def test_each_topic_that_is_named_is_in_the_table(page: Path) -> None:
    assert set(re.findall(r"\bslacktide\.[a-z.-]+\.v\d\b", page.read_text())) <= {*BY_NAME, KIND, KEEP}


def served() -> dict[str, set[str]]:
    """The labels of each metric by its name, also of those that are written to a file."""
    written = [one for one in vars(savings).values() if isinstance(one, MetricWrapperBase)]
    named = ((family, one) for one in [*all_metrics(), *written] for family in one.describe())
    return {family.name + ENDS[family.type]: set(one._labelnames) for family, one in named}


def metrics_in(line: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric with the labels that are told; one may be named by its end, behind another of its part."""
    part = ""
    for name, labels in re.findall(r"`((?:slacktide)?_[a-z_]+)(?:{([^}]*)})?`", line):
        if name.startswith("slacktide"):
            part = "_".join(name.split("_")[:2])
        if part:
            yield name if name.startswith(part) else part + name, set(re.findall(r"(\w+)(?:=\"\w+\")?", labels))


@EACH_PAGE
def test_each_metric_that_is_named_is_served_with_the_labels_that_are_told(page: Path) -> None:
    labels_of = served()
    for paragraph in page.read_text().split("\n\n"):
        for name, labels in metrics_in(paragraph):
            assert name in labels_of, name
            assert labels <= labels_of[name], name


def commands_in(text: str) -> Iterator[list[str]]:
    """What is typed behind ``slacktide``, in blocks of code and between backticks."""
    fences = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    for fence in fences:
        text = text.replace(fence, "")
    blocks = re.findall(r"^    .*", text, re.MULTILINE)
    spans = [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", text)]
    for line in "\n".join((*fences, *blocks, *spans)).replace("\\\n", " ").splitlines():
        for typed in re.findall(r"(?:^|^ +|[$|-] |/|=\S+ )slacktide ([a-z].*)", line):
            yield typed.split()


def unknown_in(words: list[str]) -> Iterator[str]:
    """Commands and options that there are not."""
    command: click.Command = cli
    for word in words:
        if word in END_OF_COMMAND:
            return
        if isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", word) and not word.startswith("-"):
            found = command.get_command(click.Context(command), word)
            if found is None:
                yield word
                return
            command = found
        elif word.startswith("--"):
            options = {"--help", *(opt for one in command.params for opt in (*one.opts, *one.secondary_opts))}
            if word.rstrip(",;)").partition("=")[0] not in options:
                yield word


@EACH_PAGE
def test_each_command_that_is_shown_can_be_typed(page: Path) -> None:
    for words in commands_in(page.read_text()):
        assert list(unknown_in(words)) == [], words


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs/index.md"
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", index.read_text())}

    files = {path.name for path in (ROOT / "docs").glob("*.*") if path.suffix not in {".svg", ".png"}}
    assert files - {index.name} <= linked


def test_every_alert_page_leads_to_every_runbook_or_operations_does() -> None:
    linked = "".join((ROOT / "docs" / name).read_text() for name in ("alerts.md", "operations.md"))

    for runbook in (ROOT / "docs/runbooks").glob("*.md"):
        assert f"](runbooks/{runbook.name})" in linked, runbook.name


def test_no_page_of_the_site_links_to_what_the_site_lacks() -> None:
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
    targets = {(page, found) for page in pages for found in re.findall(r"\]\(([^)#:]+)[)#]", page.read_text())}

    assert [found for page, found in targets if not (page.parent / found).resolve().is_relative_to(ROOT / "docs")] == []


def test_the_site_has_every_page_and_is_built_without_a_warning(tmp_path: Path) -> None:
    """Strict: Zensical fails on a link or an anchor that leads nowhere."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    tool = Path(sys.executable).with_name("zensical")
    done = subprocess.run([tool, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    nav = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    written = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert written == nav
    assert {name.replace(".md", ".html") for name in written} <= {
        str(path.relative_to(tmp_path / "site")) for path in (tmp_path / "site").rglob("*.html")
    }
    assert "cpuReclaimThresholdPercent" in (tmp_path / "site/search.json").read_text()


@pytest.mark.parametrize("name", ["console-cluster.png", "console-node.png"])
def test_a_picture_of_the_console_shows_its_words(name: str) -> None:
    words = words_of((ROOT / "docs" / name).read_bytes())

    assert words, "it holds no words: draw it by tests/browser/pictures.py"
    assert shown("\n".join(words.values())).items() >= words.items(), "draw it anew by tests/browser/pictures.py"


def test_the_reference_pages_are_what_the_code_says() -> None:
    assert [path.name for path, text in derived().items() if path.read_text() != text] == []


def test_the_pictures_of_the_design_are_what_the_source_says() -> None:
    assert [path.name for path, text in pictures.derived().items() if path.read_text() != text] == []


def rooms_told() -> Iterator[str]:
    """The first column of CONTRIBUTING's first table: in a row, further folders stand below the first one's parent."""
    rows = (ROOT / "CONTRIBUTING.md").read_text().partition("| folder | content |")[2].partition("\n\n")[0]
    for cell in re.findall(r"^\| (`[^|]+`) \|", rows, re.MULTILINE):
        names = [name.rstrip("/") for name in re.findall(r"`([^`]+)`", cell)]
        above = names[0].rpartition("/")[0]
        yield from (name if (ROOT / name).exists() else f"{above}/{name}" for name in names)


def test_each_room_of_the_picture_has_a_row_in_contributing_and_each_row_is_there() -> None:
    told = set(rooms_told())
    drawn = set(re.findall(r' text-anchor="middle">([^<]+)<', (ROOT / "docs/rooms.svg").read_text()))

    assert {name for name in told if not (ROOT / name).exists()} == set()
    assert drawn
    assert drawn <= told


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def options_of(command: click.Command) -> set[str]:
    """Its own, and those of the commands below it."""
    own = {opt for one in command.params for opt in (*one.opts, *one.secondary_opts)}
    if not isinstance(command, click.Group):
        return own
    context = click.Context(command)
    below = [command.get_command(context, name) for name in command.list_commands(context)]
    return own.union(*(options_of(one) for one in below if one is not None))


@EACH_PAGE
def test_each_option_that_is_named_alone_is_one_of_some_command(page: Path) -> None:
    assert set(re.findall(r"`(--[a-z][a-z-]*)", page.read_text())) <= options_of(cli) | FOREIGN
