"""Packs programs for several platforms: python3 static.py FOLDER TARGET=PROGRAM...

Writes archives, SHA256SUMS, wheels and folders of npm packages. All programs of a target are in the same packages. A
wheel contains the module in fake-apiserver/clients/python, and the programs as scripts, so that pip installs them into a
folder in PATH.
"""

import base64
import gzip
import hashlib
import io
import json
import pathlib
import re
import shutil
import sys
import tarfile
import zipfile

CLIENTS = pathlib.Path("fake-apiserver/clients")

# The tags of wheels, and `os` and `cpu` of npm packages. A static Linux program runs with any C library.
PLATFORMS = {
    "x86_64-unknown-linux-musl": ("manylinux2014_x86_64.musllinux_1_1_x86_64", "linux", "x64"),
    "aarch64-unknown-linux-musl": ("manylinux2014_aarch64.musllinux_1_1_aarch64", "linux", "arm64"),
    "x86_64-apple-darwin": ("macosx_10_12_x86_64", "darwin", "x64"),
    "aarch64-apple-darwin": ("macosx_11_0_arm64", "darwin", "arm64"),
    "x86_64-pc-windows-gnu": ("win_amd64", "win32", "x64"),
}


def version():
    text = pathlib.Path("Cargo.toml").read_text()
    return re.search(r'\[workspace\.package\]\nversion = "(.*?)"', text)[1]


def archive(out, target, programs):
    """Writes a tar.gz, or a zip for Windows, with the programs and the licence."""
    name = f"fake-apiserver-{version()}-{target}"
    files = [(it.name, it.read_bytes(), 0o755) for it in programs]
    files.append(("LICENSE", pathlib.Path("LICENSE").read_bytes(), 0o644))
    if "-windows-" in target:
        with zipfile.ZipFile(out / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for file, data, _ in files:
                packed.writestr(zipfile.ZipInfo(f"{name}/{file}"), data, zipfile.ZIP_DEFLATED)
        return
    # Without timestamps, so that the same program results in the same archive.
    with open(out / f"{name}.tar.gz", "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for file, data, mode in files:
                info = tarfile.TarInfo(f"{name}/{file}")
                info.size, info.mode = len(data), mode
                tar.addfile(info, io.BytesIO(data))


def wheel(out, target, programs):
    """Writes a wheel in the binary distribution format."""
    project = (CLIENTS / "python/pyproject.toml").read_text()
    text = lambda key: re.search(rf'^{key} = "(.*)"$', project, re.M)[1]
    tags = PLATFORMS[target][0]
    name = f"drydock_fake_apiserver-{version()}"
    info = f"{name}.dist-info"
    readme = (CLIENTS / "python/README.md").read_text()
    metadata = (
        f"Metadata-Version: 2.4\nName: {text('name')}\nVersion: {version()}\nSummary: {text('description')}\n"
        f"License-Expression: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: {text('requires-python')}\n"
        f"Classifier: Framework :: Pytest\nDescription-Content-Type: text/markdown\n\n{readme}"
    )
    tag_lines = "".join(f"Tag: py3-none-{tag}\n" for tag in tags.split("."))
    files = [
        (f"drydock/{it.name}", it.read_bytes(), 0o644) for it in sorted((CLIENTS / "python/drydock").glob("*.py"))
    ]
    files += [(f"{name}.data/scripts/{it.name}", it.read_bytes(), 0o755) for it in programs]
    files += [
        (f"{info}/METADATA", metadata.encode(), 0o644),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: drydock\nRoot-Is-Purelib: false\n{tag_lines}".encode(), 0o644),
        (f"{info}/entry_points.txt", b"[pytest11]\ndrydock = drydock.plugin\n", 0o644),
        (f"{info}/licenses/LICENSE", pathlib.Path("LICENSE").read_bytes(), 0o644),
    ]
    digest = lambda data: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    record = "".join(f"{file},sha256={digest(data)},{len(data)}\n" for file, data, _ in files)
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    folder = out / "wheels"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-py3-none-{tags}.whl", "w", zipfile.ZIP_DEFLATED) as packed:
        for file, data, mode in files:
            entry = zipfile.ZipInfo(file)
            entry.external_attr = (0o100000 | mode) << 16
            packed.writestr(entry, data, zipfile.ZIP_DEFLATED)


def npm(out, targets):
    """Writes the package with the client, and a package with the programs for each platform."""
    client = json.loads((CLIENTS / "javascript/package.json").read_text())
    client["version"] = version()
    client["optionalDependencies"] = {}
    for target, programs in targets.items():
        _, system, cpu = PLATFORMS[target]
        name = f"{client['name']}-{system}-{cpu}"
        client["optionalDependencies"][name] = version()
        folder = out / "npm" / f"{system}-{cpu}"
        (folder / "bin").mkdir(parents=True)
        for program in programs:
            shutil.copy(program, folder / "bin" / program.name)
            (folder / "bin" / program.name).chmod(0o755)
        shutil.copy("LICENSE", folder)
        package = {
            "name": name,
            "version": version(),
            "description": f"{' and '.join(it.stem for it in programs)} for {system} {cpu}",
            "license": client["license"],
            "repository": client["repository"],
            "files": ["bin"],
            "os": [system],
            "cpu": [cpu],
        }
        (folder / "package.json").write_text(json.dumps(package, indent=2) + "\n")
    folder = out / "npm" / "client"
    folder.mkdir(parents=True)
    for file in client["files"]:
        shutil.copy(CLIENTS / "javascript" / file, folder)
    shutil.copy("LICENSE", folder)
    (folder / "package.json").write_text(json.dumps(client, indent=2) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    targets = {}
    for it in sys.argv[2:]:
        target, program = it.split("=", 1)
        targets.setdefault(target, []).append(pathlib.Path(program))
    for target, programs in targets.items():
        archive(out, target, programs)
        wheel(out, target, programs)
    npm(out, targets)
    archives = sorted(out.glob("fake-apiserver-*"))
    sums = "".join(f"{hashlib.sha256(it.read_bytes()).hexdigest()}  {it.name}\n" for it in archives)
    (out / "SHA256SUMS").write_text(sums)
    for it in sorted(it for it in out.rglob("*") if it.suffix in (".gz", ".zip", ".whl")):
        print(f"{it.name}: {it.stat().st_size / 1e6:.1f} MB")


main()
