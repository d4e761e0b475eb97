"""Explaining logs: every signature, real cases, unrelated logs, and what surrounds messages in real logs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from verl_env.doctor.confirm import confirm
from verl_env.doctor.explain import explain
from verl_env.doctor.failures import Catalogue, Failure, Signature, faults_of, load_catalogue
from verl_env.doctor.log_scan import scan_log
from verl_env.doctor.log_text import read_line
from verl_env.doctor.redact import without_people, without_secrets
from verl_env.node.facts import Finding, Node, Value

HERE = Path(__file__).parent
CATALOGUE = load_catalogue()


def ask(text, catalogue=CATALOGUE):
    """Explain a text."""
    data = text if isinstance(text, bytes) else text.encode()
    return explain(scan_log(io.BytesIO(data), catalogue.signatures), catalogue)


def first(text):
    """Return the likeliest class and its confidence."""
    found = ask(text)
    return (found[0].name, found[0].confidence) if found else ("none", "")


def cases(name):
    """Return the cases of a file: `=== id | classes`, then the log."""
    found = []
    for line in (HERE / name).read_text().splitlines():
        if line.startswith("=== "):
            case_id, classes = line[4:].rsplit("|", 1)
            found.append((case_id.strip(), classes.strip().split(","), []))
        elif found:
            found[-1][2].append(line)
    return [pytest.param(classes, "\n".join(lines), id=case_id) for case_id, classes, lines in found]


def test_catalogue_holds_together():
    """The shipped signatures name known classes, compile, and have examples."""
    assert [] == faults_of(CATALOGUE)


@pytest.mark.parametrize(
    ("signature", "example"),
    [
        pytest.param(one, text, id=f"{one.id}-{number}")
        for one in CATALOGUE.signatures
        for number, text in enumerate(one.examples)
    ],
)
def test_examples_are_explained(signature, example):
    """Each example is explained by its class first."""
    assert signature.explains == first(example)[0]


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        pytest.param(one, text, id=f"{one.id}-{number}")
        for one in CATALOGUE.signatures
        for number, text in enumerate(one.near_misses)
    ],
)
def test_near_misses_are_not(signature, text):
    """No near-miss is explained by the signature's class with more than low confidence."""
    assert signature.explains not in [one.name for one in ask(text) if one.confidence != "low"]


@pytest.mark.parametrize(("classes", "log"), cases("test_doctor_cases.txt"))
def test_real_cases(classes, log):
    """A real failure is explained by a right class first."""
    assert first(log)[0] in classes


@pytest.mark.parametrize(("classes", "log"), cases("test_doctor_heldout.txt"))
def test_other_real_cases(classes, log):
    """Real failures that the rules were not written from are explained too, and what nobody can tell is not known."""
    found, confidence = first(log)
    assert found in classes or ("none" in classes and confidence == "low")


@pytest.mark.parametrize(("classes", "log"), cases("test_doctor_reworded.txt"))
def test_other_words_of_the_same_failures(classes, log):
    """Other programs and versions say the same in other words."""
    assert first(log)[0] in classes


@pytest.mark.parametrize(("classes", "log"), cases("test_doctor_unrelated.txt"))
def test_unrelated_logs_are_not_known(classes, log):
    """Ordinary output and other programs' errors get no explanation, or a guess that is called one."""
    assert ["none"] == classes
    assert first(log) == ("none", "") or first(log)[1] == "low"


