"""Records say which code they come from: refusals, and the list of those that do not."""

import os
import subprocess
from dataclasses import replace

import pytest
from toy_experiment import CALLS, TOY, redirect

from gpvi_lib import checkpoints
from gpvi_lib.__main__ import main
from gpvi_lib.errors import GPVIError, OutOfTime
from gpvi_lib.experiments import EXPERIMENTS, get_experiment
from gpvi_lib.lab import provenance, queue, records, runner

HAS_CHANGES = provenance.has_changes
IDENTITY = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
PLAIN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}


@pytest.fixture(autouse=True)
def _plain_git(monkeypatch):
    """Git without this machine's settings, such as `safe.directory`, and with its English words."""
    for name, value in PLAIN.items():
        monkeypatch.setenv(name, value)


def git(folder, *arguments):
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, env=os.environ | IDENTITY, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(monkeypatch, tmp_path):
    """A repository of two commits, with a package; returns its folder and the commits."""
    folder = tmp_path / "project"
    (folder / "gpvi_lib").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(folder))
    commits = []
    for number in (1, 2):
        (folder / "gpvi_lib" / "code.py").write_text(str(number))
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", str(number))
        commits.append(git(folder, "rev-parse", "HEAD"))
    monkeypatch.setattr(provenance, "repository", lambda: folder)
    monkeypatch.setattr(provenance, "has_changes", HAS_CHANGES)
    return folder, commits


def test_the_commit_says_whether_the_package_differs_from_it(project):
    folder, (_, last) = project
    assert provenance.commit() == last
    (folder / "notes.txt").touch()  # no code
    assert provenance.commit() == last
    (folder / "gpvi_lib" / "new.py").touch()
    assert provenance.commit() == f"{last}+changes"
    with pytest.raises(GPVIError, match="gpvi_lib/ differs from its commit .* --dirty"):
        provenance.require_clean()


def test_outside_a_repository_nothing_is_refused_and_nothing_looked_up(monkeypatch, tmp_path):
    monkeypatch.setattr(provenance, "repository", lambda: tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.commit() == "unknown"
    provenance.require_clean()
    with pytest.raises(GPVIError, match="no git history"):
        provenance.history()


def test_unpacked_in_the_repository_of_something_else_there_is_no_commit(project, monkeypatch):
    monkeypatch.setattr(provenance, "repository", lambda: project[0] / "gpvi_lib")
    assert provenance.commit() == "unknown" and not provenance.has_changes()


def test_where_git_cannot_tell_nothing_counts_as_clean(project):
    (project[0] / ".git" / "index").write_bytes(b"damaged")
    assert provenance.commit() == f"{project[1][-1]}+changes"
    with pytest.raises(GPVIError, match="differs from its commit"):
        provenance.require_clean()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1", "dubious ownership"), ("PATH", "/nowhere", "No such file .*git")],
)
def test_a_repository_that_git_cannot_read_is_no_clean_one(project, monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    for look in (provenance.require_clean, provenance.history):
        with pytest.raises(GPVIError, match=f"(?s)git cannot read the repository .*{said}"):
            look()


def test_a_worker_that_starts_late_does_not_compute_with_changed_code(project, monkeypatch, tmp_path):
    """As one that takes the place of a killed one, after someone has edited the package."""
    redirect(monkeypatch, tmp_path)
    asked = runner.How(progress=False)
    monkeypatch.setattr(provenance, "FINGERPRINT", "edited")
    monkeypatch.setattr(provenance, "LOADED", f"{project[1][1]}+changes")
    cell = TOY.cell("svgd", 0, "paper")
    with pytest.raises(GPVIError, match="toy/svgd seed 0: gpvi_lib/ was edited after its sweep began"):
        runner._compute_once(cell, None, asked)
    assert CALLS == [] and not records.record_path(cell).exists()
    assert runner._compute_once(cell, None, replace(asked, dirty=True))
    assert records.load(cell).commit.endswith("+changes")


@pytest.mark.parametrize("dirty", [False, True])
def test_a_reference_goes_on_with_other_code_only_if_its_run_may(project, monkeypatch, tmp_path, dirty):
    redirect(monkeypatch, tmp_path)
    first, last = project[1]
    reference = TOY.cell("svgd", 0, "paper")
    checkpoint = runner.checkpoint_path(reference)
    checkpoints.save(checkpoint, {"step": 3})
    checkpoint.with_suffix(".commit").write_text(first)
    monkeypatch.setattr(provenance, "LOADED", last)

    def run(config, method, context):
        runner.load_or_run(reference)
        return TOY.run(config, method, context)

    def asking():
        return runner.run_or_load(replace(TOY, name="asks", run=run).cell("gpvi", 0, "paper"), "cpu", dirty=dirty)

    if dirty:
        assert asking().commit == last and records.load(reference).commit == f"{first}+changes"
    else:
        with pytest.raises(GPVIError, match="toy/svgd seed 0 began with the code of"):
            asking()


def test_what_was_loaded_counts_not_what_was_committed_since(project, monkeypatch):
    monkeypatch.setattr(provenance, "LOADED", f"{project[1][0]}+changes")
    with pytest.raises(GPVIError, match="when this process began.*restart the kernel.*--dirty"):
        provenance.require_clean()


def stopped_then(monkeypatch, tmp_path, first, second, dirty=False):
    """The record of a run that began and was stopped with the code of one commit, and ended with that of another."""
    redirect(monkeypatch, tmp_path)

    def run(config, method, context):
        checkpoints.save(context.checkpoint, {"step": 3})
        raise OutOfTime("stopped")

    monkeypatch.setattr(provenance, "LOADED", first)
    with pytest.raises(OutOfTime):
        runner.run_or_load(replace(TOY, run=run).cell("svgd", 0, "paper"), progress=False, dirty=True)
    monkeypatch.setattr(provenance, "LOADED", second)
    return runner.run_or_load(TOY.cell("svgd", 0, "paper"), progress=False, dirty=dirty)


def test_a_resumed_run_names_the_commit_at_which_it_began(project, monkeypatch, tmp_path):
    folder, (_, last) = project
    (folder / "notes.txt").touch()
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "no code")
    record = stopped_then(monkeypatch, tmp_path, last, git(folder, "rev-parse", "HEAD"))
    assert record.commit == last
    assert not list((tmp_path / "build" / "checkpoints").rglob("*.*"))


