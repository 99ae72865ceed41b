"""Adds a command to a wheel and checks what the wheel's tag promises: `wheel.py WHEEL COMMAND FOLDER`.

The wheel that `pip wheel .` makes has the package alone. Scripts of a wheel lie in
`NAME-VERSION.data/scripts` (binary distribution format), and `RECORD` has digest and size of every file.
"""

import base64
import csv
import hashlib
import io
import pathlib
import re
import sys
import zipfile

LARGEST = 10 << 20
# What the manylinux tags stand for is a version of the C library.
TAG = re.compile(r"manylinux_2_(\d+)_")
NEEDS = re.compile(rb"GLIBC_2\.(\d+)")
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


def faults(wheel: pathlib.Path) -> list[str]:
    """What is wrong with `wheel`: its size, or files that need a newer C library than its tag says."""
    found = []
    if wheel.stat().st_size > LARGEST:
        found.append(f"{wheel.name} has {wheel.stat().st_size} bytes, more than {LARGEST}")
    tag = TAG.search(wheel.name)
    if tag is None and sys.platform == "linux":
        found.append(f"{wheel.name} has no manylinux tag")
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist() if tag else ():
            content = packed.read(name)
            needs = max((int(found) for found in NEEDS.findall(content)), default=0)
            if content.startswith(b"\x7fELF") and needs > int(tag.group(1)):
                found.append(f"{name} needs GLIBC 2.{needs}, the tag says 2.{tag.group(1)}")
    return found


if __name__ == "__main__":
    made = add(*map(pathlib.Path, sys.argv[1:]))
    wrong = faults(made)
    print("\n".join(wrong) if wrong else f"{made}: {made.stat().st_size} bytes")
    sys.exit(bool(wrong))
