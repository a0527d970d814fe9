"""The network that the digits examples train and evaluate."""

from __future__ import annotations

import torch
from torch import nn


class DigitsNet(nn.Module):
    """A small convolutional network for images of 8 by 8 pixels in ten classes."""

    def __init__(self, num_channels: int) -> None:
        """Takes the number of colour channels of the images."""
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(num_channels, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Gives logits of shape (rows, 10) for images of shape (rows, channels, 8, 8), whose pixels are 0 to 255."""
        logits: torch.Tensor = self.layers(image.float() / 255.0)
        return logits
