"""One look for every figure, and figures that carry the data they show.

`save_figure` writes a PNG and, beside it, a JSON file with what was drawn. The JSON's SHA-256 is in the PNG's
text metadata, so a picture and its data cannot come apart unnoticed. The same versions give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib.collections
import matplotlib.image
import matplotlib.patches
import matplotlib.text
import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter
from matplotlib.transforms import Bbox

from gpvi_lib.errors import GPVIError
from gpvi_lib.lab.profiles import get_profile
from gpvi_lib.paths import figures_root, write_atomically
from gpvi_lib.report.pictures import compact

METHOD_LABELS: dict[str, str] = {
    "svgd": "SVGD",
    "gfsf": "GFSF",
    "ksd": "Stein critic",
    "amortized_svgd": "Amortised SVGD",
    "amortized_gfsf": "Amortised GFSF",
    "amortized_ksd": "Amortised Stein critic",
    "mf_vi": "Mean-field VI",
    "deep_ensemble": "Deep ensemble",
    "hmc": "HMC",
    "gpvi": "GPVI",
    "gpvi_authors": "GPVI (authors' later setting)",
    "gpvi_exact_jac": "GPVI, exact Jacobian",
    "gpvi_exact_density": "GPVI, exact density",
    "flow": "Planar flow",
    "w_sgld": "w-SGLD",
    "pi_sgld": "pi-SGLD",
    "f_svgd": "f-SVGD",
    "f_w_sgld": "f-w-SGLD",
    "f_pi_sgld": "f-pi-SGLD",
    "f_gfsf": "f-GFSF",
    "gp": "Gaussian process",
    "bootstrap": "Bootstrap",
    "livi_full": "LIVI, L′",
    "livi_min_sv": "LIVI, L″",
    "livi_diagonal": "L′, one s per weight",
    "avb": "AVB",
    "map": "MAP",
    "last_layer_laplace": "Last-layer Laplace",
    "full_linearised_laplace": "Laplace, all weights, linearised",
    "full_laplace": "Laplace, all weights, rank 10",
    "kivi": "KIVI",
    "mnf": "Multiplicative flows",
}
"""Method -> its name for a reader; `<method>_best` is the same method at our own setting."""

METHOD_COLOURS: dict[str, str] = {
    "svgd": "#88a3ec",
    "gfsf": "#2ad08b",
    "ksd": "#c94afe",
    "amortized_svgd": "#0d2866",
    "amortized_gfsf": "#12694d",
    "amortized_ksd": "#7632a7",
    "mf_vi": "#8c8c95",
    "deep_ensemble": "#ceab04",
    "hmc": "#060606",
    "gpvi": "#bc0600",
    "gpvi_authors": "#580f3d",
    "gpvi_exact_jac": "#ea6d51",
    "gpvi_exact_density": "#72080d",
    "flow": "#007a9d",
    "w_sgld": "#afb7cf",
    "pi_sgld": "#875850",
    "f_svgd": "#0000cf",
    "f_w_sgld": "#cf50ff",
    "f_pi_sgld": "#50f718",
    "f_gfsf": "#8f00ff",
    "gp": "#560091",
    "bootstrap": "#680008",
    "livi_full": "#1966e5",
    "livi_min_sv": "#4cb2f2",
    "livi_diagonal": "#000066",
    "avb": "#b27300",
    "map": "#735973",
    "last_layer_laplace": "#0d408c",
    "full_linearised_laplace": "#b03b27",
    "full_laplace": "#4e3b4e",
    "kivi": "#9cc489",
    "mnf": "#4e0027",
}
"""Method -> its colour in every figure; `<method>_best` has the method's own.

