"""The page in a real browser: open, filter, mark, save, load, and nothing goes wrong in between."""

import re

import pytest

from rofl.data.label_csv import read_decisions
from rofl.data.spreadsheet import escape_cell
from tests.report.browser import visit
from tests.report.synthetic import data_of, make

HOSTILE = "<img src=x onerror=alert(1)></script>"
NAMES = ('=1+1, "quoted"', "+plus", "-minus\nline", "@at", HOSTILE)  # cells that a careless CSV would spoil
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("ordinary") / "run")


@pytest.fixture(scope="module")
def path(made):
    return made.write(charts=False)


@pytest.fixture(scope="module")
def data(path):
    return data_of(path.read_text())


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    classes = (*NAMES, " ".join(["an endless name"] * 8), "unbreakable" * 10)
    made = make(tmp_path_factory.mktemp("hostile") / "run", clients=NAMES, classes=classes, each=10, shape=(3, 40, 30))
    return made, made.write()


def test_it_opens_alone_and_draws_its_charts(opened, made, tmp_path):
    with visit(opened, made.write(tmp_path / "page.html")) as seen:
        for chart in ("accuracy", "transition", "features"):
            assert seen.page.locator(f"#{chart} svg.main-svg").first.is_visible()
        assert seen.page.locator("#transition .heatmaplayer image").count() == 2
        assert seen.page.locator("#features .point").count() >= 90
        assert len(seen.samples) == 100
        assert seen.counter == "120 of 120 shown, 0 decided"
        assert seen.page.locator(".suspect img").first.evaluate("image => image.naturalWidth") == 8


def test_filters_choose_the_cards(opened, path, data):
    places = range(120)
    with visit(opened, path) as seen:
        page = seen.page
        page.select_option("#by-client", label="Southgate (40)")
        assert seen.samples == [i for i in places if data["client"][i] == 1]
        page.select_option("#by-given", "2")
        assert seen.samples == [i for i in places if data["client"][i] == 1 and data["given"][i] == 2]
        page.select_option("#by-client", "")
        page.select_option("#by-suggested", "0")
        assert seen.samples == [i for i in places if data["given"][i] == 2 and data["suggested"][i] == 0]
        page.select_option("#by-given", "")
        page.select_option("#by-suggested", "")
        page.fill("#by-score", "0.8")
        likely = [i for i in places if data["score"][i] >= 0.8]
        assert 0 < len(likely) < 100
        assert seen.samples == likely
        assert seen.counter == f"{len(likely)} of 120 shown, 0 decided"


def test_pages_are_turned(opened, path):
    with visit(opened, path) as seen:
        assert seen.page.is_disabled("#previous")
        seen.page.click("#next")
        assert seen.samples == list(range(100, 120))
        assert seen.focused == 100
        assert seen.page.is_disabled("#next")
        seen.press("ArrowLeft")
        assert seen.focused == 99
        assert seen.samples == list(range(100))


def test_keys_move_mark_and_undo(opened, path):
    with visit(opened, path) as seen:
        page = seen.page
        seen.card(0).click(position={"x": 5, "y": 5})
        columns = page.evaluate("getComputedStyle(cards).gridTemplateColumns.split(' ').length")
        for key, place in (("ArrowRight", 1), ("ArrowDown", 1 + columns), ("ArrowUp", 1), ("ArrowLeft", 0)):
            seen.press(key)
            assert seen.focused == place
        seen.press("w", "r")
        assert seen.focused == 2
        assert "wrong" in seen.card(0).get_attribute("class")
        assert "right" in seen.card(1).get_attribute("class")
        assert seen.counter == "120 of 120 shown, 2 decided"
        seen.press("u")  # here nothing is decided: the last decision goes
        assert seen.focused == 1
        assert seen.card(1).get_attribute("class") == "suspect"
        seen.press("ArrowLeft", "u")
        assert seen.counter == "120 of 120 shown, 0 decided"
        seen.press("r")
        seen.card(2).focus()
        seen.press("w", "ArrowLeft", "ArrowLeft", "W")
        assert seen.focused == 3  # past one that is decided
        seen.press("Control+r")  # the browser's own; no mark
        page.wait_for_load_state()
        assert seen.counter == "120 of 120 shown, 3 decided"


def test_the_last_undecided_leads_to_the_first(opened, path):
    with visit(opened, path) as seen:
        seen.page.select_option("#by-client", "0")
        seen.page.fill("#by-score", "0.95")
        count = len(seen.samples)
        seen.card(count - 1).focus()
        seen.press("r")
        assert seen.focused == seen.samples[0]
        seen.press(*"r" * (count - 1))
        assert seen.page.inner_text("#message") == "All suspects shown here are decided."
        assert seen.counter == f"{count} of 120 shown, {count} decided"


