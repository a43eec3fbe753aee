"""Every notebook keeps to the limits of how it reads, and what counts its words counts right."""

import nbformat
import notebook_prose as prose
import pytest

from gpvi_lib import paths

NOTEBOOKS = sorted(paths.notebooks_root().glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_reads_within_the_limits(path):
    assert prose.problems(nbformat.read(path, as_version=4)) == []


def test_the_overview_is_a_page_of_800_words():
    (path,) = (path for path in NOTEBOOKS if path.stem.startswith("00-"))
    assert prose.read(nbformat.read(path, as_version=4)).words <= 800


GOOD = """
# 99 · A title

**In one minute.** We say it. It holds.

## 1 · A section

A sentence of five words. With $x = 1$, e.g. at 0.5 nats, another one.

$$x^2 + y^2$$

| a | table |
|---|---|
| of | cells |

## Takeaways

* *Proved:* it holds.
* *Measured (3 seeds):* it holds.

## Appendix

### A · More

Words that do not count.

## Exercises

1. *One.* Try.
2. *Two.* Try.
3. *Three.* Try.

## References

* A. Author, "A work", 2020.
"""


def notebook(text):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text.strip())])


def test_words_of_the_main_path_are_those_of_its_prose():
    found = prose.read(notebook(GOOD))
    assert found.words == 8 + 13 + 3 + 5 and prose.problems(notebook(GOOD)) == []
    assert [len(sentence.split()) for sentence in found.sentences][3:5] == [5, 8]


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ("A sentence of five words.", "word " * 2_500, "the main path has"),
        ("A sentence of five words.", "word " * 91, "a paragraph has 99 words"),
        ("We say it.", "We say " + "it " * 120, '"In one minute" has 124 words'),
        ("**In one minute.** We say it. It holds.", "", '"In one minute" has 0 words'),
        ("*Proved:* it holds.", "It holds.", "a takeaway does not say how it is known"),
        ("* *Proved:* it holds.\n", "* *Proved:* it holds.\n" * 5, '"Takeaways" has 6 bullets'),
        ("3. *Three.* Try.\n", "", '"Exercises" has 2 exercises'),
        ("## References", "## Works", 'there is no section "References"'),
    ],
)
def test_what_is_over_a_limit_or_missing_is_named(good, bad, problem):
    assert good in GOOD
    found = prose.problems(notebook(GOOD.replace(good, bad)))
    assert any(problem in one for one in found), found


def test_long_sentences_are_seen():
    long = " ".join(f"This sentence goes on {'and on ' * 10}until the end." for _ in range(12))
    found = prose.problems(notebook(GOOD.replace("A sentence of five words.", long)))
    assert any("the median sentence has" in one for one in found)
