"""Run by a Python that has Ray: join a cluster as a driver, and do what lines of JSON on stdin ask; answer on stdout.

    python ray_driver.py ADDRESS AGENT

One actor a node, bound to it, takes no CPU and runs the agent. Nothing of verl_env is imported: this is another
environment. When stdin ends, the actors end, and what they started ends with them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if "RAY_AUTH_MODE" not in os.environ and os.path.exists(os.path.expanduser("~/.ray/auth_token")):
    # `ray start` turns token authentication on where there is a token (seen with Ray 2.60); `ray.init` does not.
    os.environ["RAY_AUTH_MODE"] = "token"
import ray
import ray_agent
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray_sending import CHUNK, START_SECONDS, Sending
from saying import say, short


class Cluster:
    """The driver's side: nodes by name, and the actor of each."""

    def __init__(self, source: str) -> None:
        """Keep the agent's source for the actors."""
        self.source = source
        self.actors: dict[str, tuple[str, Any]] = {}  # by name: the node's identity and its actor

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return Ray's living nodes: by host name where that tells them apart, else by address."""
        alive = [it for it in ray.nodes() if it["Alive"]]
        hosts = [it["NodeManagerHostname"] for it in alive]
        distinct = len(set(hosts)) == len(hosts)
        return {it["NodeManagerHostname" if distinct else "NodeManagerAddress"]: it for it in alive}

    def actor(self, name: str, node: dict[str, Any]) -> Any:
        """Return the actor of a node; one that came back has another identity, and gets a new one."""
        known = self.actors.get(name)
        if known and known[0] == node["NodeID"]:
            return known[1]
        bound = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        made = ray.remote(num_cpus=0, max_restarts=0)(ray_agent.Agent).options(scheduling_strategy=bound)
        actor = made.remote(self.source, (node["NodeManagerAddress"], node["NodeManagerPort"]))
        self.actors[name] = (node["NodeID"], actor)
        return actor

    def chosen(self, names: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the actors of nodes, and why others have none."""
        nodes = self.nodes()
        gone = {name: "is no living node of the cluster" for name in names if name not in nodes}
        return {name: self.actor(name, nodes[name]) for name in names if name in nodes}, gone

    def forget(self, name: str) -> None:
        """Let go of an actor that did not answer, so that the next request starts another."""
        self.actors.pop(name, None)

    def ask(self, names: list[str], request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Serve a request on every node at once; a node that dies, or is late, is told with its reason."""
        actors, gone = self.chosen(names)
        answers: dict[str, Any] = {name: {"error": why} for name, why in gone.items()}
        started = {name: it.begin.remote({**request, "node": name}) for name, it in actors.items()}
        waiting = {reference: (name, 0) for name, reference in started.items()}
        until = time.monotonic() + seconds + START_SECONDS
        while waiting and time.monotonic() < until:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=1.0)
            for reference in ready:
                name, seen = waiting.pop(reference)
                try:
                    lines, done = ray.get(reference) or ([], None)
                except Exception as err:
                    answers[name] = {"error": short(err)}
                    self.forget(name)
                    continue
                for line in lines:
                    say(told=[name, line])
                if done is None:
                    waiting[actors[name].poll.remote(seen + len(lines))] = (name, seen + len(lines))
                else:
                    answers[name] = {"said": done}
        for name, _ in waiting.values():
            answers[name] = {"error": f"no answer within {seconds:.0f} s"}
            self.forget(name)
        return answers

    def send(self, names: list[str], path: str, to: str) -> dict[str, str]:
        """Carry a file to nodes in chunks through the object store; return what went wrong, by name ("" is well)."""
        actors, gone = self.chosen(names)
        size = os.path.getsize(path)
        sending = Sending(actors, to, size)
        with open(path, "rb") as source:
            sending.begin()
            while (offset := sending.next_offset()) is not None:
                source.seek(offset)
                sending.put(offset, source.read(CHUNK))
        sending.drain(0)
        for name, why in sending.failed.items():
            if why:
                self.forget(name)
        return {**gone, **sending.failed, **dict.fromkeys(sending.have, "")}


def main(address: str, source: str) -> None:
    """Join, and serve requests until stdin ends."""
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except BaseException as err:
        say(error=short(err) if isinstance(err, Exception) else f"{type(err).__name__}: {err}")
        return
    cloudpickle.register_pickle_by_value(ray_agent)
    cluster = Cluster(source)
    say(joined=ray.__version__)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "members":
            nodes = cluster.nodes()
            say(members=[{"name": name, "address": it["NodeManagerAddress"]} for name, it in sorted(nodes.items())])
        elif asked["do"] == "ask":
            say(answers=cluster.ask(asked["members"], asked["request"], asked["seconds"]))
        else:
            say(sent=cluster.send(asked["members"], asked["path"], asked["to"]))
    ray.shutdown()


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as agent:
        main(sys.argv[1], agent.read())
