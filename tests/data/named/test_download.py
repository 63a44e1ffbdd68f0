"""Downloads from a local server: verified by their checksum, and never incomplete at their target."""

import dataclasses
import hashlib
import io
import os
import shutil
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import gfgn.data.named.download as module
from gfgn.data import DATASETS, load
from gfgn.data.named.catalog import Source
from gfgn.data.named.download import ChecksumError, fetch


class Server:
    """Serves the files of a folder and counts the requests."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, 0
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def handler(self, *arguments: Any) -> SimpleHTTPRequestHandler:
        self.asked += 1
        return SimpleHTTPRequestHandler(*arguments, directory=str(self.folder))

    def serve(self, name: str, content: bytes) -> str:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(content)
        return f"{self.url}/{name}"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("served"))
    yield server
    server.http.shutdown()
    server.http.server_close()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def archive(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return packed.getvalue()


def test_only_missing_files_are_fetched(server: Server, tmp_path: Path) -> None:
    server.serve("files/b.bin", b"b")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin").write_bytes(b"a")
    fetch(Source(url=f"{server.url}/files", folder="set", names=("a.bin", "b.bin")), tmp_path)
    assert names(tmp_path) == ["set/a.bin", "set/b.bin"]
    assert server.asked == 1


def test_a_file_with_a_wrong_checksum_is_not_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "checksums", lambda: {"set/a.bin": digest(b"expected")})
    server.serve("a.bin", b"another")
    with pytest.raises(ValueError, match=rf"(?s){digest(b'expected')}"):
        fetch(Source(url=server.url, folder="set", names=("a.bin",)), tmp_path)
    assert names(tmp_path) == []


def test_members_are_extracted_and_the_archive_deleted(server: Server, tmp_path: Path) -> None:
    content = {"x/a.txt": b"one", "x/deep/b.txt": b"two", "x/other/b.txt": b"not this", "__MACOSX/x/a.txt": b"nor this"}
    url = server.serve("all.zip", archive(content))
    fetch(Source(archive=url, folder="set/raw", names=("a.txt", "deep/b.txt")), tmp_path)
    assert names(tmp_path) == ["set/raw/a.txt", "set/raw/deep/b.txt"]
    assert (tmp_path / "set/raw/deep/b.txt").read_bytes() == b"two"


@pytest.mark.parametrize("content", [b"<html>sign in</html>", archive({"a.txt": b"the only one"})])
def test_a_bad_archive_is_deleted(content: bytes, server: Server, tmp_path: Path) -> None:
    with pytest.raises((zipfile.BadZipFile, ChecksumError)):
        fetch(Source(archive=server.serve("all.zip", content), folder="set", names=("b.txt", "a.txt")), tmp_path)
    assert names(tmp_path) == []


def serve_texas(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serves the raw files of `texas`."""
    root, entry = Path(os.environ.get("GFGN_DATA", "/nowhere")), DATASETS["texas"]
    if not all((root / file).is_file() for file in entry.files):
        pytest.skip("GFGN_DATA does not name a folder with the raw files")
    for file in entry.files:
        server.serve(file, (root / file).read_bytes())
    sources = tuple(dataclasses.replace(source, url=f"{server.url}/{source.folder}") for source in entry.sources)
    monkeypatch.setitem(DATASETS, "texas", dataclasses.replace(entry, sources=sources))


def test_a_dataset_is_downloaded_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_texas(server, monkeypatch)
    last = server.folder / DATASETS["texas"].files[-1]
    content = last.read_bytes()
    last.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load("texas", tmp_path)
    assert f"texas needs {last.name}, but the download failed" in str(caught.value)
    assert str(tmp_path / "texas" / "raw") in str(caught.value)
    last.write_bytes(content)
    asked = server.asked
    assert load("texas", tmp_path).num_nodes == 183
    assert server.asked == asked + 1
    shutil.rmtree(tmp_path / "gfgn-cache")
    load("texas", tmp_path)
    assert server.asked == asked + 1
