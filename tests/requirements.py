"""Every sentence of the source documents of Toolyard, and the tests that verify it.

The quotes are checked where the documents are in a folder ``sources`` beside the checkout, or in the folder
of the variable TOOLYARD_SOURCES. A sentence has tests, or the reason why it has none: it does not describe
behaviour (history, file names of another program, a reason), the design overrules it, or it is planned for
later. Names that the design changed (``CODEX_TOOLLOOP_…`` became ``TOOLYARD_…``) are the same behaviour under
another name. ``tests/test_requirements.py`` checks this file.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HEADINGS", "REQUIREMENTS", "SECTIONS", "Requirement"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One sentence. ``overruled`` and ``later`` ones may have tests for the part that exists."""

    id: str
    source: str
    sentence: str
    tests: tuple[str, ...] = ()
    no_behaviour: str | None = None
    overruled: str | None = None
    later: str | None = None


# Test modules.

TEAM = "tests/journeys/sign_in/test_team_signs_in.py"
SIGNING = "tests/registry/test_sign_in.py"
CREDENTIALS = "tests/registry/test_auth_provider_factory.py"
DRAFTS = "tests/registry/test_validation.py"
SLUGS = "tests/registry/test_slugs.py"
COMING_BACK = "tests/web/sign_in/test_oauth.py"
PAGES_MINE = "tests/web/pages/test_instances.py"
PAGES_REGISTRY = "tests/web/pages/test_registry.py"
API_SERVERS = "tests/web/api/test_servers.py"
API_INSTANCES = "tests/web/api/test_instances.py"
INSTANCES = "tests/clients/test_instance_isolation.py"
AGENTS_FILE = "tests/agents/test_agents_md.py"
PATTERN_CHECK = "tests/agents/test_tool_pattern_check.py"
TOOL_LIST = "tests/agents/test_tools_list.py"
CACHE = "tests/catalog/test_cache.py"
DEFINITIONS = "tests/catalog/test_tool_validation.py"
NAMES = "tests/catalog/test_names.py"
BAD_HTTP = "tests/clients/test_bad_http_servers.py"
BAD_STDIO = "tests/clients/test_bad_stdio_servers.py"
ADDRESSES = "tests/config/entries/test_value_checks.py"
APPROVALS = "tests/config/test_file_approvals.py"
COMPATIBLE = "tests/config/entries/test_compatible_dialect.py"
DISCOVERY = "tests/config/test_discovery.py"
FILES = "tests/config/test_file_reader.py"
READER = "tests/config/test_json_reader.py"
ROOM = "tests/config/test_config_package.py"
CONFIG = "tests/config/test_sources.py"
STRICT = "tests/config/entries/test_strict_dialect.py"
TRUST = "tests/config/entries/test_trust_and_bundles.py"
FAILURE = "tests/results/test_error_result.py"
FENCING = "tests/results/test_untrusted_text.py"
SHAPING = "tests/results/test_shape.py"
SURVIVES = "tests/journeys/test_process_cleanup.py"
REAL = "tests/journeys/test_real_servers.py"
SMOKE = "tests/journeys/test_smoke_plan.py"
JOURNEY = "tests/journeys/test_source_documents.py"
BUNDLES = "tests/policy/test_bundles.py"
CHAIN = "tests/policy/test_rule_chain.py"
GLOB = "tests/policy/test_glob.py"
PATTERNS = "tests/policy/test_agent_patterns.py"
PUBLIC = "tests/test_public_api.py"
FRAMING = "tests/protocol/test_framing.py"
CALL = "tests/library/test_call.py"
OPEN = "tests/library/test_open.py"
PERMISSION = "tests/library/test_permission.py"
TOOLS = "tests/library/test_tools.py"
ZERO = "tests/library/test_lazy_server_start.py"

# Reasons that many sentences share.

HISTORY = "how it came about, or why"
THEIR_CODE = "names files, types or libraries of another program"
FACT = "a fact about something else"

LAZY = "DESIGN section 4, connect: lazy by default; `connect()` and `toolyard serve` do it at once"
SSE = "DESIGN section 4, transports: HTTP, SSE and stdio"
SLIP = "DESIGN section 4, write tools: `readOnlyHint` is the key, v1.14.1's `readOnly` was a slip"
KEPT_CATALOGUE = "DESIGN section 7: the catalogue persists, so that listing needs no process"
NATIVE = "DESIGN section 4, name taken by a native tool: the native tool keeps its name"
CHAT_CHOICE = "DESIGN section 8: the chat's choice is a link of the chain"
CHAT = "tests/journeys/test_chat.py"
CHAT_LANES = "tests/clients/test_dedicated_connections.py"

# SPEC 010 of Codex ToolLoop.

_SPEC = "toolloop-spec-010.md"
_PRECEDENCE = f"{CONFIG}::test_overrides_win_over_the_environment_and_that_over_the_file"
_ORDER = f"{CONFIG}::test_the_file_is_chosen_in_the_documented_order"
_A_CHILD = f"{JOURNEY}::test_a_stdio_server_is_a_child_with_its_command_arguments_and_variables"
_EVERY_KEY = f"{STRICT}::test_every_key_of_the_dialect_arrives"
_WRONG_VALUE = f"{STRICT}::test_a_wrong_value_is_reported_with_the_found_and_expected_type"
_WHOLE = f"{JOURNEY}::test_the_variable_may_hold_a_whole_configuration_in_the_very_schema_of_the_file"
_PROVIDER = f"{JOURNEY}::test_an_auth_provider_given_by_its_id_signs_every_request_and_is_told_of_a_refusal"
_MEDIA = f"{SHAPING}::test_media_go_once_and_never_as_base64_text"
_BUNDLE_CHECKS = f"{TRUST}::test_a_bundle_is_checked_like_everything_else"

