"""Figures: one look, colours that everyone can tell apart, and data that stay with the picture."""

import json
import re

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import toy_experiment
from PIL import Image

from gpvi_lib.errors import GPVIError, UnknownName
from gpvi_lib.experiments import EXPERIMENTS
from gpvi_lib.report import plotting
from gpvi_lib.report.plotting import METHOD_COLOURS, METHOD_LABELS, save_figure


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path):
    toy_experiment.redirect(monkeypatch, tmp_path)
    with matplotlib.rc_context():
        plotting.style()
        yield
    plt.close("all")


def drawn(slope: float = 1.0):
    fig, axes = plt.subplots(figsize=(4, 3))
    axes.plot([0, 1, 2], [0, slope, np.nan], label="a line")
    axes.set(title="A title", xlabel="step", ylabel="error", xlim=(0, 2), ylim=(0, 10 / 3))
    axes.legend()
    return fig


def data(figure, name="00-test-figure"):
    save_figure(figure, name, "smoke")
    path = plotting.figures_root() / "smoke" / f"{name}.json"
    return json.loads(path.read_text())


# Files


def test_save_figure_writes_a_picture_and_its_data(tmp_path):
    assert save_figure(drawn(), "00-test-figure", "quick") == "figures/quick/00-test-figure.png"
    folder = tmp_path / "figures" / "quick"
    assert {path.name for path in folder.iterdir()} == {"00-test-figure.png", "00-test-figure.json"}
    with Image.open(folder / "00-test-figure.png") as image:
        assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)
        assert np.asarray(image.convert("L")).std() > 5
        assert set(image.info) == {"dpi", "GPVI-Data-SHA256"}  # no version and no date
    assert plotting.matches_data(folder / "00-test-figure.png")


def test_the_hash_tells_when_picture_and_data_come_apart(tmp_path):
    save_figure(drawn(), "00-test-figure", "quick")
    path = tmp_path / "figures" / "quick" / "00-test-figure.png"
    path.with_suffix(".json").write_text(path.with_suffix(".json").read_text().replace("2.0", "2.5"))
    assert not plotting.matches_data(path)
    save_figure(drawn(slope=2.0), "00-test-figure", "quick")
    assert plotting.matches_data(path)


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    contents = []
    for _ in range(2):
        fig = drawn()
        save_figure(fig, "00-test-figure", "quick")
        save_figure(fig, "00-test-figure", "quick")  # saving changes nothing either
        folder = tmp_path / "figures" / "quick"
        contents.append([(folder / f"00-test-figure.{kind}").read_bytes() for kind in ("png", "json")])
    assert contents[0] == contents[1]
    save_figure(drawn(slope=1.00001), "00-test-figure", "quick")
    assert (folder / "00-test-figure.json").read_bytes() != contents[0][1]


def test_the_profile_is_in_the_picture_once():
    fig = drawn()
    save_figure(fig, "00-test-figure", "quick")
    save_figure(fig, "00-test-figure", "paper")
    assert [text.get_text() for text in fig.texts] == ["profile: paper"]


@pytest.mark.parametrize("overflow", [False, True])
def test_the_profile_is_below_everything_drawn(overflow, tmp_path):
    """In the strip of pixels that the figure is longer by, even if something sticks out of the figure."""
    fig = drawn()
    if overflow:
        fig.text(0.5, -0.4, "far below", va="top")
    save_figure(fig, "00-test-figure", "quick")
    with Image.open(tmp_path / "figures" / "quick" / "00-test-figure.png") as image:
        pixels = np.asarray(image.convert("L"))
    note, above = pixels[-30:], pixels[-36:-30]
    assert note[:, -150:].min() < 160
    assert note[:, :-150].min() == 255
    assert above[:, :5].min() == 255


@pytest.mark.parametrize("name", ["", "../escape", "Upper", "a b", "00/x", "-x"])
def test_a_name_that_is_no_file_name_is_refused(name):
    with pytest.raises(GPVIError, match="figure name"):
        save_figure(drawn(), name, "quick")


