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
    as_written,
    connector_body,
    status_body,
    task_state,
)
from sinksdk.server.errors import NotFoundException, errors
from sinksdk.server.parameters import Name, TheHerder, TheProviders, TheSourceOffsets, path_of
from sinksdk.settings.references import ConfigProviders

log = logging.getLogger(__name__)

_CREATED = 201
_PATIENCE = 30.0  # seconds in which a connector that was just stopped must have closed

router = APIRouter(tags=["connectors"])
"""The paths of all connectors of a store."""

IncludeTasks = Annotated[bool, Query(alias="includeTasks")]
OnlyFailed = Annotated[bool, Query(alias="onlyFailed")]


def _body(herder: Herder, name: str) -> Connector:
    return connector_body(herder.info(name))


@router.get("/connectors", responses=errors(), response_model_exclude_none=True)
def all_connectors(
    herder: TheHerder, expand: Annotated[list[str], Query(default_factory=list)]
) -> list[str] | dict[str, Expanded]:
    """Names; with ``expand=status`` or ``expand=info`` the status or info of each."""
    if not expand:
        return herder.connectors()
    return {
        info.name: Expanded(
            status=status_body(info) if "status" in expand else None,
            info=connector_body(info) if "info" in expand else None,
        )
        for info in herder.infos(_leave_out)
    }


@router.post("/connectors", status_code=201, responses=errors(400, 409, 415))
def create(
    herder: TheHerder, providers: TheProviders, request: CreateConnector, response: Response
) -> Connector:
    """Create a connector; its configuration must be able to start."""
    config = as_written(request.config)
    name = (request.name or config.get("name", "")).strip()
    if not name:
        message = "'name' is required and not set"
        raise ConfigException(message)
    if config.get("name", name) != name:
        raise ConfigException(f"'name' is {name} in the request, and {config['name']} in its configuration")
    _expect_startable({**config, "name": name}, providers)
    kind = kind_of_class(config)
    herder.create(name, {**config, "name": name}, request.initial_state or "RUNNING", kind)
    response.headers["Location"] = path_of(name)
    return _body(herder, name)


@router.get("/connectors/{name}", responses=errors(404))
def one(herder: TheHerder, name: Name) -> Connector:
    """A connector as it was configured, secrets hidden."""
    return _body(herder, name)


@router.get("/connectors/{name}/config", responses=errors(404))
def config_of(herder: TheHerder, name: Name) -> dict[str, str]:
    """Its configuration, secrets hidden."""
    return _body(herder, name).config


@router.put(
    "/connectors/{name}/config",
    responses={**errors(400, 404, 409, 415), 201: {"model": Connector, "description": "It was created."}},
)
def put_config(
    herder: TheHerder, providers: TheProviders, name: Name, config: RawConfig, response: Response
) -> Connector:
    """Replace its configuration, or create it. Hidden values that are sent back stay unchanged."""

    def replaced(before: Mapping[str, str] | None) -> dict[str, str]:
        response.status_code = 201 if before is None else 200
        return with_secrets(as_written(config), before or {})

    configured = _configure(herder, providers, name, replaced)
    if response.status_code == _CREATED:
        response.headers["Location"] = path_of(name)
    return configured


@router.patch("/connectors/{name}/config", responses=errors(400, 404, 409, 415))
def patch_config(herder: TheHerder, providers: TheProviders, name: Name, changes: RawConfig) -> Connector:
    """Change some keys; null takes one out (KIP-477)."""

    def changed(before: Mapping[str, str] | None) -> dict[str, str]:
        if before is None:
            message = f"there is no connector '{name}'; PUT creates one"
            raise ConnectorNotFoundException(message)
        kept = {key: value for key, value in before.items() if key not in changes}
        given = as_written(changes, before.get("connector.class", ""))
        return {**kept, **with_secrets(given, before)}

    return _configure(herder, providers, name, changed)


def _configure(
    herder: Herder,
    providers: ConfigProviders,
    name: str,
    wanted: Callable[[Mapping[str, str] | None], dict[str, str]],
) -> Connector:
    def checked(before: Mapping[str, str] | None) -> dict[str, str]:
        config = wanted(before)
        if config.get("name", name) != name:
            raise ConfigException(f"'name' is {name} in the path, and {config['name']} in the configuration")
        _expect_startable({**config, "name": name}, providers)
        return {**config, "name": name}

    herder.configure(name, checked)
    return _body(herder, name)


@router.get("/connectors/{name}/status", responses=errors(404), response_model_exclude_none=True)
def status(herder: TheHerder, name: Name) -> Status:
    """State of the connector and of its tasks."""
    return status_body(herder.info(name))


@router.get("/connectors/{name}/tasks", responses=errors(404))
def tasks(herder: TheHerder, name: Name) -> list[TaskConfig]:
    """Its tasks with their configurations, secrets hidden."""
    found = _body(herder, name)
    return [TaskConfig(id=task, config=found.config) for task in found.tasks]


@router.get(
    "/connectors/{name}/tasks/{task}/status", responses=errors(400, 404), response_model_exclude_none=True
)
def task_status(herder: TheHerder, name: Name, task: int) -> TaskState:
    """State of one task."""
    info = herder.info(name)
    _expect_task(name, task, len(info.tasks))
    return task_state(info.tasks[task], info.driver)