SPEC_010 = (
    Requirement(
        "spec-010/sources-0", _SPEC, "Configuration sources (highest precedence wins):", (_PRECEDENCE,)
    ),
    Requirement(
        "spec-010/sources-1",
        _SPEC,
        "1. **Runtime overrides** passed by the caller (`loadMcpConfig({ overrides })`)",
        (_PRECEDENCE, f"{CONFIG}::test_the_highest_source_that_has_an_entry_gives_it"),
    ),
    Requirement(
        "spec-010/sources-2",
        _SPEC,
        "2. **Environment**: `CODEX_TOOLLOOP_MCP_CONFIG_JSON` (inline JSON)",
        (_PRECEDENCE, _WHOLE),
    ),
    Requirement(
        "spec-010/sources-3",
        _SPEC,
        "3. **File-based config** with the following precedence order:",
        (_ORDER, f"{CONFIG}::test_only_one_file_is_read"),
    ),
    Requirement(
        "spec-010/sources-3a",
        _SPEC,
        'explicit path argument (e.g., `loadMcpConfig({ path: "./custom.json" })`)',
        (_ORDER, f"{CONFIG}::test_a_relative_path_starts_from_the_working_directory"),
    ),
    Requirement(
        "spec-010/sources-3b",
        _SPEC,
        "environment variable (`CODEX_TOOLLOOP_MCP_CONFIG_PATH`)",
        (_ORDER,),
    ),
    Requirement(
        "spec-010/sources-3c",
        _SPEC,
        "discovered config (auto-discovery of `codex-toolloop.mcp.json` or `.codex-toolloop/mcp.json` "
        "walking up from cwd)",
        (
            _ORDER,
            f"{DISCOVERY}::test_each_of_the_three_names_is_found",
            f"{DISCOVERY}::test_the_walk_goes_upward",
        ),
    ),
    Requirement(
        "spec-010/variables-1",
        _SPEC,
        "`CODEX_TOOLLOOP_MCP_CONFIG_PATH` — explicit JSON file path",
        (_ORDER, f"{CONFIG}::test_a_variables_path_that_is_missing_is_an_error_that_names_both"),
    ),
    Requirement(
        "spec-010/variables-2",
        _SPEC,
        "`CODEX_TOOLLOOP_MCP_CONFIG_JSON` — JSON string containing a partial or full config",
        (_PRECEDENCE, _WHOLE),
    ),
    Requirement(
        "spec-010/discovery-0",
        _SPEC,
        "Discovery walks upward from `cwd` looking for the first existing file:",
        (
            f"{DISCOVERY}::test_the_walk_goes_upward",
            f"{DISCOVERY}::test_the_walk_starts_where_one_is",
            f"{DISCOVERY}::test_a_nearer_folder_comes_before_a_better_name",
        ),
    ),
    Requirement(
        "spec-010/discovery-1",
        _SPEC,
        "1. `codex-toolloop.mcp.json`",
        (f"{DISCOVERY}::test_in_one_folder_the_names_have_an_order",),
    ),
    Requirement(
        "spec-010/discovery-2",
        _SPEC,
        "2. `.codex-toolloop/mcp.json`",
        (f"{DISCOVERY}::test_in_one_folder_the_names_have_an_order",),
    ),
    Requirement(
        "spec-010/format-1",
        _SPEC,
        "JSON only (v1).",
        (
            f"{FILES}::test_malformed_json_is_an_error_with_its_line",
            f"{READER}::test_text_that_looks_like_json_is_accepted_only_if_it_is_json_with_our_extras",
        ),
    ),
    Requirement(
        "spec-010/format-2",
        _SPEC,
        "The file schema is identical to the `CODEX_TOOLLOOP_MCP_CONFIG_JSON` schema.",
        (_WHOLE,),
    ),
    Requirement(
        "spec-010/schema-example",
        _SPEC,
        'Top-level object: ```json { "servers": { "repo": { "trust": "trusted", "transport": '
        '{ "type": "http", "url": "http://localhost:4010/mcp" } } }, "bundles": { "repoRead": '
        '{ "serverId": "repo", "mode": "direct", "allowTools": ["readFile", "search"] } } } ```',
        (
            f"{STRICT}::test_the_examples_of_the_specification_are_valid",
            f"{STRICT}::test_the_top_must_be_an_object",
        ),
    ),
    Requirement(
        "spec-010/server-trust",
        _SPEC,
        'Server config: - `trust`: `"trusted" | "untrusted"`',
        (f"{STRICT}::test_trust_is_required", _WRONG_VALUE),
    ),
    Requirement(
        "spec-010/server-http",
        _SPEC,
        '`transport`: - `{ type: "http", url: string, headers?: Record<string,string>, '
        "authProviderId?: string }`",
        (
            f"{STRICT}::test_the_examples_of_the_specification_are_valid",
            f"{JOURNEY}::test_headers_of_the_entry_arrive_at_the_server_with_every_request",
            _PROVIDER,
            _WRONG_VALUE,
        ),
    ),
    Requirement(
        "spec-010/server-sse",
        _SPEC,
        '`{ type: "sse", url: string, headers?: Record<string,string>, authProviderId?: string }`',
        (_EVERY_KEY, f"{BAD_HTTP}::test_a_server_of_the_older_transport_works"),
    ),
    Requirement(
        "spec-010/server-stdio",
        _SPEC,
        '`{ type: "stdio", command: string, args?: string[], cwd?: string, env?: Record<string,string> }`',
        (
            _EVERY_KEY,
            _A_CHILD,
        ),
    ),
    Requirement(
        "spec-010/bundle-server",
        _SPEC,
        "Bundle config: - `serverId`: must refer to an entry in `servers`",
        (
            f"{TRUST}::test_a_bundle_without_its_server_is_an_error_with_a_suggestion",
            f"{CONFIG}::test_references_are_checked_after_the_merge",
        ),
    ),
    Requirement("spec-010/bundle-mode", _SPEC, '`mode`: `"direct" | "meta"`', (_BUNDLE_CHECKS,)),
    Requirement(
        "spec-010/bundle-direct",
        _SPEC,
        "`direct`: inject namespaced tool definitions into the model",
        (f"{TOOLS}::test_a_direct_bundle_gives_a_model_namespaced_definitions",),
    ),
    Requirement(
        "spec-010/bundle-meta",
        _SPEC,
        "`meta`: expose the MCP meta-tool surface (SPEC 011)",
        (
            f"{TOOLS}::test_a_meta_bundle_keeps_its_tools_out_of_a_models_list",
            f"{BUNDLES}::test_a_meta_bundle_is_reached_through_meta_and_not_directly",
            "tests/library/test_meta_tools.py::test_a_meta_bundle_is_reached_through_the_meta_tools",
        ),
    ),
    Requirement(
        "spec-010/bundle-names",
        _SPEC,
        "`allowTools` / `denyTools`: - tool names are server-local (pre-namespacing)",
        (
            f"{CHAIN}::test_allow_tools_match_the_servers_own_name_and_not_the_exposed_one",
            f"{TOOLS}::test_bundles_narrow_their_server_and_hide_the_others",
        ),
    ),
    Requirement(
        "spec-010/allow-optional",
        _SPEC,
        "`allowTools` is optional for **trusted** servers",
        (
            f"{BUNDLES}::test_nothing_selected_leaves_the_servers_tools_as_they_are",
            f"{TOOLS}::test_bundles_of_several_servers_stand_side_by_side",
        ),
    ),
    Requirement(
        "spec-010/allow-required",
        _SPEC,
        "`allowTools` is **required** for **untrusted** servers (enforced by SPEC 011)",
        (
            f"{TRUST}::test_an_untrusted_server_needs_an_allowlist",
            f"{TRUST}::test_one_bundle_without_an_allowlist_will_not",
            f"{CHAIN}::test_an_untrusted_server_without_any_allowlist_has_nothing",
        ),
    ),
    Requirement(
        "spec-010/allow-not-empty",
        _SPEC,
        "`allowTools` cannot be an empty array:",
        (_BUNDLE_CHECKS, _WRONG_VALUE),
    ),
    Requirement(
        "spec-010/allow-omitted",
        _SPEC,
        "omit `allowTools` to allow all tools (trusted servers only)",
        (
            f"{BUNDLES}::test_a_bundle_without_an_allowlist_does_not_empty_the_intersection",
            f"{TOOLS}::test_bundles_of_several_servers_stand_side_by_side",
            f"{PERMISSION}::test_an_allowlist_on_its_bundles_alone_counts_only_where_a_bundle_is_selected",
        ),
    ),
    Requirement(
        "spec-010/allow-intersection",
        _SPEC,
        "when intersecting multiple allowlists (SPEC 011), an empty intersection means allow no tools",
        (
            f"{BUNDLES}::test_an_empty_intersection_allows_nothing",
            f"{TOOLS}::test_bundles_narrow_their_server_and_hide_the_others",
        ),
    ),
    Requirement(
        "spec-010/deny-overrides",
        _SPEC,
        "**Precedence rule**: When both `allowTools` and `denyTools` are present, apply `allowTools` first "
        "to produce an initial allowed set, then remove any entries matched by `denyTools`. In other words, "
        '**deny overrides allow**. Example: if `allowTools = ["read", "write", "delete"]` and '
        '`denyTools = ["delete"]`, the final allowed set is `["read", "write"]`.',
        (
            f"{CHAIN}::test_deny_overrides_allow",
            f"{BUNDLES}::test_allow_comes_first_then_deny_and_deny_wins",
        ),
    ),
    Requirement("spec-010/api-0", _SPEC, "### Public API Owned by `packages/mcp`:", no_behaviour=THEIR_CODE),
    Requirement(
        "spec-010/api-parse",
        _SPEC,
        "`parseMcpConfig(input: unknown): McpConfig`",
        (
            f"{STRICT}::test_text_bytes_and_mapping_mean_the_same",
            f"{PUBLIC}::test_these_names_are_exported_and_no_others",
        ),
    ),
    Requirement(
        "spec-010/api-load",
        _SPEC,
        "`loadMcpConfig(options?: LoadMcpConfigOptions): Promise<McpConfigLoadResult>`",
        (
            f"{CONFIG}::test_every_entry_knows_where_it_came_from",
            f"{PUBLIC}::test_these_names_are_exported_and_no_others",
        ),
    ),
    Requirement(
        "spec-010/api-discover",
        _SPEC,
        "`discoverMcpConfigPath(...)`",
        (
            f"{DISCOVERY}::test_the_walk_starts_where_one_is",
            f"{PUBLIC}::test_these_names_are_exported_and_no_others",
        ),
    ),
    Requirement(
        "spec-010/lifecycle-0",
        _SPEC,
        "## Client lifecycle Owned by `packages/mcp`.",
        no_behaviour=THEIR_CODE,
    ),
    Requirement(
        "spec-010/lifecycle-lazy",
        _SPEC,
        "Responsibilities: - lazy connect: create MCP clients only when a server is actually used",
        (
            f"{OPEN}::test_opening_starts_nothing",
            f"{ZERO}::test_and_the_first_call_of_a_tool_starts_its_server_alone",
            f"{ZERO}::test_a_call_in_an_empty_yard_starts_the_server_that_the_name_points_to_and_no_other",
        ),
    ),
    Requirement(
        "spec-010/lifecycle-ttl",
        _SPEC,
        "tool catalog caching with TTL (`toolsTtlMs`)",
        (
            f"{ZERO}::test_within_its_time_a_listing_is_not_asked_for_again",
            f"{ZERO}::test_past_its_time_a_connected_server_is_asked_again_and_another_is_not",
            f"{CACHE}::test_within_its_ttl_it_is_answered_from_memory",
            f"{CACHE}::test_past_its_ttl_it_is_fetched_from_a_connected_server",
        ),
    ),
    Requirement(
        "spec-010/lifecycle-close",
        _SPEC,
        "deterministic cleanup: - `close(serverId)`",
        (
            f"{BAD_STDIO}::test_closing_ends_calls_in_flight_and_those_that_wait_for_the_connect",
            f"{BAD_STDIO}::test_a_server_that_will_not_go_is_killed_within_bounds",
            f"{BAD_STDIO}::test_child_processes_of_a_server_are_killed_with_it",
        ),
    ),
    Requirement(
        "spec-010/lifecycle-close-all",
        _SPEC,
        "`closeAll()` (must always be called by the orchestrator / run boundary)",
        (
            f"{JOURNEY}::test_closing_is_for_everything_even_when_the_program_fails",
            f"{CALL}::test_a_yard_that_closes_ends_every_call_wherever_it_waits",
            f"{CALL}::test_a_closed_yard_says_so_and_stays_closed",
        ),
    ),
    Requirement(
        "spec-010/auth-1",
        _SPEC,
        "For remote MCP servers that require OAuth 2.1, configure `authProviderId` on the server transport "
        "and supply an `authProvidersById` map to `McpClientManager` at runtime.",
        (
            _PROVIDER,
            f"{JOURNEY}::test_a_provider_that_was_not_given_is_named_and_without_one_a_sign_in_is_asked_for",
        ),
    ),
    Requirement(
        "spec-010/auth-2",
        _SPEC,
        "The manager resolves the provider and passes it to AI SDK `createMCPClient({ authProvider })`.",
        (_PROVIDER,),
    ),
    Requirement(
        "spec-010/auth-3",
        _SPEC,
        "This keeps interactive flows and secrets out of static config files while remaining MCP 2025-11-25 "
        "compliant.",
        no_behaviour=HISTORY,
    ),
    Requirement(
        "spec-010/safety-1",
        _SPEC,
        "MCP server configuration is an explicit allowlist (no discovery of external servers at runtime).",
        (
            f"{PERMISSION}::test_only_configured_servers_exist",
            f"{OPEN}::test_nothing_named_and_nothing_there_is_a_yard_without_servers",
        ),
    ),
    Requirement(
        "spec-010/safety-2",
        _SPEC,
        "STDIO servers are local-only and must be configured explicitly.",
        (
            f"{OPEN}::test_of_a_discovered_file_that_was_not_approved_nothing_starts",
            f"{APPROVALS}::test_a_discovered_file_waits_for_approval_and_nothing_expands",
        ),
    ),
    Requirement(
        "spec-010/safety-3",
        _SPEC,
        "Networked servers must be configured with explicit URLs and optional headers.",
        (
            _WRONG_VALUE,
            f"{COMPATIBLE}::test_an_entry_that_cannot_be_reached_is_an_error",
            f"{JOURNEY}::test_headers_of_the_entry_arrive_at_the_server_with_every_request",
        ),
    ),
    Requirement(
        "spec-010/safety-4",
        _SPEC,
        "Tool definitions and tool outputs from **untrusted** servers must be treated as hostile input "
        "(enforced via SPEC 011).",
        (
            f"{PERMISSION}::test_a_model_does_not_see_an_untrusted_server_directly_nor_call_it",
            f"{PERMISSION}::test_the_operator_may_call_allowed_tools_of_an_untrusted_server_and_gets_fenced_results",
            f"{PERMISSION}::test_errors_of_an_untrusted_server_are_fenced_as_well",
            f"{FENCING}::test_the_closing_mark_stands_once_and_at_the_end",
        ),
    ),
    Requirement(
        "spec-010/media-1",
        _SPEC,
        "**Media serialization in MCP tool results:** MCP tool results carrying non-text media (images, "
        "audio, binary files) may be serialized as JSON/plain text (e.g., large base64 blobs) rather than "
        "converted into AI SDK multimodal message types.",
        (_MEDIA, f"{SHAPING}::test_base64_is_never_text_even_in_a_block_of_the_wrong_shape"),
        overruled="DESIGN section 9: images and audio go as media, once, never as base64 text",
    ),
    Requirement(
        "spec-010/media-2",
        _SPEC,
        "This can significantly inflate token/context usage and degrade model performance.",
        no_behaviour=HISTORY,
    ),
    Requirement(
        "spec-010/media-3",
        _SPEC,
        "**Mitigation:** - Implementers should explicitly convert non-text media to AI SDK multimodal "
        "content "
        "types (`image-data`, `file-data`, etc.) or use lightweight references (URLs, artifact paths).",
        (_MEDIA, f"{SHAPING}::test_a_blob_is_described_in_the_text_and_goes_as_media"),
    ),
    Requirement(
        "spec-010/media-4",
        _SPEC,
        "Reference tool outputs and untrusted input handling in SPEC 011.",
        no_behaviour=HISTORY,
    ),
    Requirement(
        "spec-010/media-5",
        _SPEC,
        "Media conversion is recommended at the tool boundary (e.g., in `dynamicTool()` wrappers) to "
        "normalize results before consumption.",
        (f"{CALL}::test_media_go_beside_the_text_and_never_as_text",),
    ),
)

