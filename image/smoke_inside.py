"""Run inside the image by `smoke`: our modules and what they load later are there and compiled.

The user can write nowhere.
"""

import importlib
import importlib.util
import os
import pkgutil
import resource
import ssl
import sys
import tempfile
from pathlib import Path

import charset_normalizer
import kopf
from kubernetes import client

import tidegate
import tidegate_logic

ROLLUP_PACKAGES = {"google_crc32c", "jinja2", "markupsafe", "numpy", "pandas", "pyarrow", "pyspark"}
FORWARDER_PACKAGE = "confluent_kafka"
is_for_rollups = all(map(importlib.util.find_spec, ROLLUP_PACKAGES))
ours = (
    module
    for package in (tidegate, tidegate_logic)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)
for module in ours:
    if module.name == "tidegate.__main__":  # it runs the command
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as missing:
        package = str(missing.name).partition(".")[0]
        if package != FORWARDER_PACKAGE and (is_for_rollups or package not in ROLLUP_PACKAGES):
            raise

if importlib.util.find_spec("nicegui"):  # the console's image; imported inside functions
    importlib.import_module("nicegui.ui")
    importlib.import_module("uvicorn")

# loaded when first asked for
loaded_later = (client.CustomObjectsApi, kopf.operator)
charset_normalizer.from_bytes("größer".encode("latin-1")).best()

files = [
    Path(file)
    for module in list(sys.modules.values())
    if (file := getattr(module, "__file__", None))
]
uncompiled = [
    file
    for file in files
    if file.suffix == ".py" and not Path(importlib.util.cache_from_source(str(file))).exists()
]
writable = [place for place in ("/", "/usr", "/etc", "/var") if os.access(place, os.W_OK)]
authorities = len(ssl.create_default_context().get_ca_certs())
with tempfile.TemporaryFile() as scratch:
    scratch.write(b"a key that a TLS library reads")

wrong = {
    f"modules that would be compiled at every start: {uncompiled[:5]}": bool(uncompiled),
    f"places that can be written to: {writable}": bool(writable),
    "it runs as root": os.getuid() == 0,
    f"it trusts only {authorities} authorities": authorities < 100,
    f"something is not there: {loaded_later}": not all(loaded_later),
}
if any(wrong.values()):
    sys.exit("\n".join(fault for fault, is_so in wrong.items() if is_so))
print(
    f"{len(files)} modules imported, all compiled; {authorities} authorities trusted; user "
    f"{os.getuid()}"
)
print(
    f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB of memory with all of "
    f"them loaded"
)
