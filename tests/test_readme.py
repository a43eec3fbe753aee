"""What README.md says of records is what they say."""

import pytest

from gpvi_lib import readme
from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import EXPERIMENTS
from gpvi_lib.paths import repository

TEXT = (repository() / "README.md").read_text()


def test_the_generated_parts_are_fresh():
    assert readme.updated(TEXT) == TEXT, "run: python -m gpvi_lib scoreboard"


def test_the_map_leads_to_every_notebook_and_names_every_record_once():
    add = "add it to MAP in gpvi_lib/readme.py, then run: python -m gpvi_lib scoreboard"
    pages = {path.stem for path in repository().glob("notebooks/*.ipynb")} - {"00-overview"}
    mapped = {page.removeprefix("notebooks/") for _, page, _ in readme.MAP if page.startswith("notebooks/")}
    assert not pages - mapped, f"{', '.join(pages - mapped)}: {add}"
    assert not mapped - pages, f"MAP names notebooks that are not there: {', '.join(mapped - pages)}"
    named = [name for *_, names in readme.MAP for name in names]
    recorded = {path.parent.name for path in (repository() / "results" / "paper").glob("*/*.json")}
    assert len(named) == len(set(named)) and set(named) <= EXPERIMENTS.keys()
    assert not recorded - set(named), f"{', '.join(recorded - set(named))}: {add}"


def test_marks_that_are_missing_are_named():
    with pytest.raises(GPVIError, match="no <!-- map -->"):
        readme.updated("# gpvi\n")


def test_only_what_is_between_the_marks_changes():
    text = "before\n<!-- map -->\nold\n<!-- /map -->\n<!-- scores -->\n<!-- /scores -->\nafter"
    text = text.replace("<!-- scores -->\n", "<!-- scores -->\n\n")
    new = readme.updated(text)
    assert new.startswith("before\n<!-- map -->\n| In the paper |") and new.endswith("<!-- /scores -->\nafter")
    assert "old" not in new and readme.updated(new) == new