CAUSE = "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("line", "worker"),
    [
        pytest.param(
            f"\033[36m(WorkerDict pid=123, ip=10.0.0.1)\033[0m {CAUSE}", "WorkerDict pid=123, ip=10.0.0.1", id="ray"
        ),
        pytest.param(
            f"(EngineCore_DP0 pid=9) (Worker_TP0 pid=10) ERROR 11-30 [core.py:1] {CAUSE}",
            "Worker_TP0 pid=10",
            id="vllm",
        ),
        pytest.param(f"[rank0]: {CAUSE}", "", id="torchrun"),
        pytest.param(f"12: {CAUSE}", "", id="srun"),
        pytest.param(f"[1,3]<stderr>:{CAUSE}", "", id="mpirun"),
        pytest.param(f"2026-11-30T10:00:00.123Z stderr F {CAUSE}", "", id="container"),
        pytest.param(f"{CAUSE} [repeated 7x across cluster]", "", id="repeated"),
        pytest.param(f"  5%|▌  | 1/20 [00:01<00:19]\r 10%|█ | 2/20\r{CAUSE}\r\n", "", id="progress-bar"),
        pytest.param(f"\033]8;;file:///x\033\\{CAUSE}\033]8;;\033\\", "", id="hyperlink"),
    ],
)
def test_what_stands_around(line, worker):
    """Colours, prefixes and redrawn bars hide no message, and the worker is kept."""
    (found,) = ask(line)
    assert ("libcudart-missing", worker, CAUSE) == (
        found.name,
        found.evidence[0].worker,
        found.evidence[0].text.split("] ", 1)[-1],
    )


def test_first_cause_not_last_exception():
    """In chained tracebacks the first cause comes first, and what follows from it after it."""
    log = "\n".join(
        [
            "INFO 11-30 start",
            "(WorkerDict pid=1) Traceback (most recent call last):",
            f"(WorkerDict pid=1) {CAUSE}",
            "(WorkerDict pid=1) During handling of the above exception, another exception occurred:",
            "(WorkerDict pid=1) ModuleNotFoundError: No module named 'vllm._C'",
            "torch.distributed.DistBackendError: NCCL error, unhandled system error (run with NCCL_DEBUG=INFO)",
            "RuntimeError: Failed to infer device type",
        ]
    )
    found = ask(log)
    assert ["libcudart-missing", "python-deps", "nccl-p2p", "docker-no-gpu"] == [one.name for one in found]
    assert 3 == found[0].evidence[0].line


def test_a_cause_beats_an_earlier_symptom():
    """A symptom is named after the cause that comes later."""
    log = "ncclSystemError: System call failed\nError while creating shared memory segment /dev/shm/nccl-1 (size 9)"
    assert ["dev-shm", "nccl-p2p"] == [one.name for one in ask(log)]


@pytest.mark.parametrize(
    ("prefix", "suffix", "expected"),
    [
        pytest.param("", "", "high", id="bare"),
        pytest.param("WARNING 11-30 [x.py:1] Failed to import: ", "", "low", id="warning-in-a-good-run"),
        pytest.param(
            "WARNING 11-30 [x.py:1] Failed to import: ",
            "\nTraceback (most recent call last):",
            "medium",
            id="warning-in-a-failed-run",
        ),
        pytest.param("INFO 11-30 note: ", "\nTraceback (most recent call last):", "low", id="info"),
    ],
)
def test_levels_count(prefix, suffix, expected):
    """A warning counts less than an error, and least where nothing failed."""
    assert ("libcudart-missing", expected) == first(f"{prefix}{CAUSE}{suffix}")


def test_line_numbers_over_blocks():
    """Lines are counted over blocks, and a message in the last of megabytes is found."""
    filler = "step:12 - loss:0.1 - a line like any other\n" * 80_000
    (found,) = ask(f"{filler}{CAUSE}")
    assert 80_001 == found.evidence[0].line


def test_neighbourhood_over_blocks():
    """What must be near is found on the other side of a block's end."""
    filler = b"x" * ((1 << 20) - 400)
    log = filler + b"\nflashinfer/jit/core.py\n" + b"y" * 500 + b"\nRuntimeError: Ninja build failed.\n"
    assert ("flashinfer-jit", "medium") == first(log)


def test_lines_of_megabytes():
    """A line without an end is cut, not kept; a message in it is found."""
    log = b"z" * (3 << 20) + CAUSE.encode() + b"z" * (2 << 20)
    assert "libcudart-missing" == first(log)[0]


@pytest.mark.parametrize("data", [b"", b"\n\n\n", b"\xff\xfe\x00bin\x00" * 1000, "Ошибка: İ ü 漢字\n".encode()])
def test_odd_input(data):
    """Nothing, binary and other alphabets are read without a fault, and explain nothing."""
    assert () == ask(data)


