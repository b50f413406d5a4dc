"""A package's RECORD is true after files were left out or changed."""

import base64
import hashlib
from pathlib import Path

from image import build_tools


def test_files_that_are_gone_go_and_changed_ones_have_their_new_hash(tmp_path: Path) -> None:
    record = tmp_path / "thing-1.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text("thing.so,sha256=old,999\nthing-1.dist-info/RECORD,,\n../../bin/thing,sha256=old,1\nthing.pyi,sha256=old,1\n")
    (tmp_path / "thing.so").write_bytes(b"stripped")
    build_tools.correct(tmp_path)
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"stripped").digest()).rstrip(b"=").decode()
    assert record.read_text() == f"thing.so,sha256={digest},8\nthing-1.dist-info/RECORD,,\n"


def test_a_name_with_a_comma_stays_one_name(tmp_path: Path) -> None:
    record = tmp_path / "thing-1.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text('"a,b.py",sha256=old,1\n')
    (tmp_path / "a,b.py").touch()
    build_tools.correct(tmp_path)
    assert record.read_text().startswith('"a,b.py",sha256=')
