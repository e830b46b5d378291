"""Requests to S3: clients, uploads in two phases, owner markers, and what an endpoint can do."""
