// An authorization server that others wrote: `oidc.mjs PORT MODULES RESOURCE`, with its own pages to sign in.
import { pathToFileURL } from "node:url";

const [port, modules, resource] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
console.warn = console.info = () => {};

const provider = new Provider(`http://127.0.0.1:${port}`, {
  features: {
    registration: { enabled: true },
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, audience) => ({
        scope: "read write",
        audience,
        accessTokenFormat: "jwt",
        accessTokenTTL: 30,
      }),
    },
  },
  scopes: ["openid", "offline_access"],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  clients: [
    {
      client_id: "robot",
      client_secret: "robot-secret",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    },
  ],
});
provider.listen(Number(port), "127.0.0.1");
