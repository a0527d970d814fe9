"""Writes JPEG files of many kinds into a folder, with the pixels that Pillow decodes at each scale.

For each NAME.jpg: NAME.1.rgb, NAME.2.rgb, NAME.4.rgb and NAME.8.rgb, the pixels at that denominator, with as many
channels as the file's image (1 or 3; CMYK files as RGB).
"""

import io
import pathlib
import sys

from PIL import Image, ImageDraw


def picture(width: int, height: int) -> Image.Image:
    """Smooth colours, noise and edges, so that all coefficients are used."""
    bands = [
        Image.linear_gradient("L").resize((width, height)),
        Image.radial_gradient("L").resize((width, height)),
        Image.effect_noise((width, height), 60),
    ]
    image = Image.merge("RGB", bands)
    draw = ImageDraw.Draw(image)
    draw.ellipse((width // 5, height // 5, width // 2, height // 2), fill=(250, 20, 30))
    draw.line((0, 0, width, height), fill=(0, 200, 255), width=3)
    return image


def encoded(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def with_440(file: bytes) -> bytes:
    """Exchanges the sampling factors and the edges of a 4:2:2 file, whose units stay as many."""
    at = file.index(b"\xff\xc0")
    frame = bytearray(file[at : at + 19])
    frame[5:7], frame[7:9] = frame[7:9], frame[5:7]
    assert frame[11] == 0x21
    frame[11] = 0x12
    return file[:at] + bytes(frame) + file[at + 19 :]


def with_ycck(file: bytes) -> bytes:
    """Sets the transform of a CMYK file's Adobe segment to YCCK."""
    at = file.index(b"Adobe") + 11
    return file[:at] + b"\x02" + file[at + 1 :]


def files() -> dict[str, bytes]:
    made = {}
    for width, height in [(64, 48), (203, 149), (17, 9), (1, 1), (500, 3)]:
        image, size = picture(width, height), f"{width}x{height}"
        for name, subsampling in [("444", 0), ("422", 1), ("420", 2)]:
            made[f"{name}_{size}"] = encoded(image, quality=90, subsampling=subsampling)
            made[f"progressive_{name}_{size}"] = encoded(image, quality=75, subsampling=subsampling, progressive=True)
        made[f"440_{size}"] = with_440(encoded(image, quality=85, subsampling=1))
        made[f"gray_{size}"] = encoded(image.convert("L"), quality=80)
        made[f"progressive_gray_{size}"] = encoded(image.convert("L"), quality=80, progressive=True)
        made[f"rgb_{size}"] = encoded(image, quality=90, keep_rgb=True)
        made[f"restarts_{size}"] = encoded(image, quality=90, restart_marker_blocks=3)
        made[f"coarse_{size}"] = encoded(image, quality=5)
        made[f"cmyk_{size}"] = encoded(image.convert("CMYK"), quality=90)
        made[f"ycck_{size}"] = with_ycck(made[f"cmyk_{size}"])
    return made


def pixels(file: bytes, denominator: int) -> bytes:
    image = Image.open(io.BytesIO(file))
    if denominator > 1:
        # The scale is forced, because draft chooses none that makes an edge smaller than the given size.
        image.tile = [part._replace(args=(part.args[0], "")) for part in image.tile]
        image.decoderconfig = (denominator, 0)
        size = tuple(-(-edge // denominator) for edge in image.size)
        image.tile = [part._replace(extents=(0, 0, *size)) for part in image.tile]
        image._size = size
    image.load()
    return (image.convert("RGB") if image.mode == "CMYK" else image).tobytes()


def main(folder: pathlib.Path) -> None:
    for name, file in files().items():
        (folder / f"{name}.jpg").write_bytes(file)
        for denominator in (1, 2, 4, 8):
            (folder / f"{name}.{denominator}.rgb").write_bytes(pixels(file, denominator))


main(pathlib.Path(sys.argv[1]))
