"""The output of `lab env` works in any shell, whatever characters the paths have."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.standing import Tool, exports, write_tools


def test_a_shell_that_evaluates_it_finds_commands_and_addresses(tmp_path: Path) -> None:
    tools = tmp_path / "a b's bin"
    write_tools(tools, {"hail": Tool(("/bin/echo", "hello $USER"), {"UNUSED": "it's"}), "greet": Tool(("/bin/echo",))})
    script = f'eval "$1"; hail "to you"; greet "$KAFKA"; echo "$PATH" | grep -c ":{tmp_path}/rest$"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", exports({"KAFKA": "a 'quoted' $address"}, tools)],
        env={"PATH": f"/usr/bin:/bin:{tmp_path}/rest"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == ["hello $USER to you", "a 'quoted' $address", "1"]