def test_an_unknown_profile_is_refused(tmp_path):
    with pytest.raises(UnknownName, match="unknown profile 'papr'"):
        save_figure(drawn(), "00-test-figure", "papr")
    assert not (tmp_path / "figures").exists()


# Data


def test_lines_titles_and_limits():
    found = data(drawn())
    assert (found["figure"], found["profile"]) == ("00-test-figure", "smoke")
    (axes,) = found["axes"]
    assert axes["title"] == "A title"
    assert axes["x"] == {"label": "step", "scale": "linear", "limits": [0.0, 2.0]}
    assert axes["y"]["limits"] == [0.0, 3.33333]
    assert axes["lines"] == [{"label": "a line", "x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, None]}]
    assert axes["legend"] == ["a line"]


def test_bars_with_their_categories():
    fig, axes = plt.subplots()
    axes.bar(["SVGD", "GPVI"], [3.0, 2.0], width=0.5)
    (axes,) = data(fig)["axes"]
    assert [patch["x_y_width_height"] for patch in axes["patches"]] == [[-0.25, 0, 0.5, 3], [0.75, 0, 0.5, 2]]
    assert axes["x"]["categories"] == ["SVGD", "GPVI"]


def test_a_line_over_categories():
    fig, ax = plt.subplots()
    ax.plot(["low", "high"], [1.0, 3.0])
    (axes,) = data(fig)["axes"]
    assert axes["lines"] == [{"x": [0.0, 1.0], "y": [1.0, 3.0]}] and axes["x"]["categories"] == ["low", "high"]


def test_scatter_area_and_text():
    fig, axes = plt.subplots()
    axes.scatter([1, 2], [3, 4], c=[5, 6], label="points")
    axes.fill_between([0, 1], [0, 0], [1, 2])
    axes.text(0.5, 0.25, "a note")
    axes.add_patch(plt.Polygon([[0, 0], [1, 0], [0, 1]]))
    (axes,) = data(fig)["axes"]
    points, area = axes["collections"]
    assert (points["offsets"], points["values"]) == ({"x": [1.0, 2.0], "y": [3.0, 4.0]}, [5.0, 6.0])
    assert points["label"] == "points"
    (outline,) = area["vertices"]
    assert set(zip(outline["x"], outline["y"], strict=True)) == {(0, 0), (1, 0), (0, 1), (1, 2)}
    assert axes["texts"] == [{"text": "a note", "at": [0.5, 0.25]}]
    assert axes["patches"][0]["vertices"] == {"x": [0, 1, 0, 0], "y": [0, 0, 1, 0]}


def test_images_and_meshes_small_and_large():
    fig, axes = plt.subplots(1, 3)
    axes[0].imshow([[1.0, 2.0], [3.0, 1 / 3]])
    axes[1].imshow(np.arange(65 * 65.0).reshape(65, 65))
    axes[2].pcolormesh([[0.0, 1.0]])
    small, large, mesh = data(fig)["axes"]
    assert small["images"][0]["values"] == [[1.0, 2.0], [3.0, 0.333333]]
    assert large["images"][0]["values"]["shape"] == [65, 65]
    assert re.fullmatch("[0-9a-f]{64}", large["images"][0]["values"]["sha256"])
    assert mesh["collections"][0]["values"] == [[0.0, 1.0]]


def test_contours_and_large_artists():
    fig, axes = plt.subplots(1, 2)
    axes[0].contourf(np.outer(np.arange(5.0), np.arange(5.0)), levels=3)
    axes[1].plot(np.arange(10_001.0))
    contour, large = data(fig)["axes"]
    assert len(contour["collections"][0]["vertices"]) >= 3
    assert large["lines"][0]["y"]["shape"] == [10_001]


def test_a_changed_large_image_changes_the_data():
    pixels = np.zeros((70, 70))
    hashes = []
    for value in (0.0, 1e-3):
        pixels[3, 4] = value
        fig, axes = plt.subplots()
        axes.imshow(pixels, vmin=0, vmax=1)
        hashes.append(data(fig)["axes"][0]["images"][0]["values"]["sha256"])
    assert hashes[0] != hashes[1]


# Colours


def test_every_method_has_a_label_and_a_colour():
    assert METHOD_LABELS.keys() == METHOD_COLOURS.keys()
    compared = [experiment for experiment in EXPERIMENTS.values() if experiment.scores]  # others vary one method
    compared.remove(EXPERIMENTS["overhead"])  # its methods are sizes of one
    compared.remove(EXPERIMENTS["smooth-tables"])  # rows of others, with another activation
    compared = [experiment for experiment in compared if not experiment.instead_of]  # rows of others, for longer
    compared = [experiment for experiment in compared if not experiment.name.startswith("wild-")]  # of step sizes
    used = {method for experiment in compared for method in experiment.methods}
    used.discard("reference_draws")  # no method: what exact draws score
    without = ", ".join(sorted(used - METHOD_LABELS.keys()))
    assert not without, (
        f"{without}: give it a label and a colour in METHOD_LABELS, METHOD_COLOURS of report/plotting.py"
    )
    assert len(set(METHOD_LABELS.values())) == len(METHOD_LABELS)


# Machado, Oliveira and Fernandes (2009), severity 1: what people without one kind of cone see, in linear RGB.
VISION = {
    "full": np.eye(3),
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}


def oklab(linear):
    """Coordinates (n, 3) in which distances are perceived ones: Ottosson's Oklab; black to white is 1."""
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    opponents = np.array(
        [
            [0.2104542553, 0.793617785, -0.0040720468],
            [1.9779984951, -2.428592205, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.808675766],
        ]
    )
    return np.cbrt(np.clip(linear, 0, 1) @ cones.T) @ opponents.T


def seen_as(colours, vision):
    """Perceived coordinates of colours (n, 3)."""
    rgb = np.asarray(colours)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return oklab(linear @ np.array(VISION[vision]).T)


ENDINGS = ("_best", *(f"_{end}" for end in plotting.VARIANTS))
METHODS = [m for m in METHOD_COLOURS if not m.endswith(ENDINGS) and m not in plotting.COLOURED_AS]
RGB = np.array([matplotlib.colors.to_rgb(METHOD_COLOURS[method]) for method in METHODS])
WHITE = np.ones((1, 3))
PAPERS = ("fpovi", "livi", "wild")


def paper_of(experiment):
    """The paper that an experiment is of, by its name; GPVI's have no common beginning."""
    return next((paper for paper in PAPERS if experiment.name.startswith(paper)), "gpvi")


def apart():
    """1 for two methods that need not be told apart, since no paper's experiments have both, else 0."""
    used = {paper: set() for paper in (*PAPERS, "gpvi")}
    for experiment in EXPERIMENTS.values():
        if experiment.scores:
            used[paper_of(experiment)] |= set(experiment.methods)
    return np.array(
        [[a == b or not any({a, b} <= methods for methods in used.values()) for b in METHODS] for a in METHODS]
    )


def smallest(seen, far):
    """The smallest distance between rows of (n, 3) that are not ``far`` apart anyway, and the two methods."""
    distances = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + far
    close = np.unravel_index(distances.argmin(), distances.shape)
    return distances.min(), [METHODS[index] for index in close]


APART, FROM_WHITE, APART_IN_CIELAB = 0.075, 0.2, 20
"""The least distances: of two methods, of a method and the page, and in CIELAB of two methods of the GPVI paper."""
CIELAB_VISIONS = ("full", "deuteranopia", "protanopia")


def free_colours(method, number=5):
    """Colours of a grid that pass the tests below in the place of a method's, those with the most room first."""
    at = METHODS.index(method)
    together, of_paper = (RGB[~far[at]] for far in (apart().astype(bool), apart_in_paper()))
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 16)] * 3), -1).reshape(-1, 3)
    rules = [(seen_as, vision, *rule) for vision in VISION for rule in ((together, APART), (WHITE, FROM_WHITE))]
    rules += [(cielab, vision, of_paper, APART_IN_CIELAB) for vision in CIELAB_VISIONS if len(of_paper)]
    room = np.full(len(grid), np.inf)
    for seen, vision, others, least in rules:
        distances = np.linalg.norm(seen(grid, vision)[:, None] - seen(others, vision)[None], axis=-1)
        room = np.minimum(room, distances.min(1) / least)
    return [matplotlib.colors.to_hex(grid[index]) for index in room.argsort()[::-1][:number] if room[index] > 1]


