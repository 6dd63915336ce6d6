"""Headers of real files as llama.cpp and the gguf library see them, of small ones written here, and of broken ones."""

from __future__ import annotations

import ctypes
import struct
import time
from pathlib import Path

import gguf
import llama_cpp
import pytest
from gguf_bytes import Bytes, Plain, entry, header, scalar, tensor, text

from specui.catalog import PairFiles
from specui.engine.llama import Model
from specui.errors import ModelFileError
from specui.gguf import Header, check_gguf, join_shards, read_header
from specui.gguf.format import MAX_HEADER_BYTES, TENSOR_TYPES, Numbers, Strings

LLAMA: dict[str, Plain] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "general.file_type": 15,
    "llama.block_count": 2,
    "llama.context_length": 2048,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.rope.freq_base": 10000.0,
    "llama.rope.dimension_count": 16,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": ["a", "b", "", "ü"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 3,
    "tokenizer.chat_template": "{{ messages }}",
}


def read(entries: dict[str, Plain], *tensors: bytes, room: int = 100_000) -> Header:
    """Read a header written here, with room for weights behind it."""
    return read_header(Bytes(header(entries, tensors) + bytes(room)))


def complaint(data: bytes, know_size: bool = True) -> str:
    """Return why a header is refused, and see that the file is named and the reason one line."""
    source = Bytes(data, know_size)
    with pytest.raises(ModelFileError) as caught:
        read_header(source)
    message = str(caught.value)
    assert message.startswith("owner/repo/model.gguf: ")
    assert "\n" not in message and len(message) < 300
    return message


# Real files


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_real_header_is_what_llama_cpp_loads(bundled_pair: PairFiles, role: str) -> None:
    path = bundled_pair.target if role == "target" else bundled_pair.draft
    assert path is not None
    found, model = read_header(path), Model(path)
    try:
        assert found.parameter_count == llama_cpp.llama_model_n_params(model.handle)
        assert found.tensor_bytes == model.size_bytes
        assert found.context_length == llama_cpp.llama_model_n_ctx_train(model.handle)
        assert found.embedding_length == llama_cpp.llama_model_n_embd(model.handle)
        assert found.block_count == llama_cpp.llama_model_n_layer(model.handle)
        assert set(found.attention.heads) == {llama_cpp.llama_model_n_head(model.handle)}
        assert set(found.attention.kv_heads) == {llama_cpp.llama_model_n_head_kv(model.handle)}
        assert found.vocabulary().texts == model.token_texts()
        assert found.tokenizer.chat_template == model.chat_template
        assert found.quantisation == {"target": "F32", "draft": "Q4_1"}[role]
    finally:
        model.close()


def test_every_entry_and_tensor_is_what_the_gguf_library_reads(bundled_pair: PairFiles) -> None:
    assert bundled_pair.draft is not None
    found, reference = read_header(bundled_pair.draft), gguf.GGUFReader(bundled_pair.draft)
    fields = {key: field for key, field in reference.fields.items() if not key.startswith("GGUF.")}
    assert list(found.entries) == list(fields)
    for key, field in fields.items():
        value = found.entries[key]
        if isinstance(value, Strings):
            assert [each.decode() for each in value] == field.contents()
        elif isinstance(value, Numbers):
            assert list(value) == pytest.approx(field.contents())
        else:
            assert (value.decode() if isinstance(value, bytes) else value) == field.contents()
    described = {each.name: ([int(n) for n in each.shape], each.tensor_type.name) for each in reference.tensors}
    assert {each.name: (list(each.shape), each.type.name) for each in found.tensors} == described
    assert sum(found.tensor_bytes_by_type.values()) == found.tensor_bytes


def test_the_sizes_of_every_tensor_type_are_ggmls() -> None:
    library = ctypes.CDLL(str(next(Path(llama_cpp.__file__).parent.glob("lib/libggml-base*"))))
    library.ggml_type_size.restype = ctypes.c_size_t
    library.ggml_blck_size.restype = ctypes.c_int64
    library.ggml_type_name.restype = ctypes.c_char_p
    for number, kind in TENSOR_TYPES.items():
        assert library.ggml_blck_size(number) == kind.block_values, kind
        assert library.ggml_type_size(number) == kind.block_bytes, kind
        assert library.ggml_type_name(number).decode().lower() == kind.name.lower()


# Small ones


