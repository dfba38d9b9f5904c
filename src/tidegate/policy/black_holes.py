"""Black holes: does a replica answer 404 where its peers answer 2xx?

It serves another model, or not that API. It fails at once, so it looks least loaded and draws all that comes.
A 404 may as well be the request's own fault (`previous_response_id` of an answer that nobody keeps), and who
asks for such things on purpose must not close a gate for others. So a replica is judged only if

- it has answered `IN_A_ROW` requests with 404 and none with 2xx in between,
- no other replica has answered 404 meanwhile: else the requests are to blame,
- others have answered 2xx meanwhile, and `ANSWERS` in all fit that picture,
- more than one tenant was answered 404, unless that one tenant is also all that others were answering.

Only requests that generate count, whose model the gateway knows; which further routes an engine has is its
own affair. Of two black holes in one pool each hides the other until one of them has a row to itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

IN_A_ROW: Final = 5
"""As of failures: Envoy's outlier detection, consecutive 5xx."""
ANSWERS: Final = 15
"""If half of all requests were nonsense, so many would fit by chance once in 2^15."""


@dataclass(slots=True)
class BlackHoles:
    """The replica of a pool that said 404 last, and what has been seen since."""

    suspect: int = 0  # replicas are numbers above 0; 0: nobody
    _row: int = 0
    _tenant: str = ""  # whose request began the row
    _several: bool = False  # tenants in the row
    _answered: int = 0  # with 2xx, by its peers
    _others_answered: bool = False  # tenants other than `_tenant`

    def on_answered(self, replica: int, tenant: str) -> None:
        """A replica answered 2xx."""
        if replica == self.suspect:
            self.suspect = 0
        elif self.suspect:
            self._answered += 1
            self._others_answered = self._others_answered or tenant != self._tenant

    def on_not_found(self, replica: int, tenant: str) -> bool:
        """A replica answered 404. True if it is a black hole; again only once a peer has answered since."""
        if replica == self.suspect:
            self._row += 1
            self._several = self._several or tenant != self._tenant
        else:
            self._suspect(replica, 1, tenant)
        enough = self._row >= IN_A_ROW and self._answered > 0 and self._row + self._answered >= ANSWERS
        if not enough or (self._others_answered and not self._several):
            return False
        self._suspect(replica, max(self._row, ANSWERS), tenant)
        return True

    def _suspect(self, replica: int, row: int, tenant: str) -> None:
        self.suspect = replica
        self._row = row
        self._tenant = tenant
        self._answered = 0
        self._several = self._others_answered = False
