"""Images and a small model that two ranks train: for tests of where images lie."""

import random
from pathlib import Path

import numpy as np
import numpy.typing as npt

from monarch.loader import Loader
from monarch.records import Records

IMAGES, PIXELS, RANKS, EPOCHS = 160, 64, 2, 3
BATCH = 10
RATE = 0.01
Array = npt.NDArray[np.float64]


def make_images(folder: Path) -> Path:
    """Makes images of two classes, whose sum of pixels determines the class."""
    chance = random.Random(2)
    for number in range(IMAGES):
        label = number % 2
        pixels = bytes(chance.randrange(128) + 100 * label for _ in range(PIXELS))
        file = folder / str(label) / f"{number}.raw"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pixels)
    return folder


def labels_of(stored: Records) -> Array:
    """The class of each Record, from a column."""
    column = stored.columns["label"]
    return np.array([float(column.name_of(value)) for value in column.values])


def trained(records: Records, labels: Array) -> tuple[Array, list[list[int]]]:
    """The weights of a logistic regression, and the Records of its batches."""
    loaders = [
        Loader(
            *(records, BATCH),
            rank=rank,
            world_size=RANKS,
            seed=5,
            shuffle="global",
        )
        for rank in range(RANKS)
    ]
    weights = np.zeros(PIXELS)
    order: list[list[int]] = []
    for _ in range(EPOCHS):
        for batches in zip(*loaders, strict=True):
            steps = []
            for batch in batches:
                order.append(batch.ids.tolist())
                rows = [np.frombuffer(one, np.uint8) for one in batch.records]
                images = np.array(rows) / 255
                guessed = 1 / (1 + np.exp(-images @ weights))
                steps.append(images.T @ (guessed - labels[batch.ids]))
            weights = weights - RATE * np.mean(steps, axis=0)
    for loader in loaders:
        loader.close()
    return weights, order
