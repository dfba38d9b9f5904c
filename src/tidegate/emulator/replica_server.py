"""What does one replica's port answer?

The paths and the errors are vLLM's; what is computed is computed by the port's own `Engine`. A fault
injected here strikes this replica alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from tidegate.core.reasons import ANSWERS, Reason
from tidegate.emulator import words
from tidegate.emulator.answer import JSON, Answer
from tidegate.emulator.apis import APIS, Api
from tidegate.emulator.engine import Choice, Engine
from tidegate.emulator.faults import Fault, Kind
from tidegate.emulator.jobs import Job, Refusal, TokenizeBody, bad_request, chat_prompt
from tidegate.emulator.metrics import page
from tidegate.emulator.voices import Answered, encoded, openai_error
from tidegate.net.exchange import Exchange
from tidegate.net.headers import Headers
from tidegate.net.server import Server
from tidegate.sim.profiles import Profile
from tidegate.sim.sequence import Sequence

TEXT: Headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
VERSION = "0.32.0+emulated"
"""The engine version whose shapes are followed."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all replicas of an emulator have in common."""

    model: str = "tidegate-demo"
    chunk_tokens: int = 1
    """Tokens in an event of a stream; its first holds one, its last the rest."""
    max_waiting: int | None = None
    """Sequences that may wait for a seat; requests beyond are refused with 503."""
    faults: bool = False
    """Whether faults may be injected over HTTP."""
    host: str = "127.0.0.1"


Control = Callable[["ReplicaServer", Exchange], None]
"""Answers a request about faults that came in at that replica."""


