"""The console in a real browser: what it shows live and recorded, by keys, in both languages, and to whom."""

import re
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from testbed.console import HOSTILE, HTML, Shown, page_of, texts
from testbed.one_machine import NODE, eventually

pytestmark = [pytest.mark.browser, pytest.mark.timeout(200)]

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
SERIOUS = {"serious", "critical"}
PAGES = {
    "cluster": "#/cluster",
    "node": f"#/node/{NODE}?span=300000",
    "pod": "#/pod/jobs/etl-x2lqp",
    "records": "#/records",
    "policy": "#/policy",
    "jobs": "#/jobs",
    "services": "#/services",
}
OPENED = """() => Promise.all([...document.querySelectorAll('main details:not([open])')].map((one) =>
  new Promise((done) => { one.addEventListener('toggle', done, {once: true}); one.open = true; })))"""
"""Open what is closed, and wait for what that puts on the page: numbers are found by their order."""
COLOURS = "[...document.querySelectorAll('.cpus i')].map((one) => getComputedStyle(one).backgroundColor)"
REGIONS = ("Jobs", "ClusterQueues", "Workloads")
CHINESE = {
    "cluster": "集群",
    "node": "节点",
    "pod": "Pod",
    "records": "消息",
    "policy": "策略",
    "jobs": "Job 与队列",
    "services": "服务",
}


def findings(page: Page) -> list[str]:
    """What axe-core takes for a serious hindrance."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in SERIOUS
    ]


def colours(page: Page) -> int:
    """How many colours a sample of the page's largest picture has: an empty one has one or two."""
    return page.evaluate(
        """() => {
          const area = (one) => one.width * one.height, found = new Set();
          const canvas = [...document.querySelectorAll('main canvas')].sort((a, b) => area(b) - area(a))[0];
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          for (let at = 0; at < data.length; at += 4 * 101) found.add(data.slice(at, at + 3).join());
          return found.size;
        }"""
    )


def opened(page: Page, name: str) -> None:
    """Wait until the page is there with what it asked for."""
    expect(page.locator("nav a[aria-current]")).to_have_attribute("data-page", name)
    expect(page.locator(f"main[data-shows^='{name}/'] h1")).to_be_visible()


