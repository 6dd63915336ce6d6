"""The options that commands share, and how they become requests and settings.

Knows the catalogue and the values below it; nothing about running a model. What cannot work raises SettingError.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from specui import pairs
from specui.catalog import Catalog, PairFiles
from specui.config import (
    DEFAULT_CTX_SIZE,
    DEFAULT_PAIR,
    MAX_REFERENCE_BYTES,
    SPECULATION_MODES,
    DraftingSettings,
    Limits,
    LoadSettings,
    SamplingSettings,
    StepSettings,
)
from specui.engine.gbnf import check_gbnf
from specui.engine.json_schema import parse_schema, schema_to_gbnf
from specui.errors import SettingError
from specui.generation import GenerationRequest, Message
from specui.pace import Pace
from specui.references import References

_LINE_SHARE = 10
"""Where stderr is no terminal, a line of progress stands for so many per cent."""


def say(text: str) -> None:
    """Print a line to stderr."""
    print(text, file=sys.stderr, flush=True)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add what chooses and loads a pair; shared with app.py."""
    defaults = LoadSettings()
    group = parser.add_argument_group("model")
    group.add_argument("--pair", metavar="NAME", help=f"a pair of models.yaml (default: {DEFAULT_PAIR})")
    group.add_argument("--target", type=Path, metavar="PATH", help="a GGUF file, instead of --pair")
    group.add_argument("--draft", type=Path, metavar="PATH", help="the GGUF file of a small draft model for --target")
    group.add_argument("--ctx-size", type=int, metavar="N", help=f"context in tokens (default: {DEFAULT_CTX_SIZE})")
    group.add_argument("--batch-size", type=int, metavar="N", help=f"longest batch (default: {defaults.batch_size})")
    group.add_argument("--threads", type=int, metavar="N", help="compute threads (default: what the process may use)")
    layers = f"layers on the GPU, -1 for all (default: {defaults.gpu_layers})"
    group.add_argument("--gpu-layers", type=int, metavar="N", help=layers)
    translate = "let a draft of another vocabulary draft by way of its text"
    group.add_argument("--translate-draft", action="store_true", default=None, help=translate)


def add_prompt_options(parser: argparse.ArgumentParser) -> None:
    """Add the ways to give a prompt, and texts beside it."""
    group = parser.add_argument_group("prompt (one of these)").add_mutually_exclusive_group(required=True)
    group.add_argument("--prompt", metavar="TEXT", help="one user turn")
    group.add_argument("--prompt-file", type=Path, metavar="F", help="one user turn from a file, - for stdin")
    group.add_argument("--messages", type=Path, metavar="F", help='JSON: [{"role": "user", "content": "…"}, …]')
    parser.add_argument("--raw", action="store_true", help="send the text as it is, without the chat template")
    reference = "a text file that prompt lookup and auto may copy from; the model never sees it; may be repeated"
    parser.add_argument("--reference", type=Path, action="append", metavar="F", help=reference)


def add_step_options(parser: argparse.ArgumentParser) -> None:
    """Add drafting, sampling and limits; a missing option keeps the default of `specui.config`."""
    drafting, sampling, limits = DraftingSettings(), SamplingSettings(), Limits()
    group = parser.add_argument_group("drafting")
    modes = ", ".join(SPECULATION_MODES)
    group.add_argument("--speculation", metavar="MODE", help=f"{modes} (default: {drafting.speculation})")
    group.add_argument("--max-draft-tokens", type=int, metavar="N", help="longest draft (default: the mode's)")
    _number(group, "--max-ngram-size", int, drafting.max_ngram_size, "longest match of prompt lookup")
    _number(group, "--draft-p-min", float, drafting.draft_p_min, "draft-model: end a draft below this probability")
    group.add_argument("--adaptive-length", action="store_true", default=None, help="+2 when all accepted, else -1")
    exact = "keep every pass to sizes whose results equal one row's, bit for bit"
    group.add_argument("--exact", action="store_true", default=None, help=exact)
    group = parser.add_argument_group("sampling")
    _number(group, "--temperature", float, sampling.temperature, "0 is greedy")
    _number(group, "--top-k", int, sampling.top_k, "0 is off")
    _number(group, "--top-p", float, sampling.top_p, "1 is off")
    _number(group, "--min-p", float, sampling.min_p, "0 is off")
    _number(group, "--repeat-penalty", float, sampling.repeat_penalty, "1 is off")
    _number(group, "--presence-penalty", float, sampling.presence_penalty, "0 is off")
    _number(group, "--frequency-penalty", float, sampling.frequency_penalty, "0 is off")
    bias = "add BIAS (-100 to 100) to the logit of token ID; may be repeated"
    group.add_argument("--logit-bias", type=_bias, action="append", metavar="ID=BIAS", help=bias)
    group.add_argument("--seed", type=int, metavar="S", help="(default: fresh each time)")
    group = parser.add_argument_group("ends")
    _number(group, "--max-tokens", int, limits.max_tokens, "most tokens of the answer")
    group.add_argument("--stop", action="append", metavar="STR", help="end before this text; may be repeated")
    _add_grammar_options(parser)


