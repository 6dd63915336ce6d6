"""Estimates against what llama.cpp allocates for every kind of memory, by its own account, and sentences about room."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import llama_cpp
import pytest
from gguf_bytes import Bytes, Plain, header, tensor
from tiny_models import Kind, write_tiny

from specui import estimate as room
from specui.catalog import PairFiles
from specui.estimate import CacheKind, estimate, fit, repacked_bytes, repacked_types
from specui.gguf import Header, read_header

ROOT = Path(__file__).resolve().parent.parent
KINDS: tuple[Kind, ...] = ("llama", "gemma3", "mamba", "jamba", "lfm2", "qwen35", "nemotron_h")
CTX_SIZE, BATCH_SIZE, SNAPSHOTS = 8192, 256, 7
KNOWN = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4", "Q2_K"})

MODEL: dict[str, Plain] = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "llama.embedding_length": 1024,
    "llama.feed_forward_length": 4096,
    "llama.attention.head_count": 16,
    "llama.attention.head_count_kv": 4,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["word"] * 1000,
    "tokenizer.ggml.merges": ["a b"] * 500,
}


def model(entries: dict[str, Plain] | None = None, *tensors: bytes) -> Header:
    """A header written here, with all its weights (zeros) behind it."""
    data = header(MODEL | (entries or {}), tensors)
    return read_header(Bytes(data + bytes(40_000_000)))


def kv_bytes(found: Header, ctx_size: int = 4096, cache: CacheKind | None = None) -> int:
    return estimate(found, None, ctx_size, BATCH_SIZE, cache).kv_bytes


# Against llama.cpp


def say_buffers(path: str, ctx_size: int, batch_size: int, rows: int) -> dict[str, float]:
    """Load a model as the engine does and return what llama.cpp says of its buffers, in MiB."""
    said: dict[str, float] = {}

    def listen(_level: int, line: bytes, _user_data: ctypes.c_void_p) -> None:
        found = re.search(r"(\w+) (KV|RS|compute|model) buffer size = +([\d.]+) MiB", line.decode("utf-8", "replace"))
        if found:
            name = "repacked" if "REPACK" in found[1] or "AMX" in found[1] else found[2]
            said[name] = said.get(name, 0.0) + float(found[3])

    callback = llama_cpp.llama_log_callback(listen)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    handle = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_outputs_max = ctx_size, batch_size, batch_size, rows
    params.n_rs_seq, params.swa_full = SNAPSHOTS, True
    assert llama_cpp.llama_init_from_model(handle, params)
    return said


def ask(*paths: Path) -> list[dict[str, float]]:
    """Ask llama.cpp about files in a process of its own: its log has one listener, and here that is the engine."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    done = subprocess.run(
        [sys.executable, __file__, *map(str, paths)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_every_kind_of_memory_takes_what_llama_cpp_says(tmp_path: Path) -> None:
    paths = [write_tiny(tmp_path / f"{kind}.gguf", kind, n_layer=24) for kind in KINDS]
    for kind, path, said in zip(KINDS, paths, ask(*paths), strict=True):
        found = read_header(path)
        state = said.get("RS", 0.0) * (2 if kind in ("mamba", "jamba") else 1)  # and one checkpoint
        assert estimate(found, None, CTX_SIZE, BATCH_SIZE).kv_bytes / 2**20 == pytest.approx(
            said.get("KV", 0.0) + state, abs=0.02
        ), kind


def test_the_bundled_weights_take_what_llama_cpp_says(bundled_pair: PairFiles, tmp_path: Path) -> None:
    """As F32, as Q4_1, and as Q4_0, which most CPUs want in another layout."""
    assert bundled_pair.draft is not None
    paths = [bundled_pair.target, bundled_pair.draft, tmp_path / "Q4_0.gguf"]
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, True
    assert llama_cpp.llama_model_quantize(str(paths[1]).encode(), str(paths[2]).encode(), ctypes.byref(params)) == 0
    for path, said in zip(paths, ask(*paths), strict=True):
        (found,) = estimate(read_header(path), None, CTX_SIZE, BATCH_SIZE).files
        assert found.mapped_bytes / 2**20 == pytest.approx(said["model"], rel=0.02) or said.get("repacked")
        assert found.kv_bytes / 2**20 == pytest.approx(said["KV"], abs=0.01)
        assert found.repacked_bytes / 2**20 == pytest.approx(said.get("repacked", 0.0), rel=0.05, abs=0.01)
        kept = 4 * 64 * 49_152 / 2**20
        assert found.compute_bytes / 2**20 - kept == pytest.approx(said["compute"], rel=0.1)
    assert said.get("repacked", 0) > 50 or not repacked_types() & {"Q4_0"}


def test_a_real_run_peaks_within_ten_percent(bundled_pair: PairFiles) -> None:
    assert bundled_pair.draft is not None
    headers = read_header(bundled_pair.target), read_header(bundled_pair.draft)
    script = ROOT / "benchmarks" / "estimate.py"
    arguments = [str(bundled_pair.target), str(bundled_pair.draft), "2048", "--fill", "0.05", "--measure"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script), *arguments], env=environment, capture_output=True, text=True, check=True
    )
    assert estimate(*headers, 2048, BATCH_SIZE).total_bytes == pytest.approx(int(done.stdout.split()[-1]), rel=0.1)


