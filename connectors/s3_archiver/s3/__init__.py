"""Requests to S3: clients, uploads in two phases, owner markers, and the abilities of an endpoint."""
