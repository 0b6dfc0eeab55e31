"""The console: who may ask, what its pages are made of, and that both languages have the same words."""

import base64
import json
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.console.answers import policy_groups, selector_text
from slacktide.deploy.console.guarding import HEADERS, is_loopback, refusal
from slacktide.deploy.console.server import page_files
from slacktide.schemas.policy import DEFAULT
from slacktide.schemas.policy.selector import Requirement, Selector
from testbed.samples import SUPPRESS

PAGES = Path(__file__).parents[2] / "deploy/console/pages"
TOKEN = "0123456789abcdef"
SCRIPTS = sorted(PAGES.rglob("*.js"))


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anyone:{password}".encode()).decode()


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", f"bearer {TOKEN}", basic(TOKEN)])
def test_whoever_brings_the_token_may_ask_by_any_name(authorization: str) -> None:
    assert refusal(TOKEN, "console.example:9470", authorization) is None


@pytest.mark.parametrize(
    "authorization", ["", "Bearer ", f"Bearer {TOKEN}x", basic("wrong"), "Basic %%%", "Basic /w==", TOKEN, "Bearer é"]
)
def test_whoever_does_not_is_refused(authorization: str) -> None:
    refused = refusal(TOKEN, "127.0.0.1:9470", authorization)
    assert refused is not None
    assert refused[0] == 401


@given(st.text(string.printable, max_size=40))
def test_no_other_text_is_the_token(text: str) -> None:
    assert (refusal(TOKEN, "x", f"Bearer {text}") is None) == (text.strip() == TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1:9470", "localhost:9470", "[::1]:9470", "127.8.8.8"])
def test_on_loopback_no_token_is_needed(host: str) -> None:
    assert refusal("", host, "") is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9470", "10.0.0.1", "", "[", "127.0.0.1.evil.example"])
def test_a_foreign_name_that_means_loopback_is_refused(host: str) -> None:
    """A page elsewhere whose name was made to resolve to this machine is no way in."""
    refused = refusal("", host, "")
    assert refused is not None
    assert refused[0] == 421


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("h", False)])
def test_loopback_is_known(host: str, loopback: bool) -> None:  # noqa: FBT001
    assert is_loopback(host) is loopback


def test_the_pages_get_scripts_and_styles_from_their_own_host_alone() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    )
    assert "unsafe" not in policy


def test_both_languages_have_the_same_words() -> None:
    english, chinese = (json.loads((PAGES / f"words/{name}.json").read_text()) for name in ("en", "zh-CN"))
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", chinese[key])), key
        assert text, key
        assert chinese[key], key


def test_every_word_is_used_and_every_used_word_is_there() -> None:
    words = json.loads((PAGES / "words/en.json").read_text())
    source = "\n".join(path.read_text() for path in SCRIPTS) + (PAGES / "index.html").read_text()
    used = set(re.findall(r'(?:\bt\(|data-word=)"([a-z.]+)"', source))
    assert used <= words.keys()
    families = (
        "by.", "count.", "cpu.", "decided.", "job.", "keys.", "mode.", "of.", "page.", "phase.", "pod.", "service.",
        "severity.", "state.",
    )  # fmt: skip
    rest = {key for key in words if key not in used and f'"{key}"' not in source and not key.startswith(families)}
    assert rest <= {"away", "nothing", "stalled"}


def test_nothing_that_a_record_holds_is_ever_read_as_html() -> None:
    """One place reads innerHTML, to compare; nobody writes it."""
    for path in SCRIPTS:
        text = path.read_text()
        assert not re.search(
            r"(inner|outer)HTML\s*=[^=]|insertAdjacentHTML|document\.write|\beval\b|new Function", text
        ), path


def test_the_pages_name_no_other_host() -> None:
    for name, (body, _, _) in page_files().items():
        text = body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"(?m)(^|\s)//.*$", "", text).replace("`//", ""), name


def test_all_files_of_the_pages_are_served() -> None:
    served = page_files()
    assert served.keys() == {str(path.relative_to(PAGES)) for path in PAGES.rglob("*") if path.is_file()}
    assert served["index.html"][1] == "text/html"


def test_a_policy_is_shown_by_groups_of_nodes() -> None:
    groups = policy_groups(SUPPRESS)
    assert [one["config"] for one in groups if not one["name"]] == [one["config"] for one in policy_groups(DEFAULT)]
    fields = {field["field"]: field for one in groups for field in one["fields"]}
    assert fields["resource-threshold-config.enable"]["value"] == "true"


def test_selectors_read_as_kubectl_writes_them() -> None:
    some = (
        Requirement(key="zone", operator="In", values=("a", "b")),
        Requirement(key="gpu", operator="DoesNotExist"),
        Requirement(key="disk", operator="Exists"),
    )
    selector = Selector(match_labels={"pool": "web"}, match_expressions=some)
    assert selector_text(selector) == "pool=web,zone in (a, b),!gpu,disk"
    assert selector_text(Selector()) == "all"
