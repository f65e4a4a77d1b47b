// The clients of the official TypeScript SDK, of both major versions.
//
// `typescript_sdk.cjs MAJOR ERA http URL TOKEN` goes there, `MAJOR ERA stdio WORD...` starts that program. It
// lists, calls, reads, answers what it is asked, and prints what it saw as one line of JSON. NODE_PATH names the
// folder with the packages.

const [major, era, kind, ...words] = process.argv.slice(2);

function first() {
  const at = (path) => require(`@modelcontextprotocol/sdk/${path}.js`);
  const { ElicitRequestSchema, CreateMessageRequestSchema } = at("types");
  return {
    ...at("client/index"),
    ...at("client/stdio"),
    ...at("client/streamableHttp"),
    asked: { elicitation: ElicitRequestSchema, sampling: CreateMessageRequestSchema },
  };
}

function second() {
  return {
    ...require("@modelcontextprotocol/client"),
    ...require("@modelcontextprotocol/client/stdio"),
    asked: { elicitation: "elicitation/create", sampling: "sampling/createMessage" },
  };
}

const sdk = major === "1" ? first() : second();

function transport() {
  if (kind === "stdio") {
    const [command, ...args] = words;
    return new sdk.StdioClientTransport({ command, args, env: process.env });
  }
  const [url, token] = words;
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  return new sdk.StreamableHTTPClientTransport(new URL(url), { requestInit });
}

// The version that client and server agreed on is told to the transport, and to nobody else.
function overheard(transport) {
  const tell = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (told) => {
    version = told;
    tell?.(told);
  };
  return transport;
}

let version;

async function look(client) {
  const call = async (name, given = {}) => (await client.callTool({ name, arguments: given })).content[0].text;
  const note = await client.readResource({ uri: "toolyard://sdk/test://note" });
  const prompt = await client.getPrompt({ name: "sdk_ask", arguments: { topic: "bees" } });
  return {
    tools: (await client.listTools()).tools.map((tool) => tool.name),
    resources: (await client.listResources()).resources.map((resource) => resource.uri),
    prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
    sum: await call("every_get-sum", { a: 2, b: 40 }),
    echo: await call("sdk_echo", { text: "höhö" }),
    note: note.contents[0].text,
    prompt: prompt.messages[0].content.text,
    greeted: [await call("sdk_greet"), await call("old_greet")],
    pondered: [await call("sdk_ponder", { question: "why" }), await call("old_ponder", { question: "why" })],
  };
}

async function main() {
  const capabilities = { elicitation: { form: {} }, sampling: {} };
  const options = { capabilities, versionNegotiation: { mode: era } };
  const client = new sdk.Client({ name: "real", version: "1" }, options);
  client.setRequestHandler(sdk.asked.elicitation, () => ({ action: "accept", content: { name: "Ann" } }));
  client.setRequestHandler(sdk.asked.sampling, () => ({
    role: "assistant",
    model: "none",
    content: { type: "text", text: "because" },
  }));
  await client.connect(overheard(transport()));
  console.log(JSON.stringify({ version, ...(await look(client)) }));
  await client.close();
}

main();
