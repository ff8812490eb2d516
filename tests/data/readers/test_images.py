"""Images of every kind become bytes of one shape."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from ucb.data.readers import open_labelled
from ucb.storage import ceilings

from .files import drawn, everything, whys, write


def read(tmp_path, image, shape, name="1.png", **options):
    """Write one image and return it as it is read."""
    write(tmp_path / "a" / name, image, **options)
    examples = open_labelled(tmp_path, shape)
    _, x = everything(examples)
    assert x is not None, examples.skipped
    assert x.shape == (1, *shape)
    assert x.dtype == torch.uint8
    return x[0].numpy()


def test_colour_comes_channels_first(tmp_path):
    image = drawn(mode="RGB")
    np.testing.assert_array_equal(read(tmp_path, image, (3, 10, 12)), np.asarray(image).transpose(2, 0, 1))


def test_grey_and_colour_become_each_other(tmp_path):
    grey = np.asarray(drawn())
    np.testing.assert_array_equal(read(tmp_path, drawn(), (3, 10, 12)), np.stack([grey] * 3))
    red, green, blue = np.asarray(drawn(mode="RGB")).astype(float).transpose(2, 0, 1)
    brightness = 0.299 * red + 0.587 * green + 0.114 * blue
    assert np.abs(read(tmp_path, drawn(mode="RGB"), (1, 10, 12))[0] - brightness).max() <= 1


@pytest.mark.parametrize("name", ["1.png", "1.tiff", "1.pgm"])
def test_sixteen_bits_are_scaled(tmp_path, name):
    values = np.arange(0, 65_536, 257, dtype=np.uint16)[:250].reshape(10, 25)
    found = read(tmp_path, Image.fromarray(values), (1, 10, 25), name)
    np.testing.assert_array_equal(found[0], np.arange(250).reshape(10, 25))


def test_fractions_are_scaled(tmp_path):
    values = np.linspace(0, 1, 100, dtype=np.float32).reshape(10, 10)
    found = read(tmp_path, Image.fromarray(values), (1, 10, 10), "1.tiff")
    np.testing.assert_array_equal(found[0], np.rint(values * 255))
    values = np.full((10, 10), np.nan, np.float32)
    write(tmp_path / "b" / "2.tiff", Image.fromarray(values))
    examples = open_labelled(tmp_path)
    everything(examples)
    assert whys(examples) == {"b/2.tiff": "it holds values that are not finite"}


def test_one_bit(tmp_path):
    image = drawn().point(lambda value: 255 * (value > 127)).convert("1")
    np.testing.assert_array_equal(read(tmp_path, image, (1, 10, 12))[0], np.asarray(image) * 255)


def test_a_palette_gives_its_colours(tmp_path):
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 10, 200, 30])
    assert read(tmp_path, image, (3, 8, 8))[:, 0, 0].tolist() == [10, 200, 30]


def test_transparent_parts_are_white(tmp_path):
    image = Image.new("RGBA", (8, 8), (10, 20, 30, 255))
    image.paste((10, 20, 30, 0), (0, 0, 4, 8))
    found = read(tmp_path, image, (3, 8, 8))
    assert found[:, 0, 0].tolist() == [255, 255, 255]
    assert found[:, 0, 7].tolist() == [10, 20, 30]
    half = Image.new("LA", (8, 8), (0, 128))
    assert read(tmp_path, half, (1, 8, 8))[0, 0, 0] == 127
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    assert read(tmp_path, palette, (3, 8, 8), transparency=1).min() == 255
    assert read(tmp_path, palette, (3, 8, 8), transparency=b"\xff\x00").min() == 255
    grey = Image.new("L", (8, 8), 7)
    assert read(tmp_path, grey, (1, 8, 8), transparency=7).min() == 255


def test_cmyk(tmp_path):
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red, green, blue = read(tmp_path, image, (3, 8, 8), "1.jpg", quality=100)[:, 4, 4].tolist()
    assert red > 250
    assert max(green, blue) < 5


@pytest.mark.parametrize("name", ["1.jpg", "1.png", "1.webp", "1.tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_obeyed(tmp_path, name, orientation):
    """A bright corner is where a viewer shows it."""
    pixels = np.zeros((24, 16), np.uint8)
    pixels[:8, :8] = 255
    shown_at = {1: "tl", 2: "tr", 3: "br", 4: "bl", 5: "tl", 6: "tr", 7: "br", 8: "bl"}[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    write(tmp_path / "a" / name, Image.fromarray(pixels), exif=exif)
    examples = open_labelled(tmp_path)
    assert examples.shape == ((1, 24, 16) if orientation < 5 else (1, 16, 24))
    image = everything(examples)[1][0, 0].float()
    corners = {"tl": image[:8, :8], "tr": image[:8, -8:], "bl": image[-8:, :8], "br": image[-8:, -8:]}
    bright = max(corners, key=lambda corner: corners[corner].mean())
    assert bright == shown_at
    assert corners[bright].mean() > 200


def test_damaged_exif_does_not_cost_the_image(tmp_path):
    found = read(tmp_path, drawn(), (1, 10, 12), exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff\xff\xff")
    np.testing.assert_array_equal(found[0], np.asarray(drawn()))


@pytest.mark.parametrize("name", ["1.gif", "1.webp", "1.png"])
def test_of_an_animation_the_first_frame_is_taken(tmp_path, name):
    frames = [Image.new("L", (8, 8), value) for value in (50, 150, 250)]
    found = read(tmp_path, frames[0], (1, 8, 8), name, save_all=True, append_images=frames[1:])
    assert abs(int(found.mean()) - 50) <= 2


def test_other_sizes_are_resized_to_the_whole(tmp_path):
    image = Image.new("L", (40, 20))
    image.paste(255, (20, 0, 40, 20))
    found = read(tmp_path, image, (1, 10, 10))[0]
    assert found[:, :4].max() == 0
    assert found[:, 6:].min() == 255


def test_large_photos_look_as_if_read_in_full(tmp_path):
    across, down = np.meshgrid(np.linspace(0, 255, 1200), np.linspace(0, 255, 900))
    pixels = np.stack([across, down, 255 - across], axis=2).astype(np.uint8)
    image = Image.fromarray(pixels)
    found = read(tmp_path, image, (3, 32, 32), "1.jpg", quality=95)
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.abs(found.astype(int) - expected).max() < 8


def bomb(width, height):
    """Return a small PNG that says it is large."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(bytes(1000))), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("side", [8_300, 9_600, 60_000])  # too large for us; for a warning of Pillow; for its error
def test_decompression_bombs_are_skipped(tmp_path, side):
    assert side**2 > ceilings.PIXELS
    write(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "bomb.png").write_bytes(bomb(side, side))
    examples = open_labelled(tmp_path)
    assert everything(examples)[0] == [0]
    assert "pixels" in whys(examples)["a/bomb.png"]


def test_what_pillow_warns_about_stays_inside(tmp_path):
    """A palette whose transparency is given in bytes makes Pillow warn; here warnings are errors."""
    image = Image.new("P", (8, 8), 0)
    image.putpalette([10, 20, 30])
    content = io.BytesIO()
    image.save(content, "PNG", transparency=b"\x80")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(content.getvalue())
    assert everything(open_labelled(tmp_path))[0] == [0]


def test_a_name_may_lie_about_the_format(tmp_path):
    np.testing.assert_array_equal(read(tmp_path, drawn(), (1, 10, 12), "1.jpg", format="PNG")[0], np.asarray(drawn()))
