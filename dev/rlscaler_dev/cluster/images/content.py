"""Files and configuration of an image, from the archive that buildah (and `docker save`) writes."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rlscaler_dev.exceptions import BuildError

WHITEOUT = ".wh."
"""Prefix of a name that a layer removes from the layers below."""


@dataclass(frozen=True)
class Content:
    """An image, layer by layer."""

    image_id: str
    """sha256 of its configuration."""
    config: dict[str, object]
    """User, Env, Entrypoint, Labels."""
    layers: tuple[str, ...]
    """diff_id of each layer, the lowest first."""
    sizes: tuple[dict[str, int], ...]
    """Path -> bytes of the files that each layer brings."""
    texts: dict[str, str]
    """Path -> content of the files that were asked for, as a container sees them."""

    def over(self, below: int) -> int:
        """Uncompressed bytes of the layers above the first `below`."""
        return sum(sum(files.values()) for files in self.sizes[below:])

    def by_package(self, below: int) -> dict[str, int]:
        """Bytes of each top folder of /app/lib and of /app/rlscaler, the largest first."""
        sizes: dict[str, int] = {}
        for files in self.sizes[below:]:
            for path, size in files.items():
                parts = PurePosixPath(path).parts
                if parts[:1] == ("app",) and len(parts) > 2:
                    name = parts[2].split("-")[0] if parts[1] == "lib" else "rlscaler"
                    sizes[name] = sizes.get(name, 0) + size
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def read(archive: Path, wanted: Callable[[str], bool] = lambda _: False) -> Content:
    """Read an archive; `wanted` names the text files to keep. Raises BuildError where it is none."""
    try:
        with tarfile.open(archive, "r:") as outer:
            (manifest,) = json.loads(_member(outer, "manifest.json"))
            document = _member(outer, manifest["Config"])
            sizes: list[dict[str, int]] = []
            texts: dict[str, str] = {}
            for layer in manifest["Layers"]:
                with tarfile.open(fileobj=outer.extractfile(layer)) as inner:
                    sizes.append(dict(_layer(inner, wanted, texts)))
    except (OSError, tarfile.TarError, ValueError, KeyError) as error:
        raise BuildError(f"{archive} is no image archive ({error}): build it again with `make images`") from error
    config = json.loads(document)
    image_id = PurePosixPath(manifest["Config"]).stem
    return Content(image_id, config["config"], tuple(config["rootfs"]["diff_ids"]), tuple(sizes), texts)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read()


def _layer(layer: tarfile.TarFile, wanted: Callable[[str], bool], texts: dict[str, str]) -> Iterator[tuple[str, int]]:
    for entry in layer:
        path = PurePosixPath("/").joinpath(entry.name).relative_to("/")
        if path.name.startswith(WHITEOUT):
            gone = str(path.with_name(path.name.removeprefix(WHITEOUT)))
            for name in [name for name in texts if name == gone or name.startswith(f"{gone}/")]:
                del texts[name]
        elif entry.isfile():
            if wanted(str(path)):
                texts[str(path)] = _member(layer, entry.name).decode(errors="replace")
            yield str(path), entry.size
