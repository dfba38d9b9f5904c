"""How is it asked how many requests fit at once? `tidegate plan fits`, from the command line."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.core.errors import ConfigurationError
from tidegate.planning.numbers import count_of, duration_of, number_of, rate_of, ratio_of
from tidegate.planning.telling import told

if TYPE_CHECKING:
    from tidegate.plan.fits import Seen
    from tidegate.plan.offload import Host

Text = str | None
GIB = 2**30


def _seen(metavar: str, help_: str) -> Any:
    return typer.Option(metavar=metavar, help=help_, rich_help_panel="Replica, as it was seen")


def _built(metavar: str, help_: str) -> Any:
    return typer.Option(metavar=metavar, help=help_, rich_help_panel="Replica, by model and hardware")


def _kept(metavar: str, help_: str) -> Any:
    return typer.Option(metavar=metavar, help=help_, rich_help_panel="Sessions between turns")


def fits(
    context: typer.Context,
    tokens: Annotated[str, typer.Option(metavar="TOKENS", help="Of one request at its end.")],
    reserved: Annotated[
        Text, typer.Option(metavar="TOKENS", help="The longest that one may become, if that is reserved.")
    ] = None,
    kv_tokens: Annotated[Text, _seen("TOKENS", "That the KV cache holds.")] = None,
    block: Annotated[Text, _seen("TOKENS", "Of a block of KV cache; else 16.")] = None,
    busy: Annotated[Text, _seen("RATIO", "Of the compute.")] = None,
    at: Annotated[Text, _seen("COUNT", "With so many requests; else 1.")] = None,
    token_bytes: Annotated[Text, _seen("BYTES", "Of KV cache, of one token.")] = None,
    prefill: Annotated[Text, _seen("TOKENS/S", "Of prompts, when it does nothing else.")] = None,
    step: Annotated[Text, _seen("TIME", "Of a decode step with all that fit.")] = None,
    model: Annotated[Text, _built("MODEL", "Of the catalogue, or a config.json.")] = None,
    gpu: Annotated[Text, _built("GPU", "As h100-sxm.")] = None,
    tp: Annotated[Text, _built("COUNT", "Accelerators that share each layer.")] = None,
    pp: Annotated[Text, _built("COUNT", "Stages of layers.")] = None,
    ep: Annotated[Text, _built("COUNT", "Groups that experts are shared out to.")] = None,
    dp: Annotated[Text, _built("COUNT", "Copies of attention in a replica.")] = None,
    quant: Annotated[Text, _built("PRECISION", "Of the weights; else as published.")] = None,
    kv_quant: Annotated[Text, _built("PRECISION", "Of the KV cache; else bf16.")] = None,
    engine: Annotated[Text, _built("SOFTWARE", "vllm, sglang or trtllm; else vllm.")] = None,
    max_num_seqs: Annotated[Text, _built("COUNT", "Sequences in a batch.")] = None,
    memory: Annotated[Text, _built("RATIO", "Of the usable memory; else 90%.")] = None,
    reserve: Annotated[Text, _built("GIB", "Per accelerator, beside weights and KV cache.")] = None,
    catalog: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Adds to the catalogue.", rich_help_panel="Replica, by model and hardware"
        ),
    ] = None,
    sessions: Annotated[Text, _kept("COUNT", "How many replicas do so many take?")] = None,
    offload: Annotated[Text, _kept("GIB", "Host memory of a replica for KV caches between turns.")] = None,
    offload_link: Annotated[
        Text, _kept("RATE", "From there to the replica in sum, as 50GB/s; else the catalogue's.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How many requests fit into a replica at once: what binds, its KV cache or its compute?

    As it was seen: tidegate plan fits --kv-tokens 163840 --tokens 600 --reserved 8192 --busy 30% --at 20

    By hardware: tidegate plan fits --model Llama-3.1-70B --gpu h100-sxm --tp 8 --tokens 32768 --sessions 256
    --offload 1000
    """
    with told(json=json):
        from tidegate.core.text import as_json
        from tidegate.plan.fits import fits as found

        written = context.params
        seen = _seen_of(written)
        many = count_of("--sessions", sessions, "sessions") if sessions is not None else None
        answer = found(seen, _host_of(written, seen), many)
    if json:
        typer.echo(as_json(answer))
        return
    typer.echo(f"{answer.concurrency:,} requests fit at once.")
    for part in (answer, answer.offload, answer.fleet):
        if part is not None:
            typer.echo(part.because)


