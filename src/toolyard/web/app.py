"""The entry module of the web app: opens the services, and makes and serves the ASGI application of them.

No other module of the web app holds all services. Routes and background work receive those that they use.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

from toolyard.accounts.browser_sessions import DeviceCookies
from toolyard.accounts.startup import create_first_admin_link
from toolyard.agents.definitions.watch import load_agents
from toolyard.clients.process_pool import ProcessPool
from toolyard.config.file_io import remove_stale_temporary_files
from toolyard.config.settings.table import Settings
from toolyard.core.services import Services
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.http.event_streams import HEARTBEAT_SECONDS, StreamLimits
from toolyard.gateway.input_required.request_state import RequestStateSealer
from toolyard.registry.public_registry import PublicRegistry
from toolyard.store import Database
from toolyard.types.audit import AuditEntry
from toolyard.types.server import Configuration
from toolyard.types.version import __version__
from toolyard.web import api, ui
from toolyard.web.access.authentication import find_user, is_page_request
from toolyard.web.access.cookies import BrowserCookies
from toolyard.web.account_admin import AccountAdmin
from toolyard.web.agent_tools import AgentDirectory
from toolyard.web.api.openapi import build_openapi_document
from toolyard.web.approval_review import ApprovalExplainer
from toolyard.web.gateway_mount import ADMISSION_CACHE_SECONDS, GatewayFirstApp, GatewayMount
from toolyard.web.http_server.background_work import (
    FileChanges,
    delete_expired_periodically,
    log_invalid_entries,
    preload_libraries,
)
from toolyard.web.http_server.connection_limits import create_connection_limits, raise_descriptor_limit
from toolyard.web.http_server.health import router as health
from toolyard.web.http_server.invalidation import (
    GatewayInstanceSync,
    handle_agent_changes,
    handle_credential_changes,
    handle_server_changes,
    handle_token_changes,
    recheck_listeners_periodically,
)
from toolyard.web.http_server.metrics import Metrics
from toolyard.web.http_server.run import run_server
from toolyard.web.http_server.socket import Listener
from toolyard.web.middleware.authenticate_first import AuthenticateFirst
from toolyard.web.middleware.request_body import BODY_TIMEOUT_SECONDS, RequestBodyLimits
from toolyard.web.middleware.request_guard import RequestGuard
from toolyard.web.middleware.response_body import ResponseBodies
from toolyard.web.middleware.tracing import TraceContextMiddleware, TracingMiddleware
from toolyard.web.problem_details import PROBLEM_TYPE_PREFIX, ProblemDetails, add_error_handlers
from toolyard.web.protected_resource import ResourceServer
from toolyard.web.protected_resource import router as resource_routes
from toolyard.web.public_urls import PublicUrls
from toolyard.web.rendering.renderer import MarkdownRenderer, RenderingProcess, ResultRenderer
from toolyard.web.routes import RouteIndex
from toolyard.web.servers.config_sign_ins import ConfigServerSignIns
from toolyard.web.servers.content import ServerContent
from toolyard.web.servers.icons import ServerIcons
from toolyard.web.servers.new_servers import NewServers, ServerCatalog
from toolyard.web.servers.previews import RegistryIcons, ServerPreviews
from toolyard.web.servers.status import ServerRecords, StatusUpdates
from toolyard.web.servers.tool_acceptance import ToolAcceptance
from toolyard.web.servers.tool_savings import ToolSavings
from toolyard.web.service_lookup import ServiceIndex
from toolyard.web.static_files import VersionedStaticFiles
from toolyard.web.tool_search import ToolSearch
from toolyard.web.ui.chat.page_context import ReconnectBanner
from toolyard.web.ui.components import responses

__all__ = ["AppTimeouts", "ServeOptions", "make_app", "serve"]


@dataclass(frozen=True, slots=True)
class AppTimeouts:
    """Times in seconds that no setting changes."""

    body: float = BODY_TIMEOUT_SECONDS
    """For the arrival of a request's body."""
    heartbeat: float = HEARTBEAT_SECONDS
    """Between two heartbeats of an event stream, each with a check of the sign-in."""
    admission: float = ADMISSION_CACHE_SECONDS
    """For which the gateway does not look up a token and its owner's instances again."""


