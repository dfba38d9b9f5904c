"""What does the planner know of a replica that is described: a model on accelerators?"""

from __future__ import annotations

from tidegate.perf.deployment import Deployment
from tidegate.perf.drafting import steps_of
from tidegate.perf.efficiencies import waiting_of
from tidegate.perf.memory import memory_of
from tidegate.perf.shares import has_table
from tidegate.plan.ask import Replica
from tidegate.plan.laws.engine import Engine


def deployed(deployment: Deployment) -> Replica:
    """The replica, its steps computed. Raises ConfigurationError where its weights do not fit."""
    memory = memory_of(deployment)
    return Replica(
        name=name_of(deployment),
        engine=Engine(
            curve=steps_of(deployment),
            max_num_seqs=memory.sequences_limit,
            max_batched_tokens=deployment.max_batched_tokens * deployment.attention_dp,
            kv_tokens=memory.kv_tokens,
            context_tokens=min(deployment.model.context_tokens, memory.kv_tokens),
            block_tokens=deployment.block_tokens,
        ),
        accelerators=deployment.devices,
        deployment=deployment,
        memory=memory,
        waiting=waiting_of(deployment.software),
    )


def name_of(deployment: Deployment) -> str:
    """As people say it: `4 x H100 SXM`."""
    title = deployment.accelerator.title or deployment.accelerator.name
    return f"{deployment.devices} x {title}"


def step_times(replica: Replica) -> str:
    """Where the seconds of its steps come from."""
    if replica.deployment is None:
        return "measured"
    accelerator = replica.deployment.accelerator
    if has_table(accelerator.name):
        return f"roofline, with operators measured on {accelerator.title}"
    return "roofline"
