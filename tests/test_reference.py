"""The API reference: every public name is on one of its pages, and has an example that prints what it says."""

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest
import torch

import gpvi_lib
from gpvi_lib.errors import DataMissing
from gpvi_lib.experiments import build
from gpvi_lib.paths import repository

ABOVE_THE_METHOD = ("lab", "experiments", "report", "__main__")


def listed() -> list[str]:
    """The names on the reference's pages, without ``gpvi_lib.``."""
    blocks = [
        block
        for page in sorted(repository().glob("docs/reference/*.rst"))
        for block in re.findall(r"^\.\. public::\n((?:   \S+\n)+)", page.read_text(), re.MULTILINE)
    ]
    return "".join(blocks).split()


def found(name: str) -> object:
    """What a page names."""
    module, _, last = f"gpvi_lib.{name}".rpartition(".")
    return getattr(importlib.import_module(module), last)


def modules() -> list:
    """The modules of the method and its data."""
    names = [module.name for module in pkgutil.walk_packages(gpvi_lib.__path__, "gpvi_lib.")]
    return [importlib.import_module(name) for name in names if name.split(".")[1] not in ABOVE_THE_METHOD]


def examples() -> list[doctest.DocTest]:
    """All examples of all docstrings, after ``import torch`` and ``from gpvi_lib import *`` in their own module."""
    exported = {"torch": torch} | {name: getattr(gpvi_lib, name) for name in gpvi_lib.__all__}
    tests = []
    for module in modules():
        own = {
            name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
        }
        tests += doctest.DocTestFinder().find(module, globs=exported | own)
    return [test for test in tests if test.examples]


class Runner(doctest.DocTestRunner):
    """Skips an example whose data set is not on this machine."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        if isinstance(exc_info[1], DataMissing):
            pytest.skip(str(exc_info[1]))
        super().report_unexpected_exception(out, test, example, exc_info)


def test_every_public_name_is_on_one_page_of_the_reference():
    names = listed()
    lost = sorted(set(gpvi_lib.__all__) - set(names))
    assert not lost, f"on no page: {', '.join(lost)}; add `.. public::` and the name to one of docs/reference/"
    assert len(names) == len(set(names))


def test_what_experiments_are_built_of_is_public():
    public = [found(name) for name in listed()]
    parts = {cls for part in (build.OBJECTIVES, *build.PARTS.values()) for cls in part.values() if inspect.isclass(cls)}
    parts = {cls for cls in parts if not cls.__module__.startswith("gpvi_lib.experiments.")}  # one experiment's own
    lost = sorted(cls.__name__ for cls in parts if cls not in public)
    assert not lost, f"on no page: {', '.join(lost)}; add `.. public::` and the name to one of docs/reference/"


def test_every_name_of_the_reference_has_an_example():
    """Errors and warnings apart, which are not called, and names of values."""
    called = [name for name in listed() if inspect.isclass(found(name)) or inspect.isfunction(found(name))]
    called = [name for name in called if not (inspect.isclass(found(name)) and issubclass(found(name), Exception))]
    assert [name for name in called if ">>>" not in (found(name).__doc__ or "")] == []


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name.removeprefix("gpvi_lib."))
def test_an_example_prints_what_it_says(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write a file
    said: list[str] = []
    assert Runner(verbose=False).run(example, out=said.append).failed == 0, "".join(said)