def make_app(services: Services, timeouts: AppTimeouts = AppTimeouts()) -> FastAPI:  # noqa: B008 - frozen
    """Create the application on services that the caller opens and closes."""
    core, settings, database = services.core, services.settings, services.database
    urls = PublicUrls(settings)
    body_limits = RequestBodyLimits(settings, timeout_seconds=timeouts.body)
    stream_limits = StreamLimits(settings.max_streams_per_person, settings.max_streams, timeouts.heartbeat)
    metrics = Metrics(core.manager.statuses)
    core.call_path.observers.append(metrics.record_call)
    gateway = Gateway(
        core.manager,
        core.tool_directory,
        core.call_path,
        core.meta_tools,
        core.name_assigner,
        core.locks,
        sealer=RequestStateSealer(database.cipher.derive_key("gateway requestState 1")),
        approvals=services.approvals,
        mailbox=database.mailbox,
    )
    services.notifier.on_servers_changed = gateway.on_servers_changed
    services.notifier.on_tools_changed = gateway.client_subscriptions.notify_tools_changed
    resource = ResourceServer(settings, services.net, services.people, urls)
    mount = GatewayMount(
        gateway,
        resource,
        settings,
        services.config,
        services.agent_roster,
        core.manager,
        services.instances,
        services.audit,
        services.people,
        body_limits,
        stream_limits,
        timeouts.admission,
    )
    gateway_instances = GatewayInstanceSync(
        gateway, services.instances, core.manager, core.tool_directory, core.locks
    )
    records = ServerRecords(services.instances, core.manager, core.tool_directory, core.updates)
    icons = ServerIcons(services.net)
    live_updates = StatusUpdates(records)
    rendering = RenderingProcess()
    services.stop_callbacks += [live_updates.close, mount.stop]
    services.end_callbacks += [mount.close, rendering.close]
    for work in (
        handle_token_changes(database.signals, mount),
        handle_credential_changes(database.signals, core.updates),
        handle_agent_changes(database.signals, database.agents, mount, services.notifier),
        handle_server_changes(database.signals, mount, live_updates, gateway_instances),
        recheck_listeners_periodically(mount),
        gateway_instances.run(),
        gateway.remote_calls.run(),
    ):
        services.tasks.spawn(work)
    server_sign_ins = ConfigServerSignIns(
        services.config,
        services.config_sign_ins,
        services.sign_outs,
        urls,
        core.tool_directory,
        core.updates,
        services.audit,
        services.tasks,
    )
    previews = ServerPreviews(
        services.registry, services.issuers, services.instances, core.manager, services.net
    )
    new_servers = NewServers(services.registry, previews, services.audit)
    markdown = MarkdownRenderer(rendering)
    banner = ReconnectBanner(
        services.config,
        services.agent_roster,
        services.callers,
        services.instances,
        core.manager,
        core.call_path,
        server_sign_ins,
    )
    app = GatewayFirstApp(
        title="Toolyard",
        version=__version__,
        # We serve our own OpenAPI document; FastAPI's documentation pages load scripts from other hosts.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    provided = (
        *services.list_provided(),
        urls,
        body_limits,
        stream_limits,
        metrics,
        resource,
        mount,
        gateway_instances,
        records,
        live_updates,
        markdown,
        ResultRenderer(rendering),
        ToolSearch(),
        BrowserCookies(settings, database.cipher.derive_key("csrf")),
        DeviceCookies(database.cipher.derive_key("device cookies")),
        AccountAdmin(
            services.people,
            database.accounts,
            settings,
            services.config,
            services.registry,
            services.sign_outs,
            services.chats,
            core.updates,
            services.audit,
        ),
        ToolAcceptance(
            core.locks, core.tool_directory, database.pins, services.config, services.notifier, services.audit
        ),
        AgentDirectory(
            services.config,
            services.agent_roster,
            services.callers,
            services.instances,
            core.manager,
            core.tool_directory,
            core.call_path,
            core.meta_tools,
        ),
        server_sign_ins,
        banner,
        previews,
        new_servers,
        ServerCatalog(
            services.registry,
            services.config,
            PublicRegistry(services.net, settings.public_registry) if settings.public_registry else None,
        ),
        icons,
        RegistryIcons(services.registry, services.instances, services.callers, records, previews, icons),
        ServerContent(gateway),
        ApprovalExplainer(database.approvals, core.tool_directory, core.manager),
        ToolSavings(
            settings,
            services.config,
            services.callers,
            services.instances,
            core.tool_directory,
            core.call_path,
            services.registry,
            database.usage,
            services.audit,
        ),
    )
    app.state.services = ServiceIndex(provided)
    collections = (health, resource_routes, api.router, ui.router)
    routes = [route for each in collections for route in each.build()]
    app.router.routes.append(RouteIndex(routes, app.state.services))
    app.mount("/static", VersionedStaticFiles())
    app.openapi = lambda: build_openapi_document(app)
    add_error_handlers(app, _render_error_page)
    # Middleware added last runs first.
    if services.tracer.is_on:
        app.add_middleware(TracingMiddleware, tracer=services.tracer)
    app.add_middleware(AuthenticateFirst, bodies=body_limits, as_page=_render_error_page)
    app.add_middleware(ResponseBodies)
    app.add_middleware(RequestGuard, settings=settings, metrics=metrics, error_page_for=_render_error_page)
    app.gateway = RequestGuard(mount, settings, metrics, _render_error_page, serves_pages=False)
    if services.tracer.is_on:
        app.gateway = TraceContextMiddleware(app.gateway, services.tracer)
    return app


