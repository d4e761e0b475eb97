"""The `linkage` level on real ELF files that a compiler makes here: faults are planted, and each is caught and named."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from verl_env.proof.library_proof import as_text, faults_of, read_known
from verl_env.proof.library_survey import Environment, survey_libraries
from verl_env.proof.linkage import Explained, Known, judge

THROW = """#include <string>
namespace c10::detail { void torchCheckFail(const char*, const char*, unsigned, const std::string&); }
void check() { c10::detail::torchCheckFail("f", "g", 1, std::string("wrong")); }
"""
CATCH = """#include <string>
namespace c10::detail { void torchCheckFail(const char*, const char*, unsigned, const std::string&) {} }
"""


class Site:
    """An environment's folder, to put packages with compiled files into."""

    def __init__(self, folder):
        self.folder = folder / "environment"
        self.packages = self.folder / "lib/python3.12/site-packages"
        self.scratch = folder / "scratch"
        (self.folder / "bin").mkdir(parents=True)
        self.scratch.mkdir()

    def package(self, name, *files, requires=()):
        """Write a package's metadata; `files` lie below site-packages."""
        info = self.packages / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {it}" for it in requires)]
        (info / "METADATA").write_text("\n".join(lines) + "\n\n")
        (info / "RECORD").write_text("".join(f"{os.path.relpath(it, self.packages)},,\n" for it in files))

    def compile(self, place, *, needs=(), source="int f(void) { return 1; }", options=(), soname=None, language="c"):
        """Compile one library to a place below site-packages (or to the scratch folder, for `place` without a `/`)."""
        path = self.packages / place if "/" in place else self.scratch / place
        path.parent.mkdir(parents=True, exist_ok=True)
        code = self.scratch / f"code.{language}"
        code.write_text(source)
        compiler = shutil.which("g++" if language == "cpp" else "gcc")
        if compiler is None:
            pytest.skip("no C and C++ compiler, so no ELF files to plant")
        name = soname or path.name
        words = ["-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-soname,{name}", "-o", path, code, *needs, *options]
        subprocess.run([compiler, *words], check=True)
        return path

    def stub(self, soname, **parts):
        """Compile a library that is only linked to, and never put into the environment."""
        return self.compile(soname, soname=soname, **parts)

    def torch(self, *, cuda="13"):
        """Put a torch there whose libraries lead to NVIDIA's, as its wheels do."""
        runtime = self.compile(f"nvidia/cu13/lib/libcudart.so.{cuda}")
        compiler = self.compile(f"nvidia/cu13/lib/libnvrtc.so.{cuda}")
        rpath = ("-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../../nvidia/cu13/lib:$ORIGIN")
        c10 = self.compile("torch/lib/libc10.so", source=CATCH, language="cpp", options=rpath)
        whole = self.compile("torch/lib/libtorch.so", needs=(c10, runtime), options=rpath)
        (self.packages / "torch/__init__.py").write_text("")
        inside = (c10, whole, self.packages / "torch/__init__.py")
        self.package("torch", *inside, requires=['cuda-toolkit[cudart]==13.0; platform_system == "Linux"'])
        self.package("cuda-toolkit", requires=['nvidia-cuda-runtime==13.0; extra == "cudart"'])
        self.package("nvidia-cuda-runtime", runtime)
        self.package("nvidia-cuda-nvrtc", compiler)

    def findings(self, known=None, **parts):
        """Return what is found."""
        known = known or Known()
        environment = Environment(folder=self.folder, python="3.12", **{"cuda": "13.0", **parts})
        surveyed = survey_libraries(environment, known)
        return (*surveyed.unreadable, *judge(surveyed.subject, known))


@pytest.fixture
def env(tmp_path):
    """Return an environment with torch in it."""
    made = Site(tmp_path)
    made.torch()
    return made


def the(findings):
    """Return the only finding."""
    (found,) = findings
    return found


def test_nothing_wrong(env):
    """torch as its wheels are, and an extension that leans on what torch has loaded, give no finding."""
    libraries = env.packages / "torch/lib"
    needs = (libraries / "libc10.so", libraries / "libtorch.so", env.packages / "nvidia/cu13/lib/libnvrtc.so.13")
    extension = env.compile("fast/_C.abi3.so", source=THROW, language="cpp", needs=needs)
    env.package("fast", extension, requires=["torch"])
    assert () == env.findings()


