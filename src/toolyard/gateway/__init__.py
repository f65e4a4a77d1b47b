"""We, as an MCP server: everything a caller may use, behind one endpoint, in both eras.

front      answers the requests of one caller, from what the rooms above have
client     who asks: what they can do, and where messages to them go
tools, prompts, resources, completion
           what a front offers, under names that mean one thing each
upstream   which connection a request takes, so that no server is told that a client can do what it cannot
parked     calls that wait for a modern client's answer
sealing    what a modern client carries for us between its requests
hub        what servers say unasked, passed on to those who want to know
sessions   conversations of the legacy era
lines      over standard streams
http       over Streamable HTTP
"""