SEEN = ("kv_tokens", "block", "busy", "at", "token_bytes", "prefill", "step")
BUILT = ("model", "gpu", "tp", "pp", "ep", "dp", "quant", "kv_quant", "engine", "max_num_seqs", "memory")
BUILT_TOO = (*BUILT, "reserve", "catalog")


def _seen_of(written: dict[str, Any]) -> Seen:
    """The replica. ConfigurationError for one that is told in both ways, or in neither."""
    by_hand, by_model = _said(written, SEEN), _said(written, BUILT_TOO)
    if by_hand and by_model:
        problem = f"{by_hand[0]} and {by_model[0]}: a replica is told by what was seen, or by its model"
        raise ConfigurationError([f"{problem}; leave one of them out"])
    tokens = count_of("--tokens", written["tokens"], "tokens")
    reserved = written["reserved"]
    reserved = count_of("--reserved", reserved, "tokens") if reserved is not None else None
    if by_model:
        from tidegate.plan.fits import seen_of

        return seen_of(_replica_of(written), tokens, reserved)
    from tidegate.plan.fits import Seen

    if written["kv_tokens"] is None:
        problem = "how much does the KV cache hold; write --kv-tokens TOKENS, or --model and --gpu"
        raise ConfigurationError([problem])
    optional = {
        "busy_ratio": _read(written, "busy", partial(ratio_of, above=True)),
        "token_bytes": _read(written, "token_bytes", _positive("bytes")),
        "prompt_tokens_per_s": _read(written, "prefill", _positive("tokens/s")),
        "step_s": _read(written, "step", duration_of),
    }
    return Seen(
        kv_tokens=count_of("--kv-tokens", written["kv_tokens"], "tokens"),
        request_tokens=tokens,
        reserved_tokens=reserved,
        block_tokens=count_of("--block", written["block"] or "16", "tokens"),
        busy_at=count_of("--at", written["at"] or "1", "requests"),
        **optional,
    )


def _replica_of(written: dict[str, Any]) -> Any:
    from tidegate.planning.options import Options
    from tidegate.planning.replicas import replica_by_model

    for name, example in (("model", "Llama-3.1-70B"), ("gpu", "h100-sxm")):
        if written[name] is None:
            raise ConfigurationError([f"--{name}: which; write --{name} NAME, as in --{name} {example}"])
    given = {name: written[name] for name in (*BUILT, "reserve")}
    return replica_by_model(Options(**given, catalog=tuple(written["catalog"] or ())))


def _host_of(written: dict[str, Any], seen: Seen) -> Host | None:
    """Where sessions wait. ConfigurationError where the link to it is not known."""
    link = _read(written, "offload_link", rate_of)
    if written["offload"] is None:
        if link is not None:
            raise ConfigurationError(["--offload-link belongs to --offload; write that too, or leave it out"])
        return None
    from tidegate.plan.offload import Host, host_of

    memory = GIB * number_of("--offload", written["offload"], "GiB")
    if seen.replica is not None and seen.replica.deployment is not None:
        return host_of(seen.replica.deployment, memory, link)
    if link is None:
        problem = "--offload: what carries it back; write --offload-link RATE, as in --offload-link 50GB/s"
        raise ConfigurationError([problem])
    return Host(memory_bytes=memory, link_bytes_per_s=link, link_source="as asked")


def _said(written: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in names if written[name] not in (None, [], ())]


def _read(written: dict[str, Any], name: str, read: Any) -> Any:
    text = written[name]
    return None if text is None else read(f"--{name.replace('_', '-')}", text)


def _positive(unit: str) -> Any:
    return lambda option, text: number_of(option, text, unit)