@router.post("/connectors/{name}/tasks/{task}/restart", status_code=204, responses=errors(400, 404, 409))
def restart_task(herder: TheHerder, name: Name, task: int) -> None:
    """Open what failed of a task again, at once. Here that is done for all tasks that failed."""
    _expect_task(name, task, len(herder.info(name).tasks))
    herder.restart(name, only_failed=True)


@router.post(
    "/connectors/{name}/restart",
    status_code=204,
    response_class=Response,
    response_model=None,
    responses={**errors(400, 404, 409), 202: {"model": Status, "description": "Its tasks as well."}},
)
def restart(
    herder: TheHerder, name: Name, *, include_tasks: IncludeTasks = False, only_failed: OnlyFailed = False
) -> Response:
    """Start it again (KIP-745). Its tasks are always started with it: they belong to one generation."""
    herder.restart(name, only_failed=only_failed)
    if not include_tasks and not only_failed:
        return Response(status_code=204)
    return JSONResponse(status_body(herder.info(name)).model_dump(exclude_none=True), status_code=202)


@router.put("/connectors/{name}/pause", status_code=202, response_class=Response, responses=errors(404, 409))
def pause(herder: TheHerder, name: Name) -> None:
    """Close what runs, and read nothing."""
    herder.pause(name)


@router.put("/connectors/{name}/resume", status_code=202, response_class=Response, responses=errors(404, 409))
def resume(herder: TheHerder, name: Name) -> None:
    """Run again."""
    herder.resume(name)


@router.put("/connectors/{name}/stop", status_code=204, responses=errors(404, 409))
def stop(herder: TheHerder, name: Name) -> None:
    """As pause; its offsets may be altered then."""
    herder.stop(name)


@router.delete("/connectors/{name}", status_code=204, responses=errors(400, 404))
def delete(herder: TheHerder, name: Name, *, force: bool = False) -> None:
    """Delete it: its driver removes it and its outside resources (KIP-883).

    Committed tokens are published first, and it is DELETING until that succeeds; `force` drops them.
    """
    herder.delete(name, force=force)


@router.get("/connectors/{name}/offsets", responses=errors(400, 404))
def offsets(herder: TheHerder, sources: TheSourceOffsets, name: Name) -> Offsets | SourceOffsetsBody:
    """Committed offsets: by topic partition, or of a source by source partition."""
    if _is_source(herder, name):
        return SourceOffsetsBody.of(sources.read(name))
    return Offsets.of(herder.offsets(name))


@router.patch("/connectors/{name}/offsets", responses=errors(400, 404, 409, 415))
def alter_offsets(
    herder: TheHerder, sources: TheSourceOffsets, name: Name, wanted: AlterAnyOffsets
) -> Message:
    """Commit other offsets; only while it is stopped (KIP-875)."""
    if _is_source(herder, name):
        sources.alter(name, wanted.of_source(), patience=_PATIENCE)
    else:
        herder.alter_offsets(name, wanted.of_sink(), patience=_PATIENCE)
    return Message(message=f"The offsets for connector '{name}' have been altered successfully")


@router.delete("/connectors/{name}/offsets", responses=errors(400, 404, 409))
def reset_offsets(herder: TheHerder, sources: TheSourceOffsets, name: Name) -> Message:
    """Forget all commits; only while it is stopped."""
    if _is_source(herder, name):
        sources.reset(name, patience=_PATIENCE)
    else:
        herder.reset_offsets(name, patience=_PATIENCE)
    return Message(message=f"The offsets for connector '{name}' have been reset successfully")


def _is_source(herder: Herder, name: str) -> bool:
    return herder.info(name).type == "source"


@router.get("/connectors/{name}/topics", responses=errors(404))
def topics(herder: TheHerder, name: Name) -> dict[str, ActiveTopics]:
    """Topics of which something was committed or is known."""
    found = sorted({row.partition.topic for row in herder.info(name).partitions})
    return {name: ActiveTopics(topics=found)}


@router.put(
    "/connectors/{name}/topics/reset", status_code=202, response_class=Response, responses=errors(404)
)
def reset_topics(herder: TheHerder, name: Name) -> None:
    """Accepted for Connect's clients; topics are those with commits, and nothing is kept besides."""
    herder.connector(name)


def _expect_startable(config: dict[str, str], providers: ConfigProviders) -> None:
    checked = check_config(config, providers)
    problems = [*still_hidden(config), *checked.problems, *checked.unmet]
    if config["name"] != config["name"].strip():
        problems.append(f"'name' must not begin or end with blanks, as '{config['name']}' does")
    if problems:
        raise ConfigException(problems)
    for option in checked.having(Meaning.UNKNOWN):
        log.warning("connector %s: %s", config["name"], option.sentence)


def _leave_out(name: str, error: ConnectException) -> None:
    """Skips connectors whose records are damaged."""
    log.warning("connector %s is left out: %s", name, error)


def _expect_task(name: str, task: int, tasks: int) -> None:
    if not 0 <= task < tasks:
        raise NotFoundException(f"connector '{name}' has no task {task}: it has {tasks}")