def test_buttons_mark_and_a_class_is_chosen(opened, path, data):
    with visit(opened, path) as seen:
        first = seen.card(0)
        first.locator("button.wrong").click()
        assert first.locator("button.wrong").get_attribute("aria-pressed") == "true"
        should = first.locator(".should select")
        assert should.input_value() == str(data["suggested"][0])
        (other,) = {0, 1, 2} - {data["given"][0], data["suggested"][0]}
        assert should.locator("option").count() == 2  # not the given one
        should.select_option(str(other))
        seen.card(1).locator("button.right").click()
        seen.card(2).locator("button.right").click()
        seen.card(2).locator("button.right").click()  # once more takes it back
        name, rows = seen.saved()
        assert name == "decisions-run.csv"
        assert [(row["sample"], row["decision"], row["label"]) for row in rows] == [
            (data["sample"][0], "wrong", data["classes"][other]),
            (data["sample"][1], "right", data["classes"][data["given"][1]]),
        ]


def test_decisions_survive_a_reload(opened, path):
    with visit(opened, path) as seen:
        seen.card(0).focus()
        seen.press("w", "r")
        seen.card(0).locator(".should select").select_option(index=1)
        _, before = seen.saved()
        seen.page.reload()
        assert seen.counter == "120 of 120 shown, 2 decided"
        assert seen.saved()[1] == before
        for state, samples in (("wrong", [0]), ("right", [1]), ("undecided", list(range(2, 102)))):
            seen.page.select_option("#by-state", state)
            assert seen.samples == samples
        seen.card(0).focus()
        seen.press("w")
        assert seen.card(0).get_attribute("data-suspect") == "2"  # what is decided stays until the filters change


@pytest.mark.parametrize(
    "broken",
    [
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('forbidden'); }})",
        "Storage.prototype.setItem = () => { throw new Error('full'); }",
    ],
)
def test_without_storage_it_works_and_says_so(opened, path, broken):
    with visit(opened, path, before=broken) as seen:
        seen.card(0).focus()
        seen.press("w")
        assert "This browser does not store decisions" in seen.page.inner_text("#message")
        assert len(seen.saved()[1]) == 1


def test_what_is_saved_is_taken_back_whatever_the_names(opened, hostile, tmp_path):
    made, images = hostile[0], hostile[0].federated.images
    path = made.write(tmp_path / "page.html", charts=False)
    data = data_of(path.read_text())
    with visit(opened, path) as seen:
        seen.card(0).focus()
        seen.press(*"wr" * 15)
        name, rows = seen.saved()
        assert name == "decisions-run.csv"
        for i, row in enumerate(rows):
            given, better = data["classes"][data["given"][i]], data["classes"][data["suggested"][i]]
            expected = [data["clients"][data["client"][i]], data["sample"][i], given]
            expected += ("right", given) if i % 2 else ("wrong", better)
            assert list(row.values()) == [escape_cell(text) for text in expected]
        assert {row["client"] for row in rows} == {escape_cell(name) for name in NAMES}
        file = tmp_path / "decisions.csv"
        with seen.page.expect_download() as download:
            seen.page.click("#save")
        download.value.save_as(file)
    assert len(read_decisions(file, images.ids, images.classes, made.federated.labels)) == 30
    file.write_text("\ufeff" + file.read_text() + "nobody,nothing,x,wrong,y\n")
    with visit(opened, path) as seen:
        seen.page.set_input_files("#load", file)
        seen.page.get_by_text("Decisions loaded: 30. Not about this page's suspects: 1.").wait_for()
        assert seen.saved()[1] == rows
        seen.page.set_input_files("#load", {"name": "x.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n"})
        seen.page.get_by_text("x.csv cannot be loaded").wait_for()
        assert seen.counter.endswith("30 decided")


def test_names_are_shown_and_never_run(opened, hostile):
    with visit(opened, hostile[1]) as seen:
        assert any(HOSTILE in text for text in seen.page.locator(".suspect .labels").all_inner_texts())
        assert seen.page.locator("main img:not(.suspect img, #large)").count() == 0
        ticks = seen.page.locator("#transition .xtick text").all_text_contents()
        assert ticks[0] == '=1+1, …uoted"'
        assert ticks[4] == "<img s…cript>"
        cells = seen.page.locator("#transition .heatmaplayer image").first
        cells.scroll_into_view_if_needed()
        box = cells.bounding_box()
        seen.page.mouse.move(box["x"] + 4.5 / 7 * box["width"], box["y"] + 4)
        told = seen.page.locator("#transition .hovertext").first.text_content()
        assert re.fullmatch(rf'labelled {re.escape(HOSTILE)}, looks like =1\+1, "quoted": 2\.9 %', told)


