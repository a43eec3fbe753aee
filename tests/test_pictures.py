"""Pictures with a palette: the same to a reader's eye, with their texts, in fewer bytes."""

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from gpvi_lib.report.pictures import compact


def drawn(**how) -> bytes:
    """A picture with lines, shaded areas, text and a colour map."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(6, 3))
    at = np.linspace(0, 6, 100)
    for shift in range(2):
        left.plot(at, np.sin(at + shift), label=f"line {shift}")
        left.fill_between(at, np.sin(at + shift) - 0.2, np.sin(at + shift) + 0.2, alpha=0.2)
    left.legend()
    right.imshow(np.outer(at, at), cmap="Greys")
    content = io.BytesIO()
    fig.savefig(content, format="png", dpi=150, **how)
    plt.close(fig)
    return content.getvalue()


def pixels(png: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGB"), dtype=int)


def test_a_picture_looks_the_same_in_half_the_bytes():
    png = drawn()
    small = compact(png)
    assert len(small) < len(png) / 2
    apart = np.abs(pixels(png) - pixels(small)).max(2)
    assert (apart > 16).mean() < 1e-3  # levels of 255; edges of letters may move by more
    assert (pixels(small)[pixels(png).min(2) == 255] == 255).all()  # white stays white
    with Image.open(io.BytesIO(small)) as image:
        assert image.mode == "P" and len(image.getcolors()) <= 256


def test_where_a_palette_would_be_seen_the_picture_keeps_its_colours():
    noise = np.random.default_rng(0).integers(0, 256, (60, 60, 4), dtype=np.uint8)
    noise[..., 3] = 255
    content = io.BytesIO()
    Image.fromarray(noise).save(content, "png")
    small = compact(content.getvalue())
    assert len(small) < len(content.getvalue()) and compact(small) == small
    np.testing.assert_array_equal(pixels(small), noise[..., :3])


def test_texts_and_resolution_stay():
    with Image.open(io.BytesIO(compact(drawn(metadata={"Software": None, "A note": "x = 1"})))) as image:
        assert set(image.info) == {"dpi", "A note"} and image.info["A note"] == "x = 1"
        assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)


def test_it_is_compacted_once():
    small = compact(drawn())
    assert compact(small) == small


def test_a_translucent_picture_stays_as_it_is():
    png = drawn(transparent=True)
    assert compact(png) == png