@pytest.mark.parametrize(("source", "theme"), [("live", "light"), ("recorded", "dark")])
@pytest.mark.story
def test_every_page_shows_what_there_is_and_hinders_nobody(
    browser: Browser, source: str, theme: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shown: Shown = request.getfixturevalue(source)
    with page_of(browser, shown.url, color_scheme=theme) as page:
        for name, path in PAGES.items():
            page.goto(f"{shown.url}/{path}")
            opened(page, name)
            assert page.locator("html").get_attribute("data-theme") == theme
            assert not findings(page), name
            if name in {"cluster", "node"}:
                assert colours(page) >= (3 if name == "node" else 2)
            page.screenshot(path=tmp_path / f"{name}.png")
            assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        page.goto(f"{shown.url}/{PAGES['node']}")
        expect(page.locator(".figures .number").first).to_contain_text("m")
        expect(page.locator(".bars").first).to_be_visible()
        strips = page.locator(".cpus")
        expect(strips.first).to_be_visible()
        assert len(set(page.evaluate(COLOURS))) == (3 if source == "recorded" else 1)
        if source == "recorded":
            lse = "LSE 0 · shop/lse-0 · no best-effort pods"
            lsr = "LSR 1 · shop/lsr-0 · best-effort pods may run there"
            expect(strips.first).to_have_attribute("aria-label", f"NUMA zone 0: {lse}; {lsr}")
            assert strips.locator("i").count() == 4
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        box = strips.first.locator("i").last.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
        strips.first.scroll_into_view_if_needed()
        page.screenshot(path=tmp_path / "narrow.png")


def test_live_figures_move_on_by_themselves(browser: Browser, live: Shown) -> None:
    with page_of(browser, live.url) as page:
        before = page.locator("#moment").inner_text()
        expect(page.locator("#moment")).not_to_have_text(before)
        expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")


def test_more_tabs_are_live_than_a_browser_opens_connections(browser: Browser, live: Shown) -> None:
    with page_of(browser, live.url) as page:
        tabs = [page, *(page.context.new_page() for _ in range(7))]
        for one in tabs[1:]:
            one.goto(live.url)
        for one in tabs:
            opened(one, "cluster")
            before = one.locator("#moment").inner_text()
            expect(one.locator("#moment")).not_to_have_text(before)


def test_recorded_figures_say_that_nothing_new_comes(browser: Browser, recorded: Shown) -> None:
    with page_of(browser, recorded.url) as page:
        expect(page.locator("#connection")).to_contain_text("Kafka")
        expect(page.locator(".figures .number").first).to_contain_text(re.compile(r"\dm"))


@pytest.mark.story
def test_a_number_opens_its_arithmetic_with_the_places_of_its_records(browser: Browser, live: Shown) -> None:
    """The same figure stands in the text of explain, and its line is marked."""
    with page_of(browser, f"{live.url}/{PAGES['node']}") as page:
        opened(page, "node")
        page.keyboard.press("ArrowLeft")  # a link would do as well: the moment stands
        page.locator("#slider").press("ArrowLeft")
        page.wait_for_url("**at=*")
        figures = page.locator(".figures .number")
        for number in range(figures.count()):
            figures.nth(number).click()
            expect(page.locator("dialog pre")).to_contain_text("slacktide.node.")
            text = page.locator("dialog h2").inner_text().partition(" = ")[2]
            shown = page.locator("dialog pre").inner_text()
            assert re.search(r"slacktide\.node\.\w+\.v\d \d+:\d+", shown)
            assert text in shown, f"{text} is not in:\n{shown}"
            assert "does not contain the arithmetic" not in shown, shown
            page.keyboard.press("Escape")


LATE_S, AGREES_S = 4, 30
"""How much later records of a second arrive, if the machine is not very busy; until then its figures change. And how
soon a number agrees with its arithmetic at the latest."""


class Arithmetic(NamedTuple):
    """What the dialog of a number said."""

    text: str
    amount: str
    """The digits that the text begins with, if any."""
    said: str

    def __bool__(self) -> bool:
        """Whether the number is in it."""
        return self.amount in self.said


def arithmetic_of(page: Page, number: Locator) -> Arithmetic:
    """Click the number."""
    number.click()
    pre = page.locator("dialog pre")
    expect(pre).not_to_have_text("Loading …")
    # As clicked: what stands at a place of the page may be another number by now.
    text = page.locator("dialog h2").inner_text().rpartition(" = ")[2]
    amount = re.match(r"[\d,.]+", text)
    found = Arithmetic(text, amount[0] if amount is not None else "", pre.inner_text())
    page.keyboard.press("Escape")
    return found


@pytest.mark.parametrize(
    ("name", "source"),
    [("cluster", "live"), ("node", "live"), ("pod", "live"), ("jobs", "live"), ("cluster", "recorded"),
     ("node", "recorded"), ("pod", "recorded"), ("records", "recorded"),
     ("services", "live")],
)  # fmt: skip
def test_every_number_of_a_page_opens_its_arithmetic(
    browser: Browser, name: str, source: str, request: pytest.FixtureRequest
) -> None:
    """With the number in it; tables are opened, and of a page the first thirty are asked."""
    shown: Shown = request.getfixturevalue(source)
    with page_of(browser, f"{shown.url}/{PAGES[name]}") as page:
        opened(page, name)
        for _ in range(LATE_S):
            page.locator("#slider").press("ArrowLeft")
        page.wait_for_url("**at=*")
        page.wait_for_selector(f"main[data-at='{page.url.rpartition('at=')[2].partition('&')[0]}']")
        page.evaluate(OPENED)
        numbers = page.locator("main .number[data-key]:visible").all()[:30]
        # A late record may change a number between the two: then it is asked again, and has to agree soon.
        answers = [eventually(partial(arithmetic_of, page, one), AGREES_S) for one in numbers]
        assert any(answer.amount for answer in answers)
        assert [answer for answer in answers if not answer] == []


def test_a_sum_opens_its_parts(browser: Browser, live: Shown) -> None:
    with page_of(browser, live.url) as page:
        opened(page, "cluster")
        page.locator("#slider").press("ArrowLeft")
        used = page.locator(".figures .number").first
        expect(used).to_contain_text("m")
        used.click()
        text = page.locator("dialog h2").inner_text().partition(" = ")[2]
        expect(page.locator("dialog pre")).to_contain_text(f"= used_cpu_milli {text}")
        expect(page.locator("dialog pre")).to_contain_text(f"+ {NODE}")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="1", exact=True).and_(page.locator("[data-key$=letters_hour]")).click()
        expect(page.locator("dialog pre")).to_contain_text("letters_hour 1: dead letters from")


