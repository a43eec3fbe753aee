"""All notebooks in JupyterLab, as a reader opens them: nothing to save, formulas rendered, folded cells folded."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from gpvi_lib.paths import repository
from gpvi_lib.report import notebooks

NOTEBOOKS = sorted(path.name for path in repository().glob("notebooks/*.ipynb"))
START = "async () => (await window.jupyterapp.serviceManager.kernels.startNew({name: 'python3'})).id"
OPEN = """async ([path, id]) => {
  const app = window.jupyterapp;
  const panel = await app.commands.execute('docmanager:open', {path, ...(id && {kernel: {id}})});
  await panel.context.ready;
  await panel.revealed;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""
READY = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const texts = [...panel.node.querySelectorAll('.jp-RenderedMarkdown')];
  const raw = texts.filter(text => /\\$[^$]+\\$/.test(text.innerText));
  return panel.sessionContext.session?.kernel?.status === 'idle' && texts.length && !raw.length;
}"""
SEEN = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  return {
    dirty: panel.context.model.dirty,
    marks: document.querySelectorAll('.lm-TabBar-tab.jp-mod-dirty').length,
    dialogs: [...document.querySelectorAll('.jp-Dialog')].map(dialog => dialog.innerText),
    bad_formulas: panel.node.querySelectorAll('mjx-merror').length,
    folded: panel.content.widgets.filter(cell => cell.inputHidden).map(cell => cell.model.id),
  };
}"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A clean git checkout of the notebooks as they are now."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(repository() / "notebooks", folder / "copy" / "notebooks", ignore=shutil.ignore_patterns(".*"))
    shutil.copy(repository() / ".gitignore", folder / "copy")
    git(folder / "copy", "init", "--quiet")
    git(folder / "copy", "add", ".")
    git(folder / "copy", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "all")
    return folder / "copy"


def git(folder, *words):
    """Without this machine's settings, such as signed commits or files to ignore."""
    plain = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    return subprocess.run(["git", *words], cwd=folder, env=plain, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def lab(copy):
    """The address of a JupyterLab on that copy, with settings and files of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    own = {place: str(copy.parent / place.lower()) for place in places}
    told = [
        f"--port={port}",
        "--no-browser",
        "--allow-root",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={copy}",
    ]
    told += ["--LabApp.expose_app_in_browser=True", f"--config={repository() / 'docs' / 'lab.py'}"]
    command = [sys.executable, "-m", "jupyterlab", *told]
    environment = os.environ | own | {"PYTHONPATH": str(repository()), "JUPYTER_PREFER_ENV_PATH": "1"}
    log = (copy.parent / "log").open("w")
    with subprocess.Popen(command, cwd=copy, env=environment, stdout=log, stderr=subprocess.STDOUT) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/api", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def wait_for(address, server, seconds=120):
    for _ in range(2 * seconds):
        assert server.poll() is None, "JupyterLab ended"
        try:
            return urllib.request.urlopen(address).close()
        except urllib.error.URLError:
            time.sleep(0.5)
    raise TimeoutError(address)


@pytest.fixture(scope="module")
def opened(chromium, lab):
    """JupyterLab, open, without a request that leaves this machine; those of what follows are in `page.outside`."""
    page = chromium.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(120_000)
    page.outside = []
    local = (lab, "data:", "blob:", lab.replace("http", "ws"))
    page.on("request", lambda asked: None if asked.url.startswith(local) else page.outside.append(asked.url))
    page.goto(f"{lab}/lab")
    page.wait_for_function("() => window.jupyterapp?.shell && document.querySelector('.jp-Launcher')")
    assert page.outside == []
    return page


@pytest.fixture
def page(opened):
    """The same for one test, so that a request is told of the notebook that makes it."""
    opened.outside.clear()
    return opened


@pytest.fixture(scope="module")
def kernel(opened):
    """The id of a running kernel, for all notebooks but one: a start takes as long as all the rest of a test."""
    return opened.evaluate(START)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_an_opened_notebook_has_nothing_to_save(page, copy, kernel, name):
    page.evaluate(OPEN, [f"notebooks/{name}", kernel])
    page.wait_for_function(READY)
    page.wait_for_timeout(50)  # what marks a notebook as changed does so as the kernel answers
    seen = page.evaluate(SEEN)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.close()")
    cells = notebooks.read(repository() / "notebooks" / name).cells
    folded = [cell.id for cell in cells if cell.metadata.get("jupyter", {}).get("source_hidden")]
    assert seen == {"dirty": False, "marks": 0, "dialogs": [], "bad_formulas": 0, "folded": folded}
    assert page.outside == []
    assert git(copy, "status", "--porcelain") == ""


def test_a_saved_notebook_is_the_committed_one(page, copy):
    page.evaluate(OPEN, [f"notebooks/{NOTEBOOKS[0]}", None])
    page.wait_for_function(READY)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save()")
    assert git(copy, "status", "--porcelain") == ""
