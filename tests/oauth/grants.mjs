// An authorization server that others wrote, whose grants can be taken back:
// `grants.mjs PORT MODULES RESOURCE REGISTRATION REDIRECT`, where REGISTRATION is dynamic, entered or document.
// `POST /control/revoke?account=NAME` ends every grant of an account.
import http from "node:http";
import { pathToFileURL } from "node:url";

const [port, modules, resource, registration, redirect] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
console.warn = console.info = () => {};

const grants = new Map();
const confidential = { client_id: "toolyard", client_secret: "entered-by-the-admin", redirect_uris: [redirect] };
const checker = { client_id: "resource", client_secret: "resource-secret", redirect_uris: [], response_types: [], grant_types: ["client_credentials"] };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  features: {
    registration: { enabled: registration === "dynamic" },
    clientIdMetadataDocument: { enabled: registration === "document", ack: "draft-02" },
    devInteractions: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    revocation: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, audience) => ({ scope: "read", audience, accessTokenFormat: "opaque", accessTokenTTL: 3600 }),
    },
  },
  // Its own guard refuses loopback, where everything in a test is.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  scopes: ["openid", "offline_access"],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
  clientDefaults: { grant_types: ["authorization_code", "refresh_token"] },
  clients: registration === "entered" ? [checker, confidential] : [checker],
});

for (const event of ["grant.success", "authorization.success"]) {
  provider.on(event, (ctx) => {
    const { Grant: grant, Account: account } = ctx.oidc.entities;
    if (grant && account) grants.set(grant.jti, account.accountId);
  });
}

async function revoke(name) {
  for (const [id, owner] of grants) {
    if (owner !== name) continue;
    for (const kind of ["AccessToken", "RefreshToken", "AuthorizationCode"]) await provider[kind].revokeByGrantId(id);
    await (await provider.Grant.find(id))?.destroy();
    grants.delete(id);
  }
}

const pages = provider.callback();
http
  .createServer(async (request, response) => {
    const url = new URL(request.url, "http://127.0.0.1");
    if (url.pathname !== "/control/revoke") return pages(request, response);
    await revoke(url.searchParams.get("account"));
    response.writeHead(204).end();
  })
  .listen(Number(port), "127.0.0.1");
