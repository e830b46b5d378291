"""The status page in a browser shows what the store holds."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from sinksdk.control.herder import Herder
from sinksdk.server.app import create_app
from sinksdk.server.credentials import Credentials, Login
from sinksdk.store import Store
from sinksdk.store.base import Lost, Stored
from sinksdk.store.keys import history_key
from sinksdk.store.reports import Bucket
from tests.helpers.memory_store import MemoryStore
from tests.helpers.needs import missing
from tests.helpers.ports import free_port
from tests.helpers.tiers import extended_after
from tests.server.filled_store import HOSTILE, TRACE, Scene, fill, scenes

pytestmark = pytest.mark.slow

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
ALIVE = 600.0  # seconds for which drivers in the store count as alive
NEXT_QUESTION = 45_000  # milliseconds: the page polls a slow server only every 30 s
NEXT_RESPONSE = 60_000  # milliseconds: the server needs a few seconds of its own
# The least contrast of each kind of text with its background, by WCAG's formula.
CONTRAST = """
() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    return over(channels(getComputedStyle(element).backgroundColor), ground(element.parentElement));
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("noscript, script")) continue;
    const style = getComputedStyle(element);
    const behind = ground(element);
    const text = over(channels(element instanceof SVGElement ? style.fill : style.color), behind);
    const [low, high] = [luminance(text), luminance(behind)].sort((a, b) => a - b);
    const name = `${element.tagName} ${element.getAttribute("class") ?? ""}`;
    found[name] = Math.min(found[name] ?? 99, (high + 0.05) / (low + 0.05));
  }
  return found;
}
"""


class FragileStore(MemoryStore):
    is_down = False

    def snapshot(self, prefix: str) -> Store:
        return self  # requests of the method fail like all others

    def _read(self, key: str) -> Stored | None:
        if self.is_down:
            raise Lost("down")
        return super()._read(key)

    def _keys(self, prefix: str) -> list[str]:
        if self.is_down:
            raise Lost("down")
        return list(super()._keys(prefix))


@dataclass
class Site:
    store: FragileStore
    url: str
    server: uvicorn.Server
    names: list[str] = field(default_factory=list)


@contextmanager
def serving(credentials: Credentials | None = None) -> Iterator[Site]:
    store, now = FragileStore(patience=0.2), time.time()
    filled = scenes(now)
    for scene in filled:
        # No process renews the heartbeats of these drivers, so the last ones are in the future.
        fill(store, scene, now + ALIVE if scene.silent < 1 else now)
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(create_app(store, credentials), host="127.0.0.1", port=port, log_level="warning")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Site(store, f"http://127.0.0.1:{port}", server, [scene.name for scene in filled])
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium")
    if executable is None:
        missing("chromium", "apt-get install chromium")
    with sync_playwright() as playwright:
        expect.set_options(timeout=NEXT_QUESTION)
        started = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield started
        started.close()


def open_page(browser: Browser | BrowserContext, **options: Any) -> Page:
    page = browser.new_page(**options)
    page.set_default_timeout(NEXT_RESPONSE)
    return page


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving() as made:
        yield made


@dataclass
class Visit:
    page: Page
    requests: list[Request] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def cells(self, row: str, table: str = "Connectors") -> list[str]:
        rows = self.page.get_by_role("table", name=table).get_by_role("row")
        found = rows.filter(has=self.page.get_by_role("cell", name=row, exact=True).or_(
            self.page.get_by_role("link", name=row, exact=True)
        ))  # fmt: skip
        return [text.strip() for text in found.first.get_by_role("cell").all_inner_texts()]


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    # At the end, no request of the page has failed, and all of them went to its own server.
    page = open_page(browser, viewport={"width": 1400, "height": 900})
    made = Visit(page)
    page.on("request", lambda request: made.requests.append(request))  # noqa: PLW0108 - it wants a function
    page.on("pageerror", lambda error: made.errors.append(str(error)))
    page.on("console", lambda line: made.errors.append(line.text) if line.type == "error" else None)
    page.goto(f"{site.url}/ui")
    expect(page.get_by_role("table", name="Connectors")).to_be_visible()
    yield made
    page.close()
    site.store.is_down = False
    hosts = {request.url.split("/ui")[0].split("/progress")[0].rstrip("/") for request in made.requests}
    assert hosts == {site.url}
    assert {request.method for request in made.requests} == {"GET"}
    assert [error for error in made.errors if "Failed to load resource" not in error] == []


def grouped(value: int) -> str:
    return f"{value:,}"


# -- what is shown ---------------------------------------------------------------------------------------


def test_the_list_shows_the_connectors_of_the_store(visit: Visit, site: Site) -> None:
    herder = Herder(site.store)
    expect(visit.page.get_by_role("table", name="Connectors").locator("tbody tr")).to_have_count(
        len(site.names)
    )
    for name in site.names:
        info = herder.info(name)
        _, state, kind, tasks, partitions, lag, _, committed, driver = visit.cells(name)
        assert state.startswith(info.state)
        assert (kind, tasks) == (info.type, str(len(info.tasks)))
        assert partitions == ("–" if info.type == "source" else str(len(info.partitions)))
        assert lag == ("–" if info.lag is None else grouped(info.lag))
        assert info.driver in driver
        assert (committed == "nothing") == (not visible_buckets(herder, name))


def visible_buckets(herder: Herder, name: str) -> list[Bucket]:
    return [bucket for bucket in herder.history(name).buckets if bucket.start > time.time() - 3600 - 60]


def test_the_list_shows_failing_connectors_first(visit: Visit) -> None:
    names = visit.page.locator("td.name a").all_inner_texts()
    assert names[0] == "payments-archive"
    assert set(names[1:5]) == {HOSTILE, "inventory-archive", "metrics-source", "prices-archive"}
    assert set(names[5:7]) == {"legacy-archive", "shipments-archive"}
    assert visit.page.locator(".tally .badge").all_inner_texts() == [
        "1 failed",
        "3 restarting",
        "2 unassigned",
        "1 deleting",
        "1 paused",
        "2 stopped",
        "13 running",
    ]
    assert visit.cells("sessions-archive")[1] == "RUNNING target: PAUSED"
    assert "DELETING" in visit.cells("carts-archive")[1]
    assert "missing: prices-eu, prices-us" in visit.cells("prices-archive")[0]
    assert "1 of 2 tasks failing" in visit.cells("metrics-source")[0]


def test_states_differ_by_words_and_shapes_not_only_colours(visit: Visit) -> None:
    # States must differ by their words, and by the shapes of their symbols.
    shapes = visit.page.evaluate(
        "[...document.querySelectorAll('.tally .badge')].map((one) => one.querySelector('path').getAttribute('d'))"
    )
    assert len(set(shapes)) == len(shapes) == 7


def test_the_page_of_a_connector_shows_its_partitions_tasks_and_driver(visit: Visit, site: Site) -> None:
    visit.page.get_by_role("link", name="orders-archive").click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("orders-archive")

    info = Herder(site.store).info("orders-archive")
    for row in info.partitions:
        assert row.committed is not None
        assert row.end is not None
        shown = visit.cells(str(row.partition), "Partitions")
        assert shown[1:6] == [
            grouped(row.lag or 0),
            grouped(round(row.rate + 1e-9)),
            grouped(row.committed),
            grouped(row.position or 0),
            grouped(row.end),
        ]
    facts = dict(
        zip(
            visit.page.locator(".facts dt").all_inner_texts(),
            visit.page.locator(".facts .value").all_inner_texts(),
            strict=True,
        )
    )
    assert facts["Lag"] == grouped(info.lag or 0)
    assert facts["Driver"] == info.driver
    assert visit.page.get_by_role("table", name="Tasks").locator("tbody tr").count() == len(info.tasks)


def test_a_source_shows_its_tasks_and_source_partitions(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/ui/#/connectors/metrics-source")
    expect(visit.page.locator(".title")).to_contain_text("source")
    facts = visit.page.locator(".facts dt").all_inner_texts()
    assert facts == ["Records/s", "Committed", "Transactions", "Generation", "Driver"]

    assert visit.cells("0", "Tasks")[1:] == ["RUNNING", "1,200", "30", "3", ""]
    failed = visit.page.get_by_role("table", name="Tasks").get_by_role("row").last
    expect(failed.locator("pre")).not_to_be_visible()
    failed.locator("summary").click()
    with visit.page.expect_response(re.compile("/progress/")):
        pass
    expect(failed.locator("pre")).to_have_text(TRACE)
    expect(visit.page.locator(".failure .where")).to_contain_text("task 1 ×2")

    rows = Herder(site.store).info("metrics-source").source_offsets
    for row in rows:
        partition, offset = (
            json.dumps(thing, separators=(",", ":")) for thing in (row.partition, row.offset)
        )
        assert visit.cells(partition, "Source partitions") == [partition, offset, str(row.task)]
    assert HOSTILE in {row.partition["file"] for row in rows}
    assert visit.page.locator("main img").count() == 0
    assert visit.page.get_by_role("table", name="Partitions", exact=True).count() == 0


def test_a_source_counts_transactions(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/ui/#/connectors/logs-source")
    readout = visit.page.locator(".readout")
    expect(readout).to_contain_text(re.compile(r"Last hour: [\d,]+ records · [\d,]+ transactions"))
    visit.page.get_by_role("group", name="Measure").get_by_role("button", name="Transactions").click()
    expect(visit.page.locator("svg.plot")).to_contain_text("transactions per min")


def test_a_stopped_source_shows_its_totals_and_offsets(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/ui/#/connectors/idle-source")
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("idle-source")

    assert visit.cells("0", "Tasks")[1:5] == ["UNASSIGNED", "1,200", "30", "0"]
    assert visit.cells('{"file":"b"}', "Source partitions")[1] == '{"byte":4096,"digest":"9f86d081"}'


def test_two_hundred_partitions_are_sorted_by_lag(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/ui/#/connectors/clicks-archive")
    rows = visit.page.get_by_role("table", name="Partitions").locator("tbody tr")
    expect(rows).to_have_count(200)
    heading = visit.page.get_by_role("table", name="Partitions").get_by_role("button", name="Lag")
    heading.focus()
    visit.page.keyboard.press("Enter")

    lags = [int(text.replace(",", "")) for text in rows.locator("td:nth-child(2)").all_inner_texts()]
    assert lags == sorted(lags, reverse=True)
    with visit.page.expect_response(re.compile("/progress/")):
        pass
    expect(rows.first).to_contain_text("clicks-199")
    expect(heading).to_be_focused()


def test_the_plot_shows_the_files_of_each_minute(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/ui/#/connectors/orders-archive")
    readout = visit.page.locator(".readout")
    data = response_early_in_a_minute(visit.page)
    minute = int(data["now"] // 60) * 60
    hour = {b["start"]: b["files"] for b in data["buckets"] if b["start"] > minute - 3600}
    expect(readout).to_contain_text(f"Last hour: {grouped(sum(hour.values()))} files")

    plot = visit.page.locator("svg.plot")
    assert plot.locator("rect.bar").count() == len(hour)
    plot.focus()
    visit.page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text("so far")
    visit.page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text(f": {hour.get(minute - 60, 0)} files")
    box = plot.bounding_box()
    assert box is not None
    visit.page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 100)
    expect(readout).to_contain_text(f": {hour.get(minute, 0)} files")
    visit.page.get_by_role("button", name="6 hours").click()
    expect(readout).to_contain_text("Last 6 hours")
    visit.page.get_by_role("button", name="Bytes").click()
    sizes = [text or "" for text in plot.locator(".tick").all_text_contents()]
    assert [size for size in sizes if size.endswith("GiB")]


def response_early_in_a_minute(page: Page) -> dict[str, Any]:
    # The next minute's bar must not appear in the middle of the test.
    while True:
        with page.expect_response(re.compile("/progress/")) as answered:
            pass
        data: dict[str, Any] = answered.value.json()
        if data["now"] % 60 < 40:
            return data


def test_a_connector_that_counts_no_files_shows_records(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/ui/#/connectors/readings-lines")
    expect(visit.page.get_by_role("group", name="Measure")).to_have_text("Records")
    expect(visit.page.locator(".readout")).not_to_contain_text("file")


def test_ticks_of_the_plot_are_round_numbers(visit: Visit) -> None:
    # The steps of an axis: 1, 2 or 5 times a power of ten, or powers of two for sizes.
    script = "async ([most, base]) => (await import('./buckets.js')).ticks(most, 4, base)"
    expected = {
        (0, 10): [0, 1],
        (1, 10): [0, 1],
        (7, 10): [0, 2, 4, 6, 8],
        (60, 10): [0, 20, 40, 60],
        (61, 10): [0, 20, 40, 60, 80],
        (12_400_000, 10): [0, 5_000_000, 10_000_000, 15_000_000],
        (3 * 1024**2, 1024): [0, 1024**2, 2 * 1024**2, 3 * 1024**2],
        (1000, 1024): [0, 256, 512, 768, 1024],
    }
    assert {case: visit.page.evaluate(script, list(case)) for case in expected} == expected


def test_numbers_and_times_are_formatted_for_readers(visit: Visit) -> None:
    expected = {
        "number(1234567)": "1,234,567",
        "number(null)": "–",
        "rate(0)": "0",
        "rate(0.04)": "<0.1",
        "rate(2.46)": "2.5",
        "rate(12345.6)": "12,346",
        "bytes(1536)": "1.5 KiB",
        "bytes(1023)": "1,023 B",
        "bytes(3 * 1024 ** 4)": "3 TiB",
        "ago(100, 100.5)": "just now",
        "ago(100, 130)": "30 s ago",
        "ago(0, 7300)": "2 h ago",
        "ago(0, 400000)": "4 d ago",
        "count(1, 'file')": "1 file",
        "axisNumber(2500000)": "2.5M",
    }
    script = "async () => (await import('./format.js'))"
    assert {call: visit.page.evaluate(f"{script}.{call}") for call in expected} == expected


# -- errors ------------------------------------------------------------------------------------------------


def test_traces_expand_and_stay_open(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/ui/#/connectors/inventory-archive")
    failure = visit.page.locator("details.failure").first
    expect(failure.locator("summary")).to_contain_text("inventory-3 ×3")
    expect(failure.locator("summary")).to_contain_text(re.compile(r"\d+ (s|min) ago"))
    expect(failure.locator("pre")).not_to_be_visible()
    failure.locator("summary").focus()
    visit.page.keyboard.press("Enter")
    expect(failure.locator("pre")).to_have_text(TRACE)
    for _ in range(2):
        with visit.page.expect_response(re.compile("/progress/")):
            pass
    expect(failure.locator("pre")).to_be_visible()


def test_a_failed_connector_shows_its_trace(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/ui/#/connectors/payments-archive")
    alarm = visit.page.locator("details.alarm")
    expect(alarm.locator("pre")).to_have_text(TRACE)
    alarm.locator("summary").click()
    with visit.page.expect_response(re.compile("/progress/")):
        pass
    expect(alarm.locator("pre")).not_to_be_visible()


def test_markup_in_names_and_errors_is_text(visit: Visit, site: Site) -> None:
    visit.page.get_by_role("link", name=HOSTILE).click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    expect(visit.page.locator(".failure .message")).to_have_text(
        "</pre><script>document.title='owned'</script>"
    )
    expect(visit.page.get_by_role("table", name="Partitions")).to_contain_text("<b>t</b>-0")
    assert visit.page.locator("main img, main script, main b").count() == 0
    assert "owned" not in visit.page.title().split(" · ")


def test_the_page_of_a_missing_connector_shows_an_error(visit: Visit, site: Site) -> None:
    visit.page.goto(f"{site.url}/ui/#/connectors/absent")
    expect(visit.page.get_by_role("alert")).to_contain_text("Connector 'absent' does not exist")


def test_a_damaged_connector_does_not_hide_the_others(visit: Visit, site: Site) -> None:
    key = history_key("audit-archive")
    kept = site.store._records[key]
    site.store._records[key] = Stored(kept.body.replace('"format": 1', '"format": 99'), "damaged")
    expect(visit.page.locator(".alarm")).to_contain_text("audit-archive: store memory:")
    expect(visit.page.get_by_role("link", name="orders-archive")).to_be_visible()
    site.store._records[key] = kept


# -- when something does not answer --------------------------------------------------------------------------


def test_an_outage_of_the_store_is_shown_with_the_last_known_data(
    visit: Visit, site: Site, tmp_path: Path
) -> None:
    before = visit.page.get_by_role("table", name="Connectors").inner_text()
    site.store.is_down = True
    alert = visit.page.get_by_role("alert")
    expect(alert).to_contain_text("The store does not respond")
    expect(alert).to_contain_text(re.compile(r"The data is from \d\d:\d\d, \d+ s ago"))
    expect(visit.page.locator("header")).to_contain_text("not up to date")
    assert visit.page.evaluate("getComputedStyle(document.querySelector('main')).filter") == "grayscale(1)"
    # Relative times are left out, because they change.
    assert without_times(visit.page.get_by_role("table", name="Connectors").inner_text()) == without_times(
        before
    )
    visit.page.screenshot(path=tmp_path / "outage.png")
    site.store.is_down = False
    expect(visit.page.locator("header")).to_contain_text("live")
    expect(alert).to_be_empty()


def without_times(text: str) -> str:
    return re.sub(r"\d+ (s|min|h|d) ago", "", text)


def test_an_unreachable_server_is_shown_as_an_error(browser: Browser) -> None:
    with serving() as site:
        page = open_page(browser)
        page.goto(f"{site.url}/ui")
        expect(page.get_by_role("table", name="Connectors")).to_be_visible()
        site.server.should_exit = True
        expect(page.get_by_role("alert")).to_contain_text("The server is unreachable")
        expect(page.get_by_role("table", name="Connectors")).to_be_visible()
        page.close()


@pytest.mark.parametrize(("user", "password"), [("anna", "secret"), ("token", "a-token")])
def test_the_page_is_shown_to_a_browser_with_credentials(browser: Browser, user: str, password: str) -> None:
    # The browser asks for credentials once. A token is entered as the password.
    with serving(Credentials(tokens=[Login("a-token")], users=[Login("anna:secret")])) as site:
        context = browser.new_context(http_credentials={"username": user, "password": password})
        page = open_page(context)
        page.goto(f"{site.url}/ui")
        expect(page.get_by_role("link", name="orders-archive")).to_be_visible()
        context.close()


# -- how it looks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", extended_after(1, [1400, 400]))
def test_texts_have_enough_contrast_in_both_themes(
    browser: Browser, site: Site, tmp_path: Path, theme: Any, width: int
) -> None:
    # WCAG AA requires a contrast of 4.5 for every text, in both themes.
    page = open_page(browser, viewport={"width": width, "height": 900}, color_scheme=theme)
    for view in (
        "",
        "#/connectors/orders-archive",
        "#/connectors/payments-archive",
        "#/connectors/prices-archive",
        "#/connectors/metrics-source",
    ):
        page.goto(f"{site.url}/ui/{view}")
        expect(page.locator("main h1")).to_be_attached()
        page.screenshot(path=tmp_path / f"{view.rpartition('/')[2] or 'list'}.png", full_page=True)
        contrasts: dict[str, float] = page.evaluate(CONTRAST)
        assert len(contrasts) > 8
        assert {kind: round(value, 2) for kind, value in contrasts.items() if value < 4.5} == {}
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(json.loads(f"[{dark[4:-1]}]")) < 384) == (theme == "dark")
    page.close()


def test_a_store_without_connectors_is_shown_as_empty(browser: Browser) -> None:
    with serving() as site:
        for key in list(site.store.list("connectors/")):
            found = site.store._read(key)
            assert found is not None
            site.store.delete(key, found.version)
        page = open_page(browser)
        page.goto(f"{site.url}/ui")
        expect(page.locator("main")).to_contain_text("This store has no connectors yet.")
        page.close()


def test_created_and_deleted_connectors_appear_and_disappear_without_a_reload(
    visit: Visit, site: Site
) -> None:
    link = visit.page.get_by_role("link", name="newcomer-archive")
    fill(site.store, Scene("newcomer-archive"), time.time() + ALIVE)
    expect(link).to_be_visible()
    for key in site.store.list("connectors/newcomer"):
        found = site.store._read(key)
        assert found is not None
        site.store.delete(key, found.version)
    expect(link).not_to_be_attached()
