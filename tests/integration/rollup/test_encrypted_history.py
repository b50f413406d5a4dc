"""Reading history from a server with a certificate of a private authority that requires a client
certificate.
"""

from __future__ import annotations

import pickle
import ssl
import tempfile
import time
from pathlib import Path

import pytest

from lab.process import patience
from tests.integration.kafka.certificates import make_certificates
from tests.unit.prometheus.lying_server import serving
from tests.unit.rollup.transport.fake_prometheus import FakePrometheus
from tests.unit.rollup.transport.histories import BASE_MS
from tests.unit.rollup.transport.posting import STREAMED, PostRequest
from tidegate.errors import Unreachable
from tidegate.prometheus.settings import PrometheusServer, TlsTexts
from tidegate.rollup.samples import Selection
from tidegate.rollup.transport.exchange import ClientCertificate, HistorySettings
from tidegate.rollup.transport.remote_read import RemoteReadChunks

pytestmark = pytest.mark.integration


def test_a_server_that_requires_a_certificate_gets_ours_and_refuses_clients_without_one(
    tmp_path: Path,
) -> None:
    made = make_certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)
    tls.load_verify_locations(made.authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    ours = ClientCertificate(str(made.certificate), str(made.key))
    with serving(FakePrometheus([({"a": "1"}, [(BASE_MS, 1.0)])]), tls=tls) as server:  # type: ignore[arg-type]
        server.RequestHandlerClass = PostRequest
        url = server.url.replace("http:", "https:")
        known = RemoteReadChunks(
            HistorySettings(
                PrometheusServer(url, ca_file=str(made.authority)), client_certificate=ours
            )
        )
        assert len(known.read(Selection("m"), BASE_MS, BASE_MS + 1)) == 1
        for server_settings, certificate in (
            (PrometheusServer(url, ca_file=str(made.authority)), None),
            (PrometheusServer(url), ours),
        ):
            unknown = RemoteReadChunks(
                HistorySettings(server_settings, client_certificate=certificate, attempts=1)
            )
            with pytest.raises(Unreachable):
                unknown.read(Selection("m"), BASE_MS, BASE_MS + 1)
            unknown.close()
        known.close()


def drip(request: PostRequest) -> None:
    request.send_response(200)
    request.send_header("Content-Type", STREAMED)
    request.send_header("Content-Length", "1000000")
    request.end_headers()
    while not request.server.gone.wait(0.02):
        request.wfile.write(b"\x00")
        request.wfile.flush()


def test_a_server_that_drips_within_tls_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)
    with serving(drip, tls=tls) as server:  # type: ignore[arg-type]
        server.RequestHandlerClass = PostRequest
        url = server.url.replace("http:", "https:")
        settings = HistorySettings(
            PrometheusServer(url, ca_file=str(made.authority)),
            attempts=2,
            request_timeout_seconds=0.4,
        )
        reader = RemoteReadChunks(settings)
        started = time.monotonic()
        with pytest.raises(Unreachable, match="it took too long"):
            reader.read(Selection("m"), BASE_MS, BASE_MS + 1)
        assert time.monotonic() - started < patience(5)
        assert len(server.seen) == settings.attempts
        reader.close()


def test_certificates_go_to_another_process_with_the_settings_and_leave_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificates(tmp_path / "made")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)
    tls.load_verify_locations(made.authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    texts = TlsTexts(
        made.authority.read_bytes(), made.certificate.read_bytes(), made.key.read_bytes()
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with serving(FakePrometheus([({"a": "1"}, [(BASE_MS, 1.0)])]), tls=tls) as server:  # type: ignore[arg-type]
        server.RequestHandlerClass = PostRequest
        settings = HistorySettings(
            PrometheusServer(server.url.replace("http:", "https:"), tls=texts)
        )
        elsewhere = RemoteReadChunks(pickle.loads(pickle.dumps(settings)))
        assert len(elsewhere.read(Selection("m"), BASE_MS, BASE_MS + 1)) == 1
        written = [path for path in scratch.rglob("*.*") if path.is_file()]
        assert {path.name: path.stat().st_mode & 0o777 for path in written} == dict.fromkeys(
            ("ca.crt", "tls.crt", "tls.key"), 0o600
        )
        elsewhere.close()
    assert not [
        path for path in scratch.rglob("*") if path.name.startswith("tls") or path.name == "ca.crt"
    ]
    assert "PRIVATE KEY" not in repr(settings)
