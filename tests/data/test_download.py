"""Downloads from a server in this process."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.data import archives
from ucb.data import download as module
from ucb.data.download import DownloadError, download

CONTENT = archives.pixels(700_000).tobytes()
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
HALF = 300_000


class Handler(BaseHTTPRequestHandler):
    """Gives CONTENT, or a part of it; the first ``server.cuts`` answers end after HALF bytes."""

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        begin = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and server.mode != "no ranges" else 0
        if server.mode == "missing":
            self.send_error(404)
            return
        if begin >= len(CONTENT):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if asked and server.mode == "wrong ranges":
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin // 2}-{len(CONTENT) - 1}/{len(CONTENT)}")
            begin //= 2
        elif begin:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()
        end = begin + HALF if len(server.asked) <= server.cuts else len(CONTENT)
        self.wfile.write(CONTENT[begin:end])
        self.close_connection = True

    def log_message(self, *words):
        """Say nothing."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.asked, serving.cuts, serving.mode = [], 0, ""
        serving.site = f"http://127.0.0.1:{serving.server_port}/"
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def fetch(server, target, digest=DIGEST, **options):
    download([server.site + target.name], target, digest, **options)


def test_a_file_is_fetched(server, tmp_path):
    seen = []
    fetch(server, tmp_path / "new" / "file", progress=lambda *how: seen.append(how))
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
    assert seen[0] == ("file", 0, len(CONTENT))
    assert seen[-1] == ("file", len(CONTENT), len(CONTENT))
    assert server.asked == [None]


def test_a_cut_download_goes_on_where_it_stopped(server, tmp_path):
    server.cuts = 2
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={HALF}-", f"bytes={2 * HALF}-"]


def test_it_goes_on_in_a_later_process_too(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:1234])
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["bytes=1234-"]


def test_a_whole_part_is_not_fetched_again(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT)
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_thrown_away(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT + b"more")
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT) + 4}-", None]


@pytest.mark.parametrize("mode", ["no ranges", "wrong ranges"])
def test_a_server_without_ranges_gives_it_all_again(server, tmp_path, mode):
    server.cuts, server.mode = 1, mode
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={HALF}-"] + [None] * (mode == "wrong ranges")


def test_a_server_that_always_breaks_is_given_up_and_the_part_stays(server, tmp_path):
    server.cuts, server.mode = 99, "no ranges"
    with pytest.raises(DownloadError, match=r"file could not be fetched from http.*\(the connection broke\)"):
        fetch(server, tmp_path / "file")
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:HALF]
    assert not (tmp_path / "file").exists()


def test_a_wrong_file_is_named_with_both_hashes_and_removed(server, tmp_path):
    with pytest.raises(DownloadError) as told:
        fetch(server, tmp_path / "file", digest="md5:" + "0" * 32)
    for word in (str(tmp_path / "file"), "md5:" + "0" * 32, f"md5:{hashlib.md5(CONTENT).hexdigest()}"):
        assert word in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_the_next_address_is_tried(server, tmp_path):
    nobody = "http://127.0.0.1:1/file"
    download([nobody, server.site + "file"], tmp_path / "file", DIGEST)
    assert (tmp_path / "file").read_bytes() == CONTENT
    server.mode = "missing"
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1:1/file \(Connection refused\) nor .*\(404 Not Found\)"):
        download([nobody, server.site + "other"], tmp_path / "other", DIGEST)


def test_a_silent_server_is_given_up(tmp_path, monkeypatch):
    import socket

    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(DownloadError, match=r"\(timed out\)"):
            download([url], tmp_path / "file", None, timeout=0.2)


def test_endless_files_are_refused(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    with pytest.raises(DownloadError, match="absurdly many"):
        fetch(server, tmp_path / "file")