WINDOWS = {"desk": {"viewport": {"width": 1280, "height": 900}}, "phone": PHONE}
CONTRAST = """selector => {
  const light = colour => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255);
    const [r, g, b] = parts.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(selector);
  let ground = element;
  while (/rgba\\(.*, 0\\)/.test(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
  const pair = [light(getComputedStyle(element).color), light(getComputedStyle(ground).backgroundColor)];
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}"""


@pytest.mark.parametrize("window", WINDOWS)
def test_it_fits_and_can_be_read(opened, hostile, window):
    with visit(opened, hostile[1], **WINDOWS[window]) as seen:
        seen.card(0).locator("button.wrong").click()
        seen.card(1).locator("button.right").click()
        grounds = set()
        for scheme in ("light", "dark"):
            seen.page.emulate_media(color_scheme=scheme)
            grounds.add(seen.page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert seen.overflow <= 0
            read = (".lead", ".suspect .note", ".suspect s", ".should", "#save", "#counter", "#page", "td", ".pairs li")
            for selector in (*read, "button.wrong[aria-pressed=true]", "button.right[aria-pressed=true]"):
                assert seen.page.evaluate(CONTRAST, selector) >= 4.5, (scheme, selector)
        assert len(grounds) == 2


def test_cards_are_reached_by_tab_and_the_focus_is_seen(opened, path):
    with visit(opened, path) as seen:
        seen.page.focus("#by-score")
        seen.press("Tab")
        assert seen.focused == 0
        assert seen.page.evaluate("getComputedStyle(document.activeElement).outline").endswith("solid 3px")
        label = seen.card(0).get_attribute("aria-label")
        assert "labelled" in label
        assert label.endswith("undecided")
        seen.press("Tab")
        assert seen.page.evaluate("document.activeElement.dataset.decision") == "wrong"
        seen.press("Space")
        assert seen.card(0).get_attribute("aria-label").endswith("decided: label is wrong")
        seen.press("r")  # keys work from inside a card too
        assert seen.focused == 1


@pytest.mark.parametrize("window", WINDOWS)
def test_the_tray_never_covers_the_filters(opened, path, window):
    with visit(opened, path, **WINDOWS[window]) as seen:
        filters, tray = seen.page.locator(".filters"), seen.page.locator(".tray")
        end, height = filters.evaluate("box => [scrollY + box.getBoundingClientRect().bottom, innerHeight]")
        for below in (400, 120, 40, 0, -40):  # pixels from the end of the filters to the window's lower edge
            seen.page.evaluate(f"scrollTo(0, {end + below - height})")
            box = filters.bounding_box()
            assert tray.bounding_box()["y"] >= box["y"] + box["height"]


def test_a_focused_card_is_not_behind_the_tray(opened, path):
    with visit(opened, path, **PHONE) as seen:
        seen.card(0).focus()
        seen.press(*["ArrowDown"] * 6)
        bottom = seen.page.evaluate("document.activeElement.getBoundingClientRect().bottom")
        assert bottom <= seen.page.locator(".tray").bounding_box()["y"]


def test_10_000_suspects_are_as_quick_as_100(opened, tmp_path_factory):
    made = make(tmp_path_factory.mktemp("many") / "run", each=4000, share=0.9, shown=20)
    with visit(opened, made.write(charts=False)) as seen:

        def nodes():
            return seen.page.evaluate("document.querySelectorAll('*').length")

        assert seen.counter == "10,000 of 10,000 shown, 0 decided"
        assert nodes() < 4000
        seen.page.select_option("#by-client", "2")
        seen.page.select_option("#by-given", "1")
        assert len(seen.samples) == 100
        seen.page.click("#next")
        seen.press("w")
        assert nodes() < 4000
        assert seen.page.inner_text("#page") == "2 of 12"
        assert "This page holds the first 10,000 of them" in seen.page.inner_text("#suspects .lead")


def test_a_site_sees_its_own_and_the_server_nothing(opened, made, data):
    with visit(opened, made.write(charts=False, site="Southgate")) as seen:
        assert len(seen.samples) == 40
        assert not seen.page.is_visible("#by-client")
        seen.card(0).focus()
        seen.press("r")
        name, rows = seen.saved()
        assert (name, rows[0]["client"]) == ("decisions-Southgate.csv", "Southgate")
    with visit(opened, made.write(server=True)) as seen:
        assert seen.page.locator(".suspect, main img, #features, #other-issues").count() == 0
        assert seen.page.locator("#transition svg").count() > 0


def test_without_javascript_there_is_a_sentence(opened, path):
    with visit(opened, path, java_script_enabled=False) as seen:
        assert seen.page.locator("#suspects noscript p").is_visible()
        assert not seen.page.is_visible("#review")