class ReplicaServer:
    """One replica, on one port."""

    def __init__(self, profile: Profile, options: Options, control: Control) -> None:
        self.port = 0
        self.options = options
        self._profile = profile
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._engine = Engine(profile, self._loop)
        self._server = Server(self)
        self._answers: dict[Answer, None] = {}  # under way; a dict keeps their order
        self._answered = 0
        self._sequences = 0
        self._fault: Fault | None = None
        self._fault_requests = 0
        self._clearing: asyncio.TimerHandle | None = None
        self._transition: asyncio.Task[None] | None = None

    @property
    def engine(self) -> Engine:
        """The one that computes now; a crash replaces it."""
        return self._engine

    async def listen(self, port: int) -> None:
        """Begin to serve; port 0 takes a free one."""
        await self._server.listen(self.options.host, port)
        self.port = self._server.port

    async def close(self) -> None:
        """Serve no more, and break what is under way."""
        if self._clearing is not None:
            self._clearing.cancel()
        if self._transition is not None:
            await self._transition
        await self._server.close()
        self._engine.close()

    # -- requests ------------------------------------------------------------------------------------

    def on_head(self, exchange: Exchange) -> None:
        """Nothing can be said before the body is there."""

    def on_request(self, exchange: Exchange) -> None:
        """Answer, at once or step by step."""
        api = APIS.get(exchange.path)
        if api is None:
            self._inform(exchange)
        elif exchange.method != "POST":
            refuse(exchange, Refusal(405, "MethodNotAllowedError", "Method Not Allowed"))
        else:
            self._compute(exchange, api)

    def refusal(self, reason: Reason, detail: str) -> tuple[int, Headers, bytes]:
        """What HTTP itself does not allow."""
        status = ANSWERS[reason].status
        return status, JSON, openai_error(Refusal(status, "BadRequestError", detail))

    def _compute(self, exchange: Exchange, api: Api) -> None:
        try:
            body = api.read(exchange.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            refuse(exchange, bad_request(str(error)), api)
            return
        job = api.job(body)
        refusal = job if isinstance(job, Refusal) else self._objection(job)
        if refusal is not None or isinstance(job, Refusal):
            assert refusal is not None
            refuse(exchange, refusal, api)
            return
        about = Answered(
            self._answer_id(exchange, api),
            self.options.model,
            int(time.time()),
            sum(prompt.tokens for prompt in job.prompts),
            job,
        )
        choices = self._choices(job)
        answer = Answer(
            exchange,
            self._engine,
            api.voice(about, body, choices),
            choices,
            stream=job.stream,
            chunk_tokens=self.options.chunk_tokens,
            on_end=self._ended,
        )
        self._answers[answer] = None
        answer.begin(self._fault_for_next())

    def _objection(self, job: Job) -> Refusal | None:
        """Why the replica does not take a job, if so."""
        if job.model not in (None, "", self.options.model):
            return Refusal(404, "NotFoundError", f"The model `{job.model}` does not exist.", "model")
        limit = self._profile.replica.sequence_tokens
        least = (job.max_tokens or 1) if job.generates else 0
        for prompt in job.prompts:
            if prompt.tokens + least > limit:
                return bad_request(
                    f"This model's maximum context length is {limit} tokens; the prompt has "
                    f"{prompt.tokens} and {least} more are asked for.",
                    "input_tokens",
                )
        if self.options.max_waiting is not None:
            replica = self._engine.replica
            places = self.options.max_waiting + self._profile.replica.max_num_seqs - replica.running
            if replica.waiting + len(job.prompts) * job.choices > places:
                return Refusal(503, "ServiceUnavailableError", "The request queue is full.")
        return None

    def _choices(self, job: Job) -> list[Choice]:
        limit = self._profile.replica.sequence_tokens
        arrived_at = self._loop.time()
        choices: list[Choice] = []
        for prompt in job.prompts:
            for number in range(job.choices):
                seed = words.mixed(prompt.seed, number) if number else prompt.seed
                tokens, cut = 0, False
                if job.generates:
                    tokens, cut = job.output_tokens(seed, limit - prompt.tokens)
                self._sequences += 1
                sequence = Sequence(self._sequences, prompt.tokens, tokens)
                choices.append(Choice(len(choices), seed, sequence, cut, arrived_at))
        return choices

    def _answer_id(self, exchange: Exchange, api: Api) -> str:
        """The client's own request id, as in vLLM, else a number."""
        own = exchange.header(b"x-request-id") or b""
        if 0 < len(own) <= 64 and own.replace(b"-", b"").isalnum():
            return api.id_prefix + own.decode()
        self._answered += 1
        return f"{api.id_prefix}{self.port:05}{self._answered:011}"

    def _ended(self, answer: Answer) -> None:
        self._answers.pop(answer, None)

    # -- information ---------------------------------------------------------------------------------

    def _inform(self, exchange: Exchange) -> None:
        match exchange.method, exchange.path:
            case "GET", "/health" | "/ping":
                exchange.respond(200, [], b"")
            case "GET", "/metrics":
                engine = self._engine
                exchange.respond(200, TEXT, page(self.options.model, engine.replica, engine.meter))
            case "GET", "/version":
                exchange.respond(200, JSON, encoded({"version": VERSION}))
            case "GET", "/v1/models":
                exchange.respond(200, JSON, encoded({"object": "list", "data": [self._model()]}))
            case "POST", "/tokenize":
                self._tokenize(exchange)
            case "POST" | "DELETE", "/emulator/fault" if self.options.faults:
                self._control(self, exchange)
            case _:
                refuse(exchange, Refusal(404, "NotFoundError", "Not Found"))

    def _model(self) -> dict[str, Any]:
        return {
            "id": self.options.model,
            "object": "model",
            "created": 0,
            "owned_by": "tidegate",
            "root": self.options.model,
            "parent": None,
            "max_model_len": self._profile.replica.context_tokens,
            "permission": [],
        }

    def _tokenize(self, exchange: Exchange) -> None:
        try:
            body = msgspec.json.decode(exchange.body, type=TokenizeBody)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            refuse(exchange, bad_request(str(error)))
            return
        if body.messages is None:
            tokens = words.token_ids((body.prompt or "").encode())
        else:
            tokens = list(range(chat_prompt(body.messages, None).tokens))
        answer = {
            "count": len(tokens),
            "max_model_len": self._profile.replica.context_tokens,
            "tokens": tokens,
        }
        exchange.respond(200, JSON, encoded({**answer, "token_strs": None}))

    # -- faults --------------------------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """Let `fault` strike, in place of any that is there."""
        self.clear()
        self._fault = fault
        self._fault_requests = fault.requests or 0
        if fault.of_replica:
            self._strike(fault)
        elif fault.requests is None:
            for answer in tuple(self._answers):
                answer.suffer(fault)
        if fault.seconds is not None:
            self._clearing = self._loop.call_later(fault.seconds, self.clear)

    def clear(self) -> None:
        """End the fault that is there, if any; what it held up goes on."""
        fault, self._fault = self._fault, None
        if self._clearing is not None:
            self._clearing.cancel()
            self._clearing = None
        if fault is None:
            return
        self._engine.slow(1.0)
        self._engine.go_on()
        for answer in tuple(self._answers):
            answer.suffer(None)
        if fault.of_replica and fault.kind is Kind.CRASH:
            self._change(self._come_up)

    def _strike(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.STALL:
                self._engine.stall()
            case Kind.SLOW:
                self._engine.slow(fault.factor)
            case _:
                self._change(self._go_down)

    def _fault_for_next(self) -> Fault | None:
        """The fault that a new request meets."""
        fault = self._fault
        if fault is None or fault.of_replica:
            return None
        if fault.requests is not None:
            if not self._fault_requests:
                return None
            self._fault_requests -= 1
        return fault

    def _change(self, change: Callable[[], Coroutine[None, None, None]]) -> None:
        """Go down or come up, once the change before is done."""
        self._transition = self._loop.create_task(self._after(self._transition, change))

    async def _after(
        self, before: asyncio.Task[None] | None, change: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        if before is not None:
            await before
        await change()

    async def _go_down(self) -> None:
        await self._server.close()
        self._engine.close()
        self._answers.clear()

    async def _come_up(self) -> None:
        self._engine = Engine(self._profile, self._loop)
        self._server = Server(self)
        await self._server.listen(self.options.host, self.port)


def refuse(exchange: Exchange, refusal: Refusal, api: Api | None = None) -> None:
    """Say no, in the form of the API that was asked."""
    body = openai_error(refusal) if api is None else api.error(refusal)
    exchange.respond(refusal.status, JSON, body)