async def _render_error_page(request: Request, problem: ProblemDetails) -> Response | None:
    """Return an error page for a browser, with the navigation if it is signed in."""
    if not is_page_request(request) and not _is_opened_in_browser(request):
        return None
    if problem.status < 500:
        await find_user(request)
    title = problem.title if problem.type == f"{PROBLEM_TYPE_PREFIX}limit-reached" else None
    return responses.render_error_page(request, problem.status, problem.detail, problem.hint, title=title)


def _is_opened_in_browser(request: Request) -> bool:
    """Return True if a person opened an address outside of the pages, the API excepted."""
    is_api = request.url.path.startswith(("/api/", "/mcp"))
    return request.method == "GET" and not is_api and "text/html" in request.headers.get("accept", "")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Configuration, settings and data directory to serve."""

    configuration: Configuration
    settings: Settings
    data_dir: Path
    config_path: str | None = None
    """Configuration file given explicitly, if any."""


async def serve(
    options: ServeOptions,
    listener: Listener,
    announce: Callable[[str | None], None],
    *,
    wrap_app: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    handles_signals: bool = True,
    processes: ProcessPool | None = None,
    on_open: Callable[[Database, str], None] = lambda database, url: None,
) -> None:
    """Serve until a stop signal, or until cancelled.

    ``announce`` is called once requests are accepted, with an invitation link if no admin exists yet.
    ``processes`` are shared with others, who close them. ``on_open`` gets the database and the address.
    Raises ToolyardError if the server cannot start.
    """
    settings, data_dir = options.settings, options.data_dir
    async with AsyncExitStack() as closing:
        closing.callback(listener.close)
        remove_stale_temporary_files(data_dir)
        agents = load_agents(settings.agents_path, data_dir)
        log_invalid_entries(options.configuration, options.configuration.servers)
        services = await Services.open(
            options.configuration,
            settings,
            data_dir,
            agents,
            PublicUrls(settings).build_links(listener.address),
            processes,
        )
        closing.push_async_callback(services.close)
        core = services.core
        file_changes = FileChanges(
            services.config,
            settings,
            services.configured_servers,
            services.apply_agents,
            core.tool_directory,
            core.call_path,
        )
        file_changes.apply_agents(agents)
        public = (settings.public_url or listener.address).rstrip("/")
        on_open(services.database, public)
        invitation = await create_first_admin_link(services.people, settings, public)
        if invitation is not None:
            await services.database.audit.write(
                AuditEntry(
                    at=time.time(), action="user.invite", actor="", actor_name="server start", target="admin"
                )
            )

        def start_background_work() -> None:
            announce(invitation)
            connecting = services.configured_servers.connect_shared_in_background() if settings.warm else None
            for work in (
                file_changes.log_agent_problems(connecting),
                preload_libraries(services.models, services.chats),
                delete_expired_periodically(services.database.expiry, settings),
                file_changes.follow_configuration(options.config_path),
                file_changes.follow_agents(agents),
            ):
                services.tasks.spawn(work)

        # Must follow Services.open, which records the original limit for child processes.
        limits = create_connection_limits(settings, raise_descriptor_limit())
        await run_server(
            wrap_app(make_app(services)),
            listener,
            on_listening=start_background_work,
            on_stopping=services.stop,
            end_work=services.end_work,
            limits=limits,
            handles_signals=handles_signals,
        )
