"""How a notebook reads, as numbers: `python tests/notebook_prose.py 14` prints what is over a limit.

The main path is every Markdown cell up to the heading "Appendix", or to "Exercises" where there is none.
A formula counts as one word; tables, displayed equations and headings do not count.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import nbformat
from nbformat import NotebookNode

MAIN_PATH = 2_500
"""Words of a main path."""
MINUTE = 120
"""Words of "In one minute"."""
PARAGRAPH = 90
"""Words of a paragraph of a main path."""
SENTENCE = 18
"""Words of the median sentence of a main path."""
BULLETS = 5
EXERCISES = 3
STATED = ("*Proved", "*Measured", "*Conjectured")

_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|cf|vs|eq|eqs|et al|approx|Fig|No)\.", re.IGNORECASE)


@dataclass(frozen=True)
class Prose:
    """The Markdown of a notebook, cut at the headings that every notebook has."""

    main: list[str]  # paragraphs and items of lists, formulas as one word
    minute: str
    takeaways: list[str]
    exercises: list[str]
    headings: list[str]

    @property
    def words(self) -> int:
        return sum(len(paragraph.split()) for paragraph in self.main)

    @property
    def sentences(self) -> list[str]:
        return [sentence for paragraph in self.main for sentence in sentences(paragraph)]

    @property
    def median_sentence(self) -> float:
        return median(len(sentence.split()) for sentence in self.sentences)


def read(notebook: NotebookNode) -> Prose:
    """Return the prose of a notebook."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    parts = re.split(r"^#+ +(.*)$", text, flags=re.MULTILINE)
    sections = list(zip(["", *parts[1::2]], parts[::2], strict=True))
    headings = [title for title, _ in sections[1:]]
    end = next((i for i, (title, _) in enumerate(sections) if title.startswith(("Appendix", "Exercises"))), None)
    minute = re.search(r"\*\*In one minute\.\*\*(.*?)(?:\n\n|\Z)", text, flags=re.DOTALL)
    return Prose(
        [part for _, body in sections[:end] for part in paragraphs(body)],
        _plain(minute[1]) if minute else "",
        _items(sections, "Takeaways", r"^[*-] +"),
        _items(sections, "Exercises", r"^\d+\. +"),
        headings,
    )


def paragraphs(text: str) -> list[str]:
    """Return paragraphs and items of lists, without tables, displayed equations and code."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$|<!--.*?-->", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(?=(?:[*-]|\d+\.) )", "\n", text, flags=re.MULTILINE)
    return [plain for part in re.split(r"\n\s*\n", text) if (plain := _plain(part))]


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph; a number's point and an abbreviation's end none."""
    text = _ABBREVIATIONS.sub(r"\1", paragraph)
    return [part for part in re.split(r"(?<=[.!?:])[\"”)*]*\s+(?=[\"“(*`]*[A-Z0-9(])", text) if len(part.split()) > 1]


def problems(notebook: NotebookNode) -> list[str]:
    """What is over a limit, or missing."""
    prose = read(notebook)
    found = []
    if prose.words > MAIN_PATH:
        found.append(f"the main path has {prose.words} words, more than {MAIN_PATH}")
    if prose.median_sentence > SENTENCE:
        found.append(f"the median sentence has {prose.median_sentence:g} words, more than {SENTENCE}")
    found += [
        f"a paragraph has {len(p.split())} words: {p[:60]} …"
        for p in prose.main
        if len(p.split()) > PARAGRAPH and not p.startswith("In one minute.")
    ]
    if not 0 < len(prose.minute.split()) <= MINUTE:
        found.append(f'"In one minute" has {len(prose.minute.split())} words, not 1 to {MINUTE}')
    if not 0 < len(prose.takeaways) <= BULLETS:
        found.append(f'"Takeaways" has {len(prose.takeaways)} bullets, not 1 to {BULLETS}')
    found += [
        f"a takeaway does not say how it is known: {t[:60]} …" for t in prose.takeaways if not t.startswith(STATED)
    ]
    if len(prose.exercises) != EXERCISES:
        found.append(f'"Exercises" has {len(prose.exercises)} exercises, not {EXERCISES}')
    if "References" not in prose.headings:
        found.append('there is no section "References"')
    return found


def _items(sections: list[tuple[str, str]], title: str, mark: str) -> list[str]:
    """The items of the list in a section, whole."""
    body = "\n".join(text for name, text in sections if name.startswith(title))
    return [item.strip() for item in re.split(mark, body, flags=re.MULTILINE)[1:]]


def _plain(text: str) -> str:
    """Markdown as a reader hears it: a formula is one word, a link its text."""
    text = re.sub(r"\$[^$]+\$", "x", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"\*\*|[`_]|(?<!\w)\*|\*(?!\w)", "", text).split())


def main(numbers: list[str]) -> None:
    for path in sorted(Path(__file__).parents[1].glob("notebooks/*.ipynb")):
        if numbers and path.stem.split("-")[0] not in numbers:
            continue
        notebook = nbformat.read(path, as_version=4)
        prose = read(notebook)
        print(f"{path.stem}: {prose.words} words, median sentence {prose.median_sentence:g}")
        if numbers:
            print("\n".join(f"  {problem}" for problem in problems(notebook)))
            longest = sorted(prose.sentences, key=lambda sentence: -len(sentence.split()))[:8]
            print("\n".join(f"  {len(s.split())} words: {s[:100]} …" for s in longest))


if __name__ == "__main__":
    main(sys.argv[1:])