def _add_grammar_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("form of the answer (one of these)").add_mutually_exclusive_group()
    group.add_argument(
        "--grammar", metavar="TEXT", help="a grammar in llama.cpp's notation (GBNF) with a rule named root"
    )
    group.add_argument("--grammar-file", type=Path, metavar="F", help="the same from a file, - for stdin")
    schema = "JSON that fits this JSON Schema; @F reads it from a file"
    group.add_argument("--json-schema", metavar="TEXT_OR_@F", help=schema)


def _bias(text: str) -> tuple[int, float]:
    """Return the pair that --logit-bias ID=BIAS names."""
    token_id, mark, bias = text.partition("=")
    if not mark:
        raise argparse.ArgumentTypeError(f"{text!r} is not ID=BIAS, such as 42=-100")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not ID=BIAS with two numbers, such as 42=-100") from None


def _number(group: Any, name: str, kind: type, default: float, text: str) -> None:
    group.add_argument(name, type=kind, metavar="N", help=f"{text} (default: {default:g})")


def _given(arguments: argparse.Namespace, kind: type[Any]) -> dict[str, Any]:
    """Return the options the user gave that are fields of the dataclass `kind`."""
    values = vars(arguments)
    return {each.name: values[each.name] for each in fields(kind) if values.get(each.name) is not None}


def load_settings(arguments: argparse.Namespace) -> LoadSettings:
    """Return the load settings of parsed arguments. Raises SettingError."""
    return LoadSettings(**_given(arguments, LoadSettings))


def step_settings(arguments: argparse.Namespace) -> StepSettings:
    """Return the settings of parsed arguments, over the pair's own in models.yaml. Raises SettingError."""
    chosen = vars(arguments)
    pair = None if chosen.get("target") else Catalog.default().pair(_pair_name(arguments))
    sampling = {**(pair.sampling if pair else {}), **_given(arguments, SamplingSettings)}
    drafting = {**(pair.drafting if pair else {}), **_given(arguments, DraftingSettings)}
    if "logit_bias" in sampling:
        sampling["logit_bias"] = tuple(sampling["logit_bias"])
    return StepSettings(SamplingSettings(**sampling), DraftingSettings(**drafting))


def _pair_name(arguments: argparse.Namespace) -> str:
    """Return the pair that was asked for; an empty name is a mistake, not the default."""
    given: str | None = vars(arguments).get("pair")
    return DEFAULT_PAIR if given is None else given


def read_grammar(arguments: argparse.Namespace) -> str | None:
    """Return the grammar (GBNF) of parsed arguments, or None. Raises SettingError where it cannot work."""
    if arguments.json_schema is not None:
        text = arguments.json_schema
        if text.startswith("@"):
            text = _read(Path(text[1:]), "--json-schema")
        return schema_to_gbnf(parse_schema(text, "--json-schema"), "--json-schema")
    if arguments.grammar_file is not None:
        grammar, option = _read(arguments.grammar_file, "--grammar-file"), "--grammar-file"
    elif arguments.grammar is not None:
        grammar, option = arguments.grammar, "--grammar"
    else:
        return None
    check_gbnf(grammar, option)
    return grammar


