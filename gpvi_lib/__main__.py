"""The command line: `python -m gpvi_lib COMMAND`; `--help` lists the commands.

An error that the user can act on is one line on stderr and exit code 2.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpvi_lib.errors import GPVIError, OutOfTime, RecordWarning, SweepError
from gpvi_lib.lab.profiles import PROFILES, get_profile
from gpvi_lib.paths import make_roots_absolute

if TYPE_CHECKING:
    import pandas

    from gpvi_lib.experiments import Experiment
    from gpvi_lib.lab.experiment import Cell
    from gpvi_lib.lab.queue import QueuedCell
    from gpvi_lib.lab.records import Record

TRY_AGAIN = 75
"""Exit code of a command that ran out of the time it was given (EX_TEMPFAIL of sysexits.h)."""

MAX_SEED = 2**32
"""NumPy's generators, which some experiments use beside torch's, take no larger one."""
INTERRUPTED = 130
"""Exit code after Ctrl-C (128 + SIGINT, as of a shell)."""

app = typer.Typer(
    help="GPVI, the executable paper: experiments, their records, and the notebooks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ProfileOption = Annotated[str, typer.Option(help=f"One of {', '.join(PROFILES)}.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps, or auto for a GPU where there is one.")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Compute from nothing; a run still loads its reference.")]
JobsOption = Annotated[int, typer.Option(min=1, help="How many run side by side; they share the cores.")]
TimeoutOption = Annotated[float | None, typer.Option(help="Seconds that one cell may take; no limit by default.")]
DirtyOption = Annotated[
    bool, typer.Option("--dirty", help="At paper, compute even if gpvi_lib/ differs from its commit.")
]
NamesArgument = Annotated[list[str] | None, typer.Argument(help="Paths, names or numbers; all by default.")]


@app.command("list")
def list_experiments(
    missing: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Only what has no valid record there, and what it waits for.")
    ] = None,
    unprovenanced: Annotated[
        bool, typer.Option("--unprovenanced", help="Only records at paper whose commit does not tell their code.")
    ] = False,
) -> None:
    """Show experiments, methods and profiles, and which records exist (valid/expected)."""
    from gpvi_lib.experiments import EXPERIMENTS

    if missing is not None and unprovenanced:
        raise GPVIError("--missing and --unprovenanced are two lists: ask for one at a time")
    if unprovenanced:
        with _damage_named():
            _print_unprovenanced()
        return
    if missing is not None:
        _print_table([("experiment", "method", "seeds", "why"), *_without_record(get_profile(missing).name)])
        return
    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name}: {experiment.title}")
        rows = [
            (method, *(_states(experiment, method, profile) for profile in PROFILES)) for method in experiment.methods
        ]
        _print_table([("  method", *PROFILES), *((f"  {row[0]}", *row[1:]) for row in rows)])
        print()
    _print_table([(f"{profile.name}:", profile.purpose) for profile in PROFILES.values()])


@contextmanager
def _damage_named() -> Iterator[set[str]]:
    """Inside, damaged records are left out; at the end each is named on stderr, and the set holds what was said."""
    said: set[str] = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RecordWarning)
        try:
            yield said
        finally:
            said |= {str(warning.message) for warning in caught if issubclass(warning.category, RecordWarning)}
            for line in sorted(said):
                print(line, file=sys.stderr)
    for warning in caught:
        if not issubclass(warning.category, RecordWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _print_unprovenanced() -> None:
    """One line for each method with records at paper that have a doubtful commit, by reason, and how many there are."""
    from gpvi_lib.lab import provenance, records

    history, total = provenance.history(), 0
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records.recorded("paper"):
        total += 1
        why = provenance.doubt(record.commit, history)
        if why:
            found.setdefault((record.experiment, record.method, why), []).append(record)
    rows, counts = [("experiment", "method", "seeds", "minutes", "why")], Counter[str]()
    for (experiment, method, why), some in found.items():
        seeds = ", ".join(str(seed) for seed in sorted(record.seed for record in some))
        rows.append((experiment, method, seeds, f"{sum(record.seconds for record in some) / 60:.1f}", why))
        counts[why] += len(some)
    _print_table(rows)
    said = ", ".join(f"{count} {why}" for why, count in counts.most_common())
    print(f"{counts.total()} of {total} records" + (f": {said}" if said else ""))


def _states(experiment: Experiment, method: str, profile: str) -> str:
    from gpvi_lib.lab import records

    seeds = experiment.seeds_of(method, profile)
    found = Counter(records.state(experiment.cell(method, seed, profile)) for seed in seeds)
    broken = "".join(f", {found[state]} {state}" for state in ("stale", "damaged") if found[state])
    return f"{found['valid']}/{len(seeds)}{broken}"


def _without_record(profile: str) -> Iterator[tuple[str, str, str, str]]:
    """Experiment, method, the seeds that have no valid record, each with its state, and what they wait for."""
    from gpvi_lib.experiments import EXPERIMENTS, get_experiment
    from gpvi_lib.lab import queue as long_runs
    from gpvi_lib.lab import records

    path = long_runs.default_path()
    at_paper = profile == long_runs.PROFILE
    queued = {one.cell for one in long_runs.read(path, get_experiment)} if at_paper and path.exists() else set()
    for experiment in EXPERIMENTS.values():
        for method in experiment.methods:
            states: dict[str, list[Cell]] = {}
            for seed in experiment.seeds_of(method, profile):
                cell = experiment.cell(method, seed, profile)
                states.setdefault(records.state(cell), []).append(cell)
            states.pop("valid", None)
            if states:
                found = "; ".join(f"{state} {_seeds_of(cells)}" for state, cells in states.items())
                waiting = [cell for cells in states.values() for cell in cells]
                why = _in_the_queue(waiting, queued) or ("needs a GPU" if experiment.needs_gpu and at_paper else "")
                yield experiment.name, method, found, why


def _in_the_queue(waiting: Sequence[Cell], queued: Collection[Cell]) -> str:
    """ "in the queue", with the seeds where it does not list all of these cells; "" if it lists none."""
    found = [cell for cell in waiting if cell in queued]
    if not found:
        return ""
    return "in the queue" if len(found) == len(waiting) else f"in the queue: {_seeds_of(found)}"


def _seeds_of(cells: Iterable[Cell]) -> str:
    return ", ".join(str(cell.seed) for cell in cells)


@app.command()
def run(
    experiment: Annotated[list[str] | None, typer.Argument(help="Names that `list` shows; all by default.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="A method, repeatable; all by default.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="A seed, repeatable; the profile's by default.")] = None,
    profile: ProfileOption = "quick",
    device: DeviceOption = "cpu",
    jobs: JobsOption = 1,
    fresh: FreshOption = False,
    dirty: DirtyOption = False,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Minutes, then stop; the same command goes on (exit 75).")
    ] = None,
    executor: Annotated[str | None, typer.Option(help="dask or slurm instead of processes here.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Dask's address, or submitit's cluster.")] = None,
) -> None:
    """Compute the missing and stale records of experiments; anew, unless the profile is paper or there is a budget."""
    from gpvi_lib.experiments import get_experiment
    from gpvi_lib.lab import executors, runner

    for number in seed or ():
        if not 0 <= number < MAX_SEED:
            raise GPVIError(f"--seed must be from 0 to {MAX_SEED - 1}, got {number}")
    if (method or seed) and len(experiment or ()) != 1:
        raise GPVIError("--method and --seed belong to one experiment: name it, `list` shows them all")
    if fresh and budget is not None:
        raise GPVIError(
            "--fresh forgets what a command with --budget has done, so that none would finish: leave one out"
        )
    if scheduler and executor is None:
        raise GPVIError("--scheduler belongs to an executor: add --executor dask or --executor slurm")
    if executor is not None and jobs != 1:
        raise GPVIError("--jobs is for processes here: an executor runs as many as its cluster has room for")
    chosen = (
        [get_experiment(name) for name in experiment]
        if experiment
        else _that_can_run(get_profile(profile).name, device, elsewhere=executor is not None)
    )
    if seed:
        _note_other_seeds(seed, chosen[0], method or chosen[0].methods, get_profile(profile).name)
    end = None if budget is None else time.monotonic() + 60 * budget
    failed = []
    with nullcontext() if executor is None else executors.connect(executor, scheduler) as pool:
        for one in chosen:
            left = None if end is None else max(0.0, end - time.monotonic())
            settings: dict = {"device": device, "fresh": fresh, "jobs": jobs, "executor": pool, "budget": left}
            settings["dirty"] = dirty
            try:
                found = runner.sweep(one, profile, method, seed, **settings)
            except SweepError as error:  # names what failed; the other experiments can still run
                failed.append(str(error))
                continue
            except GPVIError as error:  # ends the command, but not without what failed before
                ending = OutOfTime if isinstance(error, OutOfTime) else SweepError
                raise ending("; ".join([*failed, str(error)])) if failed else error from None
            for record in found:
                _print_record(record)
    if failed:
        raise SweepError("; ".join(failed))


def _note_other_seeds(seeds: Collection[int], experiment: Experiment, methods: Iterable[str], profile: str) -> None:
    known = experiment.seeds(profile)
    others = ", ".join(str(seed) for seed in seeds if seed not in known)
    if others:
        print(
            f"note: seed {others} is none of {experiment.name}'s at {profile} ({', '.join(map(str, known))}): "
            "no table counts its record",
            file=sys.stderr,
        )
    for method in methods:
        one = experiment.seeds_of(method, profile)
        if method in experiment.once and not set(seeds) <= set(one):
            said = f"{method} of {experiment.name} draws nothing"
            print(f"note: {said}: no table counts another seed than {one[0]}", file=sys.stderr)


def _that_can_run(profile: str, device: str, elsewhere: bool) -> list[Experiment]:
    """All experiments but those whose data are not here, or that would take days; each of those is named.

    What is run elsewhere finds its device there.
    """
    from gpvi_lib.experiments import EXPERIMENTS
    from gpvi_lib.lab import provenance, runner

    kind = provenance.kind_of_device(device) if elsewhere else provenance.as_device(device).type
    found = []
    for experiment in EXPERIMENTS.values():
        if not runner.has_data(experiment, profile):
            continue
        if experiment.needs_gpu and profile == "paper" and kind == "cpu":
            print(f"{experiment.name} is left out: it is for a GPU; name it to run it on a CPU", file=sys.stderr)
        else:
            found.append(experiment)
    return found


def _print_record(record: Record) -> None:
    metrics = "  ".join(f"{name} {value:.4g}" for name, value in record.metrics.items())
    print(f"{record.experiment} {record.method} seed {record.seed}: {metrics}  ({record.seconds:.1f} s)")


@app.command()
def queue(
    path: Annotated[Path | None, typer.Argument(help="The list of runs; results/queue.toml.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Say what is done, running and missing; run nothing.")] = False,
    jobs: JobsOption = 1,
    device: DeviceOption = "cpu",
    budget: Annotated[
        float | None, typer.Option(min=0, help="Minutes, then stop; the same command goes on (exit 75).")
    ] = None,
    dirty: DirtyOption = False,
    threads: Annotated[int, typer.Option(min=1, help="Of each run; more where cores are left and layers wide.")] = 1,
) -> None:
    """Compute a list of long runs at paper, in its order; stopped anywhere, it goes on from there."""
    from gpvi_lib.experiments import get_experiment
    from gpvi_lib.lab import queue as long_runs

    cells = long_runs.read(long_runs.default_path() if path is None else path, get_experiment)
    _print_queue(cells)
    if not show:
        long_runs.run(cells, jobs, None if budget is None else 60 * budget, dirty, device, threads)


def _print_queue(cells: Sequence[QueuedCell]) -> None:
    """One line for each entry: how many of its runs are in which state, and the hours that are left."""
    from gpvi_lib.lab import queue as long_runs

    active = long_runs.is_active()
    states = {queued: long_runs.state(queued, active) for queued in cells}
    rows = [("entry", "runs", "hours left")]
    for what in dict.fromkeys(queued.what for queued in cells):
        found = {queued: state for queued, state in states.items() if queued.what == what}
        counts = ", ".join(f"{count} {state}" for state, count in sorted(Counter(found.values()).items()))
        rows.append((what, counts, f"{_hours_left(found):.1f}"))
    _print_table(
        [*rows, ("all", f"{Counter(states.values())['done']} of {len(cells)} done", f"{_hours_left(states):.1f}")]
    )


def _hours_left(states: Mapping[QueuedCell, str]) -> float:
    """On one thread, counting a run that has begun as a whole one."""
    return sum(queued.hours for queued, state in states.items() if state != "done")


@app.command()
def scoreboard(profile: ProfileOption = "paper") -> None:
    """Put our numbers beside the published ones, print the table and write it as CSV; at paper, also pages.

    These are map.md, scoreboard.md and how-far.md in docs/.
    """
    from gpvi_lib.paths import repository, results_root, shown, write_atomically
    from gpvi_lib.report import scoreboard as board

    with _damage_named() as damaged:
        table = board.build(profile)
    _print_scores(table, verdicts=get_profile(profile).name == "paper")
    texts = {board.path_of(profile): board.to_csv(table)}
    if not damaged and profile == "paper" and results_root() == repository() / "results":  # pages speak of those alone
        with _damage_named() as damaged:  # by now
            texts |= _pages_of_scores(repository() / "docs")
    if damaged:
        raise GPVIError(f"{len(damaged)} damaged records are missing above; nothing is written")
    for path, text in texts.items():
        write_atomically(path, text.encode())
    print(f"written to {shown(board.path_of(profile))}")


def _pages_of_scores(folder: Path) -> dict[Path, str]:
    """The text of each page that says what records have, where it is there."""
    from gpvi_lib.report import how_far, pages

    texts = {"how-far": lambda text: how_far.page()} | {name: partial(pages.updated, name) for name in pages.PAGES}
    there = {folder / f"{name}.md": text for name, text in texts.items() if (folder / f"{name}.md").exists()}
    return {path: text(path.read_text(encoding="utf-8")) for path, text in there.items()}


def _print_scores(table: pandas.DataFrame, verdicts: bool) -> None:
    from gpvi_lib.report.scoreboard import length
    from gpvi_lib.report.tables import plus_minus

    ran = table[table["n_seeds"] > 0]
    rows = [("item", "metric", "method", "setting", "paper", "ours", "seeds", "steps / printed", "verdict")]
    for row in ran.itertuples():
        pairs = (row.paper_mean, row.paper_sd), (row.ours_mean, row.ours_sd)
        paper, ours = (plus_minus(*pair, ".4g", sd_form=".2g") for pair in pairs)
        runs = str(row.n_seeds), length(row.steps, row.printed_steps)
        rows.append((row.item, row.metric, row.method, row.setting, paper, ours, *runs, row.verdict))
    _print_table(rows if verdicts else [row[:-1] for row in rows])
    if verdicts:
        print(", ".join(f"{count} {verdict}" for verdict, count in table["verdict"].value_counts().items()))
    else:
        print(
            "no verdicts: these runs are far shorter than the paper's; its numbers are beside them for the scale only"
        )


@app.command()
def data(
    sets: Annotated[list[str], typer.Argument(help="Data sets, such as mnist.")],
) -> None:
    """Download data sets into `data/`; nothing else downloads data."""
    from gpvi_lib import data as datasets
    from gpvi_lib.paths import data_root

    for name in sets:
        datasets.download(name, data_root())


@app.command()
def notebooks(
    names: NamesArgument = None,
    profile: ProfileOption = "quick",
    output: Annotated[Path | None, typer.Option(help="Folder of the copies; build/notebooks/<profile>.")] = None,
    jobs: JobsOption = 1,
    timeout: TimeoutOption = None,
    device: DeviceOption = "cpu",
    fresh: FreshOption = False,
) -> None:
    """Run copies of notebooks at a profile; all run even if some fail."""
    from gpvi_lib.lab.provenance import as_device
    from gpvi_lib.paths import build_root
    from gpvi_lib.report import notebooks as books

    as_device(device)
    _check_timeout(timeout)
    folder = build_root() / "notebooks" / get_profile(profile).name if output is None else output.resolve()
    parameters = {"profile": profile, "device": device, "fresh": fresh}
    action = partial(books.execute, folder=folder, parameters=parameters, timeout=timeout)
    _run_notebooks(action, books.find(names or ()), jobs)


@app.command()
def refresh(names: NamesArgument = None, jobs: JobsOption = 1, timeout: TimeoutOption = None) -> None:
    """Run committed notebooks at their committed parameters and put their new outputs in place."""
    from gpvi_lib.report import notebooks as books

    _check_timeout(timeout)
    _run_notebooks(partial(books.refresh, timeout=timeout), books.find(names or ()), jobs)


@app.command()
def normalise(names: NamesArgument = None) -> None:
    """Strip from notebooks what changes from run to run: timings, widget states, version metadata."""
    from gpvi_lib.report import notebooks as books

    for path in books.find(names or ()):
        print(f"{path.name}: {'rewritten' if books.normalise(path) else 'unchanged'}")


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and not timeout > 0:
        raise GPVIError(f"--timeout must be a positive number of seconds, got {timeout:g}; leave it out for no limit")


def _run_notebooks(action: Callable[[Path], object], paths: Sequence[Path], jobs: int) -> None:
    from gpvi_lib.report import notebooks as books

    done: Counter[str] = Counter()

    def report(name: str, seconds: float, error: str | None) -> None:
        done["all"] += 1
        print(f"[{done['all']}/{len(paths)}] {name} {'FAILED' if error else 'ok'} ({seconds:.1f} s)", flush=True)

    failed = books.run_all(action, paths, jobs, report)
    for error in failed.values():
        print(f"error: {error}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} of {len(paths)} notebooks failed: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


def _print_table(rows: Iterable[Sequence[str]]) -> None:
    rows = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line on `arguments` (default: those of the process) and exits."""
    make_roots_absolute()
    try:
        app(args=arguments, prog_name="python -m gpvi_lib")
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            print(
                "interrupted: records and checkpoints are kept; where they are reused (queue, run with --budget or at "
                "paper without --fresh) the same command goes on from there",
                file=sys.stderr,
            )
        raise
    except OutOfTime as stopped:
        print(stopped, file=sys.stderr)
        raise SystemExit(TRY_AGAIN) from None
    except GPVIError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