def test_many_repeats_are_counted_and_bounded():
    """Thousands of equal lines are one explanation with little evidence."""
    (found,) = ask(f"{CAUSE}\n" * 5000)
    assert (1, 100) == (len(found.evidence), found.times)


def node_of(**parts):
    return Node(**({"kernel": Value(value="6.1", source="uname")} | parts))


@pytest.mark.parametrize(
    ("glibc", "expected"), [("2.31", "high"), ("2.39", "medium"), (None, "high")], ids=["older", "newer", "unknown"]
)
def test_node_confirms_or_doubts(glibc, expected):
    """A node whose glibc is new enough lowers the confidence, one that is too old confirms."""
    node = node_of(glibc=Value(value=glibc, source="x") if glibc else None)
    found = ask("libc.so.6: version `GLIBC_2.34' not found (required by x.so)")
    (one,) = confirm(found, CATALOGUE, node, node.findings)
    assert expected == one.confidence
    assert (glibc is not None) == bool(one.node)


def test_node_finding_confirms():
    """A finding of the node that belongs to the class is quoted, and makes it surer."""
    finding = Finding(
        id="gpu-not-in-container", severity="error", what="w", evidence="no /dev/nvidia0", why="y", action="a"
    )
    found = ask("RuntimeError: Failed to infer device type")
    (one,) = confirm(found, CATALOGUE, node_of(), [finding])
    assert ("high", "confirmed here (gpu-not-in-container): no /dev/nvidia0") == (one.confidence, one.node)


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ({"explains": "nothing"}, "explains: no class is called `nothing`"),
        ({"pattern": "("}, "pattern: missing ), unterminated subpattern at position 0"),
        ({"words": ("Upper",)}, "words: at least one, in lower case"),
        ({"confidence": "sure"}, "confidence: one of high, medium, low, not `sure`"),
        ({"examples": ()}, "examples: at least one"),
    ],
)
def test_faults_are_named(part, fault):
    """A stranger's signature that does not hold together is told what is wrong."""
    laid = {"id": "a", "explains": "c", "words": ("x",), "pattern": "x", "source": "s", "examples": ("x",)}
    catalogue = Catalogue(
        failures={"c": Failure(title="t", cause="c", remedy="r")}, signatures=(Signature(**(laid | part)),)
    )
    assert [f"failures.toml: signature `a`: {fault}"] == faults_of(catalogue)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("token hf_abcdefghijklmnop end", "token hf_… end"),
        ("https://u:pw@index.example/simple", "https://…@index.example/simple"),
        ("Authorization: Bearer abcdefghijk", "Authorization: Bearer …"),
        ("WANDB_API_KEY=0123456789abcdef", "WANDB_API_KEY=…"),
        ('"hf_token": "abcdefgh"', '"hf_token": "…"'),
        ("max_tokens: 4096 tokens", "max_tokens: 4096 tokens"),
        ("tokenizers==0.22.1", "tokenizers==0.22.1"),
        ("secretstorage==3.3.3", "secretstorage==3.3.3"),
    ],
)
def test_secrets_are_masked(text, expected):
    """Tokens, credentials in URLs and keys do not survive; versions and counts do."""
    assert expected == without_secrets(text)


def test_people_are_masked():
    """The home folder, the user and the host are not named."""
    text = "/home/ada/x [/home/bob] /home/bob/y ada@gpu7 at /root/z"
    assert "~/x [/home/…] /home/…/y USER@HOST at ~/z" == without_people(text, home="/home/ada", user="ada", host="gpu7")


def test_levels_of_lines():
    """The level is read from the beginning, and NCCL's WARN is an error."""
    assert ["error", "info", "warning", ""] == [
        read_line(text).level
        for text in (
            "a:1:1 [0] x.cc:1 NCCL WARN y",
            "a:1:1 [0] NCCL INFO y",
            "/x.py:1: UserWarning: y",
            "CUDA_ERROR_UNKNOWN",
        )
    ]
