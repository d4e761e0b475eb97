"""A package to compile that needs no CUDA: its sdist, the row that names it, and a toolkit that only says its version.

Its back end works as ninja does: one step a file, said when it ends; what is compiled already is passed over.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sysconfig
import tarfile
from pathlib import Path

from tiny import MINOR, Site, Tool, build_wheel, sha256_of

ROW = "tiny"
PACKAGE = "tiny-ext"
LABEL = "cu130torch2.11"
DRIVER = ("--driver", "580.95.05")
TORCH = {
    "torch/__init__.py": "from torch.version import __version__, cuda\n",
    "torch/version.py": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n",
}
BACKEND = """
import glob, os, subprocess, sys, sysconfig
from tiny_tool import pack

def build_wheel(out, config_settings=None, metadata_directory=None):
    capability = os.environ["TORCH_CUDA_ARCH_LIST"].split(";")[0].replace(".", "")
    todo = [it for it in sorted(glob.glob("*.c")) if not os.path.exists(it[:-2] + ".o")]
    if os.environ.get("TINY_HUNGRY") and os.environ["MAX_JOBS"] != "1":
        fail("a.o", "nvcc error   : 'cicc' died due to signal 9 (Kill signal)")
    for number, source in enumerate(todo, start=1):
        gate = os.environ.get("TINY_GATE")
        if gate and source != "a.c":  # a compiler that takes its time, in a group of its own, as ninja starts them
            subprocess.run(["sh", "-c", "until [ -e '%s' ]; do sleep 0.05; done" % gate], preexec_fn=os.setpgrp)
        object = source[:-2] + ".o"
        words = ["cc", "-fPIC", "-c", source, "-o", object + ".part", "-I" + sysconfig.get_path("include")]
        done = subprocess.run(words + ["-DARCHITECTURE=" + capability], capture_output=True, text=True)
        if done.returncode:
            print("[%d/%d] %s" % (number, len(todo), " ".join(words)), flush=True)
            fail(object, done.stderr)
        os.rename(object + ".part", object)
        print("[%d/%d] %s" % (number, len(todo), " ".join(words)), flush=True)
    os.makedirs("lib", exist_ok=True)
    library = "lib/tiny_ext" + sysconfig.get_config_var("EXT_SUFFIX")
    subprocess.run(["cc", "-shared", *sorted(glob.glob("*.o")), "-o", library], check=True)
    return pack(out, "tiny_ext", "1.5", library)

def fail(object, words):
    print("FAILED: [code=1] " + object + "\\ncc -Werror -c x.c -o " + object + "\\n" + words, flush=True)
    print("ninja: build stopped: subcommand failed.", flush=True)
    raise RuntimeError("Error compiling objects for extension")
"""
# What the build requires: it packs the wheel, so that a build without its tools gives none.
PACK = """
import base64, hashlib, os, sys, sysconfig, zipfile

def pack(out, name, version, library):
    python = "cp%d%d" % sys.version_info[:2]
    tag = "%s-%s-linux_%s" % (python, python, os.uname().machine)
    info = "%s-%s.dist-info/" % (name, version)
    files = {os.path.basename(library): open(library, "rb").read()}
    files["tiny_ext_plain/__init__.py"] = b"VERSION = 1\\n"
    files[info + "METADATA"] = ("Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n\\nVersion: of something else\\n" % (name, version)).encode()
    files[info + "WHEEL"] = ("Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: false\\nTag: %s\\n" % tag).encode()
    record = info + "RECORD"
    lines = ["%s,sha256=%s,%d" % (it, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), len(data)) for it, data in files.items()]
    files[record] = ("\\n".join(lines + [record + ",,"]) + "\\n").encode()
    file = "%s-%s-%s.whl" % (name, version, tag)
    with zipfile.ZipFile(os.path.join(out, file), "w") as wheel:
        for it, data in files.items():
            wheel.writestr(it, data)
    return file
"""
# A fat binary as nvcc lays it out, with one empty device binary (matrix/device_code.py has the layout).
MODULE = """
#include <Python.h>
struct entry { unsigned short kind, version; unsigned size; unsigned long length; unsigned pad[3], arch; unsigned long more, flags; };
__attribute__((used, section(".nv_fatbin"), aligned(8)))
static const struct { unsigned magic; unsigned short version, header; unsigned long payload; struct entry entry; } code = {
    0xBA55ED50, 1, 16, sizeof(struct entry), { 2, 1, sizeof(struct entry), 0, {0}, ARCHITECTURE, 0, 0 } };