def test_a_missing_library(env):
    """A soname that is nowhere is named, with the file and the package that need it."""
    extension = env.compile("fast/_C.abi3.so", needs=(env.stub("libgone.so.7"),))
    env.package("fast", extension)
    found = the(env.findings())
    assert ("library-missing", "fast", "libgone.so.7") == (found.kind, found.package, found.library)
    assert "lib/python3.12/site-packages/fast/_C.abi3.so" == found.file
    assert "needs libgone.so.7, which is nowhere" == found.what


def test_what_torch_loads_is_torchs(env):
    """A package that does not import torch does not find NVIDIA's libraries through it."""
    env.package("loner", env.compile("loner/_C.so", needs=(env.packages / "nvidia/cu13/lib/libcudart.so.13",)))
    assert ("loner", "libcudart.so.13") == (the(env.findings()).package, the(env.findings()).library)


@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_its_own_search_path(env, tags):
    """DT_RUNPATH and DT_RPATH lead to it, from where the file lies."""
    own = env.compile("loner/libs/libown.so.1")
    extension = env.compile("loner/inner/_C.so", needs=(own,), options=(f"-Wl,{tags}", "-Wl,-rpath,$ORIGIN/../libs"))
    env.package("loner", own, extension)
    assert () == env.findings()


@pytest.mark.parametrize(
    ("tags", "direct", "found"),
    [
        pytest.param("--disable-new-dtags", False, True, id="DT_RPATH holds for what is loaded through it"),
        pytest.param("--enable-new-dtags", False, False, id="DT_RUNPATH does not"),
        pytest.param("--enable-new-dtags", True, True, id="what was loaded with it is found by name"),
    ],
)
def test_a_library_of_a_library(env, tags, direct, found):
    """A library without a path of its own, as repaired wheels carry them, finds its own through whoever loads it."""
    two = env.compile("pictures.libs/libtwo-0123abcd.so.2")
    one = env.compile("pictures.libs/libone-0123abcd.so.1", needs=(two,))
    needs = (one, two) if direct else (one,)
    options = (f"-Wl,{tags}", "-Wl,-rpath,$ORIGIN/../pictures.libs", "-Wl,--unresolved-symbols=ignore-all")
    extension = env.compile("pictures/_C.so", needs=needs, options=options)
    env.package("pictures", two, one, extension)
    assert ([] if found else ["libtwo-0123abcd.so.2"]) == [it.library for it in env.findings()]


def test_a_package_that_keeps_torch_to_itself(env):
    """One extension of torch in a package, and all of its libraries are loaded after torch, whatever its metadata."""
    plugin = env.compile("lib/plugin.so", needs=(env.packages / "nvidia/cu13/lib/libcudart.so.13",))
    extension = env.compile("kernels/_C.so", needs=(env.packages / "torch/lib/libtorch.so",))
    env.package("kernels", plugin, extension)
    assert () == env.findings()


def test_libcudart_of_the_other_major(env):
    """An extension of CUDA 12 in a CUDA 13 set: the missing library says of which CUDA it is."""
    extension = env.compile("flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", needs=(env.stub("libcudart.so.12"),))
    moved = shutil.move(extension, env.packages / extension.name)
    env.package("flash-attn", env.packages / os.path.basename(moved), requires=["torch"])
    found = the(env.findings())
    assert ("library-missing", "flash-attn") == (found.kind, found.package)
    assert "needs libcudart.so.12, which is nowhere (of CUDA 12; this set is CUDA 13.0)" == found.what


def test_two_cuda_majors(env):
    """When the other major is there too, it is named, as is each that needs it: two runtimes in one process."""
    other = env.compile("nvidia/cuda_runtime/lib/libcudart.so.12")
    env.package("nvidia-cuda-runtime-cu12", other)
    extension = env.compile("fast/_C.so", needs=(other,), options=("-Wl,-rpath,$ORIGIN/../nvidia/cuda_runtime/lib",))
    env.package("fast", extension)
    found = {(it.kind, it.package, it.library) for it in env.findings()}
    assert {
        ("other-cuda", "fast", "libcudart.so.12"),
        ("other-cuda", "nvidia-cuda-runtime-cu12", "libcudart.so.12"),
    } <= found
    assert {"two-copies"} == {kind for kind, _, library in found if library == "cudart"}


