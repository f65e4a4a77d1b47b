// The client of the official TypeScript SDK, major version 1, which checks every list as a whole.
//
// `reads_all.cjs URL` lists all that there is, calls every tool, and prints what it saw as one line of JSON.
// NODE_PATH names the folder with the packages.

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

async function main() {
  const client = new Client({ name: "real", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
  const { tools } = await client.listTools();
  const seen = {
    tools: tools.map((tool) => tool.name),
    resources: (await client.listResources()).resources.map((each) => each.name),
    templates: (await client.listResourceTemplates()).resourceTemplates.map((each) => each.name),
    prompts: (await client.listPrompts()).prompts.map((each) => each.name),
    server: client.getServerVersion().name,
    called: [],
  };
  for (const { name } of tools) {
    await client.callTool({ name, arguments: {} });
    seen.called.push(name);
  }
  await client.close();
  console.log(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
