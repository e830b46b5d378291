"""``/connectors``: Kafka Connect's paths, codes and bodies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from sinksdk.compatibility import Meaning
from sinksdk.control.herder import Herder
from sinksdk.control.registry import ConnectorNotFoundException, kind_of_class
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.plugins.checks import check_config, still_hidden, with_secrets
from sinksdk.server.bodies import (
    ActiveTopics,
    AlterAnyOffsets,
    Connector,
    CreateConnector,
    Expanded,
    Message,
    Offsets,
    RawConfig,
    SourceOffsetsBody,
    Status,
    TaskConfig,
    TaskState,
    as_strings,
    connector_body,
    status_body,
    task_state,
)
from sinksdk.server.errors import NotFoundException, errors
from sinksdk.server.parameters import Name, TheHerder, TheProviders, TheSourceOffsets, path_of
from sinksdk.settings.references import ConfigProviders

log = logging.getLogger(__name__)

_CREATED = 201
_PATIENCE = 30.0  # seconds to wait for the closing of a connector that was just stopped

router = APIRouter(tags=["connectors"])

IncludeTasks = Annotated[bool, Query(alias="includeTasks")]
OnlyFailed = Annotated[bool, Query(alias="onlyFailed")]


def _body(herder: Herder, name: str) -> Connector:
    return connector_body(herder.info(name))


@router.get("/connectors", responses=errors(), response_model_exclude_none=True)
def all_connectors(
    herder: TheHerder, expand: Annotated[list[str], Query(default_factory=list)]
) -> list[str] | dict[str, Expanded]:
    """List names; with ``expand=status`` or ``expand=info`` the status or info of each connector."""
    if not expand:
        return herder.connectors()
    return {
        info.name: Expanded(
            status=status_body(info) if "status" in expand else None,
            info=connector_body(info) if "info" in expand else None,
        )
        for info in herder.infos(_log_damage)
    }


@router.post("/connectors", status_code=201, responses=errors(400, 409, 415))
def create(
    herder: TheHerder, providers: TheProviders, request: CreateConnector, response: Response
) -> Connector:
    """Create a connector; its configuration must have no problems."""
    config = as_strings(request.config)
    name = (request.name or config.get("name", "")).strip()
    if not name:
        raise ConfigException("'name' is required and not set")
    if config.get("name", name) != name:
        raise ConfigException(f"'name' is {name} in the request, but {config['name']} in the configuration")
    _expect_startable({**config, "name": name}, providers)
    kind = kind_of_class(config)
    herder.create(name, {**config, "name": name}, request.initial_state or "RUNNING", kind)
    response.headers["Location"] = path_of(name)
    return _body(herder, name)


@router.get("/connectors/{name}", responses=errors(404))
def one(herder: TheHerder, name: Name) -> Connector:
    """Return a connector with its configuration; secrets are hidden."""
    return _body(herder, name)


@router.get("/connectors/{name}/config", responses=errors(404))
def config_of(herder: TheHerder, name: Name) -> dict[str, str]:
    """Return the configuration; secrets are hidden."""
    return _body(herder, name).config


@router.put(
    "/connectors/{name}/config",
    responses={
        **errors(400, 404, 409, 415),
        201: {"model": Connector, "description": "The connector was created."},
    },
)
def put_config(
    herder: TheHerder, providers: TheProviders, name: Name, config: RawConfig, response: Response
) -> Connector:
    """Replace the configuration, or create the connector. Hidden secrets that are sent stay unchanged."""

    def replaced(before: Mapping[str, str] | None) -> dict[str, str]:
        response.status_code = 201 if before is None else 200
        return with_secrets(as_strings(config), before or {})

    configured = _configure(herder, providers, name, replaced)
    if response.status_code == _CREATED:
        response.headers["Location"] = path_of(name)
    return configured


@router.patch("/connectors/{name}/config", responses=errors(400, 404, 409, 415))
def patch_config(herder: TheHerder, providers: TheProviders, name: Name, changes: RawConfig) -> Connector:
    """Change some keys; null removes a key (KIP-477)."""

    def changed(before: Mapping[str, str] | None) -> dict[str, str]:
        if before is None:
            raise ConnectorNotFoundException(f"connector '{name}' does not exist; PUT creates it")
        kept = {key: value for key, value in before.items() if key not in changes}
        given = as_strings(changes, before.get("connector.class", ""))
        return {**kept, **with_secrets(given, before)}

    return _configure(herder, providers, name, changed)


def _configure(
    herder: Herder,
    providers: ConfigProviders,
    name: str,
    change: Callable[[Mapping[str, str] | None], dict[str, str]],
) -> Connector:
    def checked(before: Mapping[str, str] | None) -> dict[str, str]:
        config = change(before)
        if config.get("name", name) != name:
            raise ConfigException(f"'name' is {name} in the path, but {config['name']} in the configuration")
        _expect_startable({**config, "name": name}, providers)
        return {**config, "name": name}

    herder.configure(name, checked)
    return _body(herder, name)


@router.get("/connectors/{name}/status", responses=errors(404), response_model_exclude_none=True)
def status(herder: TheHerder, name: Name) -> Status:
    """Return the state of the connector and of its tasks."""
    return status_body(herder.info(name))


@router.get("/connectors/{name}/tasks", responses=errors(404))
def tasks(herder: TheHerder, name: Name) -> list[TaskConfig]:
    """List tasks with their configurations; secrets are hidden."""
    found = _body(herder, name)
    return [TaskConfig(id=task, config=found.config) for task in found.tasks]


@router.get(
    "/connectors/{name}/tasks/{task}/status", responses=errors(400, 404), response_model_exclude_none=True
)
def task_status(herder: TheHerder, name: Name, task: int) -> TaskState:
    """Return the state of a task."""
    info = herder.info(name)
    _expect_task(name, task, len(info.tasks))
    return task_state(info.tasks[task], info.driver)


@router.post("/connectors/{name}/tasks/{task}/restart", status_code=204, responses=errors(400, 404, 409))
def restart_task(herder: TheHerder, name: Name, task: int) -> None:
    """Retry the failed partitions of all tasks at once; a single task cannot be restarted."""
    _expect_task(name, task, len(herder.info(name).tasks))
    herder.restart(name, only_failed=True)


@router.post(
    "/connectors/{name}/restart",
    status_code=204,
    response_class=Response,
    response_model=None,
    responses={
        **errors(400, 404, 409),
        202: {"model": Status, "description": "The status after the request."},
    },
)
def restart(
    herder: TheHerder, name: Name, *, include_tasks: IncludeTasks = False, only_failed: OnlyFailed = False
) -> Response:
    """Restart the connector (KIP-745), always with its tasks, which belong to one generation."""
    herder.restart(name, only_failed=only_failed)
    if not include_tasks and not only_failed:
        return Response(status_code=204)
    return JSONResponse(status_body(herder.info(name)).model_dump(exclude_none=True), status_code=202)


@router.put("/connectors/{name}/pause", status_code=202, response_class=Response, responses=errors(404, 409))
def pause(herder: TheHerder, name: Name) -> None:
    """Flush, commit and close the tasks; read nothing until the connector is resumed."""
    herder.pause(name)


@router.put("/connectors/{name}/resume", status_code=202, response_class=Response, responses=errors(404, 409))
def resume(herder: TheHerder, name: Name) -> None:
    """Run a paused or stopped connector."""
    herder.resume(name)


@router.put("/connectors/{name}/stop", status_code=204, responses=errors(404, 409))
def stop(herder: TheHerder, name: Name) -> None:
    """Stop the connector; its offsets can then be altered (KIP-875)."""
    herder.stop(name)


@router.delete("/connectors/{name}", status_code=204, responses=errors(400, 404))
def delete(herder: TheHerder, name: Name, *, force: bool = False) -> None:
    """Delete the connector: its driver removes it and what it created elsewhere (KIP-883).

    Committed tokens are published first; the connector is DELETING until that succeeds. `force` gives them
    up.
    """
    herder.delete(name, force=force)


@router.get("/connectors/{name}/offsets", responses=errors(400, 404))
def offsets(herder: TheHerder, sources: TheSourceOffsets, name: Name) -> Offsets | SourceOffsetsBody:
    """Return committed offsets by topic partition, or by source partition of a source."""
    if _is_source(herder, name):
        return SourceOffsetsBody.of(sources.read(name))
    return Offsets.of(herder.offsets(name))


@router.patch("/connectors/{name}/offsets", responses=errors(400, 404, 409, 415))
def alter_offsets(
    herder: TheHerder, sources: TheSourceOffsets, name: Name, changes: AlterAnyOffsets
) -> Message:
    """Change committed offsets of a stopped connector (KIP-875)."""
    if _is_source(herder, name):
        sources.alter(name, changes.of_source(), patience=_PATIENCE)
    else:
        herder.alter_offsets(name, changes.of_sink(), patience=_PATIENCE)
    return Message(message=f"The offsets for connector '{name}' have been altered successfully")


@router.delete("/connectors/{name}/offsets", responses=errors(400, 404, 409))
def reset_offsets(herder: TheHerder, sources: TheSourceOffsets, name: Name) -> Message:
    """Remove all committed offsets of a stopped connector (KIP-875)."""
    if _is_source(herder, name):
        sources.reset(name, patience=_PATIENCE)
    else:
        herder.reset_offsets(name, patience=_PATIENCE)
    return Message(message=f"The offsets for connector '{name}' have been reset successfully")


def _is_source(herder: Herder, name: str) -> bool:
    return herder.info(name).type == "source"


@router.get("/connectors/{name}/topics", responses=errors(404))
def topics(herder: TheHerder, name: Name) -> dict[str, ActiveTopics]:
    """Return the topics that the connector reads or has commits for."""
    found = sorted({row.partition.topic for row in herder.info(name).partitions})
    return {name: ActiveTopics(topics=found)}


@router.put(
    "/connectors/{name}/topics/reset", status_code=202, response_class=Response, responses=errors(404)
)
def reset_topics(herder: TheHerder, name: Name) -> None:
    """Do nothing: accepted for Kafka Connect's clients; the list of topics follows from the commits."""
    herder.connector(name)


def _expect_startable(config: dict[str, str], providers: ConfigProviders) -> None:
    checked = check_config(config, providers)
    problems = [*still_hidden(config), *checked.problems, *checked.unmet]
    if config["name"] != config["name"].strip():
        problems.append(f"'name' must not begin or end with blanks: '{config['name']}'")
    if problems:
        raise ConfigException(problems)
    for option in checked.having(Meaning.UNKNOWN):
        log.warning("connector %s: %s", config["name"], option.sentence)


def _log_damage(name: str, error: ConnectException) -> None:
    log.warning("connector %s cannot be read and is left out: %s", name, error)


def _expect_task(name: str, task: int, tasks: int) -> None:
    if not 0 <= task < tasks:
        raise NotFoundException(f"connector '{name}' has no task {task}, only {tasks} tasks")
