"""Provision a machine: a tool that becomes a task once its user has agreed.

    effectmcp serve examples/provisioning.py:app

Up to `Detach` the client waits, and carries the state of the flow. Afterwards the flow is
a task: the client polls, the server may restart, and the user may take all day to answer.
With `Server(tasks=SqliteTasks("tasks.db"))`, or `--tasks tasks.db`, tasks are kept in a
file. A client that cannot follow tasks waits for the whole, by the same handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Literal

from attrs import define, field

from effectmcp import (
    Cancelled,
    Confirm,
    Detach,
    Elicit,
    Flow,
    IdempotencyKey,
    Provided,
    Server,
    Sleep,
    Status,
    TimedOut,
    ToolError,
    Within,
    step,
)

Size = Literal["small", "large"]


class Network(Enum):
    """The network of a machine."""

    PRIVATE = "private"
    PUBLIC = "public"


PRICES: dict[Size, int] = {"small": 10, "large": 80}

#: Seconds that the user has to choose a network.
DEADLINE = 600.0
#: Seconds between two checks whether the machine has booted.
PAUSE = 1.0
#: Checks after which a machine that has not booted is given up.
CHECKS = 60


@define
class Cloud:
    """A cloud that boots a machine while its client checks on it twice.

    Attributes:
        machines: The number of checks of each machine, by its idempotency key.
        networks: The network of each machine, by its idempotency key.
    """

    machines: dict[str, int] = field(factory=dict)
    networks: dict[str, Network] = field(factory=dict)


@contextmanager
def clouds(app: Server) -> Iterator[dict[str, Cloud]]:
    """Yield the cloud that fills the parameters of the steps."""
    yield {"cloud": Cloud()}


app = Server("provisioning", version="1.0", lifespan=clouds)


@step(retries=4, timeout=60)
def create_machine(
    name: str, size: Size, key: str, *, cloud: Cloud = Provided()
) -> str:
    """Create a machine; return its name. A cloud creates one machine for each key."""
    cloud.machines.setdefault(key, 0)
    return f"{name}-{size}-{key[:4]}"


@step(retries=4, timeout=60)
def is_running(key: str, *, cloud: Cloud = Provided()) -> bool:
    """Check whether a machine has booted."""
    cloud.machines[key] += 1
    return cloud.machines[key] > 2


@step(retries=4, timeout=60)
def connect(key: str, network: Network, *, cloud: Cloud = Provided()) -> None:
    """Connect a machine to a network. To do so twice changes nothing."""
    cloud.networks[key] = network


@step(retries=4, timeout=10)
def delete_machine(key: str, *, cloud: Cloud = Provided()) -> None:
    """Delete the machine of a key. A key without a machine is not an error."""
    cloud.machines.pop(key, None)
    cloud.networks.pop(key, None)


@app.tool
def provision(name: str, size: Size = "small") -> Flow[str]:
    """Provision a virtual machine."""
    question = f"Provision {name!r} ({size}) for ${PRICES[size]} a month?"
    if not (yield from Confirm(question)):
        return "Nothing was provisioned."

    yield from Detach(ttl=24 * 3600, poll_interval=2)
    key = yield from IdempotencyKey("machine", name, size)
    try:
        return (yield from build(name, size, key))
    except (Cancelled, Exception):
        # By the key and not by the machine's name: a creation that failed, with a time-out
        # for example, may have made a machine whose name never arrived.
        yield from delete_machine(key)
        raise


def build(name: str, size: Size, key: str) -> Flow[str]:
    """Create a machine, wait until it runs, and connect it."""
    yield from Status(f"Creating {name}")
    machine = yield from create_machine(name, size, key)

    yield from Status(f"{machine} is booting")
    for _ in range(CHECKS):
        if (yield from is_running(key)):
            break
        yield from Sleep(PAUSE)
    else:
        raise ToolError(f"{machine} did not boot, and was deleted.")

    yield from Status(f"{machine} runs. Which network?")
    chosen = yield from Within(
        DEADLINE, Elicit("Which network?", Network, otherwise=Network.PRIVATE)
    )
    # A user who does not answer, or declines, gets the network that exposes nothing.
    network = Network.PRIVATE if isinstance(chosen, TimedOut) else chosen
    yield from connect(key, network)
    return f"{machine} runs in the {network.value} network."
