"""Run inside the image by `smoke`, after `import_all`: modules and what they load later are
compiled, and the user can write nowhere.
"""

import importlib.util
import os
import resource
import ssl
import sys
import tempfile
from pathlib import Path

import charset_normalizer
import kopf
from kubernetes import client

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
