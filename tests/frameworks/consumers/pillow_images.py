"""Writes and reads images of six formats with Pillow."""

import hashlib
import os
import random
import sys

from PIL import Image

FORMATS = ("jpg", "png", "tif", "webp", "bmp", "gif")


def make(root: str) -> None:
    """Writes seeded noise, and one bitmap larger than an Extent."""
    os.makedirs(root)
    for number in range(24):
        image = noise(number, 64)
        kind = FORMATS[number % len(FORMATS)]
        folder = os.path.join(root, f"class{number % 4}")
        os.makedirs(folder, exist_ok=True)
        image.save(os.path.join(folder, f"image-{number:03}.{kind}"))
    noise(99, 1800).save(os.path.join(root, "large.bmp"))


def noise(seed: int, side: int) -> Image.Image:
    """A square of random pixels."""
    pixels = random.Random(seed).randbytes(side * side * 3)
    return Image.frombytes("RGB", (side, side), pixels)


def read(root: str) -> None:
    """Prints a digest of the pixels of each image."""
    for folder, directories, names in os.walk(root):
        directories.sort()
        for name in sorted(names):
            with Image.open(os.path.join(folder, name)) as image:
                pixels = image.convert("RGB").tobytes()
            print(name, hashlib.sha256(pixels).hexdigest())


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](sys.argv[2])
