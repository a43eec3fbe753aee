"""Fixtures that many tests share."""

import functools
import http.server
import shutil
import signal
import threading

import nbval.kernel
import nbval.plugin
import pytest
import torch
from forked_kernels import NbvalKernels
from slow_files import LONGEST, SLOW

from gpvi_lib.experiments import EXPERIMENTS
from gpvi_lib.lab import provenance


def pytest_configure():
    nbval.kernel.KernelManager = NbvalKernels
    # nbval traces its kernels where pytest-cov is in use, which `[tool.coverage.run]` of pyproject.toml does not want.
    nbval.plugin.setup_coverage = nbval.plugin.teardown_coverage = _no_coverage


def _no_coverage(*arguments):
    pass


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _turn(item.path))


def _turn(path):
    """Long files first, so that all workers have something to do to the end: `make test` keeps this order."""
    if path.stem in LONGEST:
        return LONGEST.index(path.stem)
    return len(LONGEST) + (0 if path.suffix == ".ipynb" else 1 if path.stem in SLOW else 2)


@pytest.fixture(scope="module")
def chromium():
    """Chromium of the system."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: nothing was opened in a browser (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def _as_if_committed(monkeypatch):
    """Tests pass while the library is being edited, too: records at `paper` are for a clean tree alone."""
    monkeypatch.setattr(provenance, "has_changes", lambda: False)
    monkeypatch.setattr(provenance, "LOADED", provenance.LOADED.removesuffix(provenance.CHANGES))


@pytest.fixture(autouse=True)
def _threads_as_before():
    """What a test or a command in it sets is not left to the next one."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def own_results(tmp_path_factory):
    """Records and checkpoints in folders that the tests of one module share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPVI_RESULTS", str(tmp_path_factory.mktemp("results")))
        patch.setenv("GPVI_BUILD", str(tmp_path_factory.mktemp("build")))
        yield


@pytest.fixture
def rng() -> torch.Generator:
    """The test's own randomness."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def normal(rng):
    """`normal(n, d)` draws in float64, so that rounding (about 1e-16) is far below every tolerance."""
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.fixture
def registry(monkeypatch):
    """The registered experiments, to be changed at will; afterwards as before, in the same order."""
    before = dict(EXPERIMENTS)
    yield EXPERIMENTS
    monkeypatch.undo()  # what a test has set in the registry; undone later, it would come back
    EXPERIMENTS.clear()
    EXPERIMENTS.update(before)


@pytest.fixture
def serve():
    """`serve(folder)` publishes a folder on a port of this machine: its address, and the list of what it was asked."""
    running = []

    def start(folder):
        asked = []

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args):
                asked.append(self.path)

        httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        running.append((httpd, thread))
        return f"http://127.0.0.1:{httpd.server_port}", asked

    yield start
    for httpd, thread in running:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal; in the background it may be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