A particle method and its amortised form share a hue, light and dark; GPVI is red, with the exact Jacobian orange and
on the exact density dark red. Found by maximising the smallest distance between any two that one experiment compares,
as seen with each kind of colour blindness; tests hold that distance.
"""

VARIANTS = {
    "released": "released script",
    "type2": "type-II noise",
    "exact": "exact value",
    "from_mode": "from a mode",
    "fixed": "one fixed λ",
    "bayes": "power 1, prior 1",
    "wide": "power 1, prior 34.3",
    "warm": "power 1/234, prior 1",
    "fast": "power 1, prior 1, rate 0.01",
    "released_fast": "power 1/234, prior 34.3, rate 0.01",
    "wide_fast": "power 1, prior 34.3, rate 0.01",
    "warm_fast": "power 1/234, prior 1, rate 0.01",
    "bayes_slow": "power 1, prior 1, rate 7e-5",
    "wide_slow": "power 1, prior 34.3, rate 7e-5",
    "warm_slow": "power 1/234, prior 1, rate 7e-5",
    "released_slow": "released script, rate 7e-5",
    "first_upload": "first upload's model",
    "decayed": "decaying rate",
    "closed_form": "closed-form prior",
    "closed_form_4": "closed-form prior at 4 points",
    "closed_form_20": "closed-form prior at 20 points",
    "wide_start": "start √10 wider",
    "as_networks": "the networks' prior variance",
    "without_prior": "without its prior",
}
"""Endings of rows that are another setting of a method, and have its colour."""

for _method in (
    "livi_full",
    "livi_min_sv",
    "livi_diagonal",
    "gpvi_exact_density",
    "mf_vi",
    "mnf",
    "f_svgd",
    "svgd",
    "gp",
):
    for _end, _said in VARIANTS.items():
        METHOD_LABELS[f"{_method}_{_end}"] = f"{METHOD_LABELS[_method]} ({_said})"
        METHOD_COLOURS[f"{_method}_{_end}"] = METHOD_COLOURS[_method]

for _method in tuple(METHOD_LABELS):
    METHOD_LABELS[f"{_method}_best"] = f"{METHOD_LABELS[_method]} (best setting)"
    METHOD_COLOURS[f"{_method}_best"] = METHOD_COLOURS[_method]

COLOURED_AS = {
    "gpvi_best_softplus": ("gpvi", "GPVI (best setting, softplus units)"),
    "f_gpvi": ("gpvi", "GPVI on functions"),
    "map_ensemble": ("svgd", "MAP ensemble (SVGD without its kernel)"),
    "f_map_ensemble": ("f_svgd", "f-SVGD without its kernel"),
}
"""Rows with another method's colour: that method, their name."""
for _method, (_other, _said) in COLOURED_AS.items():
    METHOD_LABELS[_method] = _said
    METHOD_COLOURS[_method] = METHOD_COLOURS[_other]

DATA_HASH_KEY = "GPVI-Data-SHA256"
DOTS_PER_INCH = 150
MAX_PIXELS = 64 * 64
MAX_NUMBERS = 10_000
_PROFILE_NOTE = "gpvi-profile"


def style() -> None:
    """Sets the look of all figures that follow; call it once at the top of a notebook.

    The light grid also lies over an image; `axes.grid(False)` takes it away there.
    """
    seaborn.set_theme(
        context="notebook",
        style="whitegrid",
        palette="colorblind",
        rc={
            "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs on every machine
            "font.size": 11,
            "axes.titlesize": 12,
            "axes.labelsize": 11,
            "xtick.labelsize": 10,
            "ytick.labelsize": 10,
            "legend.fontsize": 10,
            "lines.linewidth": 1.8,
            "grid.color": "0.9",
            "axes.edgecolor": "0.6",
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
        },
    )