def test_all_of_it_goes_by_keys(browser: Browser, recorded: Shown) -> None:
    with page_of(browser, recorded.url) as page:
        opened(page, "cluster")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("?")
        expect(page.locator("dialog[open] kbd").first).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("dialog[open]")).to_have_count(0)

        page.locator(".heat canvas").focus()
        page.keyboard.press("End")
        last = page.locator(".tip strong").inner_text()
        page.keyboard.press("Home")
        expect(page.locator(".tip strong")).not_to_have_text(last)
        page.keyboard.press("Enter")
        opened(page, "node")

        for number, name in enumerate(PAGES, start=1):
            page.keyboard.press(str(number))
            opened(page, name)

        page.locator("#slider").focus()
        page.keyboard.press("ArrowLeft")
        page.wait_for_url("**at=*")
        first = page.locator("#moment").inner_text()
        page.keyboard.press("Shift+ArrowLeft")
        expect(page.locator("#moment")).not_to_have_text(first)
        page.keyboard.press("l")
        expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")
        theme = page.locator("html").get_attribute("data-theme")
        page.keyboard.press("d")
        expect(page.locator("html")).not_to_have_attribute("data-theme", theme or "")


def test_it_plays_faster_than_life_until_it_is_live_again(browser: Browser, live: Shown) -> None:
    with page_of(browser, live.url) as page:
        opened(page, "cluster")
        page.locator("#speed").select_option("600")
        page.locator("#slider").press("PageDown")
        page.locator("#play").click()
        expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#play")).to_have_attribute("aria-label", "Play")


def test_a_link_holds_page_object_and_moment(browser: Browser, live: Shown) -> None:
    with page_of(browser, f"{live.url}/{PAGES['node']}") as page:
        opened(page, "node")
        page.locator("#slider").press("Shift+ArrowLeft")
        page.wait_for_url("**at=*")
        at_ms = re.search(r"at=(\d+)", page.url)
        assert at_ms is not None
        page.wait_for_selector(f"main[data-at='{at_ms[1]}']")
        link, moment, figures = page.url, page.locator("#moment").inner_text(), texts(page, ".figures dd")
    with page_of(browser, link) as page:
        opened(page, "node")
        expect(page.locator("#moment")).to_have_text(moment)
        expect(page.locator("h1")).to_have_text(NODE)
        page.wait_for_selector(f"main[data-at='{at_ms[1]}']")
        assert texts(page, ".figures dd") == figures


def test_both_languages_show_every_page(browser: Browser, live: Shown) -> None:
    with page_of(browser, live.url, locale="zh-CN") as page:
        for name, path in PAGES.items():
            page.goto(f"{live.url}/{path}")
            opened(page, name)
            expect(page.locator(f"nav a[data-page={name}]")).to_have_text(CHINESE[name])
            left = re.findall(r"\b[a-z]+\.[a-z.]+[a-z]\b", " ".join(texts(page, "h1, h2, th, dt, button, summary")))
            assert not [one for one in left if "config" not in one], f"{name}: keys without words"
        assert not findings(page)
        page.locator("#language").select_option("en")
        expect(page.locator("nav a[data-page=policy]")).to_have_text("Policy")
        assert page.locator("html").get_attribute("lang") == "en"


def test_a_service_is_shown_with_the_picture_of_what_was_measured(
    browser: Browser, live: Shown, tmp_path: Path
) -> None:
    """Six tenths have minutes; the line, its interval, the budget and the cap stand over them."""
    with page_of(browser, f"{live.url}/{PAGES['services']}") as page:
        page.get_by_role("link", name="shop/web").click()
        expect(page.locator("h1")).to_have_text("shop/web")
        picture = page.get_by_role("img", name="Slowdown by the CPU of best-effort pods")
        expect(picture.locator(".dot")).to_have_count(6)
        for part in ("band", "slope", "budget", "cap"):
            expect(picture.locator(f".{part}")).to_have_count(1)
        expect(page.locator(".figures")).to_contain_text("38% [31% … 46%]")
        expect(page.locator("pre")).to_contain_text("slacktide.service.minute.v1")
        assert not findings(page)
        page.screenshot(path=tmp_path / "service.png", full_page=True)
    with page_of(browser, f"{live.url}/{PAGES['services']}/shop%2Fcache") as page:
        for text in ("latency", "82% [69% … 97%]", "4.0 ms", "8.0 ms", "reached with 58% of a node", "38% [31% … 46%]"):
            expect(page.locator(".figures div", has_text=text)).to_have_count(1)
        expect(page.locator("pre")).to_contain_text("signal: latency, as users see it")
        assert not findings(page)
        page.screenshot(path=tmp_path / "latency.png", full_page=True)


