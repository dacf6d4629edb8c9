"""The report in a real browser: it renders, obeys the keyboard, stays readable in the dark, on paper and on a phone."""

import shutil
from functools import cache

import pytest

from cavity.report.page import Report
from cavity.report.page import page as drawn
from tests.unit.report import made_up

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE, DESK = 360, 1280
SECTIONS = [
    "scores",
    "advice",
    "calibration",
    "sets",
    "confusion",
    "features",
    "uncertainty",
    "novelty",
    "map",
    "training",
    "settings",
]
CHARTS = ["reliability", "reliability-0", "class-errors", "set-sizes", "relevance", "relevance-by-class",
          "uncertainty-kinds", "set-aside", "map-rows", "map-inducing", "training-epochs",
          "training-seconds"]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium here")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@cache
def html(name):
    return drawn(getattr(made_up, name)())


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a report; at the end nothing may have been fetched and nothing may have gone wrong."""
    troubles, contexts = [], []

    def open_(name="digits", width=DESK, **settings):
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        file = tmp_path / f"{name}.html"
        file.write_text(html(name), encoding="utf-8")
        tab = context.new_page()
        tab.on("console", lambda message: troubles.append(message.text))
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("dialog", lambda dialog: troubles.append(dialog.message))
        tab.on("request", lambda request: None if request.url == file.as_uri() else troubles.append(request.url))
        tab.goto(file.as_uri())
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert troubles == []


def press_until(tab, selector, key="Tab", most=80):
    """Go on with the keyboard alone until the focus is on what is looked for."""
    for _ in range(most):
        tab.keyboard.press(key)
        if tab.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"the keyboard does not reach {selector}")


# --- It renders ---


@pytest.mark.parametrize("name", ["digits", "small", "large", "hostile", "bare"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_is_wider_than_the_screen(opened, name, width):
    tab = opened(name, width)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    sizes = tab.evaluate("[...document.querySelectorAll('main > section')].map(s => [s.id, s.offsetHeight])")
    assert [key for key, _ in sizes] == SECTIONS
    assert all(height > 40 for _, height in sizes)


def test_every_figure_is_there_and_has_a_size(opened):
    tab = opened()
    boxes = tab.evaluate("""() => Object.fromEntries([...document.querySelectorAll('figure svg')]
        .map(svg => [svg.getAttribute('aria-labelledby').split('-title')[0], svg.getBoundingClientRect().height]))""")
    assert set(CHARTS) <= set(boxes)
    hidden = {key for key, height in boxes.items() if height < 50}
    assert all(key.startswith("reliability-") for key in hidden)  # of the classes that are not picked
    assert len(hidden) == 9
    assert len(tab.query_selector_all(".scores svg")) == 16


OVERLAPS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    const texts = [...svg.querySelectorAll('text')].filter(t => !t.closest('.glyphs')).map(t => {
      const r = t.getBoundingClientRect();
      return {said: t.firstChild.textContent, l: r.left + 1, r: r.right - 1, t: r.top + 2, b: r.bottom - 2};
    }).filter(t => t.r > t.l);
    for (const t of texts) if (t.l < 0 || t.r > innerWidth) found.push([t.said, 'off the page']);
    texts.forEach((a, i) => texts.slice(i + 1).forEach(b => {
      if (a.l < b.r && b.l < a.r && a.t < b.b && b.t < a.b) found.push([a.said, b.said]);
    }));
  }
  return found;
}"""


