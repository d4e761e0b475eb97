"""Requirements files: what goes into a lock, and what is refused by name."""

from __future__ import annotations

import pytest

from verl_env.errors import UsageError
from verl_env.lock.requirements_file import parse_requirements, read_requirements

HASH = "sha256:" + "a" * 64


def read(files, name="extra.txt"):
    """Parse files of a dict; a missing one is a KeyError, which no test expects."""
    return parse_requirements(name, lambda it: files[it])


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("", [], id="empty"),
        pytest.param("peft>=0.13\n\n# a comment\nlm-eval # why\n", ["peft>=0.13", "lm-eval"], id="comments"),
        pytest.param("peft>=0.13\r\nlm-eval\r\n", ["peft>=0.13", "lm-eval"], id="line ends of Windows"),
        pytest.param(
            "peft[a,b]>=0.13,<1; python_version>'3.8'", ['peft[a,b]<1,>=0.13; python_version > "3.8"'], id="PEP 508"
        ),
        pytest.param(
            f"peft==1 \\\n    --hash={HASH} \\\n    --hash {HASH[:-1]}b\n",
            [f"peft==1 --hash={HASH} --hash={HASH[:-1]}b"],
            id="hashes",
        ),
        pytest.param("peft \\\n>=0.13\nlm-eval", ["peft>=0.13", "lm-eval"], id="a continued line"),
        pytest.param("peft#1.0", None, id="no comment without a space"),
        pytest.param("peft\npeft\n", ["peft", "peft"], id="twice, on two lines"),
        pytest.param("peft \\", ["peft"], id="continued past the end"),
    ],
)
def test_lines(text, lines):
    """Each requirement in one spelling, in order."""
    if lines is None:
        with pytest.raises(UsageError):
            read({"extra.txt": text})
        return
    assert lines == [it.line for it in read({"extra.txt": text})]


def test_origin_is_the_first_line():
    """A wish knows the file and the line it begins on."""
    assert ["extra.txt:2", "extra.txt:4"] == [it.origin for it in read({"extra.txt": "\npeft \\\n >=1\nlm-eval\n"})]


def test_nested_files():
    """-r and -c are relative to the file that names them; what a constraint file includes constrains."""
    files = {
        "a/extra.txt": "-r b/more.txt\n--constraint=../c.txt\nlast",
        "a/b/more.txt": "--requirement most.txt\npeft",
        "a/b/most.txt": "lm-eval",
        "c.txt": "numpy<3\n-r d.txt",
        "d.txt": "scipy<2",
        "a/../c.txt": "numpy<3\n-r d.txt",
        "a/../d.txt": "scipy<2",
    }
    found = read(files, "a/extra.txt")
    assert ["lm-eval", "peft", "-c numpy<3", "-c scipy<2", "last"] == [it.line for it in found]


def test_a_file_may_be_included_twice():
    """Only a circle is refused."""
    files = {"extra.txt": "-r a.txt\n-r b.txt", "a.txt": "-r c.txt", "b.txt": "-r c.txt", "c.txt": "peft"}
    assert ["peft"] == [it.line for it in read(files)]


@pytest.mark.parametrize(
    ("files", "chain"),
    [
        pytest.param({"extra.txt": "-r extra.txt"}, "extra.txt -> extra.txt", id="itself"),
        pytest.param({"extra.txt": "-r a.txt", "a.txt": "-c extra.txt"}, "extra.txt -> a.txt -> extra.txt", id="two"),
        pytest.param(
            {"extra.txt": "-r ./x/../a.txt", "x/../a.txt": "-r extra.txt", "x/../extra.txt": "-r a.txt"},
            "extra.txt -> a.txt -> extra.txt",
            id="other spellings",
        ),
    ],
)
def test_circles(files, chain):
    """Files that include each other are refused with the chain."""
    with pytest.raises(UsageError) as raised:
        read(files)
    assert chain in raised.value.message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("--index-url https://me:secret@index.example/simple", "names an index", id="index with a login"),
        pytest.param("-i https://index.example/", "names an index", id="short"),
        pytest.param("--extra-index-url=https://index.example/", "names an index", id="extra index"),
        pytest.param("-f wheels", "names an index", id="find-links"),
        pytest.param("-e ./verl", "editable", id="editable"),
        pytest.param("--editable=./verl", "editable", id="editable in full"),
        pytest.param("--pre", "option of pip's", id="pip's option"),
        pytest.param("--no-binary :all:", "option of pip's", id="no-binary"),
        pytest.param("peft==${VERSION}", "differs from machine to machine", id="variable"),
        pytest.param("peft==1 --hash=md5:abc", "not a sha256", id="md5"),
        pytest.param("./wheels/peft-1-py3-none-any.whl", "file or URL", id="path"),
        pytest.param("peft-1-py3-none-any.whl", "file or URL", id="wheel"),
        pytest.param("https://me:secret@index.example/peft.whl", "file or URL", id="URL with a login"),
        pytest.param("git+ssh://git@index.example/peft.git", "file or URL", id="git"),
        pytest.param("peft @ git+https://me:secret@index.example/peft", "by URL", id="direct reference"),
        pytest.param("peft === ", "not a requirement", id="nonsense"),
        pytest.param("peft==1 --config-settings=a=b", "not a requirement", id="option of one requirement"),
    ],
)
def test_refused_lines(line, said):
    """What cannot go into a lock is one usage error with file, line, hint and no secret."""
    with pytest.raises(UsageError) as raised:
        read({"extra.txt": f"lm-eval\n{line}\n"})
    assert said in raised.value.message
    assert "extra.txt:2" in raised.value.message
    assert raised.value.hint
    assert "secret" not in raised.value.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"\xff\xfep\x00e\x00", "not UTF-8", id="UTF-16"),
        pytest.param(b"\xef\xbb\xbfpeft\n", None, id="UTF-8 with a mark"),
        pytest.param(b"# " + b"x" * 4_000_001, "too large", id="huge"),
        pytest.param(b"a\x00b", "not a requirement", id="binary"),
    ],
)
def test_files_on_disk(tmp_path, content, said):
    """Whatever a file holds, it is read or refused with its name."""
    path = tmp_path / "extra.txt"
    path.write_bytes(content)
    if said is None:
        assert ["peft"] == [it.line for it in read_requirements(path)]
        return
    with pytest.raises(UsageError, match=said):
        read_requirements(path)


def test_a_folder_and_nothing(tmp_path):
    """A folder and a missing file are refused with their name."""
    for path in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(UsageError, match="cannot be read"):
            read_requirements(path)
