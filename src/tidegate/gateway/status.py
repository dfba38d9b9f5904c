"""How do things stand right now? One JSON object, for people and for the live view."""

from __future__ import annotations

from math import inf
from typing import Any

from tidegate import __version__
from tidegate.policy.governor import Governor
from tidegate.policy.pool import Member, Pool


def status(governor: Governor, now: float, connections: int, not_ready: str | None) -> dict[str, Any]:
    """Everything that is held at this moment; all zero when nothing is in flight."""
    return {
        "version": __version__,
        "ready": not_ready is None,
        "not_ready_because": not_ready,
        "client_connections": connections,
        "in_flight": governor.live,
        "pools": {name: _pool(pool, now) for name, pool in governor.pools.items()},
        "limits": [
            {
                "scope": scope.name,
                "in_flight": scope.in_flight,
                "requests_available": _rounded(scope.requests.available(now)) if scope.requests else None,
                "requests_burst": scope.requests.burst if scope.requests else None,
                "tokens_available": _rounded(scope.tokens.available(now)) if scope.tokens else None,
                "tokens_burst": scope.tokens.burst if scope.tokens else None,
            }
            for scope in governor.admission.scopes()
        ],
    }


def _pool(pool: Pool, now: float) -> dict[str, Any]:
    queue = pool.queue
    return {
        "queued_requests": queue.requests,
        "queued_tokens": _rounded(queue.tokens),
        "queued_bytes": queue.body_bytes,
        "queued_by_class": {lane.name: lane.requests for lane in queue.lanes},
        "retrying": len(pool.retrying),
        "pressure_ratio": round(pool.pressure(), 4),
        "degradation": list(pool.ladder.names()),
        "drain_tokens_per_s": _rounded(pool.drain.tokens_per_s),
        "bytes_per_token": round(pool.predictor.bytes_per_token.value, 3),
        "context_tokens": pool.context_tokens,
        "replicas": {name: _replica(member, now) for name, member in pool.members.items()},
    }


def _replica(member: Member, now: float) -> dict[str, Any]:
    replica = member.replica
    return {
        "state": member.state(now),
        "available": member.available(now),
        "in_flight": replica.in_flight,
        "concurrency_limit": _finite(replica.concurrency_limit),
        "kv_held_tokens": _rounded(replica.kv_held),
        "kv_limit_tokens": _finite(replica.kv_limit),
        "prefill_held_tokens": _rounded(replica.prefill_held),
        "others": replica.others,
        "breaker": member.breaker.state_at(now).value,
        "weight": replica.weight,
    }


def _rounded(value: float) -> float:
    return round(value, 1) + 0.0  # never -0.0


def _finite(value: float) -> float | None:
    return None if value == inf else value
