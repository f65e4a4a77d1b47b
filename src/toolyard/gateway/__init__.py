"""We, as an MCP server: everything a caller may use, behind one endpoint, in both eras.

front, offering     answer the requests of one caller, from what the rooms above have
tools, prompts, resources, names
                    what is offered, under names that mean one thing each
client, sessions    who asks: what they can do, and where messages to them go
upstream            which connection a request takes, so that no server is told what a client cannot do
rounds, parked, sealing
                    requests that take a modern client several rounds
approving, asking, remembering
                    calls that need somebody's yes
hub, shelves        what servers say unasked, and list besides tools
channel, lines      over one channel for all, such as standard streams
http, answering, streams, httpsessions
                    over Streamable HTTP
doors, local, connecting
                    who stands behind an address or a command; how clients are set up
"""