def alike(methods):
    """What to say of two methods, the newer of which is the later one in the list."""
    newer = max(methods, key=METHODS.index)
    return f"{' and '.join(methods)} look alike; free for {newer}: {', '.join(free_colours(newer)) or 'none'}"


@pytest.mark.parametrize("vision", VISION)
def test_any_two_methods_can_be_told_apart(vision):
    seen = seen_as(RGB, vision)
    distance, close = smallest(seen, apart())
    assert distance > APART, alike(close)
    from_white = np.linalg.norm(seen - seen_as(WHITE, vision), axis=-1)
    palest = METHODS[from_white.argmin()]
    assert from_white.min() > FROM_WHITE, f"{palest} is pale; free: {', '.join(free_colours(palest)) or 'none'}"


@pytest.mark.parametrize("method", [METHODS[-1], "gpvi", "livi_full", "w_sgld"])
def test_the_colours_that_are_free_pass(method, monkeypatch):
    """In the place of a method's own: they are as far from all others as the tests want."""
    found = free_colours(method)
    assert found
    for colour in found:
        changed = RGB.copy()
        changed[METHODS.index(method)] = matplotlib.colors.to_rgb(colour)
        monkeypatch.setitem(globals(), "RGB", changed)
        for vision in VISION:
            test_any_two_methods_can_be_told_apart(vision)
        for vision in CIELAB_VISIONS:
            test_methods_of_the_paper_are_far_apart_in_cielab(vision)


