"""The classic group protocol: members join, one of them assigns, all of them sync and heartbeat."""