def test_extension_of_the_other_abi(env):
    """An extension compiled with the old std::string asks torch for symbols that it has not; the reason is said."""
    libraries = env.packages / "torch/lib"
    options = ("-D_GLIBCXX_USE_CXX11_ABI=0",)
    extension = env.compile(
        "flash_attn/_C.so", source=THROW, language="cpp", needs=(libraries / "libc10.so",), options=options
    )
    env.package("flash-attn", extension, requires=["torch"])
    found = the(env.findings())
    assert ("symbol-missing", "flash-attn") == (found.kind, found.package)
    assert "torch has no _ZN3c106detail14torchCheckFailEPKcS2_jRKSs" in found.what
    assert "compiled with _GLIBCXX_USE_CXX11_ABI=0, and torch with 1" in found.what


def test_extension_of_another_torch(env):
    """A symbol that this torch never had is of another release."""
    source = "namespace c10 { void renamed(); } void check() { c10::renamed(); }"
    extension = env.compile("fast/_C.so", source=source, language="cpp", needs=(env.packages / "torch/lib/libc10.so",))
    env.package("fast", extension)
    assert "torch has no _ZN3c107renamedEv: it was compiled for another torch release" == the(env.findings()).what


def test_a_glibc_symbol_that_is_too_new(env):
    """A version that this node's libc has not is named, with the newest that it has."""
    (env.scratch / "versions").write_text("GLIBC_2.99 { global: from_the_future; };\n")
    options = (f"-Wl,--version-script={env.scratch / 'versions'}", "-nostdlib")
    future = env.stub("libc.so.6", source="int from_the_future(void) { return 1; }", options=options)
    source = "int from_the_future(void); int f(void) { return from_the_future(); }"
    extension = env.compile("fast/_C.so", source=source, needs=(future,), options=("-nostdlib",))
    env.package("fast", extension)
    found = the(env.findings())
    assert ("version-missing", "fast", "GLIBC_2.99") == (found.kind, found.package, found.library)
    assert f"the newest GLIBC there is GLIBC_{os.confstr('CS_GNU_LIBC_VERSION').split()[1]}" in found.what


def test_a_file_that_is_cut_off(env):
    """What begins as an ELF file and ends too soon is a fault of that file."""
    whole = env.compile("fast/_C.so")
    whole.write_bytes(whole.read_bytes()[:100])
    env.package("fast", whole)
    assert ("unreadable", "fast") == (the(env.findings()).kind, the(env.findings()).package)


def test_other_pythons_are_left_out(env):
    """An extension for another Python is never loaded by this one."""
    extension = env.compile("fast/_C.cpython-311-x86_64-linux-gnu.so", needs=(env.stub("libgone.so.7"),))
    env.package("fast", extension)
    assert () == env.findings()


def test_what_is_explained_and_what_is_not(env):
    """An explanation covers the library that it names; another one that the same file lacks is a fault."""
    needs = (env.stub("libavutil.so.58"), env.stub("libgone.so.7"))
    env.package("codec", env.compile("codec/libcore6.so", needs=needs))
    reason = "one for each FFmpeg"
    known = Explained(
        package="codec", kind="library-missing", files=("*/libcore*",), libraries=("libav*",), reason=reason
    )
    findings = env.findings(Known(explained=(known,)))
    assert [reason, ""] == [it.explanation for it in findings]
    assert ["libgone.so.7"] == [it.library for it in faults_of(findings)]
    assert ["FAULT library-missing", "codec: one for each FFmpeg", "  lib/python3.12"] == [
        line[: len(start)]
        for line, start in zip(
            as_text(findings), ("FAULT library-missing", "codec: one for each FFmpeg", "  lib/python3.12"), strict=True
        )
    ]


@pytest.mark.parametrize(("cuda", "explained"), [("12", False), ("13", True), ("", True)])
def test_an_explanation_for_one_cuda(env, cuda, explained):
    """One that holds for sets of another CUDA major explains nothing here."""
    env.package("saver", env.compile("saver/_C.so", needs=(env.stub("libgone.so.7"),)))
    known = Explained(
        package="saver", kind="library-missing", files=("*",), libraries=("*",), reason="known", cuda=cuda
    )
    assert explained is bool(the(env.findings(Known(explained=(known,)))).explanation)


def test_every_explanation_has_a_reason():
    """What is shipped as known says a package, a kind that exists, patterns and why."""
    known = read_known()
    kinds = {"library-missing", "two-copies", "other-cuda", "symbol-missing", "version-missing"}
    assert [] == [it for it in known.explained if not (it.package and it.files and it.libraries and it.reason)]
    assert set() == {it.kind for it in known.explained} - kinds
    assert [] == [it for it in known.loads if not (it.libraries and it.reason)]