# BooChat v1.14.1: one server.

_ONE = "boochat-v1.14.1-single-server.md"
_DISCOVERY_TEST = f"{SMOKE}::test_1_an_enabled_server_of_the_file_is_discovered_and_that_is_logged"
_CALL_TEST = f"{SMOKE}::test_2_its_tools_are_called_and_their_results_come_back"
_BY_BOTH = f"{NAMES}::test_a_tool_of_a_server_is_called_by_both"
_DASHES = f"{NAMES}::test_dashes_stay_as_they_are"
_OWN_NAME = f"{CALL}::test_a_call_reaches_the_server_under_the_tools_own_name_with_its_arguments"
_REJECTION_TEST = f"{CHAIN}::test_a_false_read_only_hint_is_rejected_everywhere"
_NOT_SHOWN = f"{PERMISSION}::test_a_tool_that_declares_that_it_writes_is_neither_shown_nor_called_by_default"
_MISSING_HINT = f"{CHAIN}::test_a_missing_annotation_is_accepted_on_a_trusted_server"
_TRUE_HINT = f"{CHAIN}::test_a_true_read_only_hint_is_accepted_on_a_trusted_server"
_THE_KEY = f"{CHAIN}::test_the_key_is_read_only_hint_and_not_read_only"
_PUBLICATION_TEST = f"{TOOLS}::test_a_tool_is_the_published_one_under_its_exposed_name"
_PASSTHROUGH_TEST = f"{CALL}::test_arguments_are_passed_through_and_the_servers_complaint_comes_back_in_full"
_SORTING_TEST = f"{TOOLS}::test_the_tools_of_all_servers_are_one_list_sorted_by_name"
_DOWN_AT_START = (
    f"{JOURNEY}::"
    "test_a_server_that_is_down_at_the_start_is_a_logged_warning_and_zero_tools_and_all_else_works"
)
_NOTHING_STARTS = f"{OPEN}::test_opening_starts_nothing"
_MODEL_GETS = f"{CALL}::test_a_model_gets_the_documented_result"

