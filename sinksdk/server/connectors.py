"""``/connectors``: Kafka Connect's paths, codes and bodies."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from sinksdk.errors import ConfigException
from sinksdk.runtime.checks import check_config
from sinksdk.runtime.herder import Herder
from sinksdk.runtime.redaction import HIDDEN
from sinksdk.runtime.registry import ConnectorNotFoundException, texts
from sinksdk.server.bodies import (
    ActiveTopics,
    Connector,
    CreateConnector,
    Expanded,
    Message,
    Offsets,
    RawConfig,
    Status,
    TaskConfig,
    TaskState,
    connector_body,
    status_body,
    task_state,
)
from sinksdk.server.errors import NotFoundException
from sinksdk.server.state import the_herder

TheHerder = Annotated[Herder, Depends(the_herder)]

router = APIRouter(tags=["connectors"])
"""The paths of all connectors of a store."""

IncludeTasks = Annotated[bool, Query(alias="includeTasks")]
OnlyFailed = Annotated[bool, Query(alias="onlyFailed")]


def _body(herder: Herder, name: str) -> Connector:
    return connector_body(herder.info(name))


@router.get("/connectors")
def all_connectors(
    herder: TheHerder, expand: Annotated[list[str] | None, Query()] = None
) -> list[str] | dict[str, Expanded]:
    """Names; with ``expand=status`` or ``expand=info`` what is asked for of each."""
    asked = {"status", "info"} & set(expand or ())
    if not asked:
        return herder.connectors()
    return {
        info.name: Expanded(
            status=status_body(info) if "status" in asked else None,
            info=connector_body(info) if "info" in asked else None,
        )
        for info in herder.infos()
    }


@router.post("/connectors", status_code=201)
def create(herder: TheHerder, request: CreateConnector, response: Response) -> Connector:
    """Create a connector; its configuration must be able to start."""
    config = texts(request.config)
    name = request.name or config.get("name", "")
    if not name:
        message = "'name' is required and not set"
        raise ConfigException(message)
    if config.get("name", name) != name:
        raise ConfigException(f"'name' is {name} in the request, and {config['name']} in its configuration")
    _expect_startable({**config, "name": name})
    herder.create(name, {**config, "name": name}, request.initial_state or "RUNNING")
    response.headers["Location"] = f"/connectors/{name}"
    return _body(herder, name)


@router.get("/connectors/{name}")
def one(herder: TheHerder, name: str) -> Connector:
    """A connector as it was configured, secrets hidden."""
    return _body(herder, name)


@router.get("/connectors/{name}/config")
def config_of(herder: TheHerder, name: str) -> dict[str, str]:
    """Its configuration, secrets hidden."""
    return _body(herder, name).config


@router.put("/connectors/{name}/config")
def put_config(herder: TheHerder, name: str, config: RawConfig, response: Response) -> Connector:
    """Replace its configuration, or create it. A hidden secret that is sent back stays as it is."""
    before = _config(herder, name)
    response.status_code = 200 if before is not None else 201
    return _configure(herder, name, _with_secrets(texts(config), before or {}))


@router.patch("/connectors/{name}/config")
def patch_config(herder: TheHerder, name: str, changes: RawConfig) -> Connector:
    """Change some keys; null takes one out (KIP-477)."""
    before = herder.connector(name).config
    kept = {key: value for key, value in before.items() if key not in changes}
    return _configure(herder, name, _with_secrets({**kept, **texts(changes)}, before))


def _configure(herder: Herder, name: str, config: dict[str, str]) -> Connector:
    if config.get("name", name) != name:
        raise ConfigException(f"'name' is {name} in the path, and {config['name']} in the configuration")
    _expect_startable({**config, "name": name})
    herder.configure(name, {**config, "name": name})
    return _body(herder, name)


@router.get("/connectors/{name}/status")
def status(herder: TheHerder, name: str) -> Status:
    """State of the connector and of its tasks."""
    return status_body(herder.info(name))


@router.get("/connectors/{name}/tasks")
def tasks(herder: TheHerder, name: str) -> list[TaskConfig]:
    """Its tasks with their configurations, secrets hidden."""
    found = _body(herder, name)
    return [TaskConfig(id=task, config=found.config) for task in found.tasks]


@router.get("/connectors/{name}/tasks/{task}/status")
def task_status(herder: TheHerder, name: str, task: int) -> TaskState:
    """State of one task."""
    info = herder.info(name)
    _expect_task(name, task, len(info.tasks))
    return task_state(info.tasks[task], info.driver)


@router.post("/connectors/{name}/tasks/{task}/restart", status_code=204)
def restart_task(herder: TheHerder, name: str, task: int) -> None:
    """Open what failed of a task again, at once. Here that is done for all tasks that failed."""
    _expect_task(name, task, len(herder.info(name).tasks))
    herder.restart(name, only_failed=True)


@router.post("/connectors/{name}/restart", response_model=None)
def restart(
    herder: TheHerder, name: str, *, include_tasks: IncludeTasks = False, only_failed: OnlyFailed = False
) -> Response:
    """Start it again (KIP-745). Its tasks are always started with it: they belong to one generation."""
    herder.restart(name, only_failed=only_failed)
    if not include_tasks and not only_failed:
        return Response(status_code=204)
    return JSONResponse(status_body(herder.info(name)).model_dump(), status_code=202)


@router.put("/connectors/{name}/pause", status_code=202)
def pause(herder: TheHerder, name: str) -> None:
    """Close what runs, and read nothing."""
    herder.pause(name)


@router.put("/connectors/{name}/resume", status_code=202)
def resume(herder: TheHerder, name: str) -> None:
    """Run again."""
    herder.resume(name)


@router.put("/connectors/{name}/stop", status_code=204)
def stop(herder: TheHerder, name: str) -> None:
    """As pause; its offsets may be altered then."""
    herder.stop(name)


@router.delete("/connectors/{name}", status_code=204)
def delete(herder: TheHerder, name: str) -> None:
    """Delete it: whoever drives it sees to it, and to what it has outside (KIP-883)."""
    herder.delete(name)


@router.get("/connectors/{name}/offsets")
def offsets(herder: TheHerder, name: str) -> Offsets:
    """What is committed."""
    return Offsets.of(herder.offsets(name))


@router.patch("/connectors/{name}/offsets")
def alter_offsets(herder: TheHerder, name: str, wanted: Offsets) -> Message:
    """Commit other offsets; only while it is stopped (KIP-875)."""
    herder.alter_offsets(name, wanted.by_partition())
    return Message(message=f"The offsets for connector '{name}' have been altered successfully")


@router.delete("/connectors/{name}/offsets")
def reset_offsets(herder: TheHerder, name: str) -> Message:
    """Forget all commits; only while it is stopped."""
    herder.reset_offsets(name)
    return Message(message=f"The offsets for connector '{name}' have been reset successfully")


@router.get("/connectors/{name}/topics")
def topics(herder: TheHerder, name: str) -> dict[str, ActiveTopics]:
    """Topics of which something was committed or is known."""
    found = sorted({row.partition.topic for row in herder.info(name).partitions})
    return {name: ActiveTopics(topics=found)}


@router.put("/connectors/{name}/topics/reset")
def reset_topics(herder: TheHerder, name: str) -> None:
    """Accepted for Connect's clients; topics are those with commits, and nothing is kept besides."""
    herder.connector(name)


def _config(herder: Herder, name: str) -> dict[str, str] | None:
    try:
        return herder.connector(name).config
    except ConnectorNotFoundException:
        return None


def _with_secrets(config: dict[str, str], before: dict[str, str]) -> dict[str, str]:
    """Whoever reads a configuration, changes it and writes it back has only seen that there is a secret."""
    return {key: before[key] if value == HIDDEN and key in before else value for key, value in config.items()}


def _expect_startable(config: dict[str, str]) -> None:
    problems = check_config(config).problems
    if problems:
        raise ConfigException(problems)


def _expect_task(name: str, task: int, tasks: int) -> None:
    if not 0 <= task < tasks:
        raise NotFoundException(f"connector '{name}' has no task {task}: it has {tasks}")
