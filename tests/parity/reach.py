"""Does a tape show enough to prove anything? Every kind of command, and the races that DESIGN names.

A race shows in the calls themselves: which events met, and what the governor made of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidegate.core.messages import (
    Abort,
    Arrived,
    Cancelled,
    Dispatch,
    Evict,
    Failed,
    Finished,
    FirstToken,
    Probe,
    Progressed,
    Reject,
    Truncate,
)
from tidegate.core.reasons import Reason
from tidegate.policy.tape import Entry

COMMANDS = [kind.__name__ for kind in (Dispatch, Reject, Evict, Truncate, Abort, Probe)]

EXPIRY = "a deadline passes in the call that sends another request"
CANCELLED_BEFORE = "the client leaves while its first token is awaited"
CANCELLED_AFTER = "the client leaves right after its first token"
RETRIED = "a failure sends the next attempt at once"
RETRIED_LATER = "a failure waits for room, and then sends the next attempt"
RETRY_OVERTAKEN = "a request ends between a failure and its next attempt"
WOKEN = "a deadline passes by a wake-up"
RACES = [
    *(EXPIRY, CANCELLED_BEFORE, CANCELLED_AFTER, RETRIED, RETRIED_LATER, RETRY_OVERTAKEN, WOKEN),
]

_TIMEOUTS = frozenset({Reason.QUEUE_TIMEOUT, Reason.TTFT_TIMEOUT, Reason.TOTAL_TIMEOUT})


def lacking(calls: Iterable[Entry]) -> list[str]:
    """What of COMMANDS and RACES a tape does not show."""
    shown = shows(calls)
    return [name for name in COMMANDS + RACES if not shown[name]]


def shows(calls: Iterable[Entry]) -> Counter[str]:
    """How often a tape shows each of COMMANDS and RACES."""
    shown: Counter[str] = Counter()
    last: dict[int, object] = {}  # what came of each request last: an event, or Dispatch
    for call in calls:
        shown.update(type(command).__name__ for command in call.commands)
        sent = [each for each in call.commands if isinstance(each, Dispatch)]
        expired = [each for each in call.commands if isinstance(each, Evict) and each.reason in _TIMEOUTS]
        shown[EXPIRY] += bool(sent and expired)
        shown[WOKEN] += bool(call.event is None and expired)
        match call.event:
            case Cancelled(request_id):
                before = last.get(request_id)
                shown[CANCELLED_BEFORE] += isinstance(before, Dispatch)
                shown[CANCELLED_AFTER] += isinstance(before, FirstToken)
                shown[RETRY_OVERTAKEN] += isinstance(before, Failed)
            case Failed(request_id):
                shown[RETRIED] += any(each.request_id == request_id for each in sent)
            case _:
                pass
        shown[RETRY_OVERTAKEN] += sum(isinstance(last.get(each.request_id), Failed) for each in expired)
        if isinstance(call.event, FirstToken | Progressed | Finished | Failed | Cancelled):
            last[call.event.request_id] = call.event
        elif isinstance(call.event, Arrived):
            last[call.event.request.request_id] = call.event
        for each in sent:
            told_now = call.event is last.get(each.request_id)
            shown[RETRIED_LATER] += isinstance(last.get(each.request_id), Failed) and not told_now
            last[each.request_id] = each
    return shown
