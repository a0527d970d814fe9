"""Evaluates a checkpoint of train_digits.py on the rows that it has not seen."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from digits_net import DigitsNet

import stoker

QUERY = "SELECT image, label FROM digits WHERE split = 'test'"


def accuracy(lake: str, checkpoint: Path) -> tuple[float, int]:
    """Gives the share of rows whose label the network finds, and the number of rows."""
    weights = torch.load(checkpoint, weights_only=True)["model"]
    model = DigitsNet(num_channels=weights["layers.0.weight"].shape[1])
    model.load_state_dict(weights)
    model.eval()
    num_right, num_rows = 0, 0
    loader = stoker.connect(lake).sql(QUERY).torch(batch_size=256, shuffle=False, last_batch="uneven")
    with torch.inference_mode():
        for batch in loader:
            num_right += int((model(batch["image"]).argmax(dim=1) == batch["label"]).sum())
            num_rows += len(batch["label"])
    return num_right / num_rows, num_rows


def main() -> int:
    """Prints the accuracy; the exit status is 1 when it is too low."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", required=True, help="a lake or a server that stoker.connect understands")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--accuracy-min", type=float, default=0.0, help="the exit status is 1 below this")
    args = parser.parse_args()
    share, num_rows = accuracy(args.lake, args.checkpoint)
    print(f"figure accuracy on {num_rows} held-out rows: {100 * share:.2f} %")
    return 0 if share > args.accuracy_min else 1


if __name__ == "__main__":
    sys.exit(main())