V1_14_1 = (
    Requirement(
        "v1.14.1/D1.1",
        _ONE,
        "Context7 is a remote service at `https://mcp.context7.com/mcp`.",
        (f"{ROOM}::test_the_shipped_example_is_valid_and_enables_nothing",),
    ),
    Requirement(
        "v1.14.1/D1.2", _ONE, "Uses the MCP Streamable HTTP transport.", (_DISCOVERY_TEST, _CALL_TEST)
    ),
    Requirement(
        "v1.14.1/D1.3",
        _ONE,
        "The `@modelcontextprotocol/sdk` TypeScript client supports this via "
        "`StreamableHTTPClientTransport`.",
        no_behaviour=THEIR_CODE,
    ),
    Requirement("v1.14.1/D1.4", _ONE, "No stdio needed.", (_A_CHILD,), overruled=SSE),
    Requirement(
        "v1.14.1/D2.1",
        _ONE,
        "MCP tools get a `context7_` prefix to avoid collisions with BooCode's native tools.",
        (
            _BY_BOTH,
            _DISCOVERY_TEST,
            f"{TOOLS}::test_a_native_tool_keeps_its_name_and_the_servers_tool_gets_a_hash",
        ),
    ),
    Requirement(
        "v1.14.1/D2.2",
        _ONE,
        "Context7's tools are `resolve-library-id` and `query-docs` — these become "
        "`context7_resolve-library-id` and `context7_query-docs`.",
        (_DISCOVERY_TEST, _DASHES),
    ),
    Requirement(
        "v1.14.1/D2.3",
        _ONE,
        "The prefix is stripped before calling the MCP server's `tools/call`.",
        (_OWN_NAME,),
    ),
    Requirement("v1.14.1/D3.1", _ONE, "BooChat is read-only through v1.x.", (_NOT_SHOWN, _REJECTION_TEST)),
    Requirement(
        "v1.14.1/D3.2",
        _ONE,
        "The MCP client rejects any tool whose `annotations?.readOnly === false`.",
        (_THE_KEY, _REJECTION_TEST),
        overruled=SLIP,
    ),
    Requirement(
        "v1.14.1/D3.3",
        _ONE,
        "Tools with `readOnly: true` or no annotations are accepted.",
        (_TRUE_HINT, _MISSING_HINT),
    ),
    Requirement(
        "v1.14.1/D3.4",
        _ONE,
        "Context7's tools are all read-only (they query documentation — no write side effects).",
        no_behaviour=FACT,
    ),
    Requirement(
        "v1.14.1/D3.5",
        _ONE,
        "Fail-open on missing annotations is a deliberate choice: most MCP servers don't set "
        "annotations yet, "
        "and rejecting all un-annotated tools would make the feature useless.",
        (_MISSING_HINT, f"{CHAIN}::test_an_untrusted_server_cannot_vouch_for_its_own_tools"),
    ),
    Requirement(
        "v1.14.1/D3.6",
        _ONE,
        "The guard catches explicitly-declared write tools.",
        (_NOT_SHOWN, _CALL_TEST),
    ),
    Requirement(
        "v1.14.1/D4.1",
        _ONE,
        "MCP tools come with a JSON Schema `inputSchema`.",
        (
            f"{DEFINITIONS}::test_a_sound_tool_becomes_a_definition",
            f"{DEFINITIONS}::test_a_broken_tool_is_quarantined_alone_and_says_why",
        ),
    ),
    Requirement(
        "v1.14.1/D4.2",
        _ONE,
        "BooCode's `ToolDef` has both a Zod `inputSchema` (for server-side validation) and a `jsonSchema` "
        "(for the LLM's tool schema).",
        no_behaviour=THEIR_CODE,
    ),
    Requirement(
        "v1.14.1/D4.3",
        _ONE,
        "For MCP tools: - `jsonSchema` is built directly from the MCP tool's `inputSchema` (it's "
        "already JSON "
        "Schema).",
        (_PUBLICATION_TEST, f"{TOOLS}::test_tools_come_ready_for_a_providers_api"),
    ),
    Requirement(
        "v1.14.1/D4.4",
        _ONE,
        "- `inputSchema` uses `z.record(z.unknown())` as a pass-through — the MCP server does its own "
        "validation.",
        (_PASSTHROUGH_TEST,),
    ),
    Requirement(
        "v1.14.1/D4.5",
        _ONE,
        "Double-validating with a generated Zod schema from JSON Schema adds complexity with no value for a "
        "PoC.",
        (_PASSTHROUGH_TEST,),
    ),
    Requirement(
        "v1.14.1/D5.1",
        _ONE,
        "The simplest approach: keep `ALL_TOOLS` as the native tool array.",
        no_behaviour=THEIR_CODE,
    ),
    Requirement(
        "v1.14.1/D5.2",
        _ONE,
        "Add an `appendMcpTools(tools: ToolDef[])` function that pushes MCP tools, re-sorts alphabetically, "
        "and rebuilds `TOOLS_BY_NAME` and `READ_ONLY_TOOL_NAMES`.",
        (_SORTING_TEST, f"{NAMES}::test_names_are_sound_unique_alphabetical_and_reversible"),
    ),
    Requirement(
        "v1.14.1/D5.3", _ONE, "Called once at startup after MCP init.", (_NOTHING_STARTS,), overruled=LAZY
    ),
    Requirement(
        "v1.14.1/D5.4",
        _ONE,
        "More invasive approaches (lazy-init, factory function) change the import shape for every consumer. "
        "Mutation-at-startup is ugly but contained to one call site and matches the existing "
        "alpha-sort-at-module-level pattern.",
        no_behaviour=HISTORY,
    ),
    Requirement(
        "v1.14.1/D6.1", _ONE, "Web tools have `session.web_search_enabled`.", no_behaviour=THEIR_CODE
    ),
    Requirement(
        "v1.14.1/D6.2",
        _ONE,
        "MCP tools do NOT get a session toggle in v1.14.1.",
        (f"{CHAIN}::test_a_chat_choice_names_tools_by_canonical_id",),
        overruled=CHAT_CHOICE,
    ),
    Requirement(
        "v1.14.1/D6.3",
        _ONE,
        "If configured via env var, MCP tools are always available.",
        (f"{JOURNEY}::test_the_variables_of_the_single_server_version_configure_nothing",),
        overruled="DESIGN section 5, as v1.15 S5: servers come from the configuration, not from such "
        "variables",
    ),
    Requirement(
        "v1.14.1/D6.4",
        _ONE,
        "Per-session MCP control is a v1.15 concern (when multiple MCP servers and the permission ruleset "
        "land together).",
        no_behaviour=HISTORY,
    ),
    Requirement(
        "v1.14.1/D7.1",
        _ONE,
        "MCP server down at startup → log warning, expose zero MCP tools, BooCode functions normally.",
        (_DOWN_AT_START,),
    ),
    Requirement(
        "v1.14.1/D7.2",
        _ONE,
        "MCP server down mid-session (tool call fails) → the `execute` wrapper catches the error and returns "
        '`{error: true, output: "MCP server unreachable"}` — the model sees the error and can self-correct '
        "(use native tools instead).",
        (
            f"{CALL}::test_a_server_that_goes_down_in_the_middle_is_an_answer_and_the_others_work",
            f"{CALL}::test_a_server_that_cannot_be_reached_is_an_answer_with_its_cause",
            f"{FAILURE}::test_a_server_that_cannot_be_reached_says_so_and_why",
        ),
    ),
    Requirement(
        "v1.14.1/D8.1",
        _ONE,
        "MCP `tools/call` returns `{content: ContentBlock[]}` where each block is `{type: 'text', text: "
        "string}` or `{type: 'resource', ...}`.",
        (_MODEL_GETS, f"{SHAPING}::test_a_wrong_shape_is_shown_with_a_warning"),
    ),
    Requirement(
        "v1.14.1/D8.2",
        _ONE,
        "For the PoC: - Text blocks: join with `\\n`.",
        (_MODEL_GETS, f"{SHAPING}::test_text_blocks_are_joined_with_a_line_break"),
    ),
    Requirement(
        "v1.14.1/D8.3",
        _ONE,
        "- Resource blocks: serialize as JSON (the model can read structured data).",
        (_MODEL_GETS, f"{SHAPING}::test_resource_blocks_become_json_that_a_model_can_read"),
    ),
    Requirement(
        "v1.14.1/D8.4",
        _ONE,
        '- Empty content: return `"(no output)"`.',
        (_MODEL_GETS, f"{SHAPING}::test_empty_content_has_no_output"),
    ),
    Requirement(
        "v1.14.1/D8.5",
        _ONE,
        "- `isError: true` in the response: return `{error: true, output: joinedContent}`.",
        (_MODEL_GETS, f"{SHAPING}::test_is_error_becomes_an_error_with_the_joined_content"),
    ),
)

# BooChat v1.15: many servers, the decisions.

_MANY = "boochat-v1.15-decisions.md"
_THEIR_EXAMPLE = f"{COMPATIBLE}::test_the_example_of_boochat_is_valid"
_SWITCH_TEST = f"{COMPATIBLE}::test_a_server_is_switched_off_by_enabled_or_disabled"
_FILE_VARIABLE_TEST = f"{JOURNEY}::test_a_variable_names_the_file_in_place_of_the_data_directorys"
_REGISTRY = (
    f"{JOURNEY}::test_servers_of_every_transport_are_one_registry_of_named_clients_with_one_list_of_tools"
)
_ONE_A_LINE = f"{JOURNEY}::test_a_child_gets_one_json_message_a_line"
_OLDER = f"{BAD_HTTP}::test_a_server_of_the_older_transport_works"
_STAYS = f"{CALL}::test_calls_go_over_one_connection_that_stays"
_EXITS = f"{JOURNEY}::test_a_child_that_exits_is_a_logged_error_and_unavailable_and_is_not_started_again"
_STAYS_AWAY = f"{BAD_STDIO}::test_a_server_that_exits_stays_away_until_someone_restarts_it"
_SHUTDOWN_TEST = (
    f"{JOURNEY}::test_at_the_end_every_child_is_told_to_go_and_what_stays_is_killed_after_five_seconds"
)
_NOT_FOUND = f"{JOURNEY}::test_a_command_that_is_not_found_is_a_logged_warning_and_the_server_is_skipped"
_NO_VARIABLES = f"{JOURNEY}::test_the_variables_of_the_single_server_version_configure_nothing"
_AGENT_SEES = f"{TOOLS}::test_an_agent_sees_and_calls_only_tools_matching_its_patterns"
_TO_THE_LETTER = f"{TOOL_LIST}::test_the_examples_of_the_decision_are_read_to_the_letter"
_LAST_WINS = f"{PATTERNS}::test_the_last_match_wins"
_SCAN = f"{PATTERNS}::test_a_list_equals_a_scan_from_left_to_right"
_ONE_FAILS = f"{CALL}::test_one_server_that_fails_blocks_no_other"
_CAT = f"{SMOKE}::test_4_a_dummy_server_that_is_cat_fails_with_a_logged_warning_and_the_other_works"
_ARCHITECT = f"{SMOKE}::test_5_an_agent_with_a_glob_in_its_tools_sees_only_those"
_STOP_TEST = f"{SMOKE}::test_6_a_stopped_program_leaves_no_child_processes"

