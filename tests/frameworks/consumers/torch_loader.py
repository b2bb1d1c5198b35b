"""Reads a tree of images for two epochs with PyTorch's DataLoader and two workers."""

import hashlib
import os
import sys

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):  # type: ignore[misc]
    """The images below a directory, with their classes as labels."""

    def __init__(self, root: str) -> None:
        self.paths = sorted(
            os.path.join(folder, name)
            for folder, _, names in os.walk(root)
            for name in names
            if "image-" in name
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        path = self.paths[number]
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB"))
        return torch.from_numpy(pixels), int(os.path.dirname(path)[-1])


def main(start: str, root: str) -> None:
    """Prints a digest of every batch and of the result of torch.load."""
    torch.manual_seed(5)
    loader = DataLoader(
        Images(root),
        batch_size=4,
        shuffle=True,
        num_workers=2,
        multiprocessing_context=start,
        persistent_workers=True,
    )
    for epoch in range(2):
        for pixels, labels in loader:
            print(epoch, labels.tolist(), digest(pixels))
    for mapped in (False, True):
        stored = torch.load(os.path.join(root, "weights.pt"), mmap=mapped)
        print(mapped, {name: digest(value) for name, value in stored.items()})


def make(root: str) -> None:
    """Adds seeded weights to a tree of images."""
    torch.manual_seed(6)
    weights = {f"w{number}": torch.rand(50, 60) for number in range(3)}
    torch.save(weights, os.path.join(root, "weights.pt"))


def digest(tensor: torch.Tensor) -> str:
    """Digest of the values."""
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


if __name__ == "__main__":
    make(sys.argv[2]) if sys.argv[1] == "make" else main(sys.argv[1], sys.argv[2])