def given_files(arguments: argparse.Namespace) -> PairFiles | None:
    """Return the files that --target and --draft name, or None. Raises SettingError where options do not fit."""
    if arguments.target is None:
        if arguments.draft is not None:
            raise SettingError("--draft", str(arguments.draft), "--target with it")
        return None
    if arguments.pair is not None:
        raise SettingError("--pair", arguments.pair, "either --pair or --target, not both")
    return pairs.from_paths(arguments.target, arguments.draft)


def find_files(arguments: argparse.Namespace) -> PairFiles:
    """Return the files of --target/--draft, or of --pair, downloaded or made if they are not there."""
    given = given_files(arguments)
    if given is not None:
        return given
    pair = Catalog.default().pair(_pair_name(arguments))
    return pairs.on_disk(pair) or pairs.resolve(pair, DownloadProgress().tell)


class DownloadProgress:
    """Says on stderr how far a download is: in one line on a terminal, else in a line for each tenth."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._said = ""
        self._terminal = sys.stderr.isatty()

    def tell(self, stage: str, done: int, total: int) -> None:
        """Note progress; an OnProgress."""
        self._pace.at(time.monotonic(), done, total)
        line = f"{stage} {self._pace.words}".rstrip()
        if self._terminal:
            print(f"\r\x1b[K{line}", end="\n" if total and done >= total else "", file=sys.stderr, flush=True)
            return
        share = f"{stage} {100 * done // total // _LINE_SHARE if total else 0}"
        if stage and share != self._said:
            self._said = share
            say(line)


def read_request(arguments: argparse.Namespace) -> GenerationRequest:
    """Return the request of parsed arguments. Raises SettingError where a prompt or a grammar cannot be read."""
    limits = Limits(**{**_given(arguments, Limits), "stop": tuple(arguments.stop or ())})
    messages: tuple[Message, ...] = _read_messages(arguments)
    text = None
    if arguments.raw:
        text, messages = "".join(message.content for message in messages), ()
    return GenerationRequest(
        messages=messages,
        prompt=text,
        settings=step_settings(arguments),
        limits=limits,
        grammar=read_grammar(arguments),
        references=read_references(arguments),
    )


def read_references(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the texts that --reference names. Raises SettingError for the first file that cannot be used."""
    found = References("--reference")
    for path in arguments.reference or ():
        found = found.adding(str(path), _read_start(path, "--reference"))
    return found.texts


def _read_start(path: Path, option: str) -> bytes:
    """Return a file's bytes; of one that is too large for a reference as many as show that it is."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_REFERENCE_BYTES + 1)
    except OSError as error:
        raise SettingError(option, str(path), f"a file that can be read ({error.strerror})") from None


def _read_messages(arguments: argparse.Namespace) -> tuple[Message, ...]:
    if arguments.messages is not None:
        return parse_messages(_read(arguments.messages, "--messages"))
    text = arguments.prompt if arguments.prompt is not None else _read(arguments.prompt_file, "--prompt-file")
    return (Message("user", text),)


def _read(path: Path, option: str) -> str:
    try:
        return _read_stdin(option) if str(path) == "-" else path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingError(option, str(path), f"a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise SettingError(option, str(path), "text in UTF-8") from None


def _read_stdin(option: str) -> str:
    if sys.stdin is None:  # closed by the shell
        raise SettingError(option, "-", "something on stdin, or the name of a file")
    return sys.stdin.read()


def parse_messages(text: str) -> tuple[Message, ...]:
    """Return the messages of a JSON list. Raises SettingError naming what is wrong."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError("--messages", text[:40], f"JSON ({error})") from None
    if isinstance(items, dict):
        items = items.get("messages")
    if not isinstance(items, list) or not items:
        raise SettingError("--messages", text[:40], 'a list such as [{"role": "user", "content": "…"}]')
    return tuple(_message(item, place) for place, item in enumerate(items))


def _message(item: object, place: int) -> Message:
    role, content = (item.get("role"), item.get("content")) if isinstance(item, dict) else (None, None)
    if role not in ("system", "user", "assistant") or not isinstance(content, str):
        raise SettingError(f"--messages[{place}]", item, "an object with role (system, user, assistant) and content")
    return Message(role, content)