V1_15_DECISIONS = (
    Requirement(
        "v1.15/D1.1",
        _MANY,
        "`/data/mcp.json` (alongside `AGENTS.md` at `/data/AGENTS.md`).",
        (
            f"{OPEN}::test_agents_stand_beside_the_configuration_in_the_data_directory",
            f"{OPEN}::test_nothing_named_takes_the_data_directorys_file",
        ),
    ),
    Requirement(
        "v1.15/D1.2",
        _MANY,
        "Both are bind-mounted from the host's `data/` directory.",
        no_behaviour="how one deployment mounts its folder",
    ),
    Requirement(
        "v1.15/D1.3", _MANY, "Override via `MCP_CONFIG_PATH` env var.", (_FILE_VARIABLE_TEST, _ORDER)
    ),
    Requirement(
        "v1.15/D1.4",
        _MANY,
        "File missing = no MCP (opt-in by file presence, not by env var).",
        (
            f"{OPEN}::test_nothing_named_and_nothing_there_is_a_yard_without_servers",
            f"{CONFIG}::test_default_places_that_are_empty_mean_no_servers",
        ),
    ),
    Requirement(
        "v1.15/D1.5",
        _MANY,
        "Simpler than the v1.14.1 approach of always-defaulting a URL.",
        no_behaviour=HISTORY,
    ),
    Requirement(
        "v1.15/D2.1",
        _MANY,
        "opencode uses `~/.opencode/config.json` with a `mcpServers` key.",
        no_behaviour=FACT,
    ),
    Requirement(
        "v1.15/D2.2",
        _MANY,
        "BooCode uses `mcp.json` with the same `mcpServers` key so server entries are copy-pasteable.",
        (_THEIR_EXAMPLE, f"{OPEN}::test_nothing_named_takes_the_data_directorys_file"),
    ),
    Requirement(
        "v1.15/D2.3",
        _MANY,
        "Property names match: `type`, `url`, `command`, `args`, `env`, `headers`.",
        (_THEIR_EXAMPLE,),
    ),
    Requirement(
        "v1.15/D2.4",
        _MANY,
        "BooCode adds `enabled` (boolean toggle per server, default true) which opencode doesn't have — "
        "harmless extra key.",
        (_SWITCH_TEST,),
    ),
    Requirement(
        "v1.15/D3.1",
        _MANY,
        "- **streamableHttp**: For remote servers (Context7, future cloud MCP services).",
        (_DISCOVERY_TEST, _REGISTRY),
    ),
    Requirement(
        "v1.15/D3.2",
        _MANY,
        "Uses `@modelcontextprotocol/sdk`'s `StreamableHTTPClientTransport`.",
        no_behaviour=THEIR_CODE,
    ),
    Requirement(
        "v1.15/D3.3",
        _MANY,
        "- **stdio**: For local subprocess servers (codecontext, future local tools).",
        (_A_CHILD, f"{REAL}::test_the_filesystem_server_reads_and_stays_in_its_folder"),
    ),
    Requirement(
        "v1.15/D3.4",
        _MANY,
        "Uses `@modelcontextprotocol/sdk`'s `StdioClientTransport` (spawns child process, NDJSON "
        "framing over "
        "stdin/stdout).",
        (_A_CHILD, _ONE_A_LINE, f"{FRAMING}::test_any_chunking_gives_the_same_lines"),
    ),
    Requirement("v1.15/D3.5", _MANY, "- **SSE**: Skipped.", (_OLDER,), overruled=SSE),
    Requirement(
        "v1.15/D3.6",
        _MANY,
        "Streamable HTTP supersedes SSE per the MCP spec (May 2025 protocol update).",
        no_behaviour=FACT,
    ),
    Requirement(
        "v1.15/D3.7",
        _MANY,
        "If a legacy server requires SSE, it can be added later.",
        (_OLDER,),
        overruled=SSE,
    ),
    Requirement("v1.15/D4.1", _MANY, "Generalizes v1.14.1's `context7_` pattern.", (_BY_BOTH, _REGISTRY)),
    Requirement(
        "v1.15/D4.2",
        _MANY,
        'Server name comes from the config key (e.g. `"context7"`, `"codecontext"`).',
        (_REGISTRY, _ARCHITECT),
    ),
    Requirement(
        "v1.15/D4.3",
        _MANY,
        "Collisions between servers with the same name are impossible (config keys are unique).",
        (
            f"{STRICT}::test_a_duplicate_key_is_an_error_with_its_line",
            f"{COMPATIBLE}::test_but_not_about_the_same_server",
        ),
    ),
    Requirement(
        "v1.15/D4.4",
        _MANY,
        "Collisions between an MCP tool and a native tool are possible if someone names a server entry the "
        "same as a native tool prefix — but that's a user-configuration error, not a code bug.",
        (
            f"{TOOLS}::test_a_native_tool_keeps_its_name_and_the_servers_tool_gets_a_hash",
            f"{NAMES}::test_a_reserved_name_stays_with_its_owner_and_the_report_says_so",
        ),
        overruled=NATIVE,
    ),
    Requirement(
        "v1.15/D5.1",
        _MANY,
        "AGENTS.md `tools:` field already supports exact-match arrays.",
        (f"{PATTERNS}::test_plain_names_are_exact",),
    ),
    Requirement(
        "v1.15/D5.2",
        _MANY,
        "Globs extend the same field: ```yaml tools: [view_file, grep, context7_*] ```",
        (_TO_THE_LETTER, f"{PATTERNS}::test_two_names_and_a_glob_are_only_these_and_all_context7_tools"),
    ),
    Requirement(
        "v1.15/D5.3",
        _MANY,
        "Evaluation: for each tool in `ALL_TOOLS`, scan the pattern list left-to-right.",
        (_SCAN,),
    ),
    Requirement("v1.15/D5.4", _MANY, "A `!` prefix denies.", (_SCAN, _AGENT_SEES)),
    Requirement(
        "v1.15/D5.5",
        _MANY,
        "Last matching pattern wins.",
        (_LAST_WINS, f"{PATTERNS}::test_a_last_pattern_that_matches_overrules_all_before_it"),
    ),
    Requirement(
        "v1.15/D5.6",
        _MANY,
        'This matches the roadmap\'s "wildcard rule matcher" language.',
        no_behaviour=HISTORY,
    ),
    Requirement(
        "v1.15/D5.7",
        _MANY,
        "Examples: - `[*]` — all tools (same as omitting `tools:` entirely)",
        (_TO_THE_LETTER, f"{PATTERNS}::test_star_is_all_tools_the_same_as_leaving_tools_out"),
    ),
    Requirement(
        "v1.15/D5.8",
        _MANY,
        "- `[*, !web_*]` — all tools except web",
        (_TO_THE_LETTER, f"{PATTERNS}::test_star_and_not_web_is_all_tools_except_web"),
    ),
    Requirement(
        "v1.15/D5.9",
        _MANY,
        "- `[view_file, grep, context7_*]` — only view_file, grep, and all Context7 tools",
        (_TO_THE_LETTER, f"{PATTERNS}::test_two_names_and_a_glob_are_only_these_and_all_context7_tools"),
    ),
    Requirement(
        "v1.15/D5.10",
        _MANY,
        "- `[*]` on Architect + `[view_file]` on Prompt Builder — each agent gets its intended scope",
        (
            f"{AGENTS_FILE}::test_star_on_architect_and_view_file_on_prompt_builder_are_read_as_they_are_meant",
            f"{PATTERNS}::test_star_on_architect_and_view_file_on_prompt_builder_give_each_its_intended_scope",
        ),
    ),
    Requirement(
        "v1.15/D5.11",
        _MANY,
        "Globs use a simple `minimatch`-style check: `*` matches any characters.",
        (f"{GLOB}::test_a_glob_matches_by_its_definition",),
    ),
    Requirement(
        "v1.15/D5.12",
        _MANY,
        "No `?` or `**` — tool names are flat (no path separators).",
        (
            f"{PATTERNS}::test_question_marks_and_double_stars_mean_nothing_of_their_own",
            f"{GLOB}::test_nothing_but_the_star_is_special",
        ),
    ),
    Requirement(
        "v1.15/D6.1",
        _MANY,
        "The roadmap listed `permissions`, `agent_permissions`, `session_permissions`, `mcp_servers` tables. "
        "All deferred to v2.0: - **Permission tables**: Enterprise multi-user pattern. BooChat is "
        "single-user "
        "behind Authelia.",
        no_behaviour=HISTORY,
    ),
    Requirement(
        "v1.15/D6.2",
        _MANY,
        "The read-only invariant guard is the BooChat-era defense.",
        (_REJECTION_TEST, _NOT_SHOWN),
    ),
    Requirement(
        "v1.15/D6.3",
        _MANY,
        "Formal permission rulesets land when BooCoder adds write tools.",
        no_behaviour=HISTORY,
    ),
    Requirement(
        "v1.15/D6.4",
        _MANY,
        "- **`mcp_servers` table**: In-memory registry is sufficient.",
        overruled="DESIGN section 1: the registry of a deployment stands in the database, beside the files",
    ),
    Requirement(
        "v1.15/D6.5",
        _MANY,
        "No need to persist server state to DB when the config file is the source of truth and tools are "
        "re-discovered on every boot.",
        (f"{ZERO}::test_after_a_first_listing_a_new_yard_lists_explains_and_finds_while_starting_nothing",),
        overruled=KEPT_CATALOGUE,
    ),
    Requirement("v1.15/D7.1", _MANY, "- Spawn on `initialize()`.", (_NOTHING_STARTS,), overruled=LAZY),
    Requirement("v1.15/D7.2", _MANY, "Persistent connection for server lifetime (not per-call).", (_STAYS,)),
    Requirement(
        "v1.15/D7.3",
        _MANY,
        "- On child exit (unexpected): mark server unavailable, log error.",
        (_EXITS,),
    ),
    Requirement("v1.15/D7.4", _MANY, "Do NOT auto-restart.", (_EXITS, _STAYS_AWAY)),
    Requirement("v1.15/D7.5", _MANY, "BooCode continues with remaining servers.", (_EXITS,)),
    Requirement(
        "v1.15/D7.6",
        _MANY,
        "- On BooCode shutdown (`app.addHook('onClose')`): send SIGTERM to all stdio children.",
        (_SHUTDOWN_TEST,),
    ),
    Requirement(
        "v1.15/D7.7",
        _MANY,
        "Wait up to 5s, then SIGKILL.",
        (_SHUTDOWN_TEST, f"{BAD_STDIO}::test_a_server_that_will_not_go_is_killed_within_bounds"),
    ),
    Requirement(
        "v1.15/D7.8",
        _MANY,
        "- On ENOENT (command not found): skip server with a warning.",
        (_NOT_FOUND, f"{BAD_STDIO}::test_a_command_that_cannot_be_run_is_named"),
    ),
    Requirement(
        "v1.15/D7.9",
        _MANY,
        "Matches the graceful-degradation pattern from v1.14.1.",
        (_DOWN_AT_START, _NOT_FOUND),
    ),
    Requirement(
        "v1.15/D8.1",
        _MANY,
        "`MCP_CONTEXT7_URL` and `MCP_CONTEXT7_API_KEY` are deleted from `config.ts`.",
        (_NO_VARIABLES,),
    ),
    Requirement(
        "v1.15/D8.2",
        _MANY,
        "They're superseded by the JSON config file's `context7` entry.",
        (_DISCOVERY_TEST, f"{ROOM}::test_the_example_works_once_it_is_switched_on"),
    ),
    Requirement("v1.15/D8.3", _MANY, "The PoC was explicitly designed as throwaway.", no_behaviour=HISTORY),
    Requirement(
        "v1.15/D8.4",
        _MANY,
        "Migration path for anyone who had the env vars set: add a `data/mcp.json` with the Context7 entry.",
        (f"{ROOM}::test_the_shipped_example_is_valid_and_enables_nothing", _DISCOVERY_TEST),
    ),
    Requirement(
        "v1.15/D8.5",
        _MANY,
        "The CHANGELOG entry will note this.",
        (f"{JOURNEY}::test_the_changelog_says_where_those_variables_went",),
    ),
)

