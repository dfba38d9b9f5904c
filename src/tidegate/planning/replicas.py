"""What is a replica, by the name of a profile or of a model and its accelerators?"""

from __future__ import annotations

from tidegate.config.profiles import profile_by
from tidegate.core.errors import ConfigurationError
from tidegate.plan.ask import Replica
from tidegate.plan.engine import Engine


def replica_by_profile(name: str) -> Replica:
    """Of a profile's name or file. Raises ConfigurationError."""
    profile = profile_by(name)
    if profile.disaggregation is not None:
        problem = f"--profile {name}: is of replicas that compute prompts apart from those that decode"
        raise ConfigurationError([f"{problem}; give the profile of one kind"])
    bounds = profile.replica
    return Replica(
        name=name,
        engine=Engine(
            curve=profile.curve,
            max_num_seqs=bounds.max_num_seqs,
            max_batched_tokens=bounds.max_batched_tokens,
            kv_tokens=bounds.kv_tokens,
            context_tokens=bounds.sequence_tokens,
            block_tokens=bounds.block_tokens,
        ),
    )