@pytest.mark.parametrize("name", ["digits", "small", "large", "hostile"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_words_in_charts_do_not_overlap_and_are_not_cut_off(opened, name, width):
    assert opened(name, width).evaluate(OVERLAPS) == []


def test_labels_do_not_run_as_scripts(opened):
    tab = opened("hostile")
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.querySelectorAll('script').length") == 1
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    assert "<script>window.hacked = 1</script>" in tab.inner_text("h1")


def test_a_script_that_is_put_into_the_file_does_not_run(browser, tmp_path):
    """The policy of the page lets only its own script run."""
    file, tab = tmp_path / "edited.html", browser.new_page()
    file.write_text(html("small").replace("</body>", "<script>window.hacked = 1</script></body>"), encoding="utf-8")
    tab.goto(file.as_uri())
    assert tab.evaluate("window.hacked") is None
    assert tab.is_visible("#theme")
    tab.close()


def test_without_scripts_all_is_there(opened):
    tab = opened(java_script_enabled=False)
    assert not tab.is_visible("#theme")
    assert not tab.is_visible("#pick-class")
    tab.click("#reliability-of > summary")
    assert [tab.is_visible(f"[data-choice='{k}'] svg") for k in range(10)] == 10 * [True]
    tab.click("#confusion > details > summary")
    assert tab.is_visible("#confusion > details table")


# --- Keyboard ---


def test_the_first_key_leads_past_the_contents(opened):
    tab = opened()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    assert tab.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    tab.keyboard.press("Enter")
    assert tab.url.endswith("#report")


def test_the_theme_changes_by_keyboard_and_back(opened):
    tab = opened(color_scheme="light")
    press_until(tab, "#theme")
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.keyboard.press("Enter")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert tab.inner_text("#theme") == "Light theme"
    tab.keyboard.press("Space")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == light


def test_a_class_is_picked_by_keyboard(opened):
    tab = opened()
    press_until(tab, "#pick-class")
    tab.keyboard.press("Home")
    for k in range(3):
        shown = tab.evaluate(
            "[...document.querySelectorAll('[data-choice]')].filter(f => f.offsetHeight).map(f => f.dataset.choice)"
        )
        assert shown == [str(k)]
        tab.keyboard.press("ArrowDown")


def test_marks_of_one_class_are_picked_out_by_keyboard(opened):
    tab = opened()
    press_until(tab, "#pick-mark", most=300)
    tab.keyboard.press("ArrowDown")
    opacity = tab.evaluate(
        """[...document.querySelectorAll('#map-figures [data-class]')]
            .map(g => [g.dataset.class, getComputedStyle(g).opacity])"""
    )
    assert {key for key, value in opacity if value == "1"} == {"0"}
    assert {value for _, value in opacity} == {"1", "0.12"}


def test_a_name_without_room_appears_with_its_class(opened):
    tab = opened("large")
    hidden = tab.evaluate(
        "document.querySelector('#map-rows-title').closest('svg').querySelector('.crowded').dataset.class"
    )
    shown = f"#map svg:has(#map-rows-title) .names[data-class='{hidden}']"
    assert not tab.is_visible(shown)
    tab.select_option("#pick-mark", hidden)
    assert tab.is_visible(shown)


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_a_table_wider_than_a_phone_shows_that_it_scrolls(opened, color_scheme):
    """Words above it, and an edge that fades until the last column is reached; none of it where there is room."""
    tab = opened("digits", 390, color_scheme=color_scheme)
    box, cue = tab.locator("#scores .scroll"), tab.locator("#scores .cue").first
    assert cue.is_visible()
    assert cue.inner_text() == "Scroll sideways for more columns →"
    fades = "box => getComputedStyle(box).maskImage !== 'none'"
    assert box.evaluate(fades)
    box.evaluate("box => new Promise(done => { box.onscroll = done; box.scrollLeft = box.scrollWidth; })")
    assert not box.evaluate(fades)
    assert not opened("digits", DESK).locator("#scores .cue").first.is_visible()


def test_the_table_of_rows_is_sorted_by_keyboard(opened):
    tab = opened()
    press_until(tab, "#uncertainty .rows th:nth-child(1) button", most=300)
    before = tab.evaluate("[...document.querySelectorAll('.rows tbody th')].map(c => Number(c.dataset.order))")
    for key, direction in (("Enter", "ascending"), ("Space", "descending")):
        tab.keyboard.press(key)
        rows = tab.evaluate("[...document.querySelectorAll('.rows tbody th')].map(c => Number(c.dataset.order))")
        assert rows == sorted(before, reverse=direction == "descending")
        assert tab.get_attribute(".rows th:nth-child(1)", "aria-sort") == direction
    assert before != sorted(before)


def test_the_contents_lead_to_sections_and_tell_where_one_is(opened):
    tab = opened()
    tab.click("nav a[href='#training']")
    tab.wait_for_selector("nav a[href='#training'][aria-current]")
    assert tab.evaluate("document.querySelectorAll('nav a[aria-current]').length") == 1
    assert abs(tab.evaluate("document.getElementById('training').getBoundingClientRect().top")) < 120


# --- Colors and paper ---

CONTRASTS = """() => {
  const parse = text => [...text.matchAll(/rgba?\\(([^)]+)\\)/g)].map(m => {
    const [r, g, b, a = 1] = m[1].split(/[ ,/]+/).map(Number);
    return [r, g, b, a];
  });
  const over = (top, below) => [0, 1, 2].map(i => top[3] * top[i] + (1 - top[3]) * below[i]);
  const behind = node => {
    if (!node) return [[255, 255, 255]];
    const style = getComputedStyle(node);
    const own = style.backgroundImage === 'none' ? parse(style.backgroundColor) : parse(style.backgroundImage);
    if (own.every(color => color[3] === 1)) return own.map(c => c.slice(0, 3));
    return behind(node.parentElement).flatMap(below => own.map(color => over(color, below)));
  };
  const light = color => {
    const [r, g, b] = color.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const bad = [];
  let seen = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const at = node.parentElement;
    if (!node.data.trim() || !at.checkVisibility() || at.closest('title, desc, script, option, .unseen')) continue;
    const style = getComputedStyle(at);
    const color = parse(at.closest('text') ? style.fill : style.color)[0];
    const flag = at.closest('.flag');
    const grounds = flag ? [parse(getComputedStyle(flag.querySelector('rect')).fill)[0]] : behind(at);
    const worst = Math.min(...grounds.map(ground => contrast(over(color, ground), ground)));
    seen += 1;
    if (worst < 4.5) bad.push([node.data.trim().slice(0, 30), at.tagName, worst.toFixed(2)]);
  }
  return [seen, bad];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["digits", "hostile"])
def test_all_text_has_contrast(opened, name, scheme):
    tab = opened(name, color_scheme=scheme)
    tab.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    seen, bad = tab.evaluate(CONTRASTS)
    assert seen > 1000
    assert bad == []


def test_the_dark_follows_the_system(opened):
    tab = opened(color_scheme="light")
    colors = []
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        colors.append(
            tab.evaluate("""() => ['body', '.verdict', '.kicker'].map(s => getComputedStyle(document.querySelector(s)))
            .flatMap(style => [style.backgroundColor, style.color])""")
        )
    assert not set(colors[0][:2]) & set(colors[1][:2])
    assert colors[0][5] != colors[1][5]


@pytest.mark.parametrize("script", [True, False])
def test_paper_is_light_and_shows_what_is_folded(opened, script):
    tab = opened(color_scheme="dark", java_script_enabled=script)
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not any(tab.is_visible(selector) for selector in ("nav", "#theme", "summary", "#pick-class", ".skip"))
    shown = tab.evaluate(
        """[...document.querySelectorAll('details table, [data-choice] svg')]
            .map(part => part.checkVisibility() && part.clientHeight > 20)"""
    )
    assert len(shown) > 20
    assert all(shown)


def test_it_prints_on_few_pages(opened):
    printed = opened().pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert 5 <= printed.count(b"/Type /Page\n") <= 25


# --- In a notebook ---


def test_it_works_inside_the_frame_of_a_notebook(browser):
    troubles, tab = [], browser.new_page(viewport={"width": 900, "height": 800}, reduced_motion="reduce")
    tab.on("console", lambda message: troubles.append(message.text))
    tab.set_content(Report(made_up.small())._repr_html_())
    frame = tab.frame_locator("iframe")
    frame.locator("#theme").click()
    assert frame.locator("#theme").inner_text() == "Light theme"
    frame.locator("nav a[href='#settings']").click()
    assert 0 <= frame.locator("#settings h2").bounding_box()["y"] < 720
    assert frame.locator("h1").inner_text() == "Small"
    assert troubles == []
    tab.close()
