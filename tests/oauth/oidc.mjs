// An authorization server that others wrote: `oidc.mjs PORT MODULES RESOURCE [no-iss]`, with its own pages to sign in.
// With `no-iss` it behaves as one without RFC 9207: no `iss` in its responses, and no promise of it in its metadata.
import { pathToFileURL } from "node:url";

const [port, modules, resource, variant] = process.argv.slice(2);
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
if (variant === "no-iss") {
  provider.use(async (ctx, next) => {
    await next();
    if (ctx.path.includes("/.well-known/")) delete ctx.body.authorization_response_iss_parameter_supported;
    const to = ctx.response.get("location");
    if (to?.includes("iss=")) {
      const url = new URL(to);
      url.searchParams.delete("iss");
      ctx.set("location", url.href);
    }
  });
}
provider.listen(Number(port), "127.0.0.1");
