"""Parameters of route handlers: the user by right, and one type per service.

A handler receives only the services that it uses.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from toolyard.accounts import AccountService
from toolyard.agents.chat.chats import ChatService
from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.clients import ConnectionManager
from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.config.settings.table import Settings
from toolyard.core.agent_editor import AgentEditor
from toolyard.core.agents import AgentRoster
from toolyard.core.audit import AuditRecorder
from toolyard.core.caller_cache import CallerCache
from toolyard.core.current_config import ChangeNotifier, ConfiguredServers, CurrentConfig
from toolyard.core.instance_sync import InstanceSync
from toolyard.core.interface_links import StopSignal
from toolyard.core.server_updates import ServerUpdates
from toolyard.core.user_tools import UserTools
from toolyard.gateway.http.event_streams import StreamLimits
from toolyard.registry import Registry
from toolyard.registry.issuer_confirmation import IssuerConfirmation
from toolyard.registry.model_registry import ModelRegistry
from toolyard.registry.proposals import Proposals
from toolyard.registry.sign_in import InstanceSignIns
from toolyard.registry.sign_out import SignOutService
from toolyard.store import Database
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.store.repositories.approvals import SqlApprovalStore, SqlPendingItems, SqlQuestionStore
from toolyard.store.repositories.audit import SqlAuditLog
from toolyard.store.repositories.chats import SqlChatStore
from toolyard.store.repositories.sign_ins import SqlAuthStorage
from toolyard.store.repositories.usage import SqlUsage
from toolyard.types.account import RequestUser
from toolyard.web.access.authentication import require_admin, require_browser_user, require_user
from toolyard.web.account_admin import AccountAdmin
from toolyard.web.agent_tools import AgentDirectory
from toolyard.web.approval_review import ApprovalExplainer
from toolyard.web.http_server.metrics import Metrics
from toolyard.web.public_urls import PublicUrls
from toolyard.web.rendering.renderer import MarkdownRenderer, ResultRenderer
from toolyard.web.servers.config_sign_ins import ConfigServerSignIns
from toolyard.web.servers.content import ServerContent
from toolyard.web.servers.icons import ServerIcons
from toolyard.web.servers.new_servers import NewServers, ServerCatalog
from toolyard.web.servers.previews import RegistryIcons, ServerPreviews
from toolyard.web.servers.status import ServerRecords, StatusUpdates
from toolyard.web.servers.tool_acceptance import ToolAcceptance
from toolyard.web.servers.tool_savings import ToolSavings
from toolyard.web.service_lookup import uses

__all__ = [
    "AccountAdminDep",
    "AccountsDep",
    "AdminUser",
    "AgentDirectoryDep",
    "AgentEditorDep",
    "AgentRosterDep",
    "ApprovalExplainerDep",
    "ApprovalsDep",
    "AuditDep",
    "AuditLogDep",
    "AuthStorageDep",
    "BrowserUser",
    "CallPathDep",
    "CallersDep",
    "ChatStoreDep",
    "ChatsDep",
    "ConfigDep",
    "ConfiguredServersDep",
    "CurrentUser",
    "DatabaseDep",
    "InstanceSyncDep",
    "IssuersDep",
    "LiveUpdatesDep",
    "LocksDep",
    "ManagerDep",
    "MarkdownDep",
    "MetricsDep",
    "ModelRegistryDep",
    "NewServersDep",
    "NotifierDep",
    "PendingItemsDep",
    "PeopleDep",
    "PreviewsDep",
    "ProposalsDep",
    "QuestionsDep",
    "RegistryDep",
    "RegistryIconsDep",
    "ResultRendererDep",
    "ServerCatalogDep",
    "ServerContentDep",
    "ServerIconsDep",
    "ServerRecordsDep",
    "ServerSignInsDep",
    "SettingsDep",
    "SignInsDep",
    "SignOutsDep",
    "StopSignalDep",
    "StreamLimitsDep",
    "ToolAcceptanceDep",
    "ToolDirectoryDep",
    "ToolSavingsDep",
    "UpdatesDep",
    "UrlsDep",
    "UsageDep",
    "UserToolsDep",
]

CurrentUser = Annotated[RequestUser, Depends(require_user)]
BrowserUser = Annotated[RequestUser, Depends(require_browser_user)]
"""User in a browser or the local user; API tokens are refused."""
AdminUser = Annotated[RequestUser, Depends(require_admin)]

AccountAdminDep = Annotated[AccountAdmin, uses(AccountAdmin)]
AccountsDep = Annotated[SqlAccountStorage, uses(SqlAccountStorage)]
AgentDirectoryDep = Annotated[AgentDirectory, uses(AgentDirectory)]
AgentEditorDep = Annotated[AgentEditor, uses(AgentEditor)]
AgentRosterDep = Annotated[AgentRoster, uses(AgentRoster)]
ApprovalExplainerDep = Annotated[ApprovalExplainer, uses(ApprovalExplainer)]
ApprovalsDep = Annotated[SqlApprovalStore, uses(SqlApprovalStore)]
AuditDep = Annotated[AuditRecorder, uses(AuditRecorder)]
AuditLogDep = Annotated[SqlAuditLog, uses(SqlAuditLog)]
UsageDep = Annotated[SqlUsage, uses(SqlUsage)]
ToolSavingsDep = Annotated[ToolSavings, uses(ToolSavings)]
AuthStorageDep = Annotated[SqlAuthStorage, uses(SqlAuthStorage)]
CallPathDep = Annotated[CallPath, uses(CallPath)]
CallersDep = Annotated[CallerCache, uses(CallerCache)]
ChatStoreDep = Annotated[SqlChatStore, uses(SqlChatStore)]
ChatsDep = Annotated[ChatService, uses(ChatService)]
ConfigDep = Annotated[CurrentConfig, uses(CurrentConfig)]
ConfiguredServersDep = Annotated[ConfiguredServers, uses(ConfiguredServers)]
DatabaseDep = Annotated[Database, uses(Database)]
InstanceSyncDep = Annotated[InstanceSync, uses(InstanceSync)]
IssuersDep = Annotated[IssuerConfirmation, uses(IssuerConfirmation)]
LiveUpdatesDep = Annotated[StatusUpdates, uses(StatusUpdates)]
LocksDep = Annotated[CombinedLocks, uses(CombinedLocks)]
ManagerDep = Annotated[ConnectionManager, uses(ConnectionManager)]
MarkdownDep = Annotated[MarkdownRenderer, uses(MarkdownRenderer)]
MetricsDep = Annotated[Metrics, uses(Metrics)]
NewServersDep = Annotated[NewServers, uses(NewServers)]
ModelRegistryDep = Annotated[ModelRegistry, uses(ModelRegistry)]
RegistryIconsDep = Annotated[RegistryIcons, uses(RegistryIcons)]
NotifierDep = Annotated[ChangeNotifier, uses(ChangeNotifier)]
PendingItemsDep = Annotated[SqlPendingItems, uses(SqlPendingItems)]
PeopleDep = Annotated[AccountService, uses(AccountService)]
PreviewsDep = Annotated[ServerPreviews, uses(ServerPreviews)]
ProposalsDep = Annotated[Proposals, uses(Proposals)]
QuestionsDep = Annotated[SqlQuestionStore, uses(SqlQuestionStore)]
RegistryDep = Annotated[Registry, uses(Registry)]
ResultRendererDep = Annotated[ResultRenderer, uses(ResultRenderer)]
ServerCatalogDep = Annotated[ServerCatalog, uses(ServerCatalog)]
ServerContentDep = Annotated[ServerContent, uses(ServerContent)]
ServerIconsDep = Annotated[ServerIcons, uses(ServerIcons)]
ServerRecordsDep = Annotated[ServerRecords, uses(ServerRecords)]
ServerSignInsDep = Annotated[ConfigServerSignIns, uses(ConfigServerSignIns)]
SettingsDep = Annotated[Settings, uses(Settings)]
SignInsDep = Annotated[InstanceSignIns, uses(InstanceSignIns)]
SignOutsDep = Annotated[SignOutService, uses(SignOutService)]
StopSignalDep = Annotated[StopSignal, uses(StopSignal)]
StreamLimitsDep = Annotated[StreamLimits, uses(StreamLimits)]
ToolAcceptanceDep = Annotated[ToolAcceptance, uses(ToolAcceptance)]
ToolDirectoryDep = Annotated[ToolDirectory, uses(ToolDirectory)]
UpdatesDep = Annotated[ServerUpdates, uses(ServerUpdates)]
UrlsDep = Annotated[PublicUrls, uses(PublicUrls)]
UserToolsDep = Annotated[UserTools, uses(UserTools)]