# Arithmetic


def test_caches_grow_with_context_heads_and_type() -> None:
    plain = kv_bytes(model())
    assert plain == 4 * 4096 * (4 * 64 + 4 * 64) * 2
    assert kv_bytes(model(), 8192) == 2 * plain
    assert kv_bytes(model(), 4000) == plain  # rounded up to a multiple of 256
    assert kv_bytes(model(), cache=CacheKind("Q8_0")) == plain * 34 // 64
    assert kv_bytes(model(), cache=CacheKind("F32")) == 2 * plain
    assert kv_bytes(model({"llama.attention.head_count_kv": [4, 4, 0, 2]})) == plain * 10 // 16
    assert kv_bytes(model({"llama.attention.key_length": 128})) == plain * 192 // 128
    latent: dict[str, Plain] = {"llama.attention.head_count_kv": 1, "llama.attention.key_length": 576}
    assert kv_bytes(model(latent | {"llama.attention.key_length_mla": 192})) == 4 * 4096 * 576 * 2


def test_a_window_alone_is_smaller_than_the_whole_past() -> None:
    sliding: dict[str, Plain] = {"llama.attention.sliding_window": 512}
    found = model(sliding | {"llama.attention.sliding_window_pattern": [True, True, True, False]})
    whole, window = kv_bytes(found), kv_bytes(found, cache=CacheKind(swa_full=False))
    assert whole == kv_bytes(model())
    assert window == whole // 4 + 3 * (whole // 4) * 768 // 4096
    assert kv_bytes(
        model(sliding | {"llama.attention.sliding_window_pattern": 2}), cache=CacheKind(swa_full=False)
    ) == (whole // 2 + whole // 2 * 768 // 4096)
    assert kv_bytes(model(sliding), cache=CacheKind(swa_full=False)) == whole  # llama itself has no such blocks


def test_what_is_repacked() -> None:
    weights = [
        tensor("token_embd.weight", [1024, 1000], 12),
        tensor("output.weight", [1024, 1000], 12, 576_000),
        tensor("blk.0.ffn_up.weight", [1024, 4096], 12, 1_152_000),
        tensor("blk.0.ffn_norm.weight", [1024], 0, 3_511_296),
        tensor("blk.0.odd.weight", [1024, 12], 12, 3_515_392),
        tensor("blk.0.ffn_down.weight", [1024, 512], 14, 3_522_304),
    ]
    sizes = {each.name: each.size_bytes for each in model({}, *weights).tensors}
    untied = sizes["output.weight"] + sizes["blk.0.ffn_up.weight"]
    assert repacked_bytes(model({}, *weights), KNOWN) == untied
    assert repacked_bytes(model({}, *weights), KNOWN | {"Q6_K"}) == untied + sizes["blk.0.ffn_down.weight"]
    tied = model({}, *(weight for place, weight in enumerate(weights) if place != 1))
    assert repacked_bytes(tied, KNOWN) == sizes["token_embd.weight"] + sizes["blk.0.ffn_up.weight"]
    assert repacked_bytes(tied, frozenset()) == 0


@pytest.mark.parametrize(
    ("features", "types"),
    [
        (set(), set()),
        ({"avx2"}, {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"}),
        ({"avx2", "avx512f"}, KNOWN),
        ({"asimd"}, set()),
        ({"asimd", "asimddp"}, {"Q1_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "MXFP4"}),
    ],
)
def test_repacking_depends_on_the_cpu(features: set[str], types: set[str]) -> None:
    assert repacked_types(frozenset(features)) == types


def test_the_same_file_in_both_roles_has_its_weights_once() -> None:
    found = model({}, tensor("blk.0.ffn_up.weight", [1024, 4096], 0))
    once, twice = estimate(found, None, 2048, 256), estimate(found, found, 2048, 256)
    assert twice.weights_bytes == once.weights_bytes == 4 * 1024 * 4096 + 170 * 1000 + 165 * 500
    assert twice.kv_bytes == 2 * once.kv_bytes
    assert twice.total_bytes == twice.weights_bytes + twice.kv_bytes + twice.compute_bytes + 65_000_000


def test_compute_grows_with_the_batch_and_logits_with_the_rows_not_the_context() -> None:
    small, large = (estimate(model(), None, 4096, batch).compute_bytes for batch in (256, 512))
    assert large > 1.8 * small
    logits = {"tokenizer.ggml.tokens": ["w"] * 150_000}
    wide = [estimate(model({**logits}), None, ctx_size, 256).compute_bytes for ctx_size in (1024, 16384)]
    assert wide[1] - wide[0] <= 2 * 256 * 16384
    assert wide[0] > 4 * 64 * 150_000


def test_headers_without_tensors_are_no_basis() -> None:
    data = header(MODEL, [tensor("a", [1024])]) + bytes(5000)
    with pytest.raises(ValueError, match="without tensors"):
        estimate(read_header(Bytes(data), tensors=False), None, 2048, 256)


# Does it fit


def pair() -> tuple[Header, Header]:
    target = model({}, *(tensor(f"blk.{i}.ffn_up.weight", [1024, 4096], 1, i * 8_388_608) for i in range(4)))
    return target, model({"llama.block_count": 2}, tensor("blk.0.ffn_up.weight", [1024, 4096], 1))


FITTING = [
    (1000, ""),
    (150, ": choose a smaller context (8,192 tokens), which needs 126 MB"),
    (80, ": choose a smaller context (1,024 tokens), which needs 75 MB"),
    (60, ": choose a smaller context (1,024 tokens) and leave the draft out, which needs 56 MB"),
    (10, ": choose a smaller model or quantisation (this target's weights take 34 MB)"),
]


@pytest.mark.parametrize(("free_megabytes", "advice"), FITTING)
def test_one_sentence_says_whether_it_fits_and_what_to_do(free_megabytes: int, advice: str) -> None:
    found = fit(*pair(), 16384, 256, free_megabytes * 1_000_000)
    free = "1.0 GB" if free_megabytes == 1000 else f"{free_megabytes} MB"
    assert found.sentence == f"needs 185 MB; {free} are free{advice}"
    assert found.fits == (free_megabytes == 1000)
    assert found.needed_bytes == estimate(*pair(), 16384, 256).pair_bytes


def test_the_interpreter_is_about_as_large_as_said() -> None:
    code = "import specui.pairs, specui.runtime; print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) * 1024 == pytest.approx(room.INTERPRETER_BYTES, rel=0.2)


if __name__ == "__main__":
    print(json.dumps([say_buffers(path, CTX_SIZE, BATCH_SIZE, 64) for path in sys.argv[1:]]))
