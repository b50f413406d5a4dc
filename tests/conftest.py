"""Settings that all tests share: how hypothesis searches, and that Ctrl-C means what it means on a terminal."""

import os
import signal

from hypothesis import settings

# On a developer's machine every run searches elsewhere. CI repeats one search, so that it fails for the change that it
# was given and not for luck. Deadlines would only measure how busy a shared machine is.
settings.register_profile("developer", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "developer")

# A shell lets its background jobs ignore SIGINT, and every process below inherits that. Some tests send one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
