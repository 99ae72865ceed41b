"""Adds a command to a wheel, and says by its tag where it runs: `wheel.py WHEEL COMMAND FOLDER`.

The wheel that `pip wheel .` makes has the package alone. Scripts of a wheel lie in
`NAME-VERSION.data/scripts` (binary distribution format), and `RECORD` has digest and size of every file. The
manylinux tag is what `auditwheel` finds that the files need.
"""

import base64
import csv
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import zipfile

LARGEST = 10 << 20
TAG = re.compile(r"-manylinux_2_\d+_\w+\.whl$")
# An ordinary file that may be run.
EXECUTABLE = 0o100755 << 16


def add(wheel: pathlib.Path, command: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Writes a copy of `wheel` that has `command` among its scripts to `folder`."""
    name, version = wheel.name.split("-")[:2]
    script = f"{name}-{version}.data/scripts/{command.name}"
    record = f"{name}-{version}.dist-info/RECORD"
    made = folder / wheel.name
    with (
        zipfile.ZipFile(wheel) as old,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new,
    ):
        for entry in old.infolist():
            if entry.filename != record:
                new.writestr(entry, old.read(entry), zipfile.ZIP_DEFLATED)
        content = command.read_bytes()
        entry = zipfile.ZipInfo(script)
        entry.external_attr = EXECUTABLE
        new.writestr(entry, content, zipfile.ZIP_DEFLATED)
        rows = list(csv.reader(io.StringIO(old.read(record).decode())))
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, [script, f"sha256={digest}", len(content)]])
        new.writestr(record, text.getvalue())
    return made


def tagged(wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Writes a copy of `wheel` with the tag of the oldest systems that it runs on to `folder`."""
    before = set(folder.glob("*.whl"))
    # The program that changes libraries stands beside the interpreter.
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", folder, wheel]
    subprocess.run(repair, check=True, env={**os.environ, "PATH": path}, capture_output=True)
    (made,) = set(folder.glob("*.whl")) - before
    return made


def faults(wheel: pathlib.Path) -> list[str]:
    """What is wrong with `wheel`: its size or its tag."""
    found = []
    if wheel.stat().st_size > LARGEST:
        found.append(f"{wheel.name} has {wheel.stat().st_size} bytes, more than {LARGEST}")
    if not TAG.search(wheel.name):
        found.append(f"{wheel.name} has no manylinux tag")
    return found


def main() -> int:
    """Makes the wheel and says where it is; 1 if something is wrong with it."""
    wheel, command, folder = map(pathlib.Path, sys.argv[1:])
    plain = folder / "with-command"
    plain.mkdir()
    made = tagged(add(wheel, command, plain), folder)
    wrong = faults(made)
    print("\n".join(wrong) if wrong else f"{made}: {made.stat().st_size} bytes")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
