// A client on the TypeScript SDK that logs in, and does what each line of its input says.
//
// node typescript_client.mjs MODULES SETUP URL
import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [modules, setup, url] = process.argv.slice(2);
const { first, legacy, proofs } = JSON.parse(setup);

const load = (path) => import(pathToFileURL(join(modules, "@modelcontextprotocol", path)));

// The first version of the SDK has a module for each part.
async function loadFirst() {
  const parts = ["client/index.js", "client/streamableHttp.js", "client/auth.js", "types.js"];
  const loaded = await Promise.all(parts.map((part) => load(`sdk/dist/esm/${part}`)));
  return Object.assign({}, ...loaded);
}

const sdk = first ? await loadFirst() : await load("client/dist/index.mjs");
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = sdk;

const say = (message) => console.log(JSON.stringify(message));

// The page that a login returns to.
let came;
const callback = createServer((request, response) => {
  response.end();
  const { pathname, searchParams } = new URL(request.url, "http://127.0.0.1");
  // A browser also asks for an icon.
  if (pathname === "/callback") came(searchParams);
});
callback.listen(0, "127.0.0.1");
await once(callback, "listening");

class Login {
  redirectUrl = `http://127.0.0.1:${callback.address().port}/callback`;
  clientMetadata = {
    client_name: "TypeScript SDK",
    redirect_uris: [this.redirectUrl],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
    application_type: "native",
  };
  session = proofs ? sdk.DpopSession.create() : undefined;

  dpop = () => this.session;
  clientInformation = () => this.kept;
  saveClientInformation = (kept) => {
    this.kept = kept;
  };
  tokens = () => this.keptTokens;
  saveTokens = (tokens) => {
    this.keptTokens = tokens;
  };
  codeVerifier = () => this.verifier;
  saveCodeVerifier = (verifier) => {
    this.verifier = verifier;
  };
  redirectToAuthorization = (page) => {
    this.returned = new Promise((resolve) => {
      came = resolve;
    });
    say({ visit: page.href });
  };
}

const login = new Login();
let transport;

// Do something that may need a login; then do it again. The SDK leaves that to its user.
async function loggedIn(act) {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    const returned = await login.returned;
    await transport.finishAuth(first ? returned.get("code") : returned);
    return await act();
  }
}

const client = new Client(
  { name: "peer", version: "1" },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: legacy ? "legacy" : "auto" },
  },
);
client.setRequestHandler(first ? sdk.ElicitRequestSchema : "elicitation/create", () => ({
  action: "accept",
  content: { value: "red" },
}));

const requests = {
  tools: async () => (await client.listTools()).tools.map((one) => one.name),
  call: async ({ tool, arguments: given }) =>
    (await client.callTool({ name: tool, arguments: given })).content[0].text,
};

await loggedIn(() => {
  transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: login });
  return client.connect(transport);
});
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...wanted } = JSON.parse(line);
  try {
    say({ value: await loggedIn(() => requests[name](wanted)) });
  } catch ({ message }) {
    say({ error: message });
  }
}
await client.close();
callback.close();
callback.closeAllConnections();
