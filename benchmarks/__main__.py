"""``python -m benchmarks``: time everything, write ``results/bench/<device>.json`` and its tables as Markdown."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import Annotated

import pandas
import torch
import typer
from tqdm import tqdm

from gpvi_lib import paths
from gpvi_lib.activations import ACTIVATIONS
from gpvi_lib.errors import UnknownName
from gpvi_lib.lab import provenance
from gpvi_lib.lab.timing import interleaved, ratios

from . import cases, convolutions, floor, inverses, peers, products, timing

GROWN = ("amortized_svgd", "gpvi_block", "gpvi_helper")
SMALL_GROWN = GROWN[:2]
BASELINE = "amortized_svgd"
SCORE = "score"
TOGETHER_BYTES = 12e9


@dataclass(frozen=True)
class Rounds:
    """How calls are timed beside each other: ``repeats`` rounds in which all take turns, by elapsed or CPU time."""

    threads: int
    repeats: int
    cpu_time: bool = False

    def __call__(self, calls: dict[str, Callable], seconds: float = 0.1, **more) -> dict[str, list[float]]:
        """Seconds per call of each, as :func:`gpvi_lib.lab.timing.interleaved` has them."""
        clock = time.process_time if self.cpu_time else None
        return interleaved(calls, repeats=self.repeats, seconds=seconds, threads=self.threads, clock=clock, **more)


def _advances(methods: list[str], size: cases.Size, device: torch.device) -> dict[str, Callable]:
    return {method: cases.training(method, size, device).advance for method in methods}


def steps(device: torch.device, timed: Rounds, sizes: list[cases.Size]) -> list[dict]:
    """ms per step of every method at every size, and its ratio to amortised SVGD."""
    rows = []
    for size in tqdm(sizes, desc="steps", unit="size"):
        dim = size.target(device).dim
        methods = [m for m in cases.OBJECTIVES if cases.feasible(m, dim, size.samples)]
        found: dict[str, dict] = {}
        for group in _groups(methods, size, dim):
            calls = _advances(group, size, device) | {SCORE: cases.score_alone(size, device)}
            times = timed(calls, seconds=0.2, keep=(BASELINE, SCORE, "gpvi_block"))
            ratio = ratios(times, BASELINE)
            del calls  # before the next group's generators are made
            found = {m: {"ms": 1e3 * median(times[m]), "ratio": ratio[m]} for m in times} | found
        for method in (*cases.OBJECTIVES, SCORE):
            row = {"size": size.name, "dim": dim, "method": method} | found.get(method, {})
            rows.append(row)
    return rows


def memory(measured: list[dict], device: torch.device) -> dict:
    """Puts the peak memory of every timed method into its row; returns when, and with which code."""
    sizes = {size.name: size for size in cases.SIZES}
    for row in tqdm([row for row in measured if "ms" in row and row["method"] != SCORE], desc="memory", unit="case"):
        row["memory_mb"] = timing.peak_memory(row["method"], sizes[row["size"]], device)
    return _when()


def _when() -> dict:
    return {"commit": provenance.commit(), "date": datetime.now(UTC).isoformat(timespec="seconds")}


def _groups(methods: list[str], size: cases.Size, dim: int) -> list[list[str]]:
    """All at once where their generators fit into memory together, else each beside the baseline alone."""
    if len(methods) * cases.bytes_in_training(size, dim) <= TOGETHER_BYTES:
        return [methods]
    return [[BASELINE, method] for method in methods if method != BASELINE]


def _grown_sizes() -> dict[str, list[tuple[float, cases.Size]]]:
    base = cases.BASE
    return {
        "k": [(k, replace(base, noise_dim=k)) for k in (16, 32, 64, 128, 256)],
        "samples": [(n, replace(base, samples=n)) for n in (5, 10, 20, 40, 80)],
        "batch": [(b, replace(base, batch=b)) for b in (25, 50, 100, 200, 400)],
        "d": [(w, replace(base, network=_wide(w))) for w in (37, 74, 148, 296)],
    }


def _wide(width: int) -> Callable:
    return lambda: cases.mlp([64, width, 64, 6])


def _small_sizes() -> dict[str, list[tuple[float, cases.Size]]]:
    small, bnn = cases.SMALL, cases.BNN
    return {
        "samples, d = 20": [(n, replace(small, samples=n)) for n in (25, 50, 100, 200)],
        "k, d = 20": [(k, replace(small, noise_dim=k)) for k in (2, 5, 10, 20)],
        "k, d = 184": [(k, replace(bnn, noise_dim=k)) for k in (8, 16, 32, 64)],
        "d, k = 5": [(d, replace(small, inputs=(d,))) for d in (10, 20, 40, 80, 160)],
    }


def growth(
    device: torch.device,
    timed: Rounds,
    grown: dict[str, list[tuple[float, cases.Size]]],
    methods: tuple[str, ...],
) -> list[dict]:
    """ms per step as one of d, k, samples and batch grows, the ratio at each value, and the exponent of the growth."""
    rows = []
    for name, sizes in tqdm(grown.items(), desc="growth", unit="quantity"):
        ms: dict[str, list[float]] = {method: [] for method in methods}
        ratio: dict[str, list[float]] = {method: [] for method in methods}
        values = [float(size.target(device).dim) if name == "d" else value for value, size in sizes]
        for _, size in sizes:
            calls = _advances(list(methods), size, device)
            times = timed(calls, too_slow=None)
            found = ratios(times, BASELINE)
            for method in methods:
                ms[method].append(1e3 * median(times[method]))
                ratio[method].append(found[method])
        for method in methods:
            # The upper half: at the lower end overheads that do not grow hide the law.
            exponent = timing.fitted_exponent(values[-3:], ms[method][-3:])
            rows.append(
                {"grows": name, "method": method, "values": values, "ms": ms[method], "ratio": ratio[method]}
                | {"exponent": exponent}
            )
    return rows


def activations(device: torch.device, timed: Rounds, sizes: list[cases.Size]) -> list[dict]:
    """ms of a step on the exact density with each activation, and its ratio to ReLU's."""
    rows = []
    for size in sizes:
        calls = {name: cases.training("gpvi_exact_density", size, device, name).advance for name in sorted(ACTIVATIONS)}
        times = timed(calls, seconds=0.2, too_slow=None)
        ratio = ratios(times, "relu")
        rows += [
            {"size": size.name, "activation": name, "ms": 1e3 * median(times[name]), "ratio": ratio[name]}
            for name in calls
        ]
    return rows


