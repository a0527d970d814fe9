"""Adds a column with the features of a small model of PyTorch, and searches for similar images by them.

The model is trained for some epochs on the table `digits`, and then computes a vector of 32 numbers for each image.
These become the column `features` in one new version: the images are neither copied nor written again. The nearest
rows of an image by these vectors mostly have its label.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import stoker

NUM_NEIGHBOURS = 20
EPOCHS = 4
SEARCH = """
    SELECT label FROM vector_search(digits, features, (SELECT features FROM digits WHERE id = $1), k => 20)
    WHERE id <> $1
"""


class Features(nn.Module):
    """Images of digits to vectors of 32 numbers, and these to scores of the ten labels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.features = nn.Linear(16 * 16, 32)
        self.head = nn.Linear(32, 10)

    def embed(self, image: torch.Tensor) -> torch.Tensor:
        """Returns the features of images: float32 of shape (rows, 32)."""
        found: torch.Tensor = self.features(self.body(image.float() / 16))
        return nn.functional.normalize(found, dim=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Returns the scores of the labels."""
        scores: torch.Tensor = self.head(self.embed(image) * 8)
        return scores


def create(lake: stoker.Lake) -> None:
    """Writes the table `digits`."""
    digits = load_digits()
    images = digits.images.astype(np.uint8)[:, None]
    lake.create_table(
        "digits", {"id": np.arange(len(images)), "image": images, "label": digits.target}, mode="overwrite"
    )


def trained(lake: stoker.Lake) -> Features:
    """Returns a model that knows the digits."""
    torch.manual_seed(0)
    model = Features()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = lake.sql("SELECT image, label FROM digits").torch(batch_size=64, seed=1, rank=0, world_size=1)
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch["image"]), batch["label"]).backward()
            optimizer.step()
    return model.eval()


def add_features(lake: stoker.Lake, model: Features) -> stoker.Table:
    """Adds the column. A call that is interrupted goes on where it stopped when it is repeated."""

    @torch.inference_mode()
    def embed(batch: Any) -> torch.Tensor:
        return model.embed(batch["image"])

    return lake.table("digits").add_column(
        "features", embed, columns=["image"], batch_format="torch", resume_key="features v1"
    )


def main() -> int:
    """Adds the features; the exit status is 1 if the neighbours of images have other labels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", required=True, help="a lake")
    lake = stoker.connect(parser.parse_args().lake)
    create(lake)
    table = add_features(lake, trained(lake))
    labels = load_digits().target
    shares = []
    for row in range(0, len(labels), 100):
        found = lake.sql(SEARCH, [row]).to_arrow()["label"].to_numpy()
        shares.append(float((found == labels[row]).mean()))
    share = sum(shares) / len(shares)
    print(f"digits has the columns {', '.join(table.schema.names)} in version {table.version}")
    print(f"figure neighbours by features with the same label: {share:.3f}")
    return 0 if share > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