# BooChat v1.15: many servers, the scope, the hard rules and the smoke plan.

_SCOPE = "boochat-v1.15-multi-server.md"
_GLOBAL_GUARD = f"{JOURNEY}::test_no_key_of_the_configuration_lets_write_tools_in"

V1_15_SCOPE = (
    Requirement(
        "v1.15/S1.1",
        _SCOPE,
        "New file at `/data/mcp.json` (bind-mounted like `AGENTS.md`).",
        (
            f"{OPEN}::test_nothing_named_takes_the_data_directorys_file",
            f"{CONFIG}::test_the_data_directory_may_be_named_by_the_environment",
        ),
    ),
    Requirement(
        "v1.15/S1.2",
        _SCOPE,
        "Env var `MCP_CONFIG_PATH` points to it (default `/data/mcp.json`).",
        (_FILE_VARIABLE_TEST, _ORDER),
    ),
    Requirement(
        "v1.15/S1.3",
        _SCOPE,
        'Schema (matching opencode\'s shape): ```json { "mcpServers": { "context7": { "type": '
        '"streamableHttp", "url": "https://mcp.context7.com/mcp", "headers": { "X-API-Key": '
        '"optional-key" }, '
        '"enabled": true }, "codecontext": { "type": "stdio", "command": "/usr/local/bin/codecontext", '
        '"args": ["--mcp"], "env": { "WORKSPACE": "/opt" }, "enabled": false } } } ```',
        (_THEIR_EXAMPLE,),
    ),
    Requirement(
        "v1.15/S1.4",
        _SCOPE,
        "Zod-validated at startup.",
        (
            f"{COMPATIBLE}::test_and_is_validated_the_same_way",
            f"{OPEN}::test_an_invalid_configuration_is_reported_at_once",
        ),
    ),
    Requirement(
        "v1.15/S1.5",
        _SCOPE,
        "Unknown keys silently ignored (forward-compat).",
        (f"{COMPATIBLE}::test_keys_that_neither_dialect_knows_are_ignored_and_listed_as_hints",),
    ),
    Requirement(
        "v1.15/S1.6",
        _SCOPE,
        'Each server entry has: - `type`: `"streamableHttp"` | `"stdio"` (SSE deferred — Streamable HTTP '
        "supersedes it per the MCP spec)",
        (f"{COMPATIBLE}::test_the_type_may_be_written_in_many_ways_or_left_out", _OLDER),
        overruled=SSE,
    ),
    Requirement(
        "v1.15/S1.7",
        _SCOPE,
        "- `url` (HTTP) or `command` + `args` + `env` (stdio)",
        (f"{COMPATIBLE}::test_an_entry_that_cannot_be_reached_is_an_error", _A_CHILD, _DISCOVERY_TEST),
    ),
    Requirement(
        "v1.15/S1.8",
        _SCOPE,
        "- `headers` (HTTP, optional) — for API keys",
        (f"{JOURNEY}::test_headers_of_the_entry_arrive_at_the_server_with_every_request",),
    ),
    Requirement("v1.15/S1.9", _SCOPE, "- `enabled` (boolean, default true)", (_SWITCH_TEST,)),
    Requirement(
        "v1.15/S2.0",
        _SCOPE,
        "Refactor `mcp-client.ts` from a singleton to a registry of named MCP clients.",
        (_REGISTRY,),
    ),
    Requirement(
        "v1.15/S2.1",
        _SCOPE,
        "On startup: 1. Read `/data/mcp.json` (or path from `MCP_CONFIG_PATH`)",
        (_FILE_VARIABLE_TEST, f"{OPEN}::test_nothing_named_takes_the_data_directorys_file"),
    ),
    Requirement(
        "v1.15/S2.2",
        _SCOPE,
        "2. For each enabled server: create a Client + transport, connect, discover tools via `tools/list`",
        (_REGISTRY, f"{TOOLS}::test_a_disabled_server_has_no_tools_and_is_not_started"),
        overruled=LAZY,
    ),
    Requirement(
        "v1.15/S2.3",
        _SCOPE,
        "3. Wrap tools with `_` prefix (generalizes the `context7_` pattern)",
        (_BY_BOTH, _REGISTRY),
    ),
    Requirement(
        "v1.15/S2.4",
        _SCOPE,
        "4. Apply read-only invariant guard per-tool (reject `readOnlyHint: false`)",
        (_NOT_SHOWN, _REJECTION_TEST),
    ),
    Requirement(
        "v1.15/S2.5",
        _SCOPE,
        "5. Append all MCP tools to `ALL_TOOLS` in a single `appendMcpTools()` call",
        (_SORTING_TEST,),
    ),
    Requirement(
        "v1.15/S2.6",
        _SCOPE,
        "6. Per-server graceful degradation: one server failing doesn't block others",
        (_ONE_FAILS, _CAT),
    ),
    Requirement(
        "v1.15/S2.7",
        _SCOPE,
        "Expose: `getMcpServers(): McpServerStatus[]` for debug/status endpoint,",
        (_REGISTRY, _ONE_FAILS),
    ),
    Requirement(
        "v1.15/S2.8",
        _SCOPE,
        "`callTool(prefixedName, args)` routed to the correct server by prefix.",
        (
            _REGISTRY,
            f"{TOOLS}::test_two_tools_that_want_one_name_both_get_a_hash_and_each_reaches_its_own_server",
        ),
    ),
    Requirement(
        "v1.15/S3.1",
        _SCOPE,
        'For `type: "stdio"` servers: spawn a subprocess via `child_process.spawn(command, args, {env, '
        "stdio: "
        "'pipe'})`.",
        (_A_CHILD, f"{BAD_STDIO}::test_children_get_a_small_environment"),
    ),
    Requirement(
        "v1.15/S3.2",
        _SCOPE,
        "Use `@modelcontextprotocol/sdk`'s `StdioClientTransport` (or implement the NDJSON framing ourselves "
        "— the SDK should have it).",
        (_ONE_A_LINE, f"{FRAMING}::test_any_chunking_gives_the_same_lines"),
    ),
    Requirement(
        "v1.15/S3.3",
        _SCOPE,
        "The subprocess runs for the lifetime of the BooCode server (persistent connection, not per-call "
        "spawn).",
        (_STAYS,),
    ),
    Requirement(
        "v1.15/S3.4", _SCOPE, "Child lifecycle: - Spawn on initialize.", (_NOTHING_STARTS,), overruled=LAZY
    ),
    Requirement(
        "v1.15/S3.5",
        _SCOPE,
        "If spawn fails, log warn, skip server (graceful degradation).",
        (_NOT_FOUND,),
    ),
    Requirement(
        "v1.15/S3.6",
        _SCOPE,
        "- On child exit: log error, mark server as unavailable.",
        (_EXITS,),
    ),
    Requirement(
        "v1.15/S3.7",
        _SCOPE,
        "Do NOT restart automatically (v1.15 keeps it simple; auto-restart is a v2.0 concern).",
        (_EXITS, _STAYS_AWAY),
    ),
    Requirement(
        "v1.15/S3.8",
        _SCOPE,
        "- On BooCode shutdown (`app.addHook('onClose')`): kill child processes.",
        (_SHUTDOWN_TEST, _STOP_TEST),
    ),
    Requirement(
        "v1.15/S4.1",
        _SCOPE,
        "Currently `tools:` in AGENTS.md frontmatter is an exact-match whitelist (array of tool names).",
        no_behaviour=HISTORY,
    ),
    Requirement(
        "v1.15/S4.2",
        _SCOPE,
        "Extend to support glob patterns via a lightweight matcher: - `context7_*` — all tools from the "
        "context7 server",
        (_ARCHITECT, f"{GLOB}::test_a_glob_matches_by_its_definition"),
    ),
    Requirement(
        "v1.15/S4.3",
        _SCOPE,
        "- `view_*` — all tools starting with `view_`",
        (f"{PATTERNS}::test_view_star_is_all_tools_that_start_with_view",),
    ),
    Requirement(
        "v1.15/S4.4",
        _SCOPE,
        "- `!web_*` — exclude web tools (deny pattern)",
        (f"{PATTERNS}::test_star_and_not_web_is_all_tools_except_web",),
    ),
    Requirement(
        "v1.15/S4.5",
        _SCOPE,
        "- Plain names (`grep`, `view_file`) work as before (exact match)",
        (f"{PATTERNS}::test_plain_names_are_exact",),
    ),
    Requirement(
        "v1.15/S4.6",
        _SCOPE,
        "Evaluation order: for each tool in `ALL_TOOLS`, check if it matches any pattern in the agent's "
        "`tools:` list.",
        (_SCAN, _AGENT_SEES, f"{PATTERNS}::test_no_match_hides"),
    ),
    Requirement("v1.15/S4.7", _SCOPE, "A `!` prefix means exclude.", (_SCAN, _AGENT_SEES)),
    Requirement("v1.15/S4.8", _SCOPE, "Last-match-wins.", (_LAST_WINS,)),
    Requirement(
        "v1.15/S4.9",
        _SCOPE,
        "Parser change in `agents.ts`: when validating `tools:`, don't reject unknown names if they contain "
        "`*` (glob patterns can't be validated against the current tool list since MCP tools are discovered "
        "at runtime).",
        (f"{PATTERN_CHECK}::test_a_pattern_that_matches_nothing_is_reported_and_never_rejected",),
    ),
    Requirement(
        "v1.15/S4.10",
        _SCOPE,
        "Exact names are still validated.",
        (
            f"{PATTERN_CHECK}::test_a_plain_name_that_no_tool_has_is_an_error_with_a_suggestion",
            f"{PATTERN_CHECK}::test_a_name_that_may_belong_to_a_server_not_yet_listed_is_a_warning",
        ),
    ),
    Requirement(
        "v1.15/S5.1",
        _SCOPE,
        "Delete `MCP_CONTEXT7_URL` and `MCP_CONTEXT7_API_KEY` from `config.ts`.",
        (_NO_VARIABLES,),
    ),
    Requirement(
        "v1.15/S5.2",
        _SCOPE,
        "They're superseded by the JSON config file.",
        (_NO_VARIABLES, _DISCOVERY_TEST),
    ),
    Requirement(
        "v1.15/S5.3",
        _SCOPE,
        'The v1.14.1 PoC is throwaway-by-design (proposal said "throwaway-if-needed").',
        no_behaviour=HISTORY,
    ),
    Requirement(
        "v1.15/S6.1",
        _SCOPE,
        "BooChat's read-only guarantee stays: every MCP tool with `readOnlyHint: false` is rejected at "
        "discovery.",
        (_NOT_SHOWN, _DISCOVERY_TEST),
    ),
    Requirement(
        "v1.15/S6.2", _SCOPE, "This applies globally, not per-server.", (_GLOBAL_GUARD, _REJECTION_TEST)
    ),
    Requirement(
        "v1.15/S6.3",
        _SCOPE,
        "Config has no `allowWriteTools` flag — that's a v2.0 BooCoder concern.",
        (
            _GLOBAL_GUARD,
            f"{PERMISSION}::test_write_tools_allow_makes_it_a_tool_like_any_other",
            f"{PERMISSION}::test_write_tools_ask_asks_before_each_call_and_takes_no_for_an_answer",
        ),
        overruled="DESIGN section 4, write tools: the operator's setting may say ask or allow; the "
        "configuration of servers still cannot",
    ),
    Requirement(
        "v1.15/rules.1",
        _SCOPE,
        "- No git commit/push. Sam commits.",
        no_behaviour="who commits in another repository",
    ),
    Requirement(
        "v1.15/rules.2",
        _SCOPE,
        "- Read-only invariant: reject any MCP tool with `readOnlyHint: false`.",
        (_REJECTION_TEST, _NOT_SHOWN, _GLOBAL_GUARD),
    ),
    Requirement(
        "v1.15/rules.3",
        _SCOPE,
        "- Graceful degradation: any server down → that server's tools unavailable, rest unaffected.",
        (
            _ONE_FAILS,
            _DOWN_AT_START,
            f"{ZERO}::test_a_server_that_is_down_keeps_its_known_tools_and_a_call_says_why",
            f"{BAD_STDIO}::test_many_bad_servers_at_once_fail_alone",
            f"{BAD_HTTP}::test_many_bad_servers_at_once_fail_alone",
        ),
    ),
    Requirement("v1.15/rules.4", _SCOPE, "- Alpha-sort of ALL_TOOLS preserved.", (_SORTING_TEST,)),
    Requirement(
        "v1.15/rules.5",
        _SCOPE,
        "- One new dep only: none (MCP SDK already installed from v1.14.1).",
        no_behaviour=THEIR_CODE,
    ),
    Requirement(
        "v1.15/rules.6", _SCOPE, "- 348+ existing tests still pass.", no_behaviour="another program's tests"
    ),
    Requirement(
        "v1.15/smoke.1",
        _SCOPE,
        "1. Create `/data/mcp.json` with Context7 enabled. Restart. Confirm tools discovered + logged.",
        (_DISCOVERY_TEST,),
    ),
    Requirement(
        "v1.15/smoke.2",
        _SCOPE,
        "2. Send a chat asking about library docs. Confirm `context7_*` tools called + results rendered.",
        (_CALL_TEST, f"{CHAT}::test_an_agent_sees_only_its_own_tools_and_the_page_says_why"),
    ),
    Requirement(
        "v1.15/smoke.3",
        _SCOPE,
        '3. Disable Context7 in config (`"enabled": false`). Restart. Confirm zero MCP tools.',
        (f"{SMOKE}::test_3_disabled_in_the_file_and_restarted_there_are_zero_tools",),
    ),
    Requirement(
        "v1.15/smoke.4",
        _SCOPE,
        "4. Add a dummy stdio server entry pointing to `/bin/cat` (will fail). Confirm graceful degradation: "
        "Context7 works, dummy fails with a logged warning.",
        (_CAT,),
    ),
    Requirement(
        "v1.15/smoke.5",
        _SCOPE,
        "5. Add `tools: [context7_*]` to the Architect agent in AGENTS.md. Confirm Architect sees only "
        "Context7 tools (via AgentPicker or by chatting with Architect selected).",
        (_ARCHITECT, f"{CHAT}::test_an_agent_sees_only_its_own_tools_and_the_page_says_why"),
    ),
    Requirement(
        "v1.15/smoke.6",
        _SCOPE,
        "6. Stop boocode, confirm child processes are killed (no orphans).",
        (_STOP_TEST, f"{SURVIVES}::test_after_kill_9_no_process_of_theirs_is_left"),
    ),
)