def ways(timed: Rounds) -> list[dict]:
    """ms of the first block of the exact inverse by pairs and by sources, and which of them counting chooses."""
    rows = []
    for name, shape in inverses.SHAPES.items():
        chosen, calls = inverses.calls(*shape)
        times = timed(calls)
        rows.append({"shape": name, "chosen": chosen} | {way: 1e3 * median(times[way]) for way in calls})
    return rows


def floors(measured: list[dict], device: torch.device, threads: int, sizes: list[cases.Size]) -> dict:
    """The floor of a step at the machine's measured speed, beside the measured step without the target's score."""
    bandwidth, rate = timing.bandwidth(device, threads), timing.matrix_rate(device, threads)
    rows = []
    for size in sizes:
        taken = {row["method"]: row["ms"] for row in measured if row["size"] == size.name and "ms" in row}
        dim = size.target(device).dim
        for method in ("amortized_svgd", "gpvi_block"):
            phases = floor.phases(size, dim, block=method == "gpvi_block")
            floor_ms = sum(phase.milliseconds(bandwidth, rate) for phase in phases)
            own = taken[method] - taken[SCORE]
            rows.append(
                {"size": size.name, "method": method, "traffic_ms": sum(p.bytes for p in phases) / bandwidth * 1e3}
                | {"floor_ms": floor_ms, "step_without_score_ms": own, "times_floor": own / floor_ms}
            )
    return {"bandwidth_gb_per_s": bandwidth / 1e9, "matrix_gflop_per_s": rate / 1e9, "rows": rows}


def against_peers(timed: Rounds) -> list[dict]:
    """ms per step of SVGD and per proposal of HMC, 100 particles or chains; empty without the peers."""
    if peers.missing():
        print(f'peers left out: {", ".join(peers.missing())} not installed (pip install -e ".[paper,bench]")')
        return []
    inputs, labels = peers.problem()
    rows = []
    for kind, libraries in peers.WORK.items():
        calls = {name: build(inputs, labels) for name, build in libraries.items()}
        times = timed(calls, seconds=0.2, too_slow=None)  # the first call compiles
        ratio = ratios(times, "gpvi_lib")
        for name, seconds in times.items():
            rows.append(
                {"work": kind, "library": name, "ms": 1e3 * median(seconds) / peers.INNER, "ratio": ratio[name]}
            )
    return rows


def output_layer(timed: Rounds) -> list[dict]:
    """ms of each product of a wide output layer on the CPU."""
    times = timed(products.calls())
    return [{"product": name, "ms": 1e3 * median(seconds)} for name, seconds in times.items()]


def networks(timed: Rounds) -> list[dict]:
    """ms of ten convolutional networks on fifty images, in one batched call and one by one."""
    times = timed(convolutions.calls())
    return [{"networks": name, "ms": 1e3 * median(seconds)} for name, seconds in times.items()]


def _table(rows: list[dict], columns: list[str]) -> str:
    frame = pandas.DataFrame(rows, columns=columns).replace(cases.LABELS).map(_shown)
    return frame.to_markdown(index=False, disable_numparse=True)


