"""Checks the structure of docker/Dockerfile and docker/compose.yaml without a container engine.

The only argument is the folder that holds both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yields the instructions of a Dockerfile, with continued lines joined and comments left out."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    for line in joined.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word:
            yield word.upper(), rest.strip()


def is_pinned(image: str) -> bool:
    """Whether an image is named with a digest, or with a tag other than `latest`."""
    if "@sha256:" in image:
        return True
    tag = image.rpartition("/")[2].partition(":")[2]
    return bool(tag) and tag != "latest"


def dockerfile_problems(text: str) -> Iterator[str]:
    """Yields the problems of the image, which must have several stages, be pinned, and not run as root."""
    steps = list(instructions(text))
    stages = [rest.split() for word, rest in steps if word == "FROM"]
    if len(stages) < 2:
        yield "Dockerfile: one stage only; the compiler would end up in the image"
    names = {stage[-1] for stage in stages if len(stage) == 3 and stage[1].upper() == "AS"}
    for stage in stages:
        if stage[0] not in names and not is_pinned(stage[0]):
            yield f"Dockerfile: base image {stage[0]} is not pinned"
    last = max(index for index, (word, _) in enumerate(steps) if word == "FROM")
    final = dict(steps[last:])
    if final.get("USER", "root").split(":")[0] in {"root", "0"}:
        yield "Dockerfile: the last stage runs as root"
    if "stoker" not in final.get("ENTRYPOINT", ""):
        yield "Dockerfile: the entry point is not stoker"
    for word, rest in steps:
        if word in {"ENV", "ENTRYPOINT", "CMD"} and "insecure" in rest.lower():
            yield f"Dockerfile: {word} makes the image serve other machines without a token and TLS"
        if word == "COPY" and (source := re.match(r"--from=(\S+)", rest)) and source[1] not in names:
            yield f"Dockerfile: COPY --from={source[1]} names no stage"


def service_problems(name: str, service: dict[str, Any], compose: dict[str, Any]) -> Iterator[str]:
    """Yields the problems of one service of a compose file."""
    if "build" not in service and "image" not in service:
        yield f"compose: {name} has neither image nor build"
    if "build" not in service and not is_pinned(str(service.get("image", ""))):
        yield f"compose: {name}'s image is not pinned"
    for other in service.get("depends_on", {}):
        if other not in compose["services"]:
            yield f"compose: {name} depends on {other}, which does not exist"
    for mount in service.get("volumes", []):
        source = str(mount).partition(":")[0]
        if not source.startswith((".", "/")) and source not in compose.get("volumes", {}):
            yield f"compose: {name} mounts {source}, which is not declared"
    if service.get("privileged"):
        yield f"compose: {name} is privileged"
    settings = f"{service.get('command', '')} {service.get('environment', '')}".lower()
    ports = [str(port) for port in service.get("ports", [])]
    if "insecure" in settings and not all(port.startswith("127.0.0.1:") for port in ports):
        yield f"compose: {name} needs no token and publishes a port beyond this machine"


def compose_problems(text: str, folder: Path) -> Iterator[str]:
    """Yields the problems of the compose file."""
    compose = yaml.safe_load(text)
    for name, service in compose["services"].items():
        yield from service_problems(name, service, compose)
        build = service.get("build")
        if isinstance(build, dict):
            context = (folder / build["context"]).resolve()
            if not (context / build["dockerfile"]).is_file():
                yield f"compose: {name} builds from {build['dockerfile']}, which is not in {build['context']}"


def main() -> int:
    """Prints every problem; the exit status is 1 if there is one."""
    folder = Path(sys.argv[1])
    problems = list(dockerfile_problems((folder / "Dockerfile").read_text(encoding="utf-8")))
    problems += compose_problems((folder / "compose.yaml").read_text(encoding="utf-8"), folder)
    for text in problems:
        print(text)
    print(f"Dockerfile and compose.yaml: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
