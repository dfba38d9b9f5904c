"""How is a plan asked for on the command line?

Every value is taken as text and read by `asking`, so that what is wrong with it is told in a sentence, and
as data with `--json`. What a way of asking needs is imported when it is asked in that way, so that the first
line comes at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidegate.planning.compare.commands import compare
from tidegate.planning.fits_command import fits
from tidegate.planning.telling import told

plan_app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


def _load(metavar: str, help_: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_, rich_help_panel="Load")


def _replica(metavar: str, help_: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_, rich_help_panel="Replica")


def _terms(metavar: str, help_: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_, rich_help_panel="Terms")


def _output(metavar: str, help_: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_, rich_help_panel="Output")


def _configuration(metavar: str, help_: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_, rich_help_panel="Configuration")


Text = str | None

plan_app.command("fits")(fits)
plan_app.command("compare")(compare)


@plan_app.callback(invoke_without_command=True)
def plan(
    context: typer.Context,
    qps: Annotated[Text, _load("RATE", "Requests per second, mean.")] = None,
    users: Annotated[Text, _load("COUNT", "So many who ask, wait, think and ask again.")] = None,
    think: Annotated[Text, _load("TIME", "How long users think.")] = None,
    trace: Annotated[Text, _load("TRACE", "A trace file, azure-conv or azure-code.")] = None,
    traffic: Annotated[Text, _load("FILE", "A traffic file: tenants, classes, days.")] = None,
    input_: Annotated[Text, _load("TOKENS", "Prompt length.", "--input", "--prompt-tokens")] = None,
    output: Annotated[Text, _load("TOKENS", "Answer length.", "--output", "--output-tokens")] = None,
    prefix_hit: Annotated[Text, _load("RATIO", "Of prompt tokens, from the prefix cache.")] = None,
    peak_ratio: Annotated[Text, _load("RATIO", "The busiest minute over the mean one; else 1.")] = None,
    offline: Annotated[Text, _load("COUNT", "Batch work: so many requests, no budgets.")] = None,
    within: Annotated[Text, _load("TIME", "By when batch work is done.")] = None,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Replicas for each hour too.", rich_help_panel="Load")
    ] = False,
    throughput: Annotated[Text, _replica("TOKENS/S", "Output of one replica at full batch, by hand.")] = None,
    profile: Annotated[Text, _replica("PROFILE", "A profile by name, or the file of one.")] = None,
    model: Annotated[Text, _replica("MODEL", "Of the catalogue, or a config.json.")] = None,
    gpu: Annotated[
        list[str] | None,
        _replica("GPU", "As h100-sxm; several, any or none: the cheapest is found."),
    ] = None,
    tp: Annotated[Text, _replica("COUNT", "Accelerators that share each layer; or any.")] = None,
    pp: Annotated[Text, _replica("COUNT", "Stages of layers.")] = None,
    ep: Annotated[Text, _replica("COUNT", "Groups that experts are shared out to.")] = None,
    dp: Annotated[Text, _replica("COUNT", "Copies of attention in a replica.")] = None,
    quant: Annotated[Text, _replica("PRECISION", "Of the weights; else as published.")] = None,
    kv_quant: Annotated[Text, _replica("PRECISION", "Of the KV cache; else bf16.")] = None,
    engine: Annotated[Text, _replica("SOFTWARE", "vllm, sglang or trtllm; else vllm.")] = None,
    draft: Annotated[
        Text, _replica("DRAFT", "Guesses ahead: ngram, eagle, mtp, medusa, a head's size, or a model.")
    ] = None,
    draft_tokens: Annotated[Text, _replica("COUNT", "Guessed in a step; else 3.")] = None,
    acceptance: Annotated[
        Text, _replica("RATIO", "Chance of a guess, if those before it were right.")
    ] = None,
    max_num_seqs: Annotated[Text, _replica("COUNT", "Sequences in a batch.")] = None,
    max_batched_tokens: Annotated[Text, _replica("TOKENS", "Of a step.")] = None,
    max_model_len: Annotated[Text, _replica("TOKENS", "The longest sequence that is taken.")] = None,
    disaggregated: Annotated[
        bool,
        typer.Option("--disaggregated", help="Prompts on replicas of their own.", rich_help_panel="Replica"),
    ] = False,
    prefill_gpu: Annotated[Text, _replica("GPU", "Of those for prompts; else --gpu.")] = None,
    prefill_tp: Annotated[Text, _replica("COUNT", "Of those for prompts; else --tp.")] = None,
    link: Annotated[Text, _replica("RATE", "Between them, as 50GB/s or 400Gb; else the catalogue's.")] = None,
    offload: Annotated[Text, _replica("GIB", "Host memory for sessions between turns.")] = None,
    offload_link: Annotated[Text, _replica("RATE", "From there, in sum; else the catalogue's.")] = None,
    memory: Annotated[Text, _replica("RATIO", "Of the usable memory; else 90%.")] = None,
    reserve: Annotated[Text, _replica("GIB", "Per accelerator, beside weights and KV cache.")] = None,
    catalog: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Adds to the catalogue.", rich_help_panel="Replica"),
    ] = None,
    ttft: Annotated[Text, _terms("TIME", "Budget to the first token.")] = None,
    tpot: Annotated[Text, _terms("TIME", "Budget per token after it.")] = None,
    e2e: Annotated[Text, _terms("TIME", "Budget to the end.")] = None,
    percentile: Annotated[str, _terms("P", "Of requests, that hold the budgets.")] = "95",
    utilisation: Annotated[Text, _terms("RATIO", "At most; else 70%, and 95% offline.")] = None,
    spare: Annotated[Text, _terms("COUNT", "Replicas that may be lost; else 1, if there are two.")] = None,
    replicas: Annotated[Text, _terms("COUNT", "There are so many: which rate do they carry?")] = None,
    gpus: Annotated[Text, _terms("COUNT", "The same in accelerators.")] = None,
    price: Annotated[Text, _terms("USD", "Of one accelerator, per hour.")] = None,
    tenants: Annotated[Text, _configuration("NAMES", "Who shares it, by weight: acme=2,lab=1.")] = None,
    emit: Annotated[Text, _configuration("FILE", "Write it, for serve and simulate.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Simulate it on the load.", rich_help_panel="Configuration")
    ] = False,
    curve: Annotated[
        bool,
        typer.Option("--curve", help="Latency from light load to full, its knee.", rich_help_panel="Output"),
    ] = False,
    html: Annotated[Text, _output("FILE", "Write a report, with plots.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over what is there.", rich_help_panel="Output")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")] = False,
) -> None:
    """From a load and budgets to replicas: how many, how full, what binds, what they cost.

    \b
    By two figures of a replica:
      tidegate plan --throughput 2000 --output 500 --tpot 20ms --qps 10
    By model and hardware; without --gpu the cheapest is found:
      tidegate plan --model Llama-3.1-70B --gpu h100-sxm --tp 4 --quant fp8 \\
        --qps 8 --input 2000 --output 500 --ttft 1s --tpot 40ms
    By a measurement, for a log of requests:
      tidegate plan --profile h100-8b --trace azure-conv --ttft 1s --tpot 40ms
    From what there is, the highest rate:
      tidegate plan --profile h100-8b --replicas 4 --input 2000 --output 500 \\
        --ttft 1s --tpot 20ms
    """
    if context.invoked_subcommand is not None:
        return
    with told(json=json):
        from tidegate.planning.asking import question_of
        from tidegate.planning.options import Options
        from tidegate.planning.searching import searched_for
        from tidegate.planning.session import show
        from tidegate.planning.wanted import wanted_of

        written = {name.removesuffix("_"): value for name, value in context.params.items() if name != "json"}
        written["catalog"] = tuple(catalog or ())
        written["gpu"] = ",".join(gpu) if gpu else None
        options, searched = searched_for(Options(**written), json=json)
        show(question_of(options), wanted_of(options), searched, json=json)