def test_the_fields_of_a_small_header() -> None:
    found = read(
        LLAMA, tensor("token_embd.weight", [64, 4], 12 - 12), tensor("blk.0.ffn_up.weight", [64, 128], 2, 1024)
    )
    assert (found.architecture, found.model_name, found.quantisation) == ("llama", "Tiny", "Q4_K_M")
    assert (found.context_length, found.block_count, found.embedding_length) == (2048, 2, 64)
    assert found.feed_forward_length == 128
    assert found.attention.heads == (4, 4) and found.attention.kv_heads == (2, 2)
    assert (found.attention.key_length, found.attention.value_length) == (16, 16)
    assert (found.rope.freq_base, found.rope.dimension_count) == (10000.0, 16)
    assert (found.tokenizer.kind, found.tokenizer.pre) == ("gpt2", "qwen2")
    assert found.tokenizer.special_ids == {"bos": 1, "eos": 3}
    assert found.tokenizer.chat_template == "{{ messages }}"
    assert found.parameter_count == 64 * 4 + 64 * 128
    assert found.tensor_bytes_by_type == {"Q4_0": 64 * 128 // 32 * 18, "F32": 64 * 4 * 4}
    assert (found.version, found.alignment, found.split_count, found.tensor_count) == (3, 32, 0, 2)


def test_an_empty_spelling_is_named_as_llama_cpp_names_it() -> None:
    assert read(LLAMA).vocabulary().texts == [b"a", b"b", b"[EMPTY_2]", "ü".encode()]


@pytest.mark.parametrize(
    ("kind", "asked", "has_bos"),
    [("gpt2", True, True), ("gpt2", False, False), ("gpt2", None, False), ("llama", None, True)],
)
def test_bos_counts_only_where_it_is_put_in_front(kind: str, asked: bool | None, has_bos: bool) -> None:
    entries = LLAMA | {"tokenizer.ggml.model": kind}
    entries |= {} if asked is None else {"tokenizer.ggml.add_bos_token": asked}
    special = read(entries).vocabulary().special
    assert ("bos" in special) == has_bos and special["eos"] == 3


def test_no_vocabulary_is_said() -> None:
    entries = {key: value for key, value in LLAMA.items() if key != "tokenizer.ggml.tokens"}
    with pytest.raises(ModelFileError, match="has no vocabulary"):
        read(entries).vocabulary()


def test_heads_by_block_sliding_window_experts_and_states() -> None:
    own: dict[str, Plain] = {
        "llama.attention.head_count_kv": [0, 2],
        "llama.attention.key_length": 24,
        "llama.attention.value_length": 20,
        "llama.attention.sliding_window": 512,
        "llama.attention.sliding_window_pattern": [True, False],
        "llama.expert_count": 8,
        "llama.expert_used_count": 2,
        "llama.expert_feed_forward_length": 96,
        "llama.feed_forward_length": [128, 256],
        "llama.ssm.conv_kernel": 4,
        "llama.ssm.inner_size": 128,
        "llama.ssm.state_size": 16,
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
    }
    found = read(LLAMA | own)
    assert found.attention.kv_heads == (0, 2)
    assert (found.attention.key_length, found.attention.value_length) == (24, 20)
    assert (found.attention.swa_key_length, found.attention.sliding_window) == (24, 512)
    assert found.attention.swa_blocks == (1, 0)
    assert (found.expert_count, found.expert_used_count, found.expert_feed_forward_length) == (8, 2, 96)
    assert found.feed_forward_length == 256
    assert (found.recurrent.conv_kernel, found.recurrent.inner_size, found.recurrent.state_size) == (4, 128, 16)
    assert (found.rope.scaling_type, found.rope.scaling_factor) == ("yarn", 4.0)


def test_without_a_file_type_the_quantisation_is_that_of_most_bytes() -> None:
    entries = {key: value for key, value in LLAMA.items() if key != "general.file_type"}
    found = read(entries, tensor("a", [256, 4], 14), tensor("b", [16], 0, 840))
    assert found.quantisation == "Q6_K"
    assert read(entries).quantisation == ""


def test_shards_say_so_and_are_joined() -> None:
    first = LLAMA | {"split.no": 0, "split.count": 2}
    one = read(first, tensor("a", [64]))
    two = read({"split.no": 1, "split.count": 2}, tensor("b", [32]))
    assert (one.split_no, one.split_count, two.split_no, two.architecture) == (0, 2, 1, "")
    whole = join_shards([one, two])
    assert [each.name for each in whole.tensors] == ["a", "b"]
    assert whole.parameter_count == 96 and whole.architecture == "llama" and whole.tensor_count == 2
    for wrong in ([one], [two, one], [one, two, two]):
        with pytest.raises(ModelFileError, match="in order"):
            join_shards(wrong)
    assert join_shards([read(LLAMA)]).tensor_count == 0


# Reading


def test_metadata_alone_stops_before_the_tensors() -> None:
    data = header(LLAMA, [tensor("a", [64])] * 3)
    with pytest.raises(ModelFileError, match="twice"):
        read_header(Bytes(data))
    found = read_header(Bytes(data), tensors=False)
    assert (found.tensor_count, found.tensors, found.parameter_count) == (3, (), 0)


@pytest.mark.parametrize("know_size", [True, False])
def test_every_byte_is_asked_for_once_in_growing_pieces(know_size: bool) -> None:
    words = [f"word {i}" for i in range(200_000)]
    data = header(LLAMA | {"tokenizer.ggml.tokens": words}) + bytes(20_000_000)
    source = Bytes(data, know_size)
    found = read_header(source)
    assert found.token_count == 200_000
    assert [offset for offset, _ in source.asked] == [
        sum(n for _, n in source.asked[:i]) for i in range(len(source.asked))
    ]
    assert [size for _, size in source.asked] == [1_000_000, 2_000_000, 4_000_000]
    assert found.header_bytes == 7_000_000


def test_a_source_may_give_less_than_it_was_asked_for() -> None:
    class Slow(Bytes):
        def read_at(self, offset: int, size: int) -> bytes:
            return super().read_at(offset, min(size, 100))

    assert read_header(Slow(header(LLAMA) + bytes(1000))).model_name == "Tiny"


def test_a_large_vocabulary_takes_well_under_a_second() -> None:
    words = [f"<word {i}>" for i in range(262_144)]
    entries = LLAMA | {"tokenizer.ggml.tokens": words, "tokenizer.ggml.merges": words}
    source = Bytes(header(entries | {"tokenizer.ggml.scores": [0.5] * len(words)}))
    began = time.process_time()
    vocabulary = read_header(source).vocabulary()
    elapsed_seconds = time.process_time() - began
    assert vocabulary.texts[-1] == b"<word 262143>"
    assert elapsed_seconds < 0.6  # 0.1 on a machine with nothing else to do


# Broken ones


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for content, reason in (
        (b"", "empty"),
        (b"<!DOCTYPE html>", "not a GGUF file"),
        (b"GGUF\x03", "not a GGUF file"),
        (b"lmgg" + bytes(100), "format of 2023"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(100), "version 1"),
        (b"GGUF" + struct.pack("<I", 0) + bytes(100), "version 0"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(100), "big-endian"),
    ):
        path.write_bytes(content)
        for open_it in (check_gguf, read_header):
            with pytest.raises(ModelFileError, match=reason) as caught:
                open_it(path)
            assert str(caught.value).startswith(f"{path}: ")
    for wrong, reason in ((tmp_path / "none.gguf", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(ModelFileError, match=reason):
            read_header(wrong)


def raw_entry(key: str, kind: int, body: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + body


ARCHITECTURE = entry("general.architecture", "llama")
HUGE = 2**63

BROKEN = {
    "2**63 tensors": (header([ARCHITECTURE], counts=(HUGE, 1)), "claims 9,223,372,036,854,775,808 tensors"),
    "2**63 entries": (header([ARCHITECTURE], counts=(0, HUGE)), "claims 9,223,372,036,854,775,808 entries"),
    "more entries than there are": (header([ARCHITECTURE], counts=(0, 3)), "header ends too early|claims 3 entries"),
    "a key of 2**63 bytes": (header([struct.pack("<Q", HUGE)]), "claims 1 entries|a text of"),
    "a text of 2**63 bytes": (header([raw_entry("a", 8, struct.pack("<Q", HUGE))]), "a text of"),
    "a text longer than the file": (header([raw_entry("a", 8, struct.pack("<Q", 500))]), "longer than the file"),
    "a string of 2**63 bytes in an array": (
        header([raw_entry("a", 9, struct.pack("<IQQ", 8, 1, HUGE))]),
        "longer than the file",
    ),
    "an array of 2**63 numbers": (header([raw_entry("a", 9, struct.pack("<IQ", 6, HUGE))]), "numbers in 'a'"),
    "an array of 2**63 texts": (header([raw_entry("a", 9, struct.pack("<IQ", 8, HUGE))]), "texts in 'a'"),
    "an array of arrays": (header([raw_entry("a", 9, struct.pack("<IQ", 9, 1) * 5)]), "array of arrays"),
    "an unknown type": (header([raw_entry("a", 99, bytes(20))]), "unknown type"),
    "an array of an unknown type": (header([raw_entry("a", 9, struct.pack("<IQ", 77, 1) + bytes(9))]), "unknown type"),
    "the same key twice": (header([ARCHITECTURE, ARCHITECTURE]), "'general.architecture' is there twice"),
    "a key that is no text": (header([entry("a", 1), raw_entry("\n\x1b", 4, bytes(4))]), "key's name"),
    "a key that is empty": (header([entry("", 1)]), "key's name"),
    "no architecture": (header([entry("general.name", "x")]), "names no architecture"),
    "an architecture that is a number": (header([entry("general.architecture", 7)]), "is 7 and not a text"),
    "blocks as a text": (header([ARCHITECTURE, entry("llama.block_count", "many")]), "block_count' is b'many'"),
    "a million blocks": (header([ARCHITECTURE, entry("llama.block_count", 10**6)]), "a whole number up to 512"),
    "too few heads": (
        header([ARCHITECTURE, entry("llama.block_count", 3), entry("llama.attention.head_count", [1, 2])]),
        "one for each of 3 blocks",
    ),
    "heads as texts": (
        header([ARCHITECTURE, entry("llama.block_count", 1), entry("llama.attention.head_count", ["x"])]),
        "is an array and not a whole number",
    ),
    "negative heads": (
        header([ARCHITECTURE, entry("llama.block_count", 1), raw_entry("llama.attention.head_count", 5, b"\xff" * 4)]),
        "is -1 and not",
    ),
    "tokens as numbers": (header([ARCHITECTURE, entry("tokenizer.ggml.tokens", [1, 2])]), "an array of texts"),
    "an alignment of 3": (header([ARCHITECTURE, entry("general.alignment", 3)]), "power of two"),
    "an alignment of 0": (header([ARCHITECTURE, entry("general.alignment", 0)]), "power of two"),
    "nine dimensions": (header([ARCHITECTURE], [tensor("a", [1] * 9)]), "9 dimensions"),
    "an unknown tensor type": (header([ARCHITECTURE], [tensor("a", [32], 4)]), "unknown type \\(4\\)"),
    "a row that is no whole block": (header([ARCHITECTURE], [tensor("a", [33], 2)]), "cannot have shape \\[33\\]"),
    "a tensor of 2**200 values": (header([ARCHITECTURE], [tensor("a", [2**50] * 4)]), "cannot have shape"),
    "a tensor beyond the file": (header([ARCHITECTURE], [tensor("a", [1000])]), "is cut short"),
    "the same tensor twice": (header([ARCHITECTURE], [tensor("a", [1])] * 2), "'a' is there twice"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("know_size", [True, False])
def test_a_broken_header_is_refused_with_its_reason(case: str, know_size: bool) -> None:
    data, reason = BROKEN[case]
    if not know_size:
        if case == "a tensor beyond the file":
            return  # nobody knows
        reason += "|ends too early|beyond 64 MB|claims"
    with pytest.raises(ModelFileError, match=reason):
        read_header(Bytes(data, know_size))
    complaint(data, know_size)


def test_a_header_without_end_is_left_at_64_megabytes() -> None:
    texts = text(b"x" * 1_000_000) * 70
    source = Bytes(header([raw_entry("a", 9, struct.pack("<IQ", 8, 70) + texts)]), know_size=False)
    with pytest.raises(ModelFileError, match="beyond 64 MB"):
        read_header(source)
    assert 60_000_000 < sum(size for _, size in source.asked) <= MAX_HEADER_BYTES + 4_000_000


def test_numbers_are_read_by_their_types() -> None:
    kinds = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
    entries = [ARCHITECTURE]
    entries += [raw_entry(f"one {kind}", kind, struct.pack("<" + code, 100)) for kind, code in kinds.items()]
    entries += [
        raw_entry(f"many {kind}", 9, struct.pack("<IQ2" + code, kind, 2, 100, 7)) for kind, code in kinds.items()
    ]
    found = read_header(Bytes(header(entries))).entries
    for kind in kinds:
        assert found[f"one {kind}"] == 100
        many = found[f"many {kind}"]
        assert isinstance(many, Numbers) and list(many) == [100, 7] and len(many) == 2
    assert scalar(True) == (7, b"\x01")
