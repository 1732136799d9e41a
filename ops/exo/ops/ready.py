"""What `exo up` prints once it serves: the address, the model, and one line that answers."""

import json
import shlex
from collections.abc import Sequence

from exo.ops.terminal import show_count

EXAMPLE = "Name three uses of a paper clip."


def make_ready_lines(
    url: str,
    models: Sequence[str],
    *,
    asked: Sequence[str] = (),
    placed: Sequence[str] = (),
    join: str = "",
    lacks_keys: bool = False,
    network_url: str = "",
    cluster: str = "",
) -> list[str]:
    """Give the lines for a node at `url` that serves `models`, of those `asked` for; without any, how to get one.

    `placed` were placed before this start and come back by themselves. `join` is what brings another machine in.
    With `lacks_keys` callers elsewhere need a key, and there is none. `network_url` is where they reach the API,
    `cluster` says which one this node is in.
    """
    others = [cluster] if cluster else []
    if join:
        others.append(f"On another machine: {join}")
    if lacks_keys and url:
        others.append("Others on the network need an API key, and there is none yet: exo keys add NAME")
    if not url:
        return ["exo is ready, without an API on this node (--no-api)", *others]
    where = f"{url}, for other machines at {network_url}" if network_url else url
    lines = [f"exo is ready at {where}", *others]
    if asked and not models:
        return [
            *lines,
            f"No model is running: the log says what keeps {', '.join(asked)} from it. `exo doctor` may help.",
        ]
    if not models and placed:
        returning = ", ".join(dict.fromkeys(placed))
        return [*lines, f"Placed before, and on the way back: {returning}. `exo ps` shows how far."]
    if not models:
        return [
            *lines,
            "No model is running. Try one that needs no account: exo models add starter && exo place starter",
        ]
    lines += [f"Model: {model}" for model in models]
    return [*lines, "Try it:", f"  {make_curl_line(url, models[0])}"]


def describe_cluster(name: str, *, others: int, hub: str) -> str:
    """Say which cluster was joined; `others` counts the nodes beside this one."""
    if not others:
        return f"Alone in cluster {name}"
    return f"Joined cluster {name}: {show_count(others + 1, 'node')}, hub {hub}"


def make_curl_line(url: str, model: str) -> str:
    """Give a command that any shell answers with the model's words."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": EXAMPLE}], "max_tokens": 64})
    return f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(body)}"