def _shown(value: object) -> str:
    """Three digits, or all before the point; a dash for what was not measured; lists number by number."""
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if not isinstance(value, float):
        return str(value)
    return "–" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main(
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; all cores by default.")] = None,
    repeats: Annotated[int, typer.Option(min=3, help="Rounds in which all methods take turns.")] = 7,
    size: Annotated[
        list[str] | None, typer.Option(help="Only these sizes, into a result of its own; may be given again.")
    ] = None,
    cpu_time: Annotated[
        bool, typer.Option("--cpu-time", help="CPU time of one thread instead of elapsed time, on a busy machine.")
    ] = False,
    only_steps: Annotated[
        bool, typer.Option("--only-steps", help="Leave out growth and peers, into a result of its own.")
    ] = False,
    only_memory: Annotated[
        bool, typer.Option("--only-memory", help="Keep the times of this machine's last run, and measure memory anew.")
    ] = False,
) -> None:
    """Time every method at every size; write the result as JSON and as tables, and print them."""
    torch_device, threads = provenance.as_device(device), threads or provenance.cores()
    if cpu_time and (torch_device.type != "cpu" or threads != 1):
        raise typer.BadParameter("--cpu-time is the time of one thread of a CPU: add --threads 1 and no GPU")
    torch.set_num_threads(threads)
    name = re.sub(r"[^a-z0-9]+", "-", provenance.device_name(torch_device).lower()).strip("-")
    part = "-part" if size or only_steps else ""  # beside the whole result, which it is not to replace
    path = paths.results_root() / "bench" / f"{name}{part}.json"
    if only_memory and not path.exists():
        raise typer.BadParameter(f"--only-memory needs the times of a run, and there is no {paths.shown(path)}")
    if only_memory:
        result = json.loads(path.read_text())
    else:
        sizes = [_size(each) for each in size] if size else list(cases.SIZES)
        result = _timed(torch_device, Rounds(threads, repeats, cpu_time), sizes, only_steps)
    result["memory"] = memory(result["steps"], torch_device)
    paths.write_atomically(path, (json.dumps(result, indent=1) + "\n").encode())
    text = report(result)
    paths.write_atomically(path.with_suffix(".md"), text.encode())
    print(f"\n{text}\nwritten to {paths.shown(path)}, and as Markdown beside it")


def _size(name: str) -> cases.Size:
    for size in cases.SIZES:
        if size.name == name:
            return size
    raise typer.BadParameter(str(UnknownName.among("size", name, [size.name for size in cases.SIZES])))


def _timed(device: torch.device, timed: Rounds, sizes: list[cases.Size], only_steps: bool) -> dict:
    """All that is timed."""
    result: dict = {
        "device": provenance.device_name(device),
        "threads": timed.threads,
        "versions": provenance.versions(),
        **_when(),
        "repeats": timed.repeats,
        "clock": "CPU time" if timed.cpu_time else "elapsed time",
        "steps": steps(device, timed, sizes),
    }
    result["floor"] = floors(result["steps"], device, timed.threads, sizes)
    if not only_steps:
        on_cpu = device.type == "cpu"
        result["growth"] = growth(device, timed, _grown_sizes(), GROWN)
        result["growth"] += growth(device, timed, _small_sizes(), SMALL_GROWN)
        result["activations"] = activations(device, timed, [cases.SIZES[i] for i in (1, 2, 5)])
        result["inverses"] = ways(timed) if on_cpu else []
        result["products"] = output_layer(timed) if on_cpu else []
        result["networks"] = networks(timed) if on_cpu else []
        result["peers"] = against_peers(timed) if on_cpu else []
    return result


def report(result: dict) -> str:
    """The result as Markdown."""
    bound = result["floor"]
    parts = [
        f"# {result['device']}",
        f"Medians of {result['repeats']} rounds in which all take turns, "
        f"{result['clock']}, {result['date'][:10]}, float32.",
        "## Steps\n\nms: milliseconds a step; ratio: to a step of amortised SVGD with independent batches, in the same "
        f"rounds; memory in MB, of {result['memory']['date'][:10]}; – is infeasible or too slow.",
        _table(result["steps"], ["size", "dim", "method", "ms", "ratio", "memory_mb"]),
        f"## The floor\n\nAt {bound['bandwidth_gb_per_s']:.3g} GB/s and {bound['matrix_gflop_per_s']:.3g} GFLOP/s, "
        "measured in the same run, in milliseconds: the traffic alone, the sum over phases of the slower of traffic "
        "and arithmetic, and the step without the target's score.",
        _table(bound["rows"], ["size", "method", "traffic_ms", "floor_ms", "step_without_score_ms", "times_floor"]),
    ]
    if result.get("growth"):
        parts += [
            "## Growth\n\nms a step and its ratio to amortised SVGD's, at each value; the exponent: of the last three.",
            _table(result["growth"], ["grows", "method", "values", "ms", "ratio", "exponent"]),
        ]
    if result.get("activations"):
        parts += [
            "## Activations\n\nms a step on the exact density; ratio: to a step with ReLU, in the same rounds.",
            _table(result["activations"], ["size", "activation", "ms", "ratio"]),
        ]
    if result.get("inverses"):
        parts += [
            "## The exact inverse by pairs and by sources\n\nms of the first block; chosen: the cheaper by counting.",
            _table(result["inverses"], ["shape", "chosen", "pairs", "sources"]),
        ]
    if result.get("products"):
        parts += ["## Products of a wide output layer", _table(result["products"], ["product", "ms"])]
    if result.get("networks"):
        parts += ["## Ten convolutional networks", _table(result["networks"], ["networks", "ms"])]
    if result.get("peers"):
        parts += ["## Peers: 100 particles or chains", _table(result["peers"], ["work", "library", "ms", "ratio"])]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    typer.run(main)
