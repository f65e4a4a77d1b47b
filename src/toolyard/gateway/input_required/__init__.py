"""Calls that need input in the middle: approvals, elicitation, and calls that continue on another replica."""
