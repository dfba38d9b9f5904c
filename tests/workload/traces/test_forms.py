"""Every form of a trace is read by its own names, and what is wrong with one is said by line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import ConfigurationError
from tidegate.workload.traces.bailian import chained
from tidegate.workload.traces.formats import Format, detect, read_rows
from tidegate.workload.traces.rows import TraceRow

BURSTGPT_1 = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
5,GPT-4,1087,0,1087,API log
45.5,ChatGPT,417,276,693,Conversation log"""
BURSTGPT_2 = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,7f3,1.5,ChatGPT,472,18,490,Conversation log
5,,0.2,GPT-4,1087,0,1087,API log
45.5,7f3,3.5,ChatGPT,417,276,693,Conversation log"""
MOONCAKE = """\
{"timestamp": 27, "input_length": 1100, "output_length": 9, "hash_ids": [0, 1, 2]}
{"timestamp": 27, "input_length": 1024, "output_length": 3, "hash_ids": [0, 4]}
{"timestamp": 3052, "input_length": 3, "output_length": 0, "hash_ids": [5]}"""
BAILIAN = """\
{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.1, "input_length": 40, "output_length": 13, "turn": 1,
 "type": "text", "hash_ids": [7, 8, 9]}
{"chat_id": 160, "parent_chat_id": 55, "timestamp": 61.2, "input_length": 32, "output_length": 1, "turn": 2,
 "type": "text", "hash_ids": [8, 8]}
{"chat_id": 170, "parent_chat_id": 159, "timestamp": 70, "input_length": 64, "output_length": 2, "turn": 2,
 "type": "text", "hash_ids": [7, 8, 8, 7]}""".replace("\n ", " ")
BLOCKS = """\
arrival_time_ns,prompt_tokens,output_tokens,block_ids
46926808,33,531,0-1
347938951,50,769,0 2-3
347938951,15,1,"""
PAIRS = """\
prompt_tokens,output_tokens
74,918
0,1"""
SERVEGEN = """\
client,t_s,rate_rps,cv,pattern,param1,param2
0,600,0.5,1.2,Gamma,0.7,2.0"""
AGENTIC = '{"id": "a", "block_size": 64, "requests": []}'


def rows(text: str, form: Format | None = None) -> list[TraceRow]:
    """Rows of a trace that is given as text."""
    return list(read_rows(text.splitlines(), "mine", form))


def test_burstgpt_of_either_version() -> None:
    """Times count from the first row, failures have 0 output tokens; version 2 tells who spoke, how long."""
    first, second = rows(BURSTGPT_1), rows(BURSTGPT_2.replace("0.2", "unknown"))

    assert first == [
        TraceRow(0.0, 472, 18, "ChatGPT"),
        TraceRow(0.0, 1087, 0, "GPT-4"),
        TraceRow(40.5, 417, 276, "ChatGPT"),
    ]
    assert [(row.session, row.turn) for row in second] == [(0, 0), (None, 0), (0, 1)]
    assert [row.took_s for row in second] == [1.5, None, 3.5]
    assert [row.arrived_s for row in second] == [row.arrived_s for row in first]


def test_mooncake() -> None:
    """Milliseconds become seconds; the last block counts as recorded, but only full ones can be found."""
    found = rows(MOONCAKE)

    assert [(row.arrived_s, row.prompt_tokens, row.output_tokens) for row in found] == [
        (0.0, 1100, 9),
        (0.0, 1024, 3),
        (3.025, 3, 0),
    ]
    assert [row.prefix for row in found] == [(0, 1, 2), (0, 4), (5,)]
    assert [row.full_prefix for row in found] == [(0, 1), (0, 4), ()]


def test_bailian() -> None:
    """Conversations are followed by their parents; hashes of single blocks become chains."""
    found = rows(BAILIAN)

    assert [(row.arrived_s, row.turn) for row in found] == [
        (0.0, 0),
        (pytest.approx(0.1), 1),
        (pytest.approx(8.9), 1),
    ]
    assert found[0].session == found[2].session != found[1].session
    one, other, later = (row.prefix for row in found)
    assert later[:2] == one[:2]
    assert len({*one, *other, *later}) == 3 + 2 + 2
    assert found[0].full_prefix == one[:2]


def test_blocks_of_measured_runs() -> None:
    """Nanoseconds become seconds, ranges become ids."""
    found = rows(BLOCKS)

    assert [row.arrived_s for row in found] == [0.0, pytest.approx(0.301012143), pytest.approx(0.301012143)]
    assert [(row.prompt_tokens, row.output_tokens) for row in found] == [(33, 531), (50, 769), (15, 1)]
    assert [row.prefix for row in found] == [(0, 1), (0, 2, 3), ()]


def test_pairs_have_no_times() -> None:
    """Rows come in the order of the file, all at once."""
    assert rows(PAIRS) == [TraceRow(0.0, 74, 918), TraceRow(0.0, 0, 1)]


@pytest.mark.parametrize(
    "text, form",
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens", Format.AZURE),
        (BURSTGPT_1, Format.BURSTGPT),
        (BURSTGPT_2, Format.BURSTGPT),
        (MOONCAKE, Format.MOONCAKE),
        (BAILIAN, Format.BAILIAN),
        (BLOCKS, Format.BLOCKS),
        (PAIRS, Format.PAIRS),
        (SERVEGEN, Format.SERVEGEN),
        (AGENTIC, Format.AGENTIC),
    ],
)
def test_a_form_is_told_by_the_first_line(text: str, form: Format) -> None:
    """Whatever stands before it that is empty; and no line is lost by looking."""
    lines = ["\ufeff", "", *text.splitlines()]

    found, again = detect(iter(lines))

    assert found is form
    assert list(again) == lines


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "mine: is empty; give a trace of one of the forms azure, burstgpt"),
        ("hello", "mine, line 1: 'hello' begins no trace of a known form (azure, burstgpt"),
        ("\n\x1b[31m,x", "mine, line 2: '\N{REPLACEMENT CHARACTER}[31m,x' begins no trace"),
        ("TIMESTAMP,ContextTokens", "is near to the form azure, which has GeneratedTokens too"),
        ("Timestamp,Model,Request tokens", "near to the form burstgpt, which has Response tokens too"),
        (
            '{"timestamp": 1, "input_length": 2}',
            "near to the form mooncake, which has output_length, hash_ids too",
        ),
        ('{"a": 1}', "begins no trace of a known form"),
        ('{"a": ', "mine, line 1: Input data was truncated"),
        (SERVEGEN, "mine: servegen-rates is no log of requests; give one of azure, burstgpt, mooncake"),
        (AGENTIC, "mine: agentic-sessions is no log of requests"),
    ],
)
def test_what_has_no_known_form(text: str, said: str) -> None:
    """The nearest form is named and what it lacks, or all known ones; nothing reaches a terminal raw."""
    with pytest.raises(ConfigurationError) as error:
        rows(text)

    (problem,) = error.value.problems
    assert said in problem


@pytest.mark.parametrize(
    "text, old, new, said",
    [
        (BURSTGPT_1, "472", "-472", "line 2: Request tokens is '-472', not a whole number of tokens from 0"),
        (BURSTGPT_1, ",18,", ",NaN,", "line 2: Response tokens is 'NaN'"),
        (BURSTGPT_1, "45.5", "nan", "line 4: Timestamp is 'nan', not a number of seconds from 0"),
        (BURSTGPT_1, "45.5", "-1", "line 4: Timestamp is '-1'"),
        (BURSTGPT_1, "45.5", "4", "line 4: arrived 1 s before the line above it; sort the lines by time"),
        (BURSTGPT_1, "ChatGPT,417", "417", "line 4: 5 columns where the header has 6"),
        (MOONCAKE, "1100", "-1", "line 1: Expected `int` >= 0"),
        (MOONCAKE, "1100", "NaN", "line 1: JSON is malformed"),
        (MOONCAKE, "1100", '"1100"', "line 1: Expected `int`, got `str`"),
        (MOONCAKE, "[0, 4]", "[0, 4, 5]", "line 2: 3 block ids for a prompt of 1024 tokens in blocks of 512"),
        (MOONCAKE, "3052", "26", "line 3: arrived 0.001 s before the line above it"),
        (MOONCAKE, ', "hash_ids": [5]', "", "line 3: Object missing required field `hash_ids`"),
        (MOONCAKE, ", 4]}", ", 4]", "line 2: Input data was truncated"),
        (BAILIAN, '"chat_id": 170', '"chat_id": 159', "line 3: chat_id 159 was there before"),
        (BAILIAN, "61.2", "60", "line 2: arrived 1.1 s before the line above it"),
        (BAILIAN, "[8, 8]", "[8]", "line 2: 1 block ids for a prompt of 32 tokens in blocks of 16"),
        (BLOCKS, "0-1", "1-0", "line 2: '1-0' is a range that ends before it begins"),
        (BLOCKS, "0-1", "0-x", "line 2: '0-x' is no block id and no range of them, as in 1-244"),
        (BLOCKS, "0-1", "0-9", "line 2: 10 block ids for a prompt of 33 tokens in blocks of 16"),
        (BLOCKS, "46926808", "1e6", "line 2: arrival_time_ns is '1e6', not a whole number"),
        (PAIRS, "918", "", "line 2: output_tokens is ''"),
        (PAIRS, "\n74,918\n0,1", "", "mine: has a header, but no rows"),
    ],
)
def test_a_trace_that_is_not_sound(text: str, old: str, new: str, said: str) -> None:
    """What is wrong is named, with its line; nothing is skipped or repaired."""
    assert text.count(old) >= 1
    with pytest.raises(ConfigurationError) as error:
        rows(text.replace(old, new, 1))

    (problem,) = error.value.problems
    assert problem.startswith("mine")
    assert said in problem


def test_a_form_that_is_insisted_on() -> None:
    """It is not found out, and so its own message says what is missing."""
    with pytest.raises(ConfigurationError, match="line 1: no column arrival_time_ns, block_ids among"):
        rows(PAIRS, Format.BLOCKS)


CHAINS = st.lists(st.integers(0, 3), max_size=6)


@given(CHAINS, CHAINS)
def test_chains_are_equal_as_far_as_their_blocks_are(one: list[int], other: list[int]) -> None:
    """Up to the first block that differs, and no further: not where the same blocks come again later."""
    common = next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )

    first, second = chained(one), chained(other)

    assert first[:common] == second[:common]
    assert not set(first[common:]) & set(second[common:])
    assert len(set(first)) == len(one)