def save_figure(fig: Figure, name: str, profile: str) -> str:
    """Writes `figures/<profile>/<name>.png` with its data in `<name>.json`; a note below names the profile.

    Args:
        name: `NN-name-figure`, where NN is the number of the notebook.
        profile: the profile that the data come from.

    Returns:
        The PNG's path relative to the repository.

    Raises:
        UnknownName: if the profile does not exist.
        GPVIError: if the name is not made of lower-case letters, digits, "-" and "_".
    """
    profile = get_profile(profile).name
    if not re.fullmatch(r"[0-9a-z][0-9a-z_-]*", name):
        raise GPVIError(f"figure name {name!r} must be made of lower-case letters, digits, '-' and '_'")
    fig.draw_without_rendering()  # limits and categorical ticks settle only now
    text = _json_text({"figure": name, "profile": profile, **figure_data(fig)})
    layout = fig.get_layout_engine()
    if layout is not None:
        fig.set_layout_engine("none")  # it has been laid out, which takes as long as drawing it
    box = _note_profile(fig, profile)
    content = io.BytesIO()
    digest = hashlib.sha256(text.encode()).hexdigest()
    metadata = {"Software": None, DATA_HASH_KEY: digest}  # no version: the bytes depend on the figure alone
    fig.savefig(content, format="png", dpi=DOTS_PER_INCH, metadata=metadata, bbox_inches=box)
    if layout is not None:
        fig.set_layout_engine(layout)
    path = figures_root() / profile / f"{name}.png"
    write_atomically(path.with_suffix(".json"), text.encode())
    write_atomically(path, compact(content.getvalue()))
    return f"figures/{profile}/{name}.png"


def matches_data(png: Path) -> bool:
    """Whether a PNG's embedded hash is that of the JSON file beside it."""
    from PIL import Image

    with Image.open(png) as image:
        embedded = image.info.get(DATA_HASH_KEY)
    return embedded == hashlib.sha256(Path(png).with_suffix(".json").read_bytes()).hexdigest()


def figure_data(fig: Figure) -> dict[str, Any]:
    """Everything drawn in `fig`, as JSON-able values: titles, labels, limits, and each artist's data.

    Numbers have 6 significant digits; None stands for one that is not finite. Images of more than 64 x 64
    pixels and artists of more than 10,000 numbers are given by their shape and SHA-256.
    """
    data = {"title": fig.get_suptitle(), "axes": [_axes_data(axes) for axes in fig.axes]}
    data["legends"] = [[text.get_text() for text in legend.get_texts()] for legend in fig.legends]
    if texts := _texts_beside_axes(fig):
        data["texts"] = texts
    return data


def _texts_beside_axes(fig: Figure) -> list[str]:
    """Labels of all axes together (``supxlabel``), titles of subfigures, and texts of the figure."""
    shown = [text for part in (fig, *fig.subfigs) for text in part.texts if text.get_gid() != _PROFILE_NOTE]
    return [text.get_text() for text in shown if text.get_text() not in ("", fig.get_suptitle())]


def _note_profile(fig: Figure, profile: str) -> Bbox:
    """Writes the profile below everything drawn; returns the box of the whole figure and the note, in inches."""
    for note in [text for text in fig.texts if text.get_gid() == _PROFILE_NOTE]:
        note.remove()
    box = Bbox.union([fig.bbox_inches, fig.get_tightbbox()])
    width, height = fig.get_size_inches()
    at = (box.x1 / width, (box.y0 - 0.03) / height)
    note = fig.text(*at, f"profile: {profile}", ha="right", va="top", fontsize=7, color="0.5")
    note.set_gid(_PROFILE_NOTE)
    return Bbox.from_extents(box.x0 - 0.05, box.y0 - 0.2, box.x1 + 0.05, box.y1 + 0.05)


def _axes_data(axes: Axes) -> dict[str, Any]:
    legend = axes.get_legend()
    data = {
        "title": axes.get_title(),
        "x": _axis_data(axes.xaxis),
        "y": _axis_data(axes.yaxis),
        "legend": [text.get_text() for text in legend.get_texts()] if legend else [],
        "texts": [_text_data(text) for text in axes.texts if text.get_visible()],
        "lines": [_line_data(line) for line in axes.lines if line.get_visible()],
        "patches": [_patch_data(patch) for patch in axes.patches if patch.get_visible()],
        "collections": [_collection_data(item) for item in axes.collections if item.get_visible()],
        "images": [_image_data(image) for image in axes.images if image.get_visible()],
    }
    return {key: value for key, value in data.items() if value not in ("", [])}


