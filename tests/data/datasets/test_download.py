"""Downloads from a local server: interrupted, resumed, rejected, and never incomplete at their target."""

import contextlib
import dataclasses
import hashlib
import io
import logging
import os
import shutil
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import gfgn.data.datasets.download as module
from gfgn.data import DATASETS, load
from gfgn.data.datasets.download import ChecksumError, Source, checksums, download, fetch

CONTENT = bytes(range(256)) * 4_000


class Server:
    """Serves `files`; `cut_after` lists the bytes after which the connection breaks, one number per answer."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"/file.bin": CONTENT}
        self.ranges, self.length = True, True
        self.cut_after: list[int] = []
        self.asked: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers["Range"]
        self.asked.append(asked)
        content = self.files.get(request.path)
        if content is None:
            request.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.ranges else 0
        if start >= len(content):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(content)}")
            request.end_headers()
            return
        request.send_response(206 if asked and self.ranges else 200)
        if asked and self.ranges:
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.length:
            request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        rest = content[start:]
        request.wfile.write(rest[: self.cut_after.pop(0)] if self.cut_after else rest)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- one file --------------------------------------------------------------------------------------------------------


def test_a_complete_file(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gfgn")
    target = tmp_path / "deep" / "file.bin"
    download(f"{server.url}/file.bin", target, digest(CONTENT))
    assert target.read_bytes() == CONTENT
    assert names(target.parent) == ["file.bin"]
    assert server.asked == [None]
    assert caplog.messages == ["downloading file.bin: 0.0 of 1.0 MiB"]


def test_a_broken_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut_after = [100_000, 300_000]
    download(f"{server.url}/file.bin", tmp_path / "file.bin", digest(CONTENT))
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=400000-"]


def test_the_next_call_resumes_after_the_last_attempt(server: Server, tmp_path: Path) -> None:
    server.cut_after = [1_000] * module.ATTEMPTS
    with pytest.raises(ConnectionError, match=r"file.bin ended after 3,000 of 1,024,000 bytes|broke off"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin")
    assert names(tmp_path) == ["file.bin.part"]
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:3_000]
    download(f"{server.url}/file.bin", tmp_path / "file.bin")
    assert server.asked[-1] == "bytes=3000-"
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]


def test_a_server_without_ranges_sends_the_whole_file(server: Server, tmp_path: Path) -> None:
    server.ranges, server.cut_after = False, [5_000]
    download(f"{server.url}/file.bin", tmp_path / "file.bin")
    assert server.asked == [None, "bytes=5000-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_that_does_not_send_the_size(server: Server, tmp_path: Path) -> None:
    server.length = False
    download(f"{server.url}/file.bin", tmp_path / "file.bin", digest(CONTENT))
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_file_with_a_wrong_checksum_is_deleted(server: Server, tmp_path: Path) -> None:
    with pytest.raises(
        ChecksumError, match=f"has the SHA-256 {digest(CONTENT)}, expected {'0' * 64}; the download was deleted"
    ):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", "0" * 64)
    assert names(tmp_path) == []
    assert server.asked == [None]


def test_a_part_of_another_file_is_discarded(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"of an older release" * 10)
    download(f"{server.url}/file.bin", tmp_path / "file.bin", digest(CONTENT))
    assert server.asked == ["bytes=190-", None]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("extra", [b"", b"too much"])
def test_a_part_that_is_complete_or_too_long(extra: bytes, server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT + extra)
    download(f"{server.url}/file.bin", tmp_path / "file.bin", digest(CONTENT))
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert len(server.asked) == (2 if extra else 1)


def test_a_missing_file_is_requested_once(server: Server, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="404"):
        download(f"{server.url}/none.bin", tmp_path / "none.bin")
    assert len(server.asked) == 1
    assert names(tmp_path) == []


def test_progress_is_logged_at_intervals(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gfgn")
    monkeypatch.setattr(module, "LOG_INTERVAL", 0.0)
    download(f"{server.url}/file.bin", tmp_path / "file.bin")
    assert len(caplog.messages) > 2
    assert caplog.messages[-1] == "downloading file.bin: 1.0 of 1.0 MiB"


def test_a_progress_bar_on_a_terminal(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gfgn")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with contextlib.redirect_stderr(Terminal()) as shown:
        download(f"{server.url}/file.bin", tmp_path / "file.bin")
    assert "file.bin" in shown.getvalue()
    assert not caplog.messages


# --- archives --------------------------------------------------------------------------------------------------------


def archive(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return packed.getvalue()


def packed_source(server: Server) -> Source:
    return Source(f"{server.url}/all.zip", "set/all.zip", {"set/raw/a.txt": "a.txt", "set/raw/b.txt": "deep/b.txt"})


def test_members_are_extracted_and_the_archive_deleted(server: Server, tmp_path: Path) -> None:
    server.files["/all.zip"] = archive(
        {"x/a.txt": b"one", "x/deep/b.txt": b"two", "x/other/b.txt": b"not this", "__MACOSX/x/a.txt": b"nor this"}
    )
    fetch([packed_source(server)], tmp_path, ["set/raw/a.txt", "set/raw/b.txt"])
    assert names(tmp_path / "set") == ["raw"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "set" / "raw").iterdir()} == {
        "a.txt": b"one",
        "b.txt": b"two",
    }


def test_only_missing_files_are_fetched(server: Server, tmp_path: Path) -> None:
    plain = Source(f"{server.url}/file.bin", "set/file.bin")
    fetch([packed_source(server), plain], tmp_path, ["set/file.bin"])
    assert len(server.asked) == 1
    assert names(tmp_path / "set") == ["file.bin"]


@pytest.mark.parametrize("kind", ["no archive", "a damaged member", "a member is missing"])
def test_a_bad_archive_is_deleted(kind: str, server: Server, tmp_path: Path) -> None:
    content = archive({"a.txt": b"the first of them", "deep/b.txt": b"the second of them"})
    if kind == "a member is missing":
        content = archive({"a.txt": b"the first of them"})
    damaged = content.replace(b"the second", b"the 2econd") if kind == "a damaged member" else content
    server.files["/all.zip"] = b"<html>sign in</html>" if kind == "no archive" else damaged
    with pytest.raises(ChecksumError, match=r"all.zip is damaged or not the expected archive \(.*\); deleted"):
        fetch([packed_source(server)], tmp_path, ["set/raw/a.txt", "set/raw/b.txt"])
    assert not (tmp_path / "set" / "all.zip").exists()
    assert not (tmp_path / "set" / "raw" / "b.txt").exists()


def test_members_are_checked_by_their_checksum(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "checksums", lambda: {"set/raw/a.txt": digest(b"expected")})
    server.files["/all.zip"] = archive({"a.txt": b"another", "deep/b.txt": b"two"})
    with pytest.raises(ChecksumError, match=r"set/raw/a.txt of all.zip has the SHA-256"):
        fetch([packed_source(server)], tmp_path, ["set/raw/a.txt"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# --- the registry ----------------------------------------------------------------------------------------------------


def test_checksums_are_of_downloaded_files() -> None:
    downloaded = {file for entry in DATASETS.values() for source in entry.remote for file in source.files}
    assert len(checksums()) == 111
    assert set(checksums()) <= downloaded
    assert all(len(value) == 64 and int(value, 16) >= 0 for value in checksums().values())


def test_checksums_match_the_available_files() -> None:
    root = Path(os.environ.get("GFGN_DATA", "/nowhere"))
    present = {file: value for file, value in checksums().items() if (root / file).is_file()}
    if not present:
        pytest.skip("GFGN_DATA does not name a folder with the raw files")
    for file, value in present.items():
        assert digest((root / file).read_bytes()) == value, file


def serve_texas(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serves the raw files of `texas`."""
    root, entry = Path(os.environ.get("GFGN_DATA", "/nowhere")), DATASETS["texas"]
    if not all((root / file).is_file() for file in entry.files):
        pytest.skip("GFGN_DATA does not name a folder with the raw files")
    remote = tuple(source._replace(url=f"{server.url}/{source.path}") for source in entry.remote)
    server.files = {f"/{source.path}": (root / source.path).read_bytes() for source in entry.remote}
    monkeypatch.setitem(DATASETS, "texas", dataclasses.replace(entry, remote=remote))


