"""The web book in a real browser: offline, formulas rendered, nothing wider than a phone."""

import html
import json
import re
import subprocess
import sys

import pytest

import gpvi_lib
from gpvi_lib.paths import repository
from gpvi_lib.report import notebooks

RENDERED = "() => [...document.querySelectorAll('.math')].every(formula => formula.querySelector('mjx-container'))"
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT_CODE = "[...document.querySelectorAll('div.highlight pre')].filter(e => e.scrollWidth > e.clientWidth).length"
PAGES = [
    "README",
    "CONTRIBUTING",
    "CHANGELOG",
    *sorted(f"docs/{path.stem}" for path in repository().glob("docs/*.md")),
    *sorted(f"docs/reference/{path.stem}" for path in repository().glob("docs/reference/*.rst")),
    *sorted(f"notebooks/{path.stem}" for path in repository().glob("notebooks/*.ipynb")),
]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The book, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("book")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(folder)]
    built = subprocess.run(command, cwd=repository(), capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


DESKTOP, PHONE = ({"width": width, "height": 900} for width in (1300, 390))


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def page(chromium, request):
    """A window; whatever goes wrong in it is in `page.troubles`."""
    page = chromium.new_page(viewport=request.param)
    page.troubles = []
    page.on("console", lambda message: page.troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("request", lambda asked: page.troubles.append(asked.url) if not asked.url.startswith("file:") else None)
    yield page
    page.close()


@pytest.mark.parametrize("page", [DESKTOP], ids=["desktop"], indirect=True)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole(book, page, name):
    """Its formulas are set once, in a second; in the narrower window all is where a page opened there has it."""
    page.goto((book / f"{name}.html").as_uri())
    page.wait_for_function(RENDERED, timeout=120_000)
    assert page.locator("mjx-merror").count() == 0
    assert page.evaluate(CUT_CODE) == 0
    for width in (DESKTOP, PHONE):
        page.set_viewport_size(width)
        assert page.evaluate(TOO_WIDE) <= 0
    assert page.troubles == []


def test_every_table_that_a_cell_prints_is_a_table(book):
    for path in repository().glob("notebooks/*.ipynb"):
        outputs = [output for cell in notebooks.read(path).cells for output in cell.get("outputs", [])]
        printed = [output["data"]["text/markdown"] for output in outputs if "text/markdown" in output.get("data", {})]
        tables = sum(len(re.findall(r"^\|:?-", text, re.MULTILINE)) for text in printed)
        page = (book / "notebooks" / f"{path.stem}.html").read_text()
        assert "<p>| " not in page and page.count("<table") >= tables, path.name


def test_every_figure_is_described(book):
    number = 0
    for path in book.glob("notebooks/*.html"):
        images = re.findall(r'<img [^>]*src="\.\./_images[^>]*>', path.read_text())
        descriptions = [re.search(r'alt="([^"]*)"', image) for image in images]
        assert all(found and len(found[1]) > 40 for found in descriptions), path.name
        number += len(images)
    assert number == len(list(repository().glob("figures/paper/*.png")))


def test_every_page_can_be_reached_from_the_first_page(book):
    start = (book / "README.html").read_text()
    assert "README.html" in (book / "index.html").read_text()
    assert [name for name in PAGES if name != "README" and f'href="{name}.html"' not in start] == []


def test_the_gallery_leads_to_the_cell_of_every_figure(book):
    cover = (book / "README.html").read_text()
    found = re.findall(r'href="(notebooks/[^"#]*\.html)#figure-([^"]*)"', cover)
    assert sorted(name for _, name in found) == sorted(path.stem for path in repository().glob("figures/paper/*.png"))
    pages = {page: (book / page).read_text() for page, _ in found}
    assert not [name for page, name in found if f'id="figure-{name}"' not in pages[page]]


def test_a_figure_that_a_page_names_leads_to_its_cell(book):
    page = (book / "docs/map.html").read_text()
    assert 'href="../notebooks/12-energy-potentials.html#figure-12-best"' in page and ".png" not in page


def test_a_folded_cell_says_what_it_holds(book):
    for path in repository().glob("notebooks/*.ipynb"):
        page = (book / "notebooks" / f"{path.stem}.html").read_text()
        folded = sum("hide-input" in cell["metadata"].get("tags", []) for cell in json.loads(path.read_text())["cells"])
        said = re.findall(r'<p class="collapsed admonition-title">(.*?)</p>', page)
        assert len(said) == page.count("<details") == folded, path.name
        assert all(len(words) > len("Show the code ") for words in said), path.name


def test_the_cover_has_the_doors_and_one_search_box(book, page):
    page.goto((book / "index.html").as_uri())
    page.wait_for_url("**/README.html")
    doors = page.locator("#gpvi-an-executable-paper tbody tr")
    assert doors.count() == 4 and doors.first.is_visible()
    boxes = page.locator("button.search-button__button:visible, .search-button-field:visible")
    assert boxes.count() == 1


def test_the_reference_describes_every_public_name(book):
    pages = [path.read_text() for path in sorted(book.glob("docs/reference/*.html"))]
    described = re.findall(r'<dt class="sig[^>]* id="gpvi_lib\.(\w+)">', "".join(pages))
    assert sorted(set(gpvi_lib.__all__) - set(described)) == []


def test_types_in_the_reference_read_as_in_the_source(book):
    page = (book / "docs/reference/metrics.html").read_text()
    signature = re.search(r'<dt class="sig[^>]* id="gpvi_lib\.metrics\.stein_kernel">.*?</dt>', page, re.DOTALL)
    shown = html.unescape(re.sub(r"<[^>]+>|\s", "", signature[0]))
    assert shown.startswith('gpvi_lib.metrics.stein_kernel(x:Float[Tensor,"nd"],score:Float[Tensor,"nd"],kernel:RBF')
    assert 'href="objectives.html#gpvi_lib.RBF"' in signature[0]


def test_the_search_works_without_a_network(book, page):
    page.goto((book / "search.html").as_uri() + "?q=injective")
    page.wait_for_selector("ul.search li a", timeout=60_000)
    assert "02" in page.locator("ul.search").inner_text()
    assert page.troubles == []


def test_the_colours_can_be_dark(book, page):
    page.goto((book / "README.html").as_uri())
    colours = set()
    for mode in ("light", "dark"):
        page.evaluate(f"() => document.documentElement.setAttribute('data-theme', '{mode}')")
        colours.add(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
