// A proxy that adds a token to each request, for clients that cannot log in.
//
// node bearer_proxy.mjs PORT TOKEN
//
// The only line of its output is its port. It ends when its input does.
import { createServer, request } from "node:http";

const [port, token] = process.argv.slice(2);

const server = createServer((received, response) => {
  const { url: path, method } = received;
  const headers = { ...received.headers, authorization: `Bearer ${token}` };
  const sent = request({ host: "127.0.0.1", port, path, method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    // A stream may begin with nothing.
    response.flushHeaders();
    answer.pipe(response);
  });
  sent.on("error", () => response.destroy());
  response.on("close", () => sent.destroy());
  received.pipe(sent);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
