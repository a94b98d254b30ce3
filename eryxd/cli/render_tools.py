"""The catalog, its sources and providers as text."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from eryxd.cli.render import facts, origin
from eryxd.cli.text import PLAIN, Look, cut, date, listed, plural, table, visible

Record = Mapping[str, Any]

VERDICT_STYLE: Final = {"ask": "yellow", "auto": "green", "pass": "cyan"}
SOURCE_STYLE: Final = {"pending": "yellow", "failed": "red", "answered": "green"}


def tools(reply: Record, look: Look = PLAIN) -> list[str]:
    """List the catalog: id, kind, label, who offers it; then the sources that did not answer."""
    rows = [
        (
            visible(row["id"]),
            visible(row["kind"]),
            visible(row["label"]),
            ", ".join(visible(name) for name in row["provider_names"]),
            ", ".join(visible(name) for name in row.get("backends", ())),
        )
        for row in reply["tools"]
    ]
    lines = listed(table(rows, look), "No tools: no source offers any.  See: eryx providers list", reply)
    for source in reply.get("sources", ()):
        lines += unwell(source, look)
    return lines


def unwell(source: Record, look: Look) -> Iterator[str]:
    """Say what is not well with a source; nothing of one that has answered."""
    if source["status"] != "answered":
        kept = f"; {plural(source['tools'], 'tool')} of its last answer stand in" if source.get("answered_at") else ""
        yield look.paint(
            SOURCE_STYLE[source["status"]],
            f"{visible(source['id'])} {visible(source['status'])}: {visible(source.get('reason', ''))}{kept}",
        )
    if source.get("missing"):
        missing = ", ".join(visible(tool) for tool in source["missing"])
        yield f"{visible(source['id'])} does not list {missing} at the moment"
    for bad in source.get("quarantined", ()):
        yield look.paint("yellow", f"{visible(source['id'])}: {visible(bad['name'])!r} is not taken: {bad['why']}")


def stale(reply: Record, look: Look = PLAIN) -> list[str]:
    """List inactive ids: id, list, who offered it, why."""
    rows = [
        (
            visible(row["tool_id"]),
            f"{row['owner']} {visible(row['owner_id'])} ({cut(row['owner_name'], 30)})",
            ", ".join(visible(one) for one in row["providers"]) or "nobody on record",
            visible(row["why"]),
        )
        for row in reply["stale"]
    ]
    lines = listed(table(rows, look), "Every id on every list is offered.", reply)
    return [*lines, "They ask until they are offered again.  To take them off: eryx tools prune"] if rows else lines


def pruned(reply: Record, look: Look = PLAIN) -> list[str]:
    """Say which ids went."""
    names = ", ".join(visible(tool) for tool in reply["tools"])
    return [f"pruned {names}"] if names else ["Nothing to prune."]


def explanation(reply: Record, look: Look = PLAIN) -> list[str]:
    """Show, by agent, what a call of every tool would meet."""
    lines: list[str] = []
    for agent in reply["agents"]:
        lines.append(look.paint("bold", visible(agent["name"])))
        rows = [_explained(row, look) for row in reply["rows"] if row["agent_id"] == agent["id"]]
        lines += [f"  {line}" for line in table(rows, look)] or ["  no tools"]
    names = ", ".join(visible(tool) for tool in reply["effective"]["auto_approved_tool_names"]) or "nothing"
    lines.append(f"list in force, of the {reply['effective']['from']}: {names}")
    if reply.get("inactive"):
        lines.append(f"on the list and offered by nobody: {', '.join(visible(tool) for tool in reply['inactive'])}")
    return lines + [look.paint("yellow", f"note: {visible(note)}") for note in reply.get("notes", ())]


def _explained(row: Record, look: Look) -> tuple[str, ...]:
    decision = row["decision"]
    verdict = look.paint(VERDICT_STYLE.get(decision["verdict"], "yellow"), visible(decision["verdict"]))
    return visible(row["tool_id"]), verdict, visible(decision["reason"]), visible(row["provider"])


def providers(reply: Record, look: Look = PLAIN) -> list[str]:
    """List providers with their entries."""
    lines: list[str] = []
    for one in reply["providers"]:
        takes = "takes entries" if one.get("record_schema") else "offers its tools as it is"
        lines.append(
            f"{look.paint('bold', visible(one['name']))}  {visible(one['label'])}"
            f"  ({visible(one['kind'])}, plugin {visible(one['plugin'])}; {takes})"
        )
        lines += [f"  {line}" for line in table([_entry_row(e, look) for e in _of(reply, one["name"])], look)]
    known = {one["name"] for one in reply["providers"]}
    lost = [entry for entry in reply["entries"] if entry["provider"] not in known]
    if lost:
        lines.append("of providers that are not loaded:")
        lines += [f"  {line}" for line in table([_entry_row(entry, look) for entry in lost], look)]
    return listed(lines, "No tool provider is loaded.  See: eryx plugins list", reply)


def _of(reply: Record, provider: str) -> list[Record]:
    return [entry for entry in reply["entries"] if entry["provider"] == provider]


def _entry_row(entry: Record, look: Look) -> tuple[str, ...]:
    source = entry.get("source") or {}
    status = visible(source.get("status", "unasked"))
    return (
        visible(entry["id"]),
        cut(entry["name"], 30),
        look.paint(SOURCE_STYLE.get(status, "yellow"), status),
        plural(source.get("tools", 0), "tool"),
        "workspace" if not entry.get("project_id") else f"project {visible(entry['project_id'])}",
        origin(entry),
    )


def entry(reply: Record, look: Look = PLAIN) -> list[str]:
    """Show one entry with what it offers."""
    record = reply["entry"]
    source = record.get("source") or {}
    lines = [
        f"{visible(record['provider'])}:{visible(record['id'])}  {look.paint('bold', visible(record['name']))}",
        *facts(
            ("seen by", f"project {visible(record['project_id'])}" if record.get("project_id") else "the workspace"),
            ("from", origin(record)),
            ("changed", date(record["updated_at"])),
            ("revision", str(record["revision"])),
            ("state", visible(source.get("status", "")) + _because(source)),
        ),
    ]
    lines += [f"  {visible(key)} = {_value(value)}" for key, value in record["record"].items()]
    rows = [(visible(row["id"]), visible(row["label"]), visible(row.get("description", ""))) for row in reply["tools"]]
    return lines + ([f"offers {plural(len(rows), 'tool')}:", *table(rows, look)] if rows else ["offers no tools"])


def _because(source: Record) -> str:
    return f": {visible(source['reason'])}" if source.get("reason") else ""


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{visible(key)} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return visible(str(value))


def saved(reply: Record, look: Look = PLAIN) -> list[str]:
    """Say that an entry was saved, and what went with the change."""
    record = reply["entry"]
    line = f"saved {visible(record['provider'])}:{visible(record['id'])}, now at revision {record['revision']}"
    return [line, *_pruned_with(reply)]


def deleted(reply: Record, look: Look = PLAIN) -> list[str]:
    """Say that an entry is gone, and what went with it."""
    return ["deleted", *_pruned_with(reply)]


def _pruned_with(reply: Record) -> list[str]:
    names = ", ".join(visible(tool) for tool in reply.get("pruned", ()))
    return [f"nobody else offers, so off every list: {names}"] if names else []


def checked(reply: Record, look: Look = PLAIN) -> list[str]:
    """Show a source after it was asked anew."""
    source = reply["source"]
    head = f"{visible(source['id'])}  {look.paint(SOURCE_STYLE[source['status']], visible(source['status']))}"
    rows = [(visible(row["id"]), visible(row["label"])) for row in reply["tools"]]
    return [head + _because(source), *table(rows, look)]


PLUGIN_STYLE: Final = {"enabled": "green", "new": "yellow", "disabled": "dim"}


def plugins(reply: Record, look: Look = PLAIN) -> list[str]:
    """List plugins: name, how it stands, distribution, what it contributes; then what to do."""
    rows = [
        (
            visible(one["name"]),
            look.paint(PLUGIN_STYLE.get(one["status"], "red"), visible(one["status"])),
            f"{visible(one['distribution'])} {visible(one['version'])}",
            ", ".join(visible(word) for word in one["provides"]),
        )
        for one in reply["plugins"]
    ]
    lines = listed(table(rows, look), "No plugin is installed.", reply)
    for one in reply["plugins"]:
        if one.get("problem"):
            lines.append(look.paint("yellow", f"{visible(one['name'])}: {visible(one['problem'])}"))
        if one.get("next"):
            lines.append(f"  {visible(one['name'])}: {visible(one['next'])}")
    return lines


def plugin_changed(reply: Record, look: Look = PLAIN) -> list[str]:
    """Show one plugin as it stands now."""
    lines = plugins({"plugins": [reply["plugin"]]}, look) if reply.get("plugin") else ["forgotten"]
    return [*lines, *_pruned_with(reply)]
