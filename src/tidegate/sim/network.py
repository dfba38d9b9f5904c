"""How late does news arrive? The wire between the gateway and its replicas."""

from __future__ import annotations

import msgspec


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delays in seconds."""

    delay_s: float = 0.5e-3
    """One way between the gateway and a replica: half a round trip inside a data centre."""
    jitter_s: float = 0.0
    """What a request takes beyond that on its way to a replica, on average: exponential, from dice of the
    replica's own. Without it what is sent together arrives together, to the last bit, and a fleet under
    overload falls into step as no real one does."""
    scrape_delay_s: float = 0.0
    """Age of an engine's own figures when a scrape reads them. How often it is scraped is how often it is
    probed (`health.interval_s` of its pool), as in the gateway."""

    def problems(self) -> list[str]:
        """What of it cannot be."""
        return [
            f"network.{name}: a delay is from 0 s on, not {value:g}"
            for name, value in (
                ("delay_s", self.delay_s),
                ("jitter_s", self.jitter_s),
                ("scrape_delay_s", self.scrape_delay_s),
            )
            if not 0 <= value < float("inf")
        ]