# Bodhi App: the web app.

_BODHI = "bodhi-mcp-decisions.md"

BODHI = (
    Requirement(
        "bodhi/registration",
        _BODHI,
        "**Decision:** Dynamic registration (primary) + Pre-registered (fallback)",
        (
            f"{SIGNING}::test_a_document_is_used_where_the_server_takes_it",
            f"{SIGNING}::test_dynamic_registration_is_used_where_the_admin_wants_it",
            f"{SIGNING}::test_credentials_entered_by_the_admin_are_used",
        ),
        overruled="DESIGN section 4, registration: what the admin entered, else a metadata document, else "
        "dynamic; a setting restores this order",
    ),
    Requirement(
        "bodhi/public",
        _BODHI,
        "**Decision:** Instance required for all MCP types (including public)",
        (
            f"{DRAFTS}::test_an_instance_of_a_public_server_needs_nothing",
            f"{PAGES_MINE}::test_an_instance_is_created_in_two_steps",
        ),
    ),
    Requirement(
        "bodhi/scopes",
        _BODHI,
        "**Decision:** DEFERRED - not part of current story",
        no_behaviour="deferred there too",
    ),
    Requirement(
        "bodhi/pkce",
        _BODHI,
        "**Decision:** Database with state param key",
        (f"{SIGNING}::test_a_state_works_once", f"{COMING_BACK}::test_the_record_was_lost"),
    ),
    Requirement(
        "bodhi/sessions",
        _BODHI,
        "**Decision:** Fresh session per chat",
        (f"{CHAT_LANES}::test_each_chat_has_a_connection_of_its_own_to_an_instance",),
    ),
    Requirement(
        "bodhi/timeout",
        _BODHI,
        "**Decision:** No auto-cleanup",
        (f"{DRAFTS}::test_an_instance_that_signs_in_is_pending",),
    ),
    Requirement(
        "bodhi/capabilities",
        _BODHI,
        "**Decision:** No caching",
        (
            f"{CACHE}::test_a_server_with_ttl_zero_is_asked_each_time_and_nothing_is_kept",
            f"{ZERO}::test_a_server_with_uncacheable_listings_is_listed_each_time",
            f"{INSTANCES}::test_an_instance_is_listed_again_for_each_listing_and_call_and_nothing_is_stored",
        ),
    ),
    Requirement(
        "bodhi/preview",
        _BODHI,
        "**Decision:** Fetch and display server metadata on add/view",
        (
            f"{PAGES_REGISTRY}::test_viewing_shows_the_features_of_the_server",
            f"{API_SERVERS}::test_a_preview_shows_the_features_of_a_server",
        ),
    ),
    Requirement(
        "bodhi/user-page",
        _BODHI,
        "**Decision:** `/ui/mcp`",
        (f"{PAGES_MINE}::test_an_instance_is_created_in_two_steps",),
    ),
    Requirement(
        "bodhi/icons",
        _BODHI,
        "**Decision:** Separate icons for MCP tools and toolset tools",
        (f"{CHAT}::test_native_tools_and_those_of_servers_wear_different_icons",),
    ),
    Requirement(
        "bodhi/naming",
        _BODHI,
        "**Decision:** `mcp_{instance_slug}__{tool_name}`",
        (f"{NAMES}::test_a_tool_of_an_instance_is_called_by_its_slug",),
    ),
    Requirement(
        "bodhi/refresh",
        _BODHI,
        "**Decision:** Return auth error + mark instance as needs-reauth",
        (
            f"{CREDENTIALS}::test_a_sign_in_that_was_taken_back_is_marked_and_mended",
            f"{TEAM}::test_a_person_connects_two_accounts_loses_one_and_repairs_it",
        ),
    ),
    Requirement(
        "bodhi/discovery",
        _BODHI,
        "**Decision:** Discovery only (MCP spec compliant)",
        (f"{SIGNING}::test_a_sign_in_that_cannot_begin_says_why",),
    ),
    Requirement(
        "bodhi/features",
        _BODHI,
        "**Decision:** Tools only",
        overruled="DESIGN sections 12 and 14: resources and prompts are shown and carried too",
    ),
    Requirement(
        "bodhi/redirect",
        _BODHI,
        "**Decision:** `/ui/auth/mcp/callback`",
        (f"{COMING_BACK}::test_a_user_signs_in_at_the_provider_and_the_instance_is_ready",),
    ),
    Requirement("bodhi/transport", _BODHI, "**Decision:** `streamable_http` only", (_OLDER,), overruled=SSE),
    Requirement(
        "bodhi/header",
        _BODHI,
        "**Decision:** Configurable per-server",
        (f"{API_INSTANCES}::test_a_value_is_sent_in_its_header_and_never_shown",),
    ),
    Requirement(
        "bodhi/url",
        _BODHI,
        "**Decision:** No validation on add",
        (
            f"{DRAFTS}::test_any_web_address_is_taken_unchecked",
            f"{API_SERVERS}::test_any_web_address_is_accepted",
        ),
    ),
    Requirement(
        "bodhi/window",
        _BODHI,
        "**Decision:** Same window redirect",
        (f"{TEAM}::test_a_person_connects_two_accounts_loses_one_and_repairs_it",),
    ),
    Requirement(
        "bodhi/slug",
        _BODHI,
        "**Decision:** Default from domain, editable",
        (f"{SLUGS}::test_a_slug_is_proposed_from_the_domain",),
    ),
    Requirement(
        "bodhi/admin-page",
        _BODHI,
        "**Decision:** `/ui/admin/mcp`",
        (f"{PAGES_REGISTRY}::test_a_server_is_added",),
    ),
    Requirement(
        "bodhi/return",
        _BODHI,
        "**Decision:** MCP list page (`/ui/mcp`)",
        (
            f"{COMING_BACK}::test_a_user_signs_in_at_the_provider_and_the_instance_is_ready",
            f"{TEAM}::test_a_person_connects_two_accounts_loses_one_and_repairs_it",
        ),
    ),
    Requirement(
        "bodhi/many",
        _BODHI,
        "**Decision:** Yes - multiple instances allowed",
        (
            f"{SIGNING}::test_two_accounts_are_two_instances",
            f"{TEAM}::test_a_person_connects_two_accounts_loses_one_and_repairs_it",
        ),
    ),
    Requirement(
        "bodhi/errors",
        _BODHI,
        "**Decision:** Full error always",
        (
            _PASSTHROUGH_TEST,
            f"{FAILURE}::test_a_servers_complaint_goes_back_in_full",
            f"{FAILURE}::test_the_body_of_an_http_error_is_shown",
        ),
    ),
)

