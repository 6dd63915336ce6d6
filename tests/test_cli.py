"""The command line's contract to the letter: JSON keys, exit codes 0, 1 and 2, one line for a mistake."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp
import pytest

from specui import cli
from specui.catalog import PairFiles
from specui.commands import options
from specui.commands.options import Parser
from specui.config import SPECULATION_MODES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
STATS = {
    "num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_rejected_tokens", "num_ignored_tokens",
    "acceptance_rate", "mean_acceptance_length", "accepted_per_position", "max_draft_tokens",
    "time_to_first_token_seconds", "prefill_tokens_per_second", "decode_tokens_per_second",
    "prompt_tokens", "cached_prompt_tokens", "completion_tokens",
    "draft_seconds", "verify_seconds", "prefill_seconds", "decode_seconds",
    "speculation", "speculation_used",
}  # fmt: skip
TOP = {"text", "token_ids", "token_origins", "finish_reason", "prompt_token_ids", "seed", "stats"}


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.out)
        return values


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        try:
            code = cli.main([str(each) for each in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Ran(code, *capsys.readouterr())

    return call


@pytest.fixture
def pair_flags(bundled_pair: PairFiles) -> list[str]:
    return ["--target", str(bundled_pair.target), "--draft", str(bundled_pair.draft), "--ctx-size", "512"]


def assert_one_line(ran: Ran, code: int, *words: str) -> None:
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert len(ran.err.strip().splitlines()) == 1, ran.err
    for word in words:
        assert word in ran.err


@pytest.mark.parametrize("mode", SPECULATION_MODES)
def test_json_has_every_key_of_the_contract(run: Any, pair_flags: list[str], mode: str) -> None:
    ran = run("generate", *pair_flags, "--prompt", "Name a colour.", "--max-tokens", 6, "--speculation", mode, "--json")
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 1, "one JSON object on stdout and nothing else"
    answer = ran.json
    assert set(answer) >= TOP
    assert set(answer["stats"]) >= STATS
    assert answer["finish_reason"] in ("stop", "length")
    assert len(answer["token_ids"]) == len(answer["token_origins"]) == answer["stats"]["completion_tokens"] <= 6
    assert set(answer["token_origins"]) <= {"target", "accepted", "recovered", "bonus"}
    assert len(answer["prompt_token_ids"]) == answer["stats"]["prompt_tokens"]
    assert (answer["stats"]["speculation"], answer["stats"]["speculation_used"]) == (mode, mode)
    assert "speculation_off_reason" not in answer["stats"]
    if mode == "none":
        assert answer["stats"]["acceptance_rate"] is None


def test_the_bundled_pair_is_the_default_and_has_a_name(run: Any, bundled_pair: PairFiles) -> None:
    first = run("generate", "--prompt", "Hi", "--max-tokens", 2, "--json")
    named = run("generate", "--pair", "bundled", "--prompt", "Hi", "--max-tokens", 2, "--json")
    assert first.code == named.code == 0
    assert first.json["token_ids"] == named.json["token_ids"]


def test_ctx_size_counts_for_a_pair_of_the_catalogue_too(run: Any, bundled_pair: PairFiles) -> None:
    ran = run("generate", "--pair", "bundled", "--ctx-size", 64, "--max-tokens", 1, "--raw", "--prompt", " a" * 100)
    assert_one_line(ran, 1, "101", "64", "--ctx-size")


def test_without_json_the_text_goes_to_stdout_and_the_figures_to_stderr(run: Any, pair_flags: list[str]) -> None:
    flags = ["generate", *pair_flags, "--prompt", "Name a colour.", "--max-tokens", 8]
    ran = run(*flags)
    assert ran.code == 0
    assert ran.out == run(*flags, "--json").json["text"] + "\n"
    for word in ("tok/s", "accepted", "tokens per pass", "first token"):
        assert word in ran.err


def test_ways_to_give_a_prompt(
    run: Any, pair_flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ["generate", *pair_flags, "--max-tokens", 4, "--json"]
    text = "Name a colour, please. 안녕"
    want = run(*base, "--prompt", text).json["prompt_token_ids"]
    (tmp_path / "p.txt").write_text(text, encoding="utf-8")
    assert run(*base, "--prompt-file", tmp_path / "p.txt").json["prompt_token_ids"] == want
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert run(*base, "--prompt-file", "-").json["prompt_token_ids"] == want
    (tmp_path / "marked.txt").write_text(text, encoding="utf-8-sig")
    assert run(*base, "--prompt-file", tmp_path / "marked.txt").json["prompt_token_ids"] == want
    messages = [{"role": "user", "content": text}]
    (tmp_path / "m.json").write_text(json.dumps(messages), encoding="utf-8-sig")
    assert run(*base, "--messages", tmp_path / "m.json").json["prompt_token_ids"] == want
    raw = run(*base, "--raw", "--prompt", text).json["prompt_token_ids"]
    assert len(raw) < len(want)
    assert raw == run(*base, "--raw", "--messages", tmp_path / "m.json").json["prompt_token_ids"]


def test_a_system_message_and_an_earlier_turn(run: Any, pair_flags: list[str], tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Name a colour."},
    ]
    (tmp_path / "m.json").write_text(json.dumps(messages), encoding="utf-8")
    ran = run("generate", *pair_flags, "--messages", tmp_path / "m.json", "--max-tokens", 3, "--json")
    assert ran.code == 0


def test_sampling_stop_and_seed_reach_the_engine(run: Any, pair_flags: list[str]) -> None:
    base = ["generate", *pair_flags, "--prompt", "Write about the sea.", "--max-tokens", 24, "--json"]
    sampled = [*base, "--temperature", 0.9, "--top-k", 50, "--top-p", 0.9, "--min-p", 0.01, "--repeat-penalty", 1.1]
    first, again = run(*sampled, "--seed", 5).json, run(*sampled, "--seed", 5).json
    assert first["token_ids"] == again["token_ids"]
    assert first["seed"] == 5
    whole = run(*base).json["text"]
    stop = whole[20:24]
    cut = run(*base, "--stop", "never said", "--stop", stop).json
    assert cut["text"] == whole[: whole.index(stop)]
    assert cut["finish_reason"] == "stop"


def test_a_logit_bias_moves_the_choice(run: Any, pair_flags: list[str]) -> None:
    base = ["generate", *pair_flags, "--prompt", "Name a colour.", "--max-tokens", 1, "--json"]
    first, second = run(*base).json["token_ids"][0], 42
    assert run(*base, "--logit-bias", f"{first}=-100").json["token_ids"] != [first]
    assert run(*base, "--logit-bias", f"{first}=-1.5", "--logit-bias", f"{second}=100").json["token_ids"] == [second]


def test_a_bias_for_a_token_the_model_has_not_is_refused(run: Any, pair_flags: list[str]) -> None:
    done = run("generate", *pair_flags, "--prompt", "Name a colour.", "--logit-bias", "99999999=3")
    assert_one_line(done, 2, "logit_bias", "99999999", "49,152")


def test_layers_on_a_gpu_are_refused_where_the_build_uses_none(run: Any, pair_flags: list[str]) -> None:
    if llama_cpp.llama_supports_gpu_offload():
        pytest.skip("this build of llama-cpp-python uses a GPU")
    assert_one_line(run("generate", *pair_flags, "--prompt", "Hi", "--gpu-layers", 99), 2, "gpu_layers", "README")


def test_exact_is_a_setting_of_drafting() -> None:
    parser = Parser()
    options.add_step_options(parser)
    assert options.step_settings(parser.parse_args(["--exact"])).drafting.exact
    assert not options.step_settings(parser.parse_args([])).drafting.exact


def test_the_three_ways_to_give_a_form(run: Any, pair_flags: list[str], tmp_path: Path) -> None:
    base = ["generate", *pair_flags, "--prompt", "Is the sky blue?", "--max-tokens", 40, "--json"]
    grammar = 'root ::= "yes, it is" | "no"'
    (tmp_path / "g.gbnf").write_text(grammar, encoding="utf-8")
    for flags in (["--grammar", grammar], ["--grammar-file", tmp_path / "g.gbnf"]):
        answer = run(*base, *flags).json
        assert answer["text"] in ("yes, it is", "no")
        assert answer["finish_reason"] == "stop"
    schema = {"properties": {'été "x"': {"enum": ["blau 青", "rot"]}}, "required": ['été "x"']}
    (tmp_path / "s.json").write_text(json.dumps(schema), encoding="utf-8")
    for text in (json.dumps(schema), f"@{tmp_path / 's.json'}"):
        answer = run(*base, "--json-schema", text).json
        assert json.loads(answer["text"])['été "x"'] in ("blau 青", "rot")


def test_a_draft_that_cannot_be_used_is_told_in_the_figures(run: Any, bundled_pair: PairFiles, tmp_path: Path) -> None:
    assert bundled_pair.draft is not None
    short = tmp_path / "short.gguf"
    short.write_bytes(bundled_pair.draft.read_bytes()[:2_000_000])
    flags = ["--target", bundled_pair.target, "--draft", short, "--speculation", "draft-model"]
    ran = run("generate", *flags, "--prompt", "Hi", "--max-tokens", 3, "--json")
    assert ran.code == 0
    assert ran.json["stats"]["speculation_used"] == "none"
    assert "short.gguf" in ran.json["stats"]["speculation_off_reason"]


class TestMistakes:
    """A user's mistake is one line on stderr and an exit code."""

    @pytest.mark.parametrize(
        ("content", "word"),
        [
            (None, "no such file"),
            (b"", "empty"),
            (b"<html><body>Not found</body></html>", "not a GGUF"),
            (b"GGUF\x03\0\0\0" + b"\0" * 100, "bad.gguf"),
        ],
        ids=["missing", "empty", "a web page", "a header alone"],
    )
    def test_a_target_that_is_no_model(self, run: Any, tmp_path: Path, content: bytes | None, word: str) -> None:
        path = tmp_path / "bad.gguf"
        if content is not None:
            path.write_bytes(content)
        assert_one_line(run("generate", "--target", path, "--prompt", "Hi"), 1, "bad.gguf", word)

    @pytest.mark.parametrize("share", [0.01, 0.9])
    def test_a_truncated_target(self, run: Any, bundled_pair: PairFiles, tmp_path: Path, share: float) -> None:
        assert bundled_pair.draft is not None
        whole = bundled_pair.draft.read_bytes()
        (tmp_path / "cut.gguf").write_bytes(whole[: int(share * len(whole))])
        assert_one_line(run("generate", "--target", tmp_path / "cut.gguf", "--prompt", "Hi"), 1, "cut.gguf")

    def test_an_unknown_pair(self, run: Any) -> None:
        assert_one_line(run("generate", "--pair", "bundeld", "--prompt", "Hi"), 1, "bundeld", "bundled")

    def test_an_empty_name_is_not_the_default_pair(self, run: Any) -> None:
        assert_one_line(run("generate", "--pair", "", "--prompt", "Hi"), 1, "Unknown pair ''")

    @pytest.mark.parametrize("text", ["", "   ", "\n"])
    def test_a_blank_prompt(self, run: Any, text: str) -> None:
        assert_one_line(run("generate", f"--prompt={text}"), 1, "blank")

    def test_a_prompt_over_the_context(self, run: Any, bundled_pair: PairFiles) -> None:
        flags = ["--target", bundled_pair.target, "--ctx-size", 64, "--raw", "--prompt", " a" * 640]
        assert_one_line(run("generate", *flags), 1, "641", "64", "--ctx-size")

    @pytest.mark.parametrize(
        ("flags", "word"),
        [
            (["--prompt", "Hi", "--speculation", "draft"], "speculation"),
            (["--prompt", "Hi", "--max-draft-tokens", "0"], "max_draft_tokens"),
            (["--prompt", "Hi", "--max-tokens", "0"], "max_tokens"),
            (["--prompt", "Hi", "--max-tokens", "1" + "0" * 400], "max_tokens"),
            (["--prompt", "Hi", "--max-tokens", "many"], "--max-tokens"),
            (["--prompt", "Hi", "--temperature", "nan"], "temperature"),
            (["--prompt", "Hi", "--top-p", "1.5"], "top_p"),
            (["--prompt", "Hi", "--stop", ""], "stop"),
            (["--prompt", "Hi", "--logit-bias", "5"], "--logit-bias"),
            (["--prompt", "Hi", "--logit-bias", "five=1"], "--logit-bias"),
            (["--prompt", "Hi", "--logit-bias", "5=101"], "logit_bias"),
            (["--prompt", "Hi", "--logit-bias=-5=1"], "logit_bias"),
            (["--prompt", "Hi", "--logit-bias", "5=nan"], "logit_bias"),
            (["--prompt", "Hi", "--logit-bias", "5=1", "--logit-bias", "5=2"], "logit_bias"),
            (["--prompt", "Hi", "--grammar", " "], "--grammar"),
            (["--prompt", "Hi", "--grammar", 'root ::= "a'], "line 1, column 10"),
            (["--prompt", "Hi", "--grammar", 'root ::= "a"', "--json-schema", "{}"], "--json-schema"),
            (["--prompt", "Hi", "--grammar-file", "/nowhere/g"], "/nowhere/g"),
            (["--prompt", "Hi", "--json-schema", "{"], "--json-schema"),
            (["--prompt", "Hi", "--json-schema", "@/nowhere/s"], "/nowhere/s"),
            (["--prompt", "Hi", "--json-schema", '{"pattern": "a"}'], "'pattern'"),
            (["--prompt", "Hi", "--json-schema", '{"type": "number", "maximum": 3}'], "'maximum'"),
            (["--prompt", "Hi", "--ctx-size", "2"], "ctx_size"),
            (["--prompt", "Hi", "--threads", "0"], "threads"),
            (["--prompt", "Hi", "--pair", "bundled", "--target", "x.gguf"], "--pair"),
            (["--prompt", "Hi", "--draft", "x.gguf"], "--draft"),
            (["--prompt", "Hi", "--unknown"], "--unknown"),
            (["--prompt", "Hi", "--prompt-file", "x"], "--prompt"),
            (["--prompt-file", "/nowhere/x"], "/nowhere/x"),
            ([], "--prompt"),
        ],
        ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
    )
    def test_bad_usage(self, run: Any, flags: list[str], word: str) -> None:
        assert_one_line(run("generate", *flags), 2, word)

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            "[]",
            "3",
            '[{"role": "robot", "content": "Hi"}]',
            '[{"role": "user"}]',
            '["Hi"]',
            '[{"role": "user", "content": 3}]',
            "[" * 100_000,
        ],
        ids=lambda text: text[:30],
    )
    def test_messages_that_are_none(self, run: Any, tmp_path: Path, text: str) -> None:
        (tmp_path / "m.json").write_text(text, encoding="utf-8")
        assert_one_line(run("generate", "--messages", tmp_path / "m.json"), 2, "--messages")

    def test_a_prompt_file_that_is_no_text(self, run: Any, tmp_path: Path) -> None:
        (tmp_path / "p.bin").write_bytes(b"\xff\xfe\x00")
        assert_one_line(run("generate", "--prompt-file", tmp_path / "p.bin"), 2, "UTF-8")

    def test_no_command(self, run: Any) -> None:
        ran = run()
        assert ran.code == 2
        assert "Traceback" not in ran.err


def spawn(arguments: list[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "specui", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)


def test_a_process_of_its_own(pair_flags: list[str]) -> None:
    done = spawn(["generate", *pair_flags, "--prompt-file", "-", "--max-tokens", "3", "--json"], "Name a colour.")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) >= TOP
    bad = spawn(["generate", "--target", "none.gguf", "--prompt", "Hi"])
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "Traceback" not in bad.stderr
    assert spawn(["generate"]).returncode == 2


def test_a_reader_that_goes_away_is_no_traceback(pair_flags: list[str]) -> None:
    command = [
        sys.executable,
        "-m",
        "specui",
        "generate",
        *pair_flags,
        "--prompt",
        "Count to 100.",
        "--max-tokens",
        "60",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    error = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(timeout=300) != 0
    assert "Traceback" not in error
    assert "Exception ignored" not in error
