// An identity provider for tests: oidc-provider, on the loopback interface and in memory.
//
// node provider.mjs MODULES
//
// The first line of its output is its URL. Then it answers each line of its input, and it
// ends when its input does: see `provider.py`.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// The provider's notices belong to its log.
console.log = console.info = console.error;
const say = (text) => process.stdout.write(`${text}\n`);

const library = join(process.argv[2], "oidc-provider", "lib");
const { Provider } = await import(pathToFileURL(join(library, "index.js")));
const memory = await import(pathToFileURL(join(library, "adapters", "memory_adapter.js")));

// Of MCP servers.
const SCOPES = ["orders:read", "orders:write"];

// Of access tokens. Tests change them.
let lifetime = 3600;
let algorithm = "ES256";
// Whether it gives no tokens for now.
let fails = false;

let keys = [];
let adapter = memory.createMemoryAdapter();
let handle;
let counts = {};
const nonceSecret = randomBytes(32);
const cookieKey = randomBytes(32).toString("hex");

function count(name) {
  counts[name] = (counts[name] ?? 0) + 1;
}

function newKeys() {
  const pairs = [
    ["ES256", generateKeyPairSync("ec", { namedCurve: "P-256" })],
    ["RS256", generateKeyPairSync("rsa", { modulusLength: 2048 })],
  ];
  return pairs.map(([alg, { privateKey }]) => ({
    ...privateKey.export({ format: "jwk" }),
    kid: randomBytes(8).toString("hex"),
    use: "sig",
    alg,
  }));
}

function newProvider(issuer) {
  const provider = new Provider(issuer, {
    adapter,
    clients: [
      // A program that calls MCP servers.
      {
        client_id: "robot",
        client_secret: "robot secret",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
      },
      // An MCP server, which asks about opaque tokens.
      {
        client_id: "shop",
        client_secret: "shop secret",
        grant_types: [],
        redirect_uris: [],
        response_types: [],
      },
    ],
    cookies: { keys: [cookieKey] },
    features: {
      clientCredentials: { enabled: true },
      dPoP: { enabled: true, nonceSecret, requireNonce: () => true },
      introspection: { enabled: true, allowedPolicy: () => true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (ctx, resource) => ({
          scope: SCOPES.join(" "),
          audience: resource,
          accessTokenTTL: lifetime,
          // The path of a resource decides which tokens it gets.
          accessTokenFormat: resource.endsWith("/opaque") ? "opaque" : "jwt",
          jwt: { sign: { alg: algorithm } },
        }),
        useGrantedResource: () => false,
      },
      revocation: {
        enabled: true,
        allowedPolicy: (ctx, client, token) => token.clientId === client.clientId,
      },
    },
    findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    jwks: { keys },
    pkce: { required: () => true },
    rotateRefreshToken: true,
    // The SDKs register with the scopes of servers.
    scopes: ["openid", "offline_access", ...SCOPES],
    ttl: { Grant: 3600, IdToken: 3600, Interaction: 3600, RefreshToken: 3600, Session: 3600 },
  });
  provider.on("grant.success", (ctx) => count(ctx.oidc.params.grant_type));
  provider.on("grant.error", (ctx, error) => count(error.error));
  provider.on("registration_create.success", (ctx, client) => {
    count("registration");
    // They register with the scopes of their first request, and later ask for more.
    adapter("Client").upsert(client.clientId, { ...client.metadata(), scope: undefined });
  });
  provider.on("server_error", (ctx, error) => console.error(error));
  return provider;
}

const server = createServer((request, response) => {
  count(request.url.split("?")[0]);
  if (fails && request.url === "/token") response.writeHead(503).end();
  else handle(request, response);
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const issuer = `http://127.0.0.1:${server.address().port}`;

const requests = {
  // Sign with new keys. All that is stored stays.
  rotate({ keeps }) {
    keys = [...newKeys(), ...(keeps ? keys : [])];
    handle = newProvider(issuer).callback();
    return null;
  },
  // Lose all that is stored, such as registered clients.
  lose() {
    adapter = memory.createMemoryAdapter();
    handle = newProvider(issuer).callback();
    return null;
  },
  // What has happened since the last time.
  counts() {
    const found = counts;
    counts = {};
    return found;
  },
  set(wanted) {
    lifetime = wanted.lifetime ?? lifetime;
    algorithm = wanted.algorithm ?? algorithm;
    fails = wanted.fails ?? fails;
    return null;
  },
};

requests.rotate({ keeps: false });
say(issuer);
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...wanted } = JSON.parse(line);
  say(JSON.stringify(requests[name](wanted)));
}
server.close();
server.closeAllConnections();
