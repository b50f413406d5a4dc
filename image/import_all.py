"""Run by the Python of an image: imports every module of ours that the image can run.

Arguments: where the image's files are, the packages that it may lack, separated by commas, and
those that it has besides, which ours import inside functions.
"""

import importlib
import pkgutil
import platform
import sys

import tidegate
import tidegate_logic

root, absent, *further = sys.argv[1:]
count = 0
for package in (tidegate, tidegate_logic):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name == "tidegate.__main__":  # it runs the command
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            if str(missing.name).partition(".")[0] not in absent.split(","):
                raise
        else:
            count += 1
for name in further:
    importlib.import_module(name)
if outside := [path for path in sys.path if path and not path.startswith(root)]:
    sys.exit(f"modules could come from outside of the image: {outside}")
print(
    f"tidegate {tidegate.__version__} on {platform.machine()}, {count} modules of it"
    f"{''.join(f' and {name}' for name in further)} imported"
)