@pytest.mark.parametrize("changed", [False, True])
def test_it_is_not_resumed_with_other_code(project, monkeypatch, tmp_path, changed):
    first, last = project[1]
    begun = f"{last}+changes" if changed else first
    with pytest.raises(
        GPVIError, match=rf"began with .*check {begun[:40]} out.* delete .*/svgd-seed0-\w+\* to begin.*--dirty"
    ):
        stopped_then(monkeypatch, tmp_path, begun, last)
    assert runner.checkpoint_path(TOY.cell("svgd", 0, "paper")).exists() and CALLS == []
    assert stopped_then(monkeypatch, tmp_path, begun, last, dirty=True).commit == f"{begun[:40]}+changes"


def test_a_checkpoint_that_does_not_say_its_commit_is_not_taken_for_the_present_one(project, monkeypatch, tmp_path):
    redirect(monkeypatch, tmp_path)
    cell = TOY.cell("svgd", 0, "paper")
    checkpoints.save(runner.checkpoint_path(cell), {"step": 3})
    monkeypatch.setattr(provenance, "LOADED", project[1][-1])
    with pytest.raises(GPVIError, match="began with the code of unknown, .* delete .*svgd.*--dirty"):
        runner.run_or_load(cell, progress=False)
    assert runner.run_or_load(cell, progress=False, dirty=True).commit == "unknown+changes"


def test_the_history_is_all_that_leads_here(project):
    folder, commits = project
    assert provenance.history() == set(commits)
    git(folder, "checkout", "-q", commits[0])
    assert provenance.history() == {commits[0]}


def test_a_clone_without_its_history_is_named(project, monkeypatch, tmp_path):
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{project[0]}", "shallow")
    monkeypatch.setattr(provenance, "repository", lambda: tmp_path / "shallow")
    with pytest.raises(GPVIError, match="git fetch --unshallow"):
        provenance.history()