@pytest.mark.story
def test_hostile_names_are_shown_as_text(browser: Browser, recorded: Shown) -> None:
    with page_of(browser, recorded.url) as page:
        opened(page, "cluster")
        page.locator("main details").last.locator("summary").click()
        for shown in (HTML, r"\u202egnp.exe", r"\u001b[2Jred"):
            expect(page.locator("table")).to_contain_text(shown)
        page.locator("table a", has_text="<img").click()
        expect(page.locator("h1")).to_have_text(HTML)
        page.locator(".figures .number").first.click()
        expect(page.locator("dialog")).to_contain_text(HTML)
        page.keyboard.press("Escape")
        for name in HOSTILE:
            page.goto(f"{recorded.url}/#/pod")
            page.locator("#pod-name").fill(f"jobs/{name}")
            page.keyboard.press("Enter")
            expect(page.locator(".life .severity.problem").first).to_be_visible()
            assert not set("\u202e\x1b") & set(page.locator("body").inner_text())
        assert page.locator("main img, main b").count() == 0


def test_a_dead_letter_is_shown_with_its_reason(browser: Browser, live: Shown) -> None:
    with page_of(browser, f"{live.url}/{PAGES['records']}") as page:
        expect(page.locator("main")).to_contain_text("node.sample")
        expect(page.locator("main td", has_text="truncated").first).to_be_visible()


def test_jobs_and_queue_are_there_by_keys_and_a_job_opens_with_its_explanation(browser: Browser, live: Shown) -> None:
    """Those in trouble first; a hostile name is text; an earlier moment shows the Job as it stood."""
    with page_of(browser, live.url) as page:
        opened(page, "cluster")
        page.keyboard.press("6")
        opened(page, "jobs")
        jobs, queues, workloads = (page.get_by_role("region", name=name).get_by_role("table") for name in REGIONS)
        expect(jobs.locator("tbody a")).to_have_text(["jobs/bad", "jobs/etl", f"jobs/{HTML}"])
        expect(queues.locator("tbody td").first).to_have_text("gpu")
        expect(workloads.locator("tbody tr").first).to_contain_text("jobs/w0")
        assert page.locator("main img, main b").count() == 0
        page.locator("#job-filter").fill("etl")
        expect(jobs.locator("tbody a")).to_have_text(["jobs/etl"])
        jobs.locator("tbody a").focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("jobs/etl")
        expect(page.get_by_role("region", name="Evicted by Slacktide").first).to_contain_text("observed 91")
        expect(page.locator("main pre")).to_contain_text("job jobs/etl, NonIndexed, running")
        assert colours(page) >= 2
        assert not findings(page)
        page.locator(".figures .number").last.click()
        expect(page.locator("dialog mark").first).to_contain_text("lost_core_s 60 at")
        page.keyboard.press("Escape")
        page.locator("#slider").press("ArrowLeft")
        page.wait_for_url("**at=*")
        expect(page.locator("main pre")).to_contain_text("job jobs/etl, NonIndexed, running")


def test_a_trace_goes_from_sample_to_outcome(browser: Browser, live: Shown) -> None:
    with page_of(browser, f"{live.url}/{PAGES['node']}") as page:
        opened(page, "node")
        # Two seconds back the chain is complete; ten could lie before the console's first second.
        for _ in range(2):
            page.locator("#slider").press("ArrowLeft")
        page.wait_for_url("**at=*")
        page.locator("a.place", has_text="…").last.click()
        opened(page, "records")
        expect(page.locator(".life")).to_contain_text("slacktide.node.sample.")
        for topic in ("command", "outcome"):
            expect(page.locator(".life")).to_contain_text(f"slacktide.node.{topic}.v1")


def test_at_four_times_the_size_nothing_is_cut_off(browser: Browser, live: Shown) -> None:
    """400% of a window of 1280 pixels leaves 320, which WCAG asks for."""
    with page_of(browser, live.url, viewport={"width": 320, "height": 640}) as page:
        for name, path in PAGES.items():
            page.goto(f"{live.url}/{path}")
            opened(page, name)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is {wide} pixels too wide"


def test_the_first_page_is_there_at_once(browser: Browser, live: Shown) -> None:
    """Within a second where nothing else runs; here is the best of three on a shared machine."""
    took = []
    for _ in range(3):
        with page_of(browser, "about:blank") as page:
            page.goto(live.url)
            expect(page.locator(".figures .number").first).to_be_visible()
            took.append(page.evaluate("performance.now()"))
    assert min(took) <= 2_000, took
