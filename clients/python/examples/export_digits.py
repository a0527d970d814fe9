"""Writes scikit-learn's handwritten digits as PNG files in class folders: DIR/SPLIT/DIGIT/INDEX.png.

The 1,797 images of 8 by 8 pixels come with the scikit-learn package. Every fifth image of each class goes to the split
`test`, so the split is the same on every machine.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

TEST_EVERY = 5
GREY_LEVELS_PER_STEP = 15  # pixels are 0 to 16; 16 * 15 = 240 fits into a byte


def export(folder: Path) -> Counter[str]:
    """Writes all images under `folder` and gives the number of images per split."""
    digits = load_digits()
    num_of_label: Counter[int] = Counter()
    num_of_split: Counter[str] = Counter()
    for index, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        split = "test" if num_of_label[int(label)] % TEST_EVERY == 0 else "train"
        num_of_label[int(label)] += 1
        num_of_split[split] += 1
        path = folder / split / str(label) / f"{index:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * GREY_LEVELS_PER_STEP).astype(np.uint8)).save(path)
    return num_of_split


def main() -> None:
    """Writes the images and prints how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    num_of_split = export(folder)
    splits = ", ".join(f"{count} {split}" for split, count in sorted(num_of_split.items()))
    print(f"{sum(num_of_split.values())} PNG files in {folder}: {splits}")


if __name__ == "__main__":
    main()
