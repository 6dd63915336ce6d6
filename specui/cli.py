"""The command line, `python -m specui COMMAND`: finds the command, and turns errors into one line and an exit code.

With `--json` one JSON object goes to stdout; everything else that is said goes to stderr. Exit code 0 on success, 2 on
bad usage, 1 on any SpecUIError. The commands themselves are in `specui/commands/`.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from specui.commands import bench, compare, generate, models
from specui.commands.generate import INTERRUPTED
from specui.commands.options import Parser, say
from specui.errors import SettingError, SpecUIError

COMMANDS = (generate, compare, bench, models)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what failed is said in one line of ours
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except SettingError as error:
        say(f"error: {error}")
        return 2
    except SpecUIError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped")
        return INTERRUPTED
    except BrokenPipeError:
        return 1
    except OSError as error:
        say(f"error: {error.filename or 'input or output'}: {error.strerror or error}; check this path and its disk")
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m specui", description="Local generation with speculative decoding.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        command.add(commands)
    return parser