REQUIREMENTS = (*SPEC_010, *V1_14_1, *V1_15_DECISIONS, *V1_15_SCOPE, *BODHI)

# The sections that must be quoted completely, and their headings.

SECTIONS: tuple[tuple[str, str, str | None], ...] = (
    (_SPEC, "## Configuration ", "## Implementation "),
    (_ONE, "# v1.14.1-mcp-poc", None),
    (_MANY, "# v1.15.0-mcp-multi", None),
    (_SCOPE, "## Scope ", "## Deferred to v2.0"),
    (_SCOPE, "## Hard rules ", "## Files expected to touch"),
    (_SCOPE, "## Smoke plan ", None),
)
"""Source, first words, and the words after the end; None means the end of the file."""

HEADINGS: dict[str, tuple[str, ...]] = {
    _SPEC: (
        *("## Configuration", "### Supported sources and precedence", "### Environment variables"),
        *("### File discovery", "### File format", "### Schema", "### `McpClientManager`"),
        *("### Authorization (OAuth 2.1)", "### Safety posture", "### Known limitations"),
    ),
    _ONE: (
        *("# v1.14.1-mcp-poc — design decisions", "## D1. Transport: Streamable HTTP (not stdio)"),
        *("## D2. Tool name prefixing", "## D3. Read-only invariant guard"),
        *(
            "## D4. Zod inputSchema for MCP tools",
            "## D5. Tool registration: append + re-sort (not lazy-init)",
        ),
        *("## D6. No per-session toggle", "## D7. Graceful degradation", "## D8. Result content extraction"),
    ),
    _MANY: (
        *("# v1.15.0-mcp-multi — design decisions", "## D1. Config file path"),
        *("## D2. Config schema matches opencode's `mcpServers` shape",),
        *("## D3. Transport types: streamableHttp + stdio only", "## D4. Tool name prefixing: `_`"),
        *("## D5. Per-agent glob patterns: last-match-wins", "## D6. No DB tables in v1.15"),
        *("## D7. Stdio child lifecycle", "## D8. v1.14.1 env vars removed"),
    ),
    _SCOPE: (
        *("## Scope", "### S1. JSON config file for MCP servers", "### S2. Multi-server MCP client"),
        *("### S3. Stdio transport", "### S4. Per-agent tool glob patterns in AGENTS.md"),
        *("### S5. Remove v1.14.1 env-var config", "### S6. Read-only invariant preserved"),
        *("## Hard rules", "## Smoke plan"),
    ),
}