def test_a_colour_that_another_method_has_is_refused_with_those_that_are_free(monkeypatch):
    changed = RGB.copy()
    changed[METHODS.index("gpvi")] = RGB[METHODS.index("svgd")]
    monkeypatch.setitem(globals(), "RGB", changed)
    with pytest.raises(AssertionError, match="gpvi.*look alike; free for .*: #") as caught:
        test_any_two_methods_can_be_told_apart("full")
    assert "svgd" in str(caught.value)


def cielab(colours, vision):
    """CIELAB coordinates of colours (n, 3) as they are seen, white point D65; a distance of 2.3 is just noticeable."""
    rgb = np.asarray(colours)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.array(VISION[vision]).T, 0, 1)
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    )
    xyz = linear @ to_xyz.T / [0.95047, 1, 1.08883]
    root = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * root[:, 1] - 16, 500 * (root[:, 0] - root[:, 1]), 200 * (root[:, 1] - root[:, 2])], axis=1)


def test_cielab_of_white_and_red():
    found = cielab([[1, 1, 1], [1, 0, 0]], "full")
    np.testing.assert_allclose(found, [[100, 0, 0], [53.24, 80.09, 67.2]], atol=0.1)


def apart_in_paper():
    """True for two methods that are not both of the GPVI paper's experiments, and for a method and itself."""
    of_paper = [one for one in EXPERIMENTS.values() if one.scores and paper_of(one) == "gpvi"]
    ours = {method for experiment in of_paper for method in experiment.methods}
    return np.array([[a == b or not {a, b} <= ours for b in METHODS] for a in METHODS])


@pytest.mark.parametrize("vision", CIELAB_VISIONS)
def test_methods_of_the_paper_are_far_apart_in_cielab(vision):
    distance, close = smallest(cielab(RGB, vision), 1000 * apart_in_paper())
    assert distance > APART_IN_CIELAB, alike(close)
