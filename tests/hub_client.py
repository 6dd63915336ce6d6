"""A client of the Hub for tests: specui.hub in this process, or in one of its own with variables of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hub_models import use_hub
from hub_server import TOKEN

from specui.catalog import HubFile
from specui.errors import SpecUIError

SOURCE_ROOT = Path(__file__).resolve().parent.parent


CLIENT = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from hub_client import ask
print(json.dumps(ask(json.loads(sys.argv[2]))))
"""


class Usage(NamedTuple):
    """What shutil tells of a disk, as far as it is asked for."""

    free: int


def ask(asked: dict[str, Any]) -> dict[str, Any]:
    """Do what a test asks for, in this process or in one of its own, and return what came of it as JSON values."""
    from specui import hub

    files = [HubFile(*file) for file in asked["files"]]
    progress: list[tuple[str, int, int]] = []
    stop = asked["cancel_after"]
    answer: dict[str, Any] = {}
    real = shutil.disk_usage
    if asked["free"] is not None:
        shutil.disk_usage = lambda _path: Usage(asked["free"])  # type: ignore[assignment, return-value]
    try:
        if asked["cached_only"]:
            paths: Sequence[Path | None] = [hub.cached(file) for file in files]
        else:
            paths = hub.download(
                files, lambda *told: progress.append(told), lambda: stop is not None and len(progress) >= stop
            )
        answer["paths"] = [str(path) if path else None for path in paths]
    except SpecUIError as error:
        answer.update(kind=type(error).__name__, message=str(error), repo=getattr(error, "repo", None))
    finally:
        shutil.disk_usage = real
    return {**answer, "progress": [list(told) for told in progress]}


@dataclass
class Answer:
    """What a client process came to: paths, or the kind and message of its error."""

    paths: list[Path | None] = field(default_factory=list)
    progress: list[list[Any]] = field(default_factory=list)
    kind: str = ""
    message: str = ""
    repo: str | None = None
    log: str = ""


@dataclass
class Client:
    """Uses specui.hub with a cache of its own: in this process, or, with variables of its own, in another."""

    endpoint: str
    home: Path

    def start(self, *files: tuple[str, ...], env: dict[str, str] | None = None, **asked: Any) -> subprocess.Popen[str]:
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        variables |= {"HF_HOME": str(self.home), "HF_ENDPOINT": self.endpoint, "HF_HUB_DISABLE_TELEMETRY": "1"}
        places = json.dumps([str(SOURCE_ROOT), str(SOURCE_ROOT / "tests")])
        command = [sys.executable, "-W", "error", "-c", CLIENT, places, json.dumps(self._asked(files, asked))]
        streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=variables | (env or {}), **streams)

    def _asked(self, files: Sequence[tuple[str, ...]], asked: dict[str, Any]) -> dict[str, Any]:
        return {"files": files, "cached_only": False, "cancel_after": None, "free": None, **asked}

    def run(self, *files: tuple[str, ...], env: dict[str, str] | None = None, **asked: Any) -> Answer:
        """A token is read anew each time; other variables only when a process begins."""
        if set(env or {}) - {"HF_TOKEN"}:
            return finish(self.start(*files, env=env, **asked))
        with pytest.MonkeyPatch.context() as patch:
            use_hub(patch, self.endpoint, self.home / "hub")
            for key, value in (env or {}).items():
                patch.setenv(key, value)
            return answer_of(ask(self._asked(files, asked)))

    def blobs(self) -> list[Path]:
        return sorted(path for path in self.home.rglob("blobs/*") if path.is_file())


def finish(process: subprocess.Popen[str]) -> Answer:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert TOKEN not in out + err
    return answer_of(json.loads(out), err)


def answer_of(found: dict[str, Any], log: str = "") -> Answer:
    assert TOKEN not in str(found)
    paths = [Path(path) if path else None for path in found.pop("paths", [])]
    return Answer(paths=paths, log=log, **found)