@pytest.mark.parametrize(
    ("commit", "why"),
    [
        ("a", ""),
        ("a+changes", "changed code"),
        ("c", "not in the history"),
        ("c+changes", "not in the history"),
        ("unknown", "no commit"),
        ("", "no commit"),
    ],
)
def test_why_a_commit_is_in_doubt(commit, why):
    assert provenance.doubt(commit, frozenset("ab")) == why


# Refusals


@pytest.fixture
def edited(monkeypatch, tmp_path):
    """The toy in folders of this test's own, while the package differs from its commit."""
    redirect(monkeypatch, tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    monkeypatch.setattr(provenance, "has_changes", lambda: True)
    monkeypatch.setattr(provenance, "LOADED", "a+changes")


def sweep(profile, **options):
    return runner.sweep(TOY, profile, methods=["svgd"], progress=False, **options)


def test_a_sweep_at_paper_is_refused_before_anything_runs(edited):
    with pytest.raises(GPVIError, match="differs from its commit"):
        sweep("paper")
    with pytest.raises(GPVIError, match="differs from its commit"):
        runner.run_or_load(TOY.cell("svgd", 0, "paper"))
    assert CALLS == []
    assert len(sweep("quick")) == 2
    assert {record.commit for record in sweep("paper", dirty=True)} == {"a+changes"}
    assert len(sweep("paper")) == 3  # what is there can be read
    assert runner.run_or_load(TOY.cell("gpvi", 0, "paper"), dirty=True).commit == "a+changes"


def entry(tmp_path):
    path = tmp_path / "queue.toml"
    path.write_text('[[entry]]\nwhat = "some"\nexperiment = "toy"\nmethods = ["svgd"]\nseeds = [0]\nhours = 1\n')
    return path


def test_so_is_a_queue(edited, tmp_path):
    cells = queue.read(entry(tmp_path), get_experiment)
    with pytest.raises(GPVIError, match="differs from its commit"):
        queue.run(cells, jobs=1)
    assert queue.state(cells[0], active=False) == "missing"
    queue.run(cells, jobs=1, dirty=True)
    assert queue.state(cells[0], active=False) == "done"
    queue.run(cells, jobs=1)  # nothing is left to compute


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


@pytest.mark.parametrize("command", ["run", "queue"])
def test_the_command_line_can_ask_for_it(edited, tmp_path, capsys, command):
    arguments = {"run": ("toy", "--profile", "paper"), "queue": (str(entry(tmp_path)),)}[command]
    code, _, err = call(capsys, command, *arguments)
    assert code == 2 and err.splitlines()[-1].startswith("error: gpvi_lib/ differs from its commit")
    assert records.state(get_experiment("toy").cell("svgd", 0, "paper")) == "missing"
    assert call(capsys, command, *arguments, "--dirty")[0] == 0
    assert records.state(get_experiment("toy").cell("svgd", 0, "paper")) == "valid"


def test_the_list_of_records_in_doubt(monkeypatch, tmp_path, capsys):
    redirect(monkeypatch, tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    monkeypatch.setattr(provenance, "history", lambda: frozenset("ab"))
    assert call(capsys, "list", "--unprovenanced")[1].splitlines()[-1] == "0 of 0 records"
    for seed, commit in enumerate(("a", "b+changes", "c")):
        monkeypatch.setattr(provenance, "LOADED", commit)
        runner.run_or_load(TOY.cell("svgd", seed, "paper"), progress=False, dirty=True)
        runner.run_or_load(TOY.cell("gpvi", seed, "paper"), progress=False, dirty=True) if commit == "c" else None
    code, out, _ = call(capsys, "list", "--unprovenanced")
    assert code == 0 and [line.split() for line in out.splitlines()] == [
        ["experiment", "method", "seeds", "minutes", "why"],
        ["toy", "gpvi", "2", "0.0", "not", "in", "the", "history"],
        ["toy", "svgd", "1", "0.0", "changed", "code"],
        ["toy", "svgd", "2", "0.0", "not", "in", "the", "history"],
        "3 of 4 records: 2 not in the history, 1 changed code".split(),
    ]
    code, _, err = call(capsys, "list", "--unprovenanced", "--missing", "paper")
    assert code == 2 and "two lists" in err
