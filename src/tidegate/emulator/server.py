"""How do many simulated replicas run in one process?

Each has its own port, engine, counters and faults; they share an event loop. Usable inside a test or a
demo as well as from the command line.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs

import msgspec

from tidegate.core.errors import CallerError
from tidegate.emulator.answer import JSON
from tidegate.emulator.faults import Fault
from tidegate.emulator.jobs import Refusal, bad_request
from tidegate.emulator.replica_server import Options, ReplicaServer, refuse
from tidegate.emulator.voices import encoded
from tidegate.net.exchange import Exchange
from tidegate.sim.profiles import Profile


class Emulator:
    """A fleet of replicas that need no GPU."""

    def __init__(self) -> None:
        self._replicas: list[ReplicaServer] = []
        self._options = Options()

    @property
    def ports(self) -> list[int]:
        """The replicas' ports, in the order of their start."""
        return [replica.port for replica in self._replicas]

    @property
    def urls(self) -> list[str]:
        """Where the replicas are reached."""
        return [f"http://{self._options.host}:{port}" for port in self.ports]

    async def start(self, ports: int | list[int], profile: Profile, options: Options | None = None) -> None:
        """Serve on these ports; a mere number means so many replicas on free ports.

        Raises OSError, and serves nothing, if an address cannot be had.
        """
        self._options = options or Options()
        try:
            for port in [0] * ports if isinstance(ports, int) else ports:
                replica = ReplicaServer(profile, self._options, self._control)
                await replica.listen(port)
                self._replicas.append(replica)
        except OSError:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop all replicas; answers under way break off."""
        while self._replicas:
            await self._replicas.pop().close()

    def replica(self, port: int) -> ReplicaServer:
        """The one on `port`, or CallerError."""
        for replica in self._replicas:
            if replica.port == port:
                return replica
        raise CallerError(f"no replica on port {port}")

    def inject(self, fault: Fault) -> None:
        """Let `fault` strike the replica on `fault.port`, or all of them."""
        for replica in self._replicas:
            if fault.port in (None, replica.port):
                replica.inject(fault)

    def clear(self) -> None:
        """End all faults."""
        for replica in self._replicas:
            replica.clear()

    def _control(self, asked: ReplicaServer, exchange: Exchange) -> None:
        """POST a fault, or DELETE the one that is there; `port` names another replica than the one asked."""
        if exchange.method == "DELETE":
            named = parse_qs(exchange.query).get("port", [str(asked.port)])[0]
            target = self._found(int(named) if re.fullmatch("[0-9]{1,5}", named) else 0, exchange)
            if target is not None:
                target.clear()
                exchange.respond(200, JSON, encoded({"port": target.port, "fault": None}))
            return
        try:
            fault = msgspec.json.decode(exchange.body, type=Fault)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            refuse(exchange, bad_request(str(error)))
            return
        problem = fault.problem()
        if problem is not None:
            refuse(exchange, bad_request(problem))
            return
        target = self._found(asked.port if fault.port is None else fault.port, exchange)
        if target is not None:
            exchange.respond(200, JSON, encoded({"port": target.port, "fault": fault}))
            target.inject(fault)

    def _found(self, port: int, exchange: Exchange) -> ReplicaServer | None:
        for replica in self._replicas:
            if replica.port == port:
                return replica
        refuse(exchange, Refusal(404, "NotFoundError", f"no replica on port {port}", "port"))
        return None
