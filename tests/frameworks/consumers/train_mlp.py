"""Trains a small network with Monarch's loader, on any number of ranks.

train_mlp.py make DATA             makes the samples of a noisy teacher
train_mlp.py train DATA FOLDER     trains, from FOLDER/checkpoint if there is one
train_mlp.py compare DATA          tells losses with this and with a full shuffle
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from monarch.loader import Batch, Loader

SAMPLES, FEATURES = 8_003, 16
GLOBAL_BATCH = 64
EPOCHS, COMPARED_EPOCHS = 2, 12
RATE = 0.05
SEEDS = range(5)
GROUP_BYTES = 8_000
PAUSE_S = 0.01

Step = Callable[[torch.Tensor], float]


def make(path: str) -> None:
    """Make samples, in the order of what is to be learned, as a dataset often is."""
    rng = np.random.default_rng(3)
    samples = rng.normal(size=(SAMPLES, FEATURES + 1)).astype(np.float32)
    hidden = np.tanh(samples[:, :-1] @ rng.normal(size=(FEATURES, 8)) / 4)
    samples[:, -1] = hidden @ rng.normal(size=8) + 0.5 * samples[:, -1]
    np.save(path, samples[np.argsort(samples[:, -1])])


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1))


def loss_of(model: nn.Module, samples: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(samples[:, :-1])[:, 0], samples[:, -1])


def learn(model: nn.Module) -> tuple[torch.optim.SGD, Step]:
    """Return an optimizer, and what takes a step."""
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def step(samples: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = loss_of(model, samples)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return optimizer, step


def train(data: str, folder: Path) -> None:
    """Train; each rank says the samples of its batches, rank 0 keeps checkpoints."""
    rank, ranks = join()
    model = nn.parallel.DistributedDataParallel(network(0))
    _, step = learn(model)
    batch_size = GLOBAL_BATCH // ranks
    loader = Loader(data, batch_size, seed=7, group_bytes=GROUP_BYTES, output="torch")
    checkpoint, steps = folder / "checkpoint", 0
    if checkpoint.exists():
        kept = torch.load(checkpoint)
        model.load_state_dict(kept["model"])
        loader.load_state_dict(kept["loader"])
        steps = kept["steps"]
    said = (folder / f"rank-{rank}-from-{steps}").open("w", buffering=1)
    with said:
        for batch in rest_of(loader):
            step(batch.array)
            print(json.dumps([steps, os.getpid(), batch.ids.tolist()]), file=said)
            steps += 1
            dist.barrier()
            if rank == 0:
                keep(checkpoint, model.state_dict(), loader.state_dict(), steps)
            time.sleep(PAUSE_S)
    if rank == 0:
        print(float(loss_of(model.module, everything(data))))
    loader.close()
    dist.destroy_process_group()


def rest_of(loader: Loader) -> Iterator[Batch]:
    """Yield the batches of this epoch and the next ones."""
    while loader.state_dict()["epoch"] < EPOCHS:
        yield from loader


def keep(path: Path, model: object, loader: object, steps: int) -> None:
    torch.save({"model": model, "loader": loader, "steps": steps}, f"{path}.new")
    os.replace(f"{path}.new", path)


def join() -> tuple[int, int]:
    """Join the other ranks; an MPI tells which one this is by its own variables."""
    for rank, size in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ):
        if rank in os.environ:
            os.environ["RANK"] = os.environ[rank]
            os.environ["WORLD_SIZE"] = os.environ[size]
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def everything(data: str) -> torch.Tensor:
    return torch.from_numpy(np.load(data))


def compare(data: str) -> None:
    """Print the losses on unseen samples: by seed, loaded and fully shuffled."""
    samples = everything(data)
    unseen = samples[::5]
    seen = np.delete(samples.numpy(), np.s_[::5], axis=0)
    path = f"{data}.seen.npy"
    np.save(path, seen)
    told: dict[str, list[float]] = {"loaded": [], "shuffled": []}
    for seed in SEEDS:
        with Loader(
            path, GLOBAL_BATCH, seed=seed, group_bytes=GROUP_BYTES, output="torch"
        ) as loader:
            loaded = ((batch.array for batch in loader) for _ in range(COMPARED_EPOCHS))
            told["loaded"].append(final_loss(seed, loaded, unseen))
        shuffled = full_shuffle(torch.from_numpy(seen), seed)
        told["shuffled"].append(final_loss(seed, shuffled, unseen))
    print(json.dumps(told))


def full_shuffle(samples: torch.Tensor, seed: int) -> Iterator[Iterator[torch.Tensor]]:
    random = torch.Generator().manual_seed(seed)
    whole = len(samples) // GLOBAL_BATCH * GLOBAL_BATCH
    for _ in range(COMPARED_EPOCHS):
        order = torch.randperm(len(samples), generator=random)[:whole]
        yield (samples[part] for part in order.split(GLOBAL_BATCH))


def final_loss(
    seed: int, epochs: Iterator[Iterator[torch.Tensor]], unseen: torch.Tensor
) -> float:
    model = network(seed)
    optimizer, step = learn(model)
    for number, batches in enumerate(epochs):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - number / COMPARED_EPOCHS)
        for samples in batches:
            step(samples)
    with torch.no_grad():
        return float(loss_of(model, unseen))


if __name__ == "__main__":
    torch.set_num_threads(1)
    verb, data, *folder = sys.argv[1:]
    if verb == "train":
        train(data, Path(*folder))
    else:
        {"make": make, "compare": compare}[verb](data)