def test_a_dataset_is_downloaded_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_texas(server, monkeypatch)
    assert load("texas", tmp_path).num_nodes == 183
    assert len(server.asked) == 12
    load("texas", tmp_path)
    shutil.rmtree(tmp_path / "gfgn-cache")
    load("texas", tmp_path)
    assert len(server.asked) == 12
    assert not list(tmp_path.rglob("*.part"))


def test_an_interrupted_dataset_is_completed(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_texas(server, monkeypatch)
    last = f"/{DATASETS['texas'].files[-1]}"
    content = server.files.pop(last)
    with pytest.raises(FileNotFoundError) as caught:
        load("texas", tmp_path)
    message = str(caught.value)
    assert message.startswith("texas needs texas_split_0.6_0.2_9.npz, but the download failed (HTTPError: ")
    assert f"{server.url}{last}" in message
    assert str(tmp_path / "texas" / "raw") in message
    assert not (tmp_path / "gfgn-cache").exists()
    server.files[last] = content
    asked = len(server.asked)
    assert load("texas", tmp_path).num_nodes == 183
    assert len(server.asked) == asked + 1


def test_a_file_other_than_the_published_one_is_rejected(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_texas(server, monkeypatch)
    server.files["/texas/raw/out1_graph_edges.txt"] += b"0\t1\n"
    with pytest.raises(FileNotFoundError, match=r"ChecksumError: .*out1_graph_edges.txt has the SHA-256"):
        load("texas", tmp_path)
    assert not (tmp_path / "texas" / "raw" / "out1_graph_edges.txt").exists()
