"""The shelf of loaded weights: one `Model` per file, shared by every lane that needs it, freed when the last lets go.

Knows files and counts of users; nothing about contexts, lanes or what the weights are used for.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from specui.engine.llama import Model
from specui.gguf import check_gguf

FileId = tuple[int, int]
"""Device and inode: one file has one, whatever path leads to it."""


@dataclass(slots=True)
class _Held:
    """Weights on the shelf and how many use them."""

    model: Model
    users: int = 0


class Shelf:
    """Loaded weights by file. All methods may be called from any thread; a load keeps the others waiting."""

    def __init__(self, gpu_layers: int = 0) -> None:
        self._gpu_layers = gpu_layers
        self._held: dict[FileId, _Held] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def take(self, path: Path) -> Model:
        """Return the weights of a file, loaded if nobody holds them. Raises ModelFileError.

        Whoever takes gives back once, after every context on the weights is closed.
        """
        check_gguf(path)
        with self._lock:
            file = _file_id(path)
            held = self._held.get(file)
            if held is None:
                held = self._held[file] = _Held(Model(path, self._gpu_layers))
            held.users += 1
            return held.model

    def give_back(self, model: Model) -> None:
        """Let go of weights taken before; the last user's go frees them."""
        with self._lock:
            file, held = next(each for each in self._held.items() if each[1].model is model)
            held.users -= 1
            if held.users == 0:
                del self._held[file]
                model.close()


def _file_id(path: Path) -> FileId:
    status = path.stat()
    return status.st_dev, status.st_ino
