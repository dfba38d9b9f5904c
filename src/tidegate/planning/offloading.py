"""What of the sessions of a planned replica is kept in memory of its host?"""

from __future__ import annotations

import msgspec

from tidegate.plan.answer import Answer
from tidegate.plan.ask import Ask, Replica
from tidegate.plan.keeping import fleet_for
from tidegate.plan.offload import host_of, offload, sessions_of
from tidegate.planning.wanted import Wanted


def offloaded(ask: Ask, answer: Answer, wanted: Wanted) -> Answer:
    """With what is kept, and of users the replicas for all of them, if that is wanted.

    A session is as long as the longest kind of request at its end. ConfigurationError where the host holds
    none, or its link is not known.
    """
    replica, memory = ask.replica, answer.memory
    if wanted.offload_bytes is None or not isinstance(replica, Replica) or replica.deployment is None:
        return answer
    assert memory is not None
    at_once = min(answer.concurrency_per_replica, memory.fit_at_end)
    each = sessions_of(replica, memory.end_tokens, resident=memory.fit_at_end, at_once=at_once)
    host = host_of(replica.deployment, wanted.offload_bytes, wanted.offload_link_bytes_per_s)
    kept, users = offload(each, host), ask.load.users
    fleet = None if users is None else fleet_for(users, each, kept, replica.deployment)
    return msgspec.structs.replace(answer, offload=kept, fleet=fleet)
