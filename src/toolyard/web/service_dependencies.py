"""Parameters of route handlers: the user by right, and one type per service.

A handler receives only the services that it uses.
"""

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
from toolyard.web.service_lookup import SERVICE
from toolyard.web.tool_search import ToolSearch

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
    "ToolSearchDep",
    "UpdatesDep",
    "UrlsDep",
    "UsageDep",
    "UserToolsDep",
]

CurrentUser = Annotated[RequestUser, Depends(require_user)]
BrowserUser = Annotated[RequestUser, Depends(require_browser_user)]
"""User in a browser or the local user; API tokens are refused."""
AdminUser = Annotated[RequestUser, Depends(require_admin)]

AccountAdminDep = Annotated[AccountAdmin, SERVICE]
AccountsDep = Annotated[SqlAccountStorage, SERVICE]
AgentDirectoryDep = Annotated[AgentDirectory, SERVICE]
AgentEditorDep = Annotated[AgentEditor, SERVICE]
AgentRosterDep = Annotated[AgentRoster, SERVICE]
ApprovalExplainerDep = Annotated[ApprovalExplainer, SERVICE]
ApprovalsDep = Annotated[SqlApprovalStore, SERVICE]
AuditDep = Annotated[AuditRecorder, SERVICE]
AuditLogDep = Annotated[SqlAuditLog, SERVICE]
UsageDep = Annotated[SqlUsage, SERVICE]
ToolSavingsDep = Annotated[ToolSavings, SERVICE]
AuthStorageDep = Annotated[SqlAuthStorage, SERVICE]
CallPathDep = Annotated[CallPath, SERVICE]
CallersDep = Annotated[CallerCache, SERVICE]
ChatStoreDep = Annotated[SqlChatStore, SERVICE]
ChatsDep = Annotated[ChatService, SERVICE]
ConfigDep = Annotated[CurrentConfig, SERVICE]
ConfiguredServersDep = Annotated[ConfiguredServers, SERVICE]
DatabaseDep = Annotated[Database, SERVICE]
InstanceSyncDep = Annotated[InstanceSync, SERVICE]
IssuersDep = Annotated[IssuerConfirmation, SERVICE]
LiveUpdatesDep = Annotated[StatusUpdates, SERVICE]
LocksDep = Annotated[CombinedLocks, SERVICE]
ManagerDep = Annotated[ConnectionManager, SERVICE]
MarkdownDep = Annotated[MarkdownRenderer, SERVICE]
MetricsDep = Annotated[Metrics, SERVICE]
NewServersDep = Annotated[NewServers, SERVICE]
ModelRegistryDep = Annotated[ModelRegistry, SERVICE]
RegistryIconsDep = Annotated[RegistryIcons, SERVICE]
NotifierDep = Annotated[ChangeNotifier, SERVICE]
PendingItemsDep = Annotated[SqlPendingItems, SERVICE]
PeopleDep = Annotated[AccountService, SERVICE]
PreviewsDep = Annotated[ServerPreviews, SERVICE]
ProposalsDep = Annotated[Proposals, SERVICE]
QuestionsDep = Annotated[SqlQuestionStore, SERVICE]
RegistryDep = Annotated[Registry, SERVICE]
ResultRendererDep = Annotated[ResultRenderer, SERVICE]
ServerCatalogDep = Annotated[ServerCatalog, SERVICE]
ServerContentDep = Annotated[ServerContent, SERVICE]
ServerIconsDep = Annotated[ServerIcons, SERVICE]
ServerRecordsDep = Annotated[ServerRecords, SERVICE]
ServerSignInsDep = Annotated[ConfigServerSignIns, SERVICE]
SettingsDep = Annotated[Settings, SERVICE]
SignInsDep = Annotated[InstanceSignIns, SERVICE]
SignOutsDep = Annotated[SignOutService, SERVICE]
StopSignalDep = Annotated[StopSignal, SERVICE]
StreamLimitsDep = Annotated[StreamLimits, SERVICE]
ToolAcceptanceDep = Annotated[ToolAcceptance, SERVICE]
ToolDirectoryDep = Annotated[ToolDirectory, SERVICE]
ToolSearchDep = Annotated[ToolSearch, SERVICE]
UpdatesDep = Annotated[ServerUpdates, SERVICE]
UrlsDep = Annotated[PublicUrls, SERVICE]
UserToolsDep = Annotated[UserTools, SERVICE]