def _axis_data(axis: Axis) -> dict[str, Any]:
    data = {
        "label": axis.get_label().get_text(),
        "scale": axis.get_scale(),
        "limits": _numbers(axis.get_view_interval()),
    }
    formatter = axis.get_major_formatter()
    if isinstance(formatter, FixedFormatter) or type(formatter).__name__ == "StrCategoryFormatter":
        data["categories"] = [label.get_text() for label in axis.get_ticklabels()]
    return data


def _text_data(text: matplotlib.text.Text) -> dict[str, Any]:
    return {"text": text.get_text(), "at": _numbers(text.get_position())}


def _label(artist: Any) -> dict[str, str]:
    label = str(artist.get_label())
    return {} if label.startswith("_") or not label else {"label": label}  # "_child0" names no artist


def _line_data(line: Any) -> dict[str, Any]:
    return _label(line) | {"x": _numbers(line.get_xdata(orig=False)), "y": _numbers(line.get_ydata(orig=False))}


def _patch_data(patch: matplotlib.patches.Patch) -> dict[str, Any]:
    if isinstance(patch, matplotlib.patches.Rectangle):
        box = (patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height())
        return _label(patch) | {"x_y_width_height": _numbers(box)}
    outline = patch.get_patch_transform().transform(patch.get_path().vertices)
    return _label(patch) | {"vertices": _points(outline)}


def _collection_data(item: matplotlib.collections.Collection) -> dict[str, Any]:
    """Markers by their offsets; meshes by their values; areas, segments and contours by their vertices."""
    data: dict[str, Any] = {"kind": type(item).__name__, **_label(item)}
    if isinstance(item, matplotlib.collections.PathCollection):
        data["offsets"] = _points(item.get_offsets())
    elif isinstance(item, matplotlib.collections.QuadMesh):
        data["corners"] = _numbers(item.get_coordinates())
    else:
        outlines = [np.asarray(path.vertices) for path in item.get_paths()]
        if sum(outline.size for outline in outlines) > MAX_NUMBERS:
            outlines = [np.concatenate(outlines)]
        data["vertices"] = [_points(outline) for outline in outlines]
    if item.get_array() is not None:
        limit = MAX_PIXELS if isinstance(item, matplotlib.collections.QuadMesh) else MAX_NUMBERS
        data["values"] = _numbers(item.get_array(), limit)
    return data


def _image_data(image: matplotlib.image.AxesImage) -> dict[str, Any]:
    pixels = image.get_array()
    assert pixels is not None, "an image that is drawn has data"
    limit = MAX_PIXELS * (pixels.shape[2] if pixels.ndim == 3 else 1)
    return {"extent": _numbers(image.get_extent()), "values": _numbers(pixels, limit)}


def _points(points: Any) -> dict[str, Any]:
    """Points (n, 2) as their two coordinates."""
    return {"x": _numbers(points[:, 0]), "y": _numbers(points[:, 1])}


def _numbers(values: Any, limit: int = MAX_NUMBERS) -> list | dict[str, Any]:
    """Values of any shape as nested lists, or shape and SHA-256 if there are more than `limit`."""
    array: np.ndarray = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    rounded = [_six_digits(value) for value in array.ravel().tolist()]
    if len(rounded) > limit:
        content = json.dumps(rounded).encode()
        return {"shape": list(array.shape), "sha256": hashlib.sha256(content).hexdigest()}
    nested = np.empty(len(rounded), dtype=object)
    nested[:] = rounded
    return nested.reshape(array.shape).tolist()


def _six_digits(value: float) -> float | None:
    return float(f"{value:.6g}") + 0.0 if np.isfinite(value) else None  # + 0.0: no negative zero


def _json_text(data: dict[str, Any]) -> str:
    """JSON in a fixed order with one innermost list a line, so that a diff shows what moved."""
    text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False)
    inner = re.compile(r"\[\n[^\[\]{}]*\n\s*\]")
    return inner.sub(lambda match: re.sub(r"\n\s*", " ", match[0]), text) + "\n"
