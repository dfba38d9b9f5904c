"""Does a plan refuse what cannot be in a sentence, however it is written, and never with a traceback?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli import command_line

APP = command_line(["plan", "catalog"])
HAND = "plan --throughput 2000 --output 500 --tpot 20ms"
MODEL = "plan --model Llama-3.1-8B --gpu h100-sxm --input 2000 --output 500"
FILES = ("folder", ".yaml", ".json", ".csv")
"""What is wrong with one is told with its line, and it is for its author to know what was meant."""
BINARY = bytes(range(128, 256))


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given instead of what is wanted: nothing, a folder, noise, and other kinds of files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("empty.yaml", "empty.json", "empty.csv"):
        (tmp_path / name).touch()
    for name in ("noise.yaml", "noise.json", "noise.csv"):
        (tmp_path / name).write_bytes(BINARY)
    (tmp_path / "open.yaml").write_text("a: [1\n")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "there.yaml").write_text("kept: 1\n")
    (tmp_path / "header.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")


@pytest.mark.parametrize(
    "command, problem",
    [
        # beyond what anything is: these ended in an overflow, or not at all
        ("plan --throughput 1e300 --output 500 --tpot 20ms", "--throughput: '1e300' is too large"),
        ("plan --throughput 2000 --output 500 --tpot 99999999999999d", "is too long to plan with"),
        ("plan --throughput 1e12 --output 500 --tpot 3000d", "they are 259,200,000,000,"),
        (f"{HAND} --replicas 1000000000000", "--replicas: 1,000,000,000,000 are too many"),
        (f"{HAND} --qps 10 --spare 1000000000", "--spare: 1,000,000,000 are too many"),
        (f"{HAND} --qps 1e-300", "--qps: '1e-300' is too small"),
        (f"{HAND} --qps 1e400", "--qps: '1e400' is too large"),
        (f"{HAND} --users 10 --think 9999999999d", "--think: '9999999999d' is too long"),
        ("plan fits --kv-tokens 1e300 --tokens 1", "--kv-tokens: '1e300' is too large"),
        # zero, negative, empty, not a number
        (f"{HAND} --qps -0", "--qps: '-0' cannot be"),
        (f"{HAND} --qps=", "--qps: '' is not requests/s"),
        (f"{HAND} --peak-ratio nan --qps 1", "--peak-ratio: 'nan' is not a ratio"),
        (f"{HAND} --price -1 --qps 10", "--price: '-1' cannot be"),
        (f"{MODEL} --tp 0", "--tp: '0' cannot be"),
        (f"{MODEL} --tp 3", "--tp: 32 attention heads cannot be shared by 3 devices; give a divisor"),
        (f"{MODEL} --pp 1000", "--pp: 32 layers are too few for 1000 stages; give that many at most"),
        (f"{MODEL} --disaggregated --link 0GB/s", "--link: '0GB/s' is no rate of a link above 0"),
        (f"{MODEL} --offline 1e15 --within 1s", "--offline: '1e15' is too large"),
        (f"{MODEL} --utilisation 0", "--utilisation: '0' is no share above 0, up to 1; write"),
        (f"{MODEL} --memory 0%", "--memory: '0%' is no share above 0, up to 1; write"),
        (f"{MODEL} --prefix-hit -1", "--prefix-hit: '-1' is no share from 0 to 1; write"),
        ("plan fits --kv-tokens 4096 --tokens 9 --busy 0", "--busy: '0' is no share above 0"),
        (f"{MODEL} --quant fp7", "--quant: 'fp7' is no precision; give one of fp32,"),
        (f"{MODEL} --kv-quant fp7", "--kv-quant: 'fp7' is no precision of a KV cache; give one of bf16,"),
        (f"{MODEL} --engine x", "--engine: 'x' is no engine that is known; give one of vllm,"),
        (f"{MODEL} --tp 2 --ep 2", "--ep: meta-llama/Llama-3.1-8B has no experts to share out; leave"),
        ("plan --model Llama-3.1-8B --quant fp7 --input 5 --output 5", "--quant: 'fp7' is no precision"),
        (f"{HAND} --qps 1 --replicas 1 --spare 1", "of 1 replicas 1 cannot be spare"),
        (f"{MODEL} --qps 1 --prefix-hit 1", "a prefix hit ratio is 0 or more and below 1, not 1"),
        ("plan --model Llama-3.1-8B --gpu l4 --qps 1 --input 5 --output 1 --disaggregated", "not decoded"),
        (f"{MODEL} --tenants a#b --qps 1", "--tenants a#b: is not a name; use 1 to 128 ASCII"),
        (f"{MODEL} --tenants a=1,b=1e9 --qps 1", "--tenants b: 1,000,000,000 is too heavy; give weights"),
        (f"{MODEL} --qps 1 --emit=", "--emit: is empty; name a file"),
        (f"{MODEL} --qps 1 --html=", "--html: is empty; name a file"),
        (f"{MODEL} --offline 9 --within 1h --peak-ratio 2", "--peak-ratio and --offline: batch work has no"),
        (f"{MODEL} --tenants a=0 --qps 1", "--tenants a: '0' cannot be"),
        # files that are something else
        ("plan --throughput 9 --tpot 1s --trace folder", "trace folder: Is a directory"),
        ("plan --throughput 9 --tpot 1s --trace noise.csv", "noise.csv, line 1: byte 0 is not UTF-8"),
        ("plan --throughput 9 --tpot 1s --trace header.csv", "header.csv: has a header, but no rows"),
        ("plan --throughput 9 --tpot 1s --traffic empty.yaml", "empty.yaml: is empty"),
        ("plan --throughput 9 --tpot 1s --traffic open.yaml", "open.yaml:2:1: is not YAML"),
        ("plan --profile noise.yaml --input 5 --output 5", "profile noise.yaml: is not UTF-8"),
        ("plan --model list.json --gpu l4 --input 5 --output 5", "list.json"),
        ("plan --model empty.json --gpu l4 --input 5 --output 5", "empty.json: is not JSON"),
        (f"{MODEL} --catalog folder", "folder: cannot be read: Is a directory"),
        (f"{MODEL} --qps 1 --emit there.yaml", "--emit there.yaml: is there already; write --force"),
        (f"{MODEL} --qps 1 --html folder", "--html folder: is a folder; name a file"),
        ("plan compare folder there.yaml --qps 1 --input 5 --output 5", "folder: is a folder"),
        ("plan compare noise.yaml there.yaml --qps 1 --input 5 --output 5", "noise.yaml: is not UTF-8"),
        ("plan compare list.json list.json", "list.json: is no answer of a plan"),
        ("catalog show noise.json", "noise.json: is not UTF-8"),
        ("catalog list --catalog empty.yaml", "empty.yaml: is empty"),
        # contradictions
        (f"{HAND} --qps 10 --model Llama-3.1-8B", "--throughput and --model: each says what a replica does"),
        (f"{MODEL} --gpus 1 --replicas 2", "--replicas and --gpus: each says what there is"),
        (f"{MODEL} --qps 1 --schedule", "--schedule belongs to --trace or --traffic"),
        ("plan --model Llama-3.1-405B --gpu t4 --input 9 --output 9", "on each of 1 t4, which have 13.1 GiB"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_sentence(command: str, problem: str) -> None:
    """Exit code 2, on stderr what and where and nothing on stdout; with --json the same as data."""
    arguments = command.split()
    text, data = (CliRunner().invoke(APP, [*arguments, *more]) for more in ([], ["--json"]))

    assert (text.exit_code, text.stdout) == (2, ""), text.output
    assert problem in text.stderr, text.stderr
    assert data.exit_code == 2
    told = json.loads(data.stdout)["problems"]
    assert any(each["problem"].split(";")[0] in text.stderr for each in told)
    assert all(each["remedy"] for each in told if not any(file in each["problem"] for file in FILES))
