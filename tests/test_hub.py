"""The Hub through huggingface_hub itself, against a real HTTP server, with clients in this process and in their own."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_client import Answer, Client, finish
from hub_server import COMMIT, TOKEN, HubRepo, HubState, hub_server

HEAD = b"GGUF\x03\x00\x00\x00"
TARGET = HEAD + bytes(range(256)) * 400
DRAFT = HEAD + b"draft" * 1_000
MEGABYTE = 1024 * 1024
LARGE = HEAD + b"\x01" * 25_000_000


@pytest.fixture
def hub() -> Iterator[HubState]:
    repos = {
        "maker/pair-GGUF": HubRepo({"model-Q4_K_M.gguf": TARGET, "model-Q8_0.gguf": DRAFT, "README.md": b"text"}),
        "maker/large-GGUF": HubRepo({"large.gguf": LARGE, "sub/inner.gguf": DRAFT}),
    }
    with hub_server(repos) as state:
        yield state


@pytest.fixture
def client(hub: HubState, tmp_path: Path) -> Client:
    return Client(hub.endpoint, tmp_path / "hf")


TARGET_FILE = ("maker/pair-GGUF", "model-Q4_K_M.gguf")
DRAFT_FILE = ("maker/pair-GGUF", "model-Q8_0.gguf")
LARGE_FILE = ("maker/large-GGUF", "large.gguf")


def read(path: Path | None) -> bytes:
    assert path is not None
    return path.read_bytes()


def test_both_files_arrive_with_one_progress_in_bytes(hub: HubState, client: Client) -> None:
    answer = finish(client.start(TARGET_FILE, DRAFT_FILE))
    assert [read(path) for path in answer.paths] == [TARGET, DRAFT]
    total = len(TARGET) + len(DRAFT)
    assert {size for _, _, size in answer.progress} == {total}
    done = [count for _, count, _ in answer.progress]
    assert done == sorted(done)
    assert done[-1] == total
    stages = " ".join(stage for stage, _, _ in answer.progress)
    for _, name in (TARGET_FILE, DRAFT_FILE):
        assert f"Downloading {name}" in stages
        assert f"Checking {name}" in stages
    assert answer.log == ""


def test_all_sizes_are_known_before_the_first_byte(hub: HubState, client: Client) -> None:
    client.run(TARGET_FILE, DRAFT_FILE)
    methods = [request.method for request in hub.requests]
    assert methods[:2] == ["HEAD", "HEAD"]
    assert {request.path.rpartition("/")[2] for request in hub.requests[:2]} == {TARGET_FILE[1], DRAFT_FILE[1]}
    assert methods.count("GET") == 2


def test_a_large_file_reports_on_the_way_and_one_in_a_subfolder_is_found(client: Client) -> None:
    answer = client.run(LARGE_FILE, ("maker/large-GGUF", "sub/inner.gguf"))
    assert [read(path) for path in answer.paths] == [LARGE, DRAFT]
    assert len({done for _, done, _ in answer.progress}) >= 4


def test_a_revision_is_asked_for(hub: HubState, client: Client) -> None:
    answer = client.run((*TARGET_FILE, COMMIT))
    assert read(answer.paths[0]) == TARGET
    assert all(f"/resolve/{COMMIT}/" in f"/{request.path}" for request in hub.requests)


def test_too_small_a_disk_is_said_before_the_first_byte(hub: HubState, client: Client) -> None:
    answer = client.run(TARGET_FILE, DRAFT_FILE, free=len(TARGET) + 50_000_000)
    assert answer.kind == "DiskSpaceError"
    assert hub.seen("GET") == []


def test_the_cache_is_used_without_a_request(hub: HubState, client: Client) -> None:
    assert client.run(TARGET_FILE, cached_only=True).paths == [None]
    first = client.run(TARGET_FILE, DRAFT_FILE)
    hub.requests.clear()
    assert client.run(TARGET_FILE, DRAFT_FILE).paths == first.paths
    assert client.run(TARGET_FILE, DRAFT_FILE, cached_only=True).paths == first.paths
    assert client.run(TARGET_FILE, DRAFT_FILE, env={"HF_HUB_OFFLINE": "1"}).paths == first.paths
    assert hub.requests == []


def test_only_what_is_missing_is_fetched_and_counted(hub: HubState, client: Client) -> None:
    client.run(DRAFT_FILE)
    hub.requests.clear()
    answer = client.run(TARGET_FILE, DRAFT_FILE, free=len(TARGET) + 50_000_000)
    assert [read(path) for path in answer.paths] == [TARGET, DRAFT]
    assert {size for _, _, size in answer.progress} == {len(TARGET)}
    assert all(request.path.endswith(TARGET_FILE[1]) for request in hub.requests)


def test_offline_and_not_cached_names_the_file_without_a_request(hub: HubState, client: Client) -> None:
    answer = client.run(TARGET_FILE, env={"HF_HUB_OFFLINE": "1"})
    assert answer.kind == "HubError"
    assert answer.message.startswith("maker/pair-GGUF model-Q4_K_M.gguf: not in the cache")
    assert "HF_HUB_OFFLINE" in answer.message
    assert hub.requests == []


def test_no_network_is_said_soon_and_the_cache_still_serves(client: Client) -> None:
    client.run(DRAFT_FILE)
    away = Client("http://127.0.0.1:9", client.home)
    assert away.run(TARGET_FILE).message.endswith(
        "http://127.0.0.1:9 cannot be reached; check the network, HF_ENDPOINT and proxies"
    )
    assert read(away.run(DRAFT_FILE).paths[0]) == DRAFT


def test_an_endpoint_that_is_no_address_is_named(client: Client) -> None:
    answer = Client("no-address", client.home).run(TARGET_FILE)
    assert answer.kind == "HubError"
    assert "no-address cannot be reached" in answer.message


def test_a_server_that_is_no_hub_is_named(hub: HubState, client: Client) -> None:
    hub.bare = True
    assert "does not answer as a Hub does" in client.run(TARGET_FILE).message


def messages_of_refusals(hub: HubState, client: Client) -> dict[str, Answer]:
    hub.repos["maker/private"] = HubRepo({"a.gguf": TARGET}, needs_token=True)
    hub.repos["maker/gated"] = HubRepo({"a.gguf": TARGET}, gated=True)
    hub.repos["maker/forbidden"] = HubRepo({"a.gguf": TARGET}, forbidden=True)
    return {
        "no such repository, or a private one": client.run(("maker/none", "a.gguf")),
        "the Hub does not accept the token (401)": client.run(TARGET_FILE, env={"HF_TOKEN": "hf_wrong"}),
        f"its terms must be accepted first; accept them at {hub.endpoint}/maker/gated and set HF_TOKEN": client.run(
            ("maker/gated", "a.gguf"), env={"HF_TOKEN": TOKEN}
        ),
        "access is forbidden (403)": client.run(("maker/forbidden", "a.gguf"), env={"HF_TOKEN": TOKEN}),
        "the repository has no such file": client.run(("maker/pair-GGUF", "model-Q4_0.gguf")),
        "the repository has no revision v9": client.run((*TARGET_FILE, "v9")),
    }


def test_each_refusal_has_its_own_single_line(hub: HubState, client: Client) -> None:
    for said, answer in messages_of_refusals(hub, client).items():
        assert answer.kind == "HubError", said
        assert f": {said}" in answer.message
        assert "\n" not in answer.message
        assert "hf_" not in answer.message
        assert answer.repo is not None
    assert hub.seen("GET") == [request for request in hub.seen("GET") if "/tree/" in request.path]


def test_a_private_repository_opens_with_the_token(hub: HubState, client: Client) -> None:
    hub.repos["maker/private"] = HubRepo({"a.gguf": TARGET}, needs_token=True)
    assert "private one" in client.run(("maker/private", "a.gguf")).message
    assert read(client.run(("maker/private", "a.gguf"), env={"HF_TOKEN": TOKEN}).paths[0]) == TARGET


def test_near_names_are_listed(client: Client) -> None:
    message = client.run(("maker/pair-GGUF", "MODEL-q4_k_s.gguf")).message
    assert "did you mean model-Q4_K_M.gguf" in message
    assert "README" not in message


def test_a_repository_without_any_gguf_says_so(hub: HubState, client: Client) -> None:
    hub.repos["maker/other"] = HubRepo({"model.safetensors": b"x"})
    assert client.run(("maker/other", "a.gguf")).message.endswith("it has no GGUF file at all")


@pytest.mark.parametrize(("status", "said"), [(429, "fewer requests (429)"), (500, "the Hub answered 500")])
def test_a_hub_out_of_order_is_said(hub: HubState, client: Client, status: int, said: str) -> None:
    hub.repos["maker/ill"] = HubRepo({"a.gguf": TARGET}, status=status)
    assert said in client.run(("maker/ill", "a.gguf")).message


def test_a_connection_cut_in_the_middle_is_resumed(hub: HubState, client: Client) -> None:
    hub.break_offs = [len(LARGE) * 6 // 10]
    answer = client.run(LARGE_FILE)
    assert read(answer.paths[0]) == LARGE
    first, second = hub.seen("GET")
    assert first.byte_range is None
    assert second.byte_range is not None
    assert hub.sent_bytes < len(LARGE) * 1.5
    assert answer.progress[-1][1:] == [len(LARGE)] * 2


def test_a_file_that_comes_short_is_not_kept(hub: HubState, client: Client) -> None:
    hub.claimed_sizes = [len(TARGET) + 1] * 2
    answer = client.run(TARGET_FILE)
    assert answer.kind == "HubError"
    assert answer.message.endswith(f"{len(TARGET):,} bytes came, not {len(TARGET) + 1:,}; download it again")
    assert client.blobs() == []
    assert client.run(TARGET_FILE, cached_only=True).paths == [None]


def test_a_damaged_file_is_not_kept(hub: HubState, client: Client) -> None:
    hub.claimed_sha256 = "ab" * 32
    answer = client.run(TARGET_FILE)
    assert "another SHA-256 than the Hub names" in answer.message
    assert client.blobs() == []
    hub.claimed_sha256 = None
    assert read(client.run(TARGET_FILE).paths[0]) == TARGET


def test_a_refusal_on_the_way_is_told_as_what_it_is(hub: HubState, client: Client) -> None:
    hub.forbid_after = 1
    assert "access is forbidden (403)" in client.run(TARGET_FILE).message


@pytest.mark.parametrize("data", [b"<!doctype html><title>Sign in</title>", b"GG", b"GGUF\x07\x00\x00\x00" + b"x" * 99])
def test_what_is_no_gguf_is_never_returned(hub: HubState, client: Client, data: bytes) -> None:
    files = hub.repos["maker/pair-GGUF"].files
    files["model-Q4_K_M.gguf"] = data
    for _ in range(2):
        answer = client.run(TARGET_FILE)
        assert (answer.kind, answer.paths) == ("HubError", [])
        assert "GGUF" in answer.message
        assert client.run(TARGET_FILE, cached_only=True).paths == [None]
    files["model-Q4_K_M.gguf"] = TARGET
    assert read(client.run(TARGET_FILE).paths[0]) == TARGET


def test_an_empty_file_is_told_as_one(hub: HubState, client: Client) -> None:
    hub.repos["maker/pair-GGUF"].files["model-Q4_K_M.gguf"] = b""
    for _ in range(2):
        assert client.run(TARGET_FILE).message.endswith("is empty; download it again")


def test_a_broken_file_in_the_cache_is_fetched_anew(client: Client) -> None:
    path = client.run(TARGET_FILE).paths[0]
    assert path is not None
    path.resolve().write_bytes(b"<html>")
    assert client.run(TARGET_FILE, cached_only=True).paths == [None]
    assert read(client.run(TARGET_FILE).paths[0]) == TARGET


def test_a_stopped_download_is_never_offered_and_goes_on_from_there(hub: HubState, client: Client) -> None:
    answer = client.run(LARGE_FILE, cancel_after=4)
    assert answer.kind == "HubError"
    assert "was stopped" in answer.message
    assert client.run(LARGE_FILE, cached_only=True).paths == [None]
    hub.sent_bytes = 0
    answer = client.run(LARGE_FILE)
    assert read(answer.paths[0]) == LARGE
    assert answer.progress[0][0].startswith("Resuming large.gguf at ")
    assert hub.sent_bytes < len(LARGE)


def test_killed_at_forty_per_cent_then_started_again(hub: HubState, client: Client) -> None:
    """At most one piece (1 MB) is fetched twice: what had left the server when the process was killed."""
    before = len(LARGE) * 4 // 10
    hub.stall_after = before
    process = client.start(LARGE_FILE)
    assert hub.stalled.wait(20)
    (part,) = wait_for(lambda: [path for path in client.blobs() if path.stat().st_size >= before - MEGABYTE])
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    kept = part.stat().st_size
    hub.stall_after = None
    hub.resume.set()
    assert client.run(LARGE_FILE, cached_only=True).paths == [None]
    answer = client.run(LARGE_FILE)
    assert hashlib.sha256(read(answer.paths[0])).digest() == hashlib.sha256(LARGE).digest()
    assert answer.progress[0] == [f"Resuming large.gguf at {100 * kept // len(LARGE)} %", kept, len(LARGE)]
    assert hub.seen("GET")[-1].byte_range == f"bytes={kept}-"
    twice = before - kept
    assert 0 <= twice <= MEGABYTE
    assert client.blobs() == [path for path in client.blobs() if path.name == hashlib.sha256(LARGE).hexdigest()]


def wait_for(look: Callable[[], list[Path]]) -> list[Path]:
    end = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.02)
    return found


def test_a_server_without_ranges_sends_all_again_and_the_file_is_right(hub: HubState, client: Client) -> None:
    client.run(LARGE_FILE, cancel_after=4)
    hub.no_ranges = True
    answer = client.run(LARGE_FILE)
    assert read(answer.paths[0]) == LARGE
    assert answer.progress[-1][1:] == [len(LARGE)] * 2


def test_two_files_come_at_the_same_time(hub: HubState, client: Client) -> None:
    hub.stall_after = 1_000
    process = client.start(TARGET_FILE, DRAFT_FILE)
    end = time.monotonic() + 20
    while len({request.path for request in hub.seen("GET")}) < 2:  # a client that hears nothing asks again
        assert time.monotonic() < end, "the second file waits for the first"
        time.sleep(0.02)
    hub.resume.set()
    assert [read(path) for path in finish(process).paths] == [TARGET, DRAFT]


def test_the_token_stays_with_the_hub_when_the_bytes_are_elsewhere(hub: HubState, client: Client) -> None:
    with hub_server(hub.repos) as storage:
        hub.storage = storage.endpoint.replace("127.0.0.1", "localhost")
        answer = client.run(TARGET_FILE, env={"HF_TOKEN": TOKEN})
        assert read(answer.paths[0]) == TARGET
        assert {request.token for request in hub.requests} == {f"Bearer {TOKEN}"}
        assert {request.token for request in storage.requests} == {None}


SHARDS = {f"sub/big-Q4_K_M-0000{number}-of-00003.gguf": HEAD + bytes([number]) * 50_000 for number in (1, 2, 3)}


def sharded() -> HubRepo:
    others = {"mmproj-big-Q4_K_M.gguf": DRAFT, "big-Q8_0.gguf": TARGET, "imatrix_Q4_K_M.gguf": DRAFT, "README.md": b"x"}
    return HubRepo({**others, **SHARDS})


@pytest.mark.parametrize("name", ["sub/big-Q4_K_M-00001-of-00003.gguf", "*Q4_K_M*.gguf"])
def test_shards_come_complete_and_projectors_do_not(hub: HubState, client: Client, name: str) -> None:
    hub.repos["maker/shards"] = sharded()
    asked = ("maker/shards", name)
    first = client.run(asked).paths[0]
    assert first is not None
    assert first.as_posix().endswith("sub/big-Q4_K_M-00001-of-00003.gguf")
    here = {path.name: path.read_bytes() for path in first.parent.iterdir()}
    assert here == {name.removeprefix("sub/"): data for name, data in SHARDS.items()}
    hub.requests.clear()
    assert client.run(asked, env={"HF_HUB_OFFLINE": "1"}).paths == [first]
    assert hub.requests == []
    third = first.with_name("big-Q4_K_M-00003-of-00003.gguf")
    third.resolve().unlink()
    assert client.run(asked, cached_only=True).paths == [None]
    assert client.run(asked).paths == [first]
    assert {request.path.rpartition("/")[2] for request in hub.seen("GET") if "/tree/" not in request.path} == {
        third.name
    }


def test_a_pattern_that_fits_none_or_several_lists_names(hub: HubState, client: Client) -> None:
    hub.repos["maker/shards"] = sharded()
    assert "no file fits the pattern; did you mean" in client.run(("maker/shards", "*Q5_K_M.gguf")).message
    message = client.run(("maker/shards", "*.gguf")).message
    assert message.endswith(f"write one of them: big-Q8_0.gguf, {next(iter(SHARDS))}")
    del hub.repos["maker/shards"].files["sub/big-Q4_K_M-00002-of-00003.gguf"]
    message = client.run(("maker/shards", "*Q4_K_M*")).message
    assert message.startswith("maker/shards sub/big-Q4_K_M-00002-of-00003.gguf: the repository lacks this part")


def test_two_processes_fetch_one_file_once(hub: HubState, client: Client) -> None:
    hub.stall_after = 1_000
    processes = [client.start(TARGET_FILE) for _ in range(2)]
    assert hub.stalled.wait(20)
    hub.resume.set()
    answers = [finish(process) for process in processes]
    assert [read(answer.paths[0]) for answer in answers] == [TARGET, TARGET]
    assert len(hub.seen("GET")) == 1


def test_a_cache_that_cannot_be_written_is_named(client: Client) -> None:
    client.home.write_text("in the way", encoding="utf-8")
    answer = client.run(TARGET_FILE)
    assert answer.kind == "HubError"
    assert str(client.home) in answer.message
    assert answer.message.endswith("set HF_HOME to a folder that can")


def test_a_repository_name_that_cannot_be_is_refused(client: Client) -> None:
    assert "write owner/name" in client.run(("a//b/c", "x.gguf")).message
