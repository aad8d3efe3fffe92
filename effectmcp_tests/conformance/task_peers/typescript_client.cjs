// A client on the TypeScript SDK, which does what each line of its input says: see `peers.py`.
//
// node typescript_client.cjs SETUP COMMAND ...
"use strict";

const readline = require("node:readline");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const {
  InMemoryTaskStore,
} = require("@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js");
const {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  CreateTaskResultSchema,
  ElicitRequestSchema,
} = require("@modelcontextprotocol/sdk/types.js");

// Milliseconds that tasks are kept.
const ttl = 600_000;

let asked = [];
let polled = [];

// Answers that are tasks of this client, and that end after one look at them.
class UserTasks extends InMemoryTaskStore {
  answers = new Map();

  async getTask(id, session) {
    const task = await super.getTask(id, session);
    polled.push(task.status);
    const answer = this.answers.get(id);
    if (this.answers.delete(id)) {
      await this.storeTaskResult(id, "completed", answer, session);
    }
    return task;
  }
}

async function main(setup, command, ...args) {
  const capabilities = { elicitation: { form: {} }, sampling: {} };
  const taskStore = setup.tasks ? new UserTasks() : undefined;
  if (setup.tasks) {
    const requests = { elicitation: { create: {} }, sampling: { createMessage: {} } };
    capabilities.tasks = { requests };
  }
  const client = new Client({ name: "peer", version: "1" }, { capabilities, taskStore });

  async function answered({ params }, extra, answer) {
    asked.push(params);
    if (!params.task) return answer;
    const task = await extra.taskStore.createTask({ ttl, pollInterval: 100 });
    taskStore.answers.set(task.taskId, answer);
    return { task };
  }
  client.setRequestHandler(ElicitRequestSchema, (request, extra) =>
    answered(request, extra, setup.answers[request.params.message]),
  );
  client.setRequestHandler(CreateMessageRequestSchema, (request, extra) => {
    const content = { type: "text", text: "All is well" };
    return answered(request, extra, { role: "assistant", content, model: "m" });
  });

  const tasks = client.experimental.tasks;
  // The requests of a test: those of `python_client.py`.
  const requests = {
    async tools() {
      const found = await client.listTools();
      return Object.fromEntries(
        found.tools.map((one) => [one.name, one.execution?.taskSupport]),
      );
    },
    call: ({ tool, arguments: given }) =>
      client.callTool({ name: tool, arguments: given }),
    async start({ tool, arguments: given }) {
      const request = { method: "tools/call", params: { name: tool, arguments: given } };
      return (await client.request(request, CreateTaskResultSchema, { task: { ttl } })).task;
    },
    async run({ tool, arguments: given }) {
      const call = { name: tool, arguments: given };
      const found = { seen: [], result: null };
      for await (const one of tasks.callToolStream(call, CallToolResultSchema, {
        task: { ttl },
      })) {
        if (one.type === "taskCreated") found.task = one.task.taskId;
        if (one.type === "taskStatus") {
          found.seen.push({ status: one.task.status, message: one.task.statusMessage });
        }
        if (one.type === "result") found.result = one.result;
        if (one.type === "error") found.error = one.error.message;
      }
      return found;
    },
    look: ({ task }) => tasks.getTask(task),
    result: ({ task }) => tasks.getTaskResult(task, CallToolResultSchema),
    cancel: ({ task }) => tasks.cancelTask(task),
  };

  await client.connect(new StdioClientTransport({ command, args, stderr: "inherit" }));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: name, ...wanted } = JSON.parse(line);
    let reply;
    try {
      reply = { value: await requests[name](wanted) };
    } catch ({ code, message }) {
      reply = { error: { code, message } };
    }
    console.log(JSON.stringify({ ...reply, asked, polled }));
    asked = [];
    polled = [];
  }
  await client.close();
  taskStore?.cleanup();
}

const [setup, ...command] = process.argv.slice(2);
main(JSON.parse(setup), ...command);