int other(void);
static PyModuleDef definition = { PyModuleDef_HEAD_INIT, "tiny_ext", 0, -1, 0, 0, 0, 0, 0 };
PyMODINIT_FUNC PyInit_tiny_ext(void) {
    PyObject *made = PyModule_Create(&definition);
    PyModule_AddIntConstant(made, "answer", other());
    return made;
}
"""
SOURCES = {
    "a.c": MODULE,
    "b.c": "int another(void);\nint other(void) { return another(); }\n",
    "c.c": "int another(void) { return 42; }\n",
}
PYPROJECT = '[build-system]\nrequires = ["tiny-tool"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'

can_compile = bool(shutil.which("cc") and shutil.which("c++")) and os.path.isfile(
    os.path.join(sysconfig.get_path("include"), "Python.h")
)


def make_sdist(folder, sources=None) -> Path:
    """Write the sdist of the package, with other sources when they are given."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny_ext-1.5.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {"pyproject.toml": PYPROJECT, "backend.py": BACKEND, **(sources or SOURCES)}.items():
            info = tarfile.TarInfo(f"tiny_ext-1.5/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def make_toolkit(folder, version="13.0.88") -> Path:
    """Write a toolkit whose nvcc says its version, and nothing else."""
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    minor = version.rpartition(".")[0]
    nvcc.write_text(f'#!/bin/sh\necho "Cuda compilation tools, release {minor}, V{version}"\n')
    nvcc.chmod(0o755)
    return folder


def file_of(path) -> str:
    """Return a file as a row's TOML has it."""
    return f'file = "{path.name}", size = {path.stat().st_size}, sha256 = "{sha256_of(path)}"'


def build_table(sdist, tool, *, architectures=("8.0", "9.0")) -> str:
    """Return the row's `[[build]]`."""
    return f"""
[[build]]
package = "{PACKAGE}"
version = "1.5"
why = "nobody publishes it"
source = "these tests"
sdist = {{ {file_of(sdist)} }}
toolkit = "13.0"
architectures = {list(architectures)}
job_gb = 0.1
environment = {{ TINY_SM = "{{sm}}" }}
imports = ["tiny_ext"]
attention = {{ path = "flash_attention_2" }}
requires = [{{ name = "tiny-tool", version = "1.0", {file_of(tool)} }}]
"""


def make_world(folder, serve, *, sources=None) -> Tool:
    """Return verl-env with a row that names a build, its environment installed, and every file on an index."""
    store = folder / "store"
    wheels = [build_wheel(store, "torch", "2.11.0", files=TORCH), build_wheel(store, "verl", "99.0")]
    helper = build_wheel(store, "tiny-tool", "1.0", files={"tiny_tool.py": PACK})
    sdist = make_sdist(store, sources)
    site = Site(folder=folder / "site")
    site.add_row(ROW, wheels, cuda="13.0", settings=["a=sdpa"], imports=["verl"], set={"torch": "2.11.0+cu130"})
    path = site.folder / "rows" / f"{ROW}.toml"
    path.write_text(path.read_text() + build_table(sdist, helper))
    tool = Tool(home=folder / "home", work=folder / "work", site=site)
    tool.home.mkdir()
    tool.work.mkdir()
    tool.index = serve(store)
    tool.toolkit = make_toolkit(folder / "toolkit")
    done = tool("install", "--row", ROW, "--python", MINOR, *DRIVER)
    assert 0 == done.code, done.err
    return tool


def build(tool, *words, **more):
    """Run `verl-env build` for the row, for an H200's architecture unless words say otherwise."""
    return tool(*build_words(tool, *words), **more)


def build_words(tool, *words) -> list:
    """Return the words of such a build."""
    arch = [] if "--arch" in words else ["--arch", "9.0"]
    return ["build", PACKAGE, "--row", ROW, "--cuda-home", tool.toolkit, *arch, *words]


def wheels_of(tool) -> list[Path]:
    """Return the wheels of its wheelhouse."""
    return sorted((tool.data / "wheelhouse").glob("*/*.whl"))


def run(words, **more) -> str:
    """Run a program and return what it printed."""
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=True, **more).stdout
