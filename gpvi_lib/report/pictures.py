"""Pictures in as few bytes as a reader can't see the difference of."""

import io

COLOURS = 256


def compact(png: bytes) -> bytes:
    """The picture of a PNG with a palette of 256 colours, in about a third of the bytes; its texts stay.

    A picture that has a palette already, or that shows what is behind it, is returned as it is.

    Example:
        >>> from PIL import Image
        >>> content = io.BytesIO()
        >>> Image.new("RGB", (40, 40), "white").save(content, "png")
        >>> small = compact(content.getvalue())
        >>> compact(small) == small
        True
    """
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    with Image.open(io.BytesIO(png)) as image:
        translucent = image.mode == "RGBA" and image.getchannel("A").histogram()[-1] < image.width * image.height
        if image.mode == "P" or translucent:
            return png
        kept = PngInfo()
        texts = {str(key): text for key, text in image.info.items() if isinstance(text, str)}
        for key, text in texts.items():
            kept.add_text(key, text)
        reduced = image.convert("RGB").quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        content = io.BytesIO()
        reduced.save(content, "png", optimize=True, pnginfo=kept, dpi=image.info.get("dpi"))
    return content.getvalue()
