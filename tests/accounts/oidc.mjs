// An identity provider that others wrote: `oidc.mjs PORT MODULES REDIRECT METHOD`, with its own pages to sign in.
// Whoever signs in as NAME has the sub NAME and the email address NAME@example.org, verified unless NAME is eve.
import { pathToFileURL } from "node:url";

const [port, modules, redirect, method] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
console.warn = console.info = () => {};

const provider = new Provider(`http://127.0.0.1:${port}`, {
  features: { devInteractions: { enabled: true } },
  claims: { openid: ["sub"], profile: ["preferred_username"], email: ["email", "email_verified"] },
  pkce: { required: () => true },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      preferred_username: id === "eve" ? "admin" : id,
      email: `${id}@example.org`,
      email_verified: id !== "eve",
    }),
  }),
  clientAuthMethods: [method],
  clients: [
    {
      client_id: "toolyard: team",
      client_secret: "a secret/with + odd: characters%",
      redirect_uris: [redirect],
      token_endpoint_auth_method: method,
    },
  ],
});
provider.listen(Number(port), "127.0.0.1");
