// A conforming provider of OpenID Connect (oidc-provider, which is certified as one), as a real process:
// node provider.mjs PORT KEYS, where KEYS is a file with the private keys.
import { readFileSync } from "node:fs";
import Provider from "oidc-provider";

const [port, keys] = process.argv.slice(2);
const about = (sub) => ({
  sub,
  tenant: sub === "homeless" ? undefined : "physics",
  groups: sub === "guest" ? [] : ["fs-operators"],
});
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: JSON.parse(readFileSync(keys, "utf8")),
  cookies: { keys: ["a test's"] },
  clients: [
    {
      client_id: "pages",
      client_secret: "the pages' own / secret+",
      application_type: "native", // any port of this machine is good to come back to
      redirect_uris: ["http://127.0.0.1/login/back"],
      grant_types: ["authorization_code"],
      response_types: ["code"],
    },
    {
      client_id: "robot",
      client_secret: "a robot's",
      grant_types: ["client_credentials"],
      response_types: [],
      redirect_uris: [],
    },
  ],
  pkce: { required: () => true },
  scopes: ["openid"],
  claims: { openid: ["sub", "tenant", "groups"] },
  conformIdTokenClaims: false,
  findAccount: async (_ctx, sub) => ({ accountId: sub, claims: async () => about(sub) }),
  extraTokenClaims: async () => ({ tenant: "physics", groups: ["fs-operators"] }),
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => "urn:forestay",
      getResourceServerInfo: () => ({
        scope: "",
        audience: "forestay",
        accessTokenFormat: "jwt",
        accessTokenTTL: 600,
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
